# SPDX-License-Identifier: Apache-2.0
"""A tagger of our own for the treebank: a chain over hashed templates, whose tags stand in place of the gold ones.

A word's label is its fine and its coarse tag together. Training sentences get the tags of taggers that were trained on
the other folds (jackknifing), development sentences those of one that was trained on all training sentences.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from benchmarks.parsing.treebank import DEV, TRAIN, Treebank, Word, coded, sentences
from benchmarks.word_times import cpu_us
from hardcase_train.structured.chain import ChainClassifier
from hardcase_train.structured.items import folds_of, take

EPOCHS, BITS, FOLDS = 6, 18, 5
LEVELS = (range(19),)


def number(*texts: str) -> int:
    """The key of a text."""
    return zlib.crc32("\0".join(texts).encode())


def shape(word: str) -> str:
    """Capitals, small letters, digits and others, each run of them once, up to six runs."""
    kinds = ["A" if c.isupper() else "a" if c.islower() else "0" if c.isdigit() else c for c in word]
    return "".join(c for k, c in enumerate(kinds) if k == 0 or c != kinds[k - 1])[:6]


def word_keys(words: Sequence[str]) -> np.ndarray:
    """(words, 19) keys: the word, its ends, beginnings and shape, and its neighbours."""
    small = ["<", "<", *(w.lower() for w in words), ">", ">"]
    rows = []
    for i, word in enumerate(words):
        before, own, after = small[i + 1 : i + 4]
        form = shape(word)
        rows.append((
            number(own), number(own[-1:]), number(own[-2:]), number(own[-3:]), number(own[-4:]),
            number(own[:1]), number(own[:2]), number(own[:3]), number(form), number(form, str(i == 0)), number(word),
            number(before), number(after), number(small[i]), number(small[i + 4]),
            number(before, own), number(own, after), number(before[-3:], own[-2:]), number(own[-3:], after[-3:]),
        ))  # fmt: skip
    return np.array(rows, np.int64)


def new_tagger() -> ChainClassifier:
    """The chain, not trained."""
    return ChainClassifier(LEVELS, n_epochs=EPOCHS, bits=BITS)


def tag_treebank() -> tuple[Treebank, dict[str, float]]:
    """The treebank with tags of our own, and the tagger's figures: accuracy and times."""
    train, dev = sentences(TRAIN), sentences(DEV)
    pairs = sorted({(w[1], w[2]) for s in train for w in s})
    label = {pair: k for k, pair in enumerate(pairs)}
    X, given = ([word_keys([w[0] for w in s]) for s in part] for part in (train, dev))
    y = [np.array([label[w[1], w[2]] for w in s]) for s in train]
    new_tagger().set_params(n_epochs=1).fit(X[:5], y[:5])  # compiles
    began = time.process_time()
    tagger = new_tagger().fit(X, y)
    seconds = time.process_time() - began
    tags = tagger.predict(given)
    flat, starts = tagger.flat(given)
    us = cpu_us(lambda: tagger.decode(tagger.scores(flat, 0), starts), len(flat), 3)
    own = [_with(part, found, pairs) for part, found in ((train, jackknifed(new_tagger(), X, y)), (dev, tags))]
    figures = {"training s": seconds, "tagging us": us, "labels": float(len(pairs))}
    for name, gold, part in (("train", train, own[0]), ("dev", dev, own[1])):
        for what, column in (("fine", 1), ("coarse", 2)):
            figures[f"{what} tags, {name}"] = _share_alike(gold, part, column)
    return coded(*own), figures


def jackknifed(tagger: ChainClassifier, X: Sequence[np.ndarray], y: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The labels of all sentences by chains like ``tagger`` that have seen the other folds alone."""
    classes = np.unique(np.concatenate(y))
    fold, out = folds_of(len(X), FOLDS, np.random.default_rng(0)), [np.zeros(0, np.int64)] * len(X)
    for k in range(FOLDS):
        inside, outside = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        model = clone(tagger).fit(take(X, inside), take(y, inside), classes=classes)
        for j, found in zip(outside, model.predict(take(X, outside)), strict=True):
            out[j] = found
    return out


def _with(given: Sequence[list[Word]], labels: Sequence[np.ndarray], pairs: Sequence[tuple[str, str]]) -> list[Any]:
    """The sentences with these labels' tags."""
    return [
        [(word, *pairs[int(k)], head) for (word, _, _, head), k in zip(s, found, strict=True)]
        for s, found in zip(given, labels, strict=True)
    ]


def _share_alike(one: Sequence[list[Word]], other: Sequence[list[Word]], column: int) -> float:
    """The share of words with the same entry in a column."""
    alike = [a[column] == b[column] for s, t in zip(one, other, strict=True) for a, b in zip(s, t, strict=True)]
    return float(np.mean(alike))
