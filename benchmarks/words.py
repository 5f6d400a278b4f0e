# SPDX-License-Identifier: Apache-2.0
"""Handwritten words, letter by letter: which letters are worth costly features (Bolukbasi et al. 2017, figure 3).

    HARDCASE_DATA=FOLDER python -m benchmarks run words [--part random words ...] [--splits 10]

A run that was stopped goes on where it was: what is in the JSON is not run again. ``random``: 90 % of all words train;
``words``: 6 of the 55 distinct words are held out whole. ``anytime``: policies that decode again after each purchase.
``exact``: pseudo-labels beside the best of all 2^n states. ``times``: CPU time of whole systems and of their pieces,
for the figure; ``speed``: training and decoding beside python-crfsuite.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.letters import N_PIXELS, Words, hog, load
from benchmarks.parsing import peers
from benchmarks.word_times import speed_beside, whole_times
from benchmarks.words_page import SHARES, draw, page
from hardcase_train.methods.structured.anytime import AnytimePolicy, purchases, smallest_gap
from hardcase_train.methods.structured.linear_policy import PartPolicy
from hardcase_train.methods.structured.out_of_fold import Fold, evidence, labels_of, out_of_fold
from hardcase_train.methods.structured.pseudo_labels import exhaustive, helping_steps, trajectory, wrong_parts
from hardcase_train.methods.structured.two_levels import buy_share, features_of
from hardcase_train.structured.chain import ChainClassifier
from hardcase_train.structured.items import as_items, take

__all__ = ["arguments", "draw", "page", "run"]

PARTS = ("random", "words", "anytime", "exact", "times", "speed")
EPOCHS = {"random": 40, "words": 15}
STEPS = (1.0, 0.2, 0.05)  # of transitions, chosen on inner folds by word
HELD_OUT_WORDS, PRICE = 6, 0.01
ONE_SHOT = (
    ("one-shot simple", "simple", "helping", False), ("one-shot decoder", "decoder", "helping", False),
    ("one-shot complex", "complex", "helping", False), ("one-shot complex, trajectory", "complex", "trajectory", False),
    ("one-shot complex, wrong parts", "complex", "wrong", False),
    ("one-shot complex, weighted", "complex", "helping", True),
)  # fmt: skip


class Case:
    """One split: the chain, what it says of test words, and out-of-fold evidence of training words."""

    def __init__(self, words: Words, X: list[np.ndarray], kind: str, split: int) -> None:
        y, rng = as_items(words.labels, words.starts), np.random.default_rng(split)
        self.groups = words.texts if kind == "words" else None
        if kind == "words":
            out = rng.permutation(np.unique(words.texts))[:HELD_OUT_WORDS]
            is_test = np.isin(words.texts, out)
        else:
            is_test = np.zeros(len(X), dtype=bool)
            is_test[rng.permutation(len(X))[: round(0.1 * len(X))]] = True
        self.train, self.test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
        own = None if self.groups is None else self.groups[self.train]
        chain = ChainClassifier((range(N_PIXELS), range(X[0].shape[1])), n_epochs=EPOCHS[kind], seed=split)
        chain.set_params(transition_step=STEPS if kind == "words" else 1.0)
        began = time.process_time()
        self.chain = chain.fit(take(X, self.train), take(y, self.train), groups=own, classes=np.unique(words.labels))
        self.seconds = time.process_time() - began
        chain = ChainClassifier(chain.levels, n_epochs=EPOCHS[kind], transition_step=self.chain.transition_step_)
        self.folds = out_of_fold(chain, take(X, self.train), take(y, self.train), 5, own, split)
        self.given = evidence(self.chain, X, y, self.test)
        self._items = X, y

    def alone(self) -> float:
        """Share of letters that are right with HOG everywhere if each is read without its neighbours."""
        (X, y), classes = self._items, self.chain.classes_
        chain = ChainClassifier(self.chain.levels, n_epochs=self.chain.n_epochs, transition_step=0.0)
        chain.fit(take(X, self.train), take(y, self.train), classes=classes)
        fold = evidence(chain, X, y, self.test)
        return right(fold, np.ones(len(fold.truth), dtype=bool))

    def right(self, buys: np.ndarray) -> float:
        """Share of letters that are right if these have HOG."""
        return right(self.given, buys)


def right(fold: Fold, buys: np.ndarray) -> float:
    """Share of parts that are right if these buy."""
    labels = fold.chain.decode(np.where(buys[:, None], fold.unary[1], fold.unary[0]), fold.starts)
    return float(np.mean(labels == fold.truth))


def curves(case: Case, split: int) -> dict[str, Any]:
    """Accuracy at each share of letters with HOG, of every policy that decides once."""
    given, rng, n = case.given, np.random.default_rng(1000 + split), len(case.given.truth)
    unary, starts = given.unary[0], given.starts
    marginals = given.chain.max_marginals(unary, starts)
    wants = {
        "uniform letters": peers.uniform_parts(starts, rng),
        "uniform words": peers.uniform_items(starts, rng),
        "myopic": peers.myopic(marginals, starts),
        "item value": peers.ItemValue().fit(case.folds).scores(given.features_in(np.zeros(n, dtype=bool)), starts),
        "own margin": peers.own_margin(unary),
        "gap": peers.gap(marginals),
    }
    rows = {k: np.concatenate([features_of(f, k) for f in case.folds]) for k in ("complex", "decoder", "simple")}
    found = {k: [labels_of(f, k, PRICE) for f in case.folds] for k in ("helping", "trajectory", "wrong")}
    for name, features, labels, is_weighted in ONE_SHOT:
        bought, importance = (np.concatenate(part) for part in zip(*found[labels], strict=True))
        policy = PartPolicy().fit(rows[features], bought, importance if is_weighted else None)
        wants[name] = policy.scores(features_of(given, features))
    accuracy = {name: [case.right(buy_share(score, share)) for share in SHARES] for name, score in wants.items()}
    none, all_ = np.zeros(n, dtype=bool), np.ones(n, dtype=bool)
    step = case.chain.transition_step_
    return {
        "cheap": case.right(none),
        "all": case.right(all_),
        "seconds": case.seconds,
        "step": step,
        "curves": accuracy,
    }


def anytime(case: Case) -> dict[str, Any]:
    """Decoded again: the smallest gap, the one-shot policy and algorithms 1 and 2; by a threshold, and word by word."""
    policy, given = AnytimePolicy(PRICE).fit_policy(case.folds), case.given
    bought = np.concatenate([labels_of(f, "helping", PRICE)[0] for f in case.folds])
    once = PartPolicy().fit(np.concatenate([features_of(f, "decoder") for f in case.folds]), bought)
    n, sizes, rows = len(given.truth), np.diff(given.starts), {}
    ways = {
        "gap, decoded again": smallest_gap,
        "one-shot decoder, decoded again": lambda _, features: once.scores(features),
        "anytime": policy.scores,
    }
    for name, scores in ways.items():
        made = purchases(given, scores)
        rows[name] = [case.right(made.above(share, n)) for share in SHARES]
        rows[f"{name}, per word"] = [case.right(made.within(share, sizes)) for share in SHARES]
    return {"curves": rows, "training losses": policy.losses_.tolist()}


def exact(case: Case) -> dict[str, float]:
    """How often pseudo-labels are as good as the best of all states, in training words of up to 10 letters."""
    as_good, n = {"trajectory": 0, "helping steps": 0, "wrong parts": 0}, 0
    for fold in case.folds:
        is_wrong = fold.chain.decode(fold.unary[0], fold.starts) != fold.truth
        for j, (a, b) in enumerate(zip(fold.starts[:-1], fold.starts[1:], strict=True)):
            if b - a > 10 or n >= 550:
                continue
            losses = fold.losses(j)
            best = exhaustive(losses, b - a, PRICE).loss + 1e-9
            as_good["trajectory"] += trajectory(losses, b - a, PRICE).loss <= best
            as_good["helping steps"] += helping_steps(losses, b - a, PRICE).loss <= best
            as_good["wrong parts"] += wrong_parts(losses, is_wrong[a:b], PRICE).loss <= best
            n += 1
    return {name: float(count) / n for name, count in as_good.items()} | {"words": n}


def run_parts(parts: Sequence[str], n_splits: int, args: Any) -> None:
    """Everything that is asked for and not there."""
    words = load()
    X = as_items(np.hstack([words.pixels, hog(words.pixels)]), words.starts)
    for kind in (k for k in ("random", "words") if k in parts or k == "random"):
        for split in range(n_splits):
            wanted = {f"{kind}/{split}"} if kind in parts else set()
            wanted |= {f"anytime/{split}"} if kind == "random" and "anytime" in parts else set()
            wanted |= {f"alone/{split}"} if kind == "words" else set()
            wanted |= {f"exact/{split}"} if kind == "random" and split == 0 and "exact" in parts else set()
            if wanted <= set(args.known()):
                continue
            case = Case(words, X, kind, split)
            made: dict[str, Callable[[], Any]] = {
                f"{kind}/{split}": lambda case=case, split=split: curves(case, split),
                f"anytime/{split}": lambda case=case: anytime(case),
                f"exact/{split}": lambda case=case: exact(case),
                f"alone/{split}": lambda case=case: case.alone(),
            }  # type: ignore[dict-item]
            for key in sorted(wanted):
                args.keep(key, made[key])
    if "times" in parts:
        args.keep("times", lambda: whole_times(Case(words, X, "random", 0), words))
    if "speed" in parts:
        args.keep("speed", lambda: speed_beside(words))


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--splits", type=int, default=10)


def run(args: Any) -> dict[str, Any]:
    """Run what is asked for and not there."""
    run_parts(args.part, args.splits, args)
    return dict(args.known())
