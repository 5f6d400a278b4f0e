# SPDX-License-Identifier: Apache-2.0
"""Supertags for the treebank: what a word is to its head, on which side that is, and where its own dependents are.

Each word is labelled alone, by a linear model over hashed templates of the words and gold tags around it: a chain
without transitions. The dependency parser reads them as features (Ouchi, Duh and Matsumoto 2014). Training sentences
get the supertags of models that were trained on the other folds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from benchmarks.parsing.tagging import BITS, EPOCHS, jackknifed, number, word_keys
from benchmarks.parsing.treebank import DEV, TRAIN, Treebank, Word, relations, sentences
from benchmarks.word_times import cpu_us
from hardcase_train.structured.chain import ChainClassifier

SPELLING = [0, 3, 10, 11, 12, 15, 16]  # of word_keys: the word, its end, its own case, its neighbours and both pairs
N_KEYS = len(SPELLING) + 13
# Relations of heads of phrases and clauses, under which it matters where a word's dependents are.
BRANCHING = {"root", "conj", "ccomp", "advcl", "acl", "parataxis", "xcomp", "nsubj", "obj", "obl", "nmod"}
FIRST = 3  # 0 to 2 stand for nothing, the pad and the root


def with_supertags(bank: Treebank) -> tuple[Treebank, dict[str, float]]:
    """The treebank with a fifth int a word, its supertag, and figures: accuracy, labels and times."""
    train, dev = sentences(TRAIN), sentences(DEV)
    truth = [supertags(s, r) for s, r in zip(train, relations(TRAIN), strict=True)]
    labels = {label: k for k, label in enumerate(sorted({label for s in truth for label in s}))}
    y = [np.array([labels[label] for label in s]) for s in truth]
    X, given = ([keys(s) for s in part] for part in (train, dev))
    model = ChainClassifier((range(N_KEYS),), n_epochs=EPOCHS, bits=BITS, transition_step=0.0)
    began = time.process_time()
    tagger = model.fit(X, y)
    seconds = time.process_time() - began
    flat, starts = tagger.flat(given)
    found = tagger.predict(given)
    wanted = [supertags(s, r) for s, r in zip(dev, relations(DEV), strict=True)]
    right = [labels.get(a) == b for s, t in zip(wanted, found, strict=True) for a, b in zip(s, t, strict=True)]
    figures = {
        "labels": float(len(labels)), "accuracy": float(np.mean(right)), "training s": seconds,
        "us": cpu_us(lambda: np.argmax(tagger.scores(flat, 0), axis=1), int(starts[-1]), 3),
    }  # fmt: skip
    own = jackknifed(model, X, y)
    return Treebank((_beside(bank.train[0], own), bank.train[1]), (_beside(bank.dev[0], found), bank.dev[1])), figures


def _beside(given: Sequence[np.ndarray], labels: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [np.column_stack([words, found + FIRST]) for words, found in zip(given, labels, strict=True)]


def supertags(sentence: Sequence[Word], relation: Sequence[str]) -> list[str]:
    """The supertag of each word: relation, side of the head, and, of some relations, the sides with dependents."""
    heads = [word[3] for word in sentence]
    left = {h for m, h in enumerate(heads, 1) if m < h}
    right = {h for m, h in enumerate(heads, 1) if m > h}
    out = []
    for m, (h, name) in enumerate(zip(heads, relation, strict=True), 1):
        side = "0" if h == 0 else "<" if h < m else ">"
        has = f"{m in left:d}{m in right:d}" if name in BRANCHING else ""
        out.append(name + side + has)
    return out


def keys(sentence: Sequence[Word]) -> np.ndarray:
    """(words, N_KEYS) keys of templates: spelling, tags around the word, and words beside tags."""
    forms = [word[0] for word in sentence]
    small, fine, coarse = (
        ["<", "<", *column, ">", ">"]
        for column in ((f.lower() for f in forms), (w[1] for w in sentence), (w[2] for w in sentence))
    )
    rows = []
    for i in range(2, len(sentence) + 2):
        f, w = fine[i - 2 : i + 3], small[i - 2 : i + 3]
        rows.append((
            number(f[2]), number(*f[1:3]), number(*f[2:4]), number(*f[1:4]), number(*f[:3]), number(*f[2:]),
            number(*coarse[i - 2 : i + 3]), number(w[2], f[1]), number(w[2], f[3]), number(f[2], w[1]),
            number(f[2], w[3]), number(f[2], w[4]), number(f[2], w[0]),
        ))  # fmt: skip
    return np.hstack([word_keys(forms)[:, SPELLING], np.array(rows, np.int64)])
