# SPDX-License-Identifier: Apache-2.0
"""Dependency parsing of the English Web Treebank: which words are worth costly templates (Bolukbasi et al., figure 4).

    HARDCASE_DATA=FOLDER python -m benchmarks run parsing [--part parser policies speed ...] [--tags gold own]
    python -m benchmarks run parsing --udpipe ITERATIONS

A run that was stopped goes on where it was: what is in the JSON is not run again. ``parser``: accuracy and times of
training and parsing; ``variants``: parsers that are trained otherwise; ``supertags``: one that reads supertags, too.
``policies``: accuracy by share of words with
costly templates, and the depth of those words. ``speed``: whole systems, CPU time from tokens to heads. ``decoders``:
spanning trees beside ufal.chu-liu-edmonds. Each but the last is run on gold tags and on those of our own tagger.
``--udpipe`` trains a UDPipe model, which takes minutes for each iteration.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from benchmarks.parsing.eisner import eisner, eisner_all
from benchmarks.parsing.page import SHARES, draw, page, whole
from benchmarks.parsing.peers import ItemValue
from benchmarks.parsing.spanning import chu_liu_edmonds
from benchmarks.parsing.supertags import with_supertags
from benchmarks.parsing.tagging import tag_treebank
from benchmarks.parsing.tree_core import PRUNED, cheap_scores, costly_scores
from benchmarks.parsing.tree_policy import (
    OneShotTrees,
    TreeFold,
    head_margins,
    smallest_gap,
    tree_fold,
    tree_folds,
)
from benchmarks.parsing.treebank import depths, load
from benchmarks.parsing.trees import NO_DICTIONARY, Sentences, TreeParser
from benchmarks.word_times import cpu_us
from hardcase_train.methods.structured.anytime import AnytimePolicy, purchases
from hardcase_train.methods.structured.two_levels import buy_share

__all__ = ["arguments", "draw", "page", "run", "whole"]

PARTS, TAGS = ("parser", "variants", "supertags", "policies", "speed", "decoders"), ("gold", "own")
GOLD_ONLY = ("variants", "supertags")
EPOCHS, FOLD_EPOCHS, BITS = 10, 4, 26
TIMED = 300  # sentences that UDPipe is timed on
POLICIES = (
    ("one-shot complex, wrong heads", "complex", "wrong", False),
    ("one-shot complex, trajectory", "complex", "trajectory", False),
    ("one-shot complex, weighted", "complex", "helping", True),
)  # fmt: skip
LONGEST_TRAJECTORY = 12  # words: longer sentences are left out where labels are trajectories
N_HEADS, CUTS = 4, (0.1, 0.2, 0.3, 0.5)
DICTIONARIES = {"longest": 0.0, "0.002": 0.002, "0.005": 0.005}  # prices, chosen by counts on a third of training


class Shared:
    """The parser and what policies learn from, made once a run when they are asked for; tags are gold or our own."""

    def __init__(self, tags: str) -> None:
        self.tagger: dict[str, float] = {}
        if tags == "own":
            self.bank, self.tagger = tag_treebank()
        else:
            self.bank = load()
        self._parser: TreeParser | None = None
        self._folds: list[TreeFold] | None = None
        self.seconds = 0.0

    @property
    def parser(self) -> TreeParser:
        """Trained under random states."""
        if self._parser is None:
            X, y = self.bank.train
            TreeParser(1, 16).fit(X[:5], y[:5])  # compiles
            began = time.process_time()
            self._parser = TreeParser(EPOCHS, BITS).fit(X, y)
            self.seconds = time.process_time() - began
        return self._parser

    @property
    def folds(self) -> list[TreeFold]:
        """Out-of-fold scores of training sentences."""
        if self._folds is None:
            self._folds = tree_folds(TreeParser(FOLD_EPOCHS, BITS), *self.bank.train, n_folds=3)
        return self._folds

    @cached_property
    def learned(self) -> dict[str, OneShotTrees]:
        """The policies of the speed table."""
        return {f"one-shot {k}": OneShotTrees(k, "helping").fit_policy(self.folds) for k in ("simple", "complex")}

    @cached_property
    def dev(self) -> TreeFold:
        """What the parser says of development sentences."""
        return tree_fold(self.parser, *self.bank.dev)


def right(fold: TreeFold, buys: np.ndarray) -> float:
    """UAS if these words have costly templates, on all heads."""
    return float(np.mean(fold.labels_in(buys) == fold.truth))


def parser_figures(shared: Shared) -> dict[str, float]:
    """Accuracy of tags alone and of all features, and times."""
    parser, dev = shared.parser, shared.dev
    n, given = len(dev.truth), dev.given
    none, all_ = np.zeros(n, dtype=bool), np.ones(n, dtype=bool)
    flat = parser.scores(given, all_)
    return {
        "training s": shared.seconds, "tags": right(dev, none), "all": right(dev, all_),
        "parsing us": cpu_us(lambda: eisner_all(parser.scores(given, all_), given.starts), n),
        "eisner us": cpu_us(lambda: eisner_all(flat, given.starts), n),
    }  # fmt: skip


def variants(shared: Shared) -> dict[str, float]:
    """UAS with all features of parsers that are trained otherwise."""
    other: dict[str, dict[str, Any]] = {
        "": {}, ", always full": {"is_always_full": True}, ", perceptron": {"learner": "perceptron", "most": 0.01},
        ", 2^24 weights": {"bits": 24}, ", 2^22 weights": {"bits": 22},
    }  # fmt: skip
    made = {}
    for name, settings in other.items():
        parser = TreeParser(**{"n_epochs": FOLD_EPOCHS, "bits": BITS, **settings}).fit(*shared.bank.train)
        made[f"all, {FOLD_EPOCHS} epochs{name}"] = parser.score(*shared.bank.dev)
    return made


def supertagged(shared: Shared) -> dict[str, float]:
    """Accuracy and times of a parser whose costly templates read supertags, and of the supertags."""
    bank, figures = with_supertags(shared.bank)
    TreeParser(1, 16).fit(*(part[:5] for part in bank.train))  # compiles
    began = time.process_time()
    parser = TreeParser(EPOCHS, BITS).fit(*bank.train)
    seconds = time.process_time() - began
    given = Sentences(bank.dev[0])
    n, all_ = int(given.starts[-1]), np.ones(int(given.starts[-1]), dtype=bool)
    return {
        "tags": parser.score(*bank.dev, 0), "all": parser.score(*bank.dev), "training s": seconds,
        "parsing us": cpu_us(lambda: eisner_all(parser.scores(given, all_), given.starts), n),
    } | {f"supertags, {name}": value for name, value in figures.items()}  # fmt: skip


def policies(shared: Shared) -> dict[str, Any]:
    """UAS at each share of words with costly templates, and the depth of words that were bought at 10 %."""
    dev, rng = shared.dev, np.random.default_rng(0)
    n, starts = len(dev.truth), dev.starts
    none, all_ = np.zeros(n, dtype=bool), np.ones(n, dtype=bool)
    sizes, margins = np.diff(starts), head_margins(dev.cheap, starts)[:, 0]
    wants = {
        "uniform words": rng.permutation(n).astype(float),
        "uniform sentences": np.repeat(rng.permutation(len(sizes)).astype(float), sizes),
        "myopic": np.repeat(-np.add.reduceat(np.minimum(margins, 10.0), starts[:-1]) / sizes, sizes),
        "margin": -margins,
        "gap": smallest_gap(0, dev.features_in(none)),
        "item value": ItemValue().fit(shared.folds).scores(dev.features_in(none), starts),
    }
    wants |= {name: policy.wants(dev.cheap, dev.given) for name, policy in shared.learned.items()}
    for name, features, labels, is_weighted in () if shared.tagger else POLICIES:
        most = LONGEST_TRAJECTORY if labels == "trajectory" else 40
        policy = OneShotTrees(features, labels, is_weighted=is_weighted, most_words=most).fit_policy(shared.folds)
        wants[name] = policy.wants(dev.cheap, dev.given)
    curves = {name: [right(dev, buy_share(score, s)) for s in SHARES] for name, score in wants.items()}
    learned = AnytimePolicy().fit_policy(shared.folds)
    for name, scores in (("gap, decoded again", smallest_gap), ("anytime", learned.scores)):
        bought = purchases(dev, scores)
        curves[name] = [right(dev, bought.above(s, n)) for s in SHARES]
    depth = np.minimum(depths(shared.bank.dev[1]), 7)
    bought = buy_share(wants["one-shot complex"], 0.1)
    columns = {"costly": np.bincount(depth[bought], minlength=8), "cheap": np.bincount(depth[~bought], minlength=8)}
    made = {"tags": right(dev, none), "all": right(dev, all_), "curves": curves, "losses": learned.losses_.tolist()}
    return made | {"depth": {name: (counts / counts.sum()).tolist() for name, counts in columns.items()}}


def speed(shared: Shared) -> list[dict[str, Any]]:
    """UAS and CPU time of whole systems, from tokens to heads, with and without a dictionary."""
    parser, dev = shared.parser, shared.dev
    given, starts, n = dev.given, dev.starts, len(dev.truth)
    none, all_ = np.zeros(n, dtype=bool), np.ones(n, dtype=bool)
    longest = {"no": NO_DICTIONARY} | {name: parser.dictionary(price) for name, price in DICTIONARIES.items()}

    def system(dictionary: str, n_heads: int, chosen: Callable[[np.ndarray], np.ndarray]) -> Callable[[], np.ndarray]:
        def run() -> np.ndarray:
            flat, _ = cheap_scores(given.tokens, starts, parser.weights_, longest[dictionary])
            buys = chosen(flat)
            if buys.any():
                costly_scores(flat, given.tokens, starts, parser.weights_, buys, n_heads)
            return np.asarray(eisner_all(flat, starts))

        return run

    def seen(dictionary: str) -> list[np.ndarray]:
        """Cheap scores of training sentences, out of fold."""
        flats = [fold.cheap.copy() for fold in shared.folds]
        for flat, fold in zip(flats, shared.folds, strict=True) if dictionary != "no" else ():
            scores, _ = cheap_scores(fold.given.tokens, fold.starts, parser.weights_, longest[dictionary])
            flat[scores <= PRUNED] = PRUNED
        return flats

    def margin(flat: np.ndarray, sentences: Sentences) -> np.ndarray:
        return np.asarray(-head_margins(flat, sentences.starts)[:, 0])

    def always(buys: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        return lambda flat: buys

    def above(score: Callable[..., np.ndarray], cut: float) -> Callable[[np.ndarray], np.ndarray]:
        return lambda flat: score(flat, given) > cut

    rows = []
    for d in longest:
        rows += [("all features", d, 0, always(all_)), ("tags", d, 0, always(none))]
        rows.append((f"all features, {N_HEADS} best heads", d, N_HEADS, always(all_)))
    for dictionary in longest:
        flats = seen(dictionary)
        for name, score in (("margin", margin), *((k, policy.wants) for k, policy in shared.learned.items())):
            wants = np.concatenate([score(flat, f.given) for flat, f in zip(flats, shared.folds, strict=True)])
            for share in CUTS:  # the threshold that buys this share of training words
                cut = float(np.quantile(wants, 1 - share))
                rows.append((f"{name}, {share:.0%}", dictionary, N_HEADS, above(score, cut)))
    made = []
    for name, dictionary, n_heads, chosen in rows:
        run = system(dictionary, n_heads, chosen)
        uas = float(np.mean(run() == dev.truth))
        made.append({"system": name, "dictionary": dictionary, "uas": uas, "us": cpu_us(run, n, 3)})
    return made


def decoders() -> list[dict[str, float]]:
    """Microseconds a word of decoders alone on random scores, ufal.chu-liu-edmonds (C++) beside."""
    from ufal.chu_liu_edmonds import chu_liu_edmonds as ufal

    rng, made = np.random.default_rng(0), []
    for n in (8, 20, 40, 60):
        scores = [rng.normal(size=(n + 1, n + 1)) for _ in range(200)]
        theirs = []
        for s in scores:
            turned = np.ascontiguousarray(s.T)
            np.fill_diagonal(turned, np.nan)
            turned[0] = np.nan
            theirs.append(turned)
        floats = [s.astype(np.float32) for s in scores]
        for s, t in zip(scores, theirs, strict=True):
            value = sum(s[h, m + 1] for m, h in enumerate(chu_liu_edmonds(s, False)))
            if abs(value - ufal(t)[1]) > 1e-6:
                raise AssertionError("two decoders differ")
        made.append({
            "words": n,
            "ours": cpu_us(lambda s=scores: [chu_liu_edmonds(x, False) for x in s], n * len(scores)),
            "ours, single root": cpu_us(lambda s=scores: [chu_liu_edmonds(x, True) for x in s], n * len(scores)),
            "ufal": cpu_us(lambda s=theirs: [ufal(x) for x in s], n * len(scores)),
            "eisner": cpu_us(lambda s=floats: [eisner(x, True) for x in s], n * len(scores)),
        })  # fmt: skip
    return made


def run_parts(parts: Sequence[str], tags: Sequence[str], udpipe_iterations: int, args: Any) -> None:
    """Everything that is asked for and not there; keys of runs on our own tags begin with ``own/``."""
    made = {
        "parser": parser_figures, "variants": variants, "supertags": supertagged, "policies": policies, "speed": speed,
    }  # fmt: skip
    for kind in tags:
        prefix = "" if kind == "gold" else "own/"
        own = [p for p in parts if p in made and (kind == "gold" or p not in GOLD_ONLY)]
        wanted = [p for p in own if prefix + p not in args.known()]
        if wanted:
            shared = Shared(kind)
            if shared.tagger:
                args.keep("own/tagger", lambda shared=shared: shared.tagger)
            for part in wanted:
                args.keep(prefix + part, lambda part=part, shared=shared: made[part](shared))
    if "decoders" in parts:
        args.keep("decoders", decoders)
    if udpipe_iterations:
        from benchmarks.parsing.udpipe import measure

        args.keep(f"udpipe/{udpipe_iterations}", lambda: measure(udpipe_iterations))
        args.keep("udpipe us", lambda: measure(1, TIMED))  # its network is as large whatever it has learned


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--part", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--tags", nargs="*", choices=TAGS, default=list(TAGS))
    parser.add_argument("--udpipe", type=int, default=0, metavar="ITERATIONS")


def run(args: Any) -> dict[str, Any]:
    """Run what is asked for and not there."""
    run_parts(args.part, args.tags, args.udpipe, args)
    return dict(args.known())
