# SPDX-License-Identifier: Apache-2.0
"""CPU time of systems that read words: pieces, whole systems at each share of HOG, and python-crfsuite beside."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.letters import Words, hog
from benchmarks.words_page import SHARES
from hardcase_train.methods.structured.anytime import AnytimePolicy, purchases, smallest_gap
from hardcase_train.methods.structured.chain_features import (
    complex_features,
    decoder_features,
    gaps_of,
    item_means,
    simple_features,
)
from hardcase_train.methods.structured.two_levels import OneShotChain
from hardcase_train.structured.chain import ChainClassifier
from hardcase_train.structured.items import as_items, take

REPEATS, EPOCHS = 7, 40


def cpu_us(run: Callable[[], Any], n: int, repeats: int = REPEATS) -> float:
    """Microseconds of this process's CPU time for each of n, the median of some runs after a first one."""
    run()
    times = []
    for _ in range(repeats):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return float(np.median(times)) / n * 1e6


def whole_times(case: Any, words: Words) -> dict[str, Any]:
    """Microseconds a letter, from pixels to labels, on the test words of a split; and of each piece alone."""
    chain: ChainClassifier = case.chain
    pixels = np.concatenate(take(as_items(words.pixels, words.starts), case.test))
    starts, n = case.given.starts, len(pixels)
    policies = {
        k: OneShotChain(chain, k, "helping").fit_policy(case.folds).policy_ for k in ("simple", "decoder", "complex")
    }
    learned = AnytimePolicy().fit_policy(case.folds)
    rng = np.random.default_rng(0)

    def costly(which: np.ndarray) -> np.ndarray:
        own = pixels[which]
        return chain.scores(np.hstack([own, hog(own)]), 1)

    def finish(unary: np.ndarray, buys: np.ndarray) -> np.ndarray:
        unary[buys] = costly(np.flatnonzero(buys))
        return chain.decode(unary, starts)

    def wants(name: str, unary: np.ndarray) -> np.ndarray:
        if name == "uniform letters":
            return rng.random(n)
        if name == "own margin":
            return -gaps_of(unary)
        if name == "one-shot simple":
            return policies["simple"].scores(simple_features(pixels, unary))
        marginals = chain.max_marginals(unary, starts)
        if name == "gap":
            return -gaps_of(marginals)
        if name == "myopic":
            return -item_means(gaps_of(marginals), starts)
        if name == "one-shot decoder":
            return policies["decoder"].scores(decoder_features(marginals, unary, starts))
        return policies["complex"].scores(complex_features(pixels, marginals, unary, starts))

    def one_shot(name: str, threshold: float) -> np.ndarray:
        unary = chain.scores(pixels, 0)
        return finish(unary, wants(name, unary) > threshold)

    def again(scores: Any, threshold: float) -> np.ndarray:
        """HOG of a letter is made when it is bought; here of all that will be, in one call, which costs the same."""
        unary = chain.scores(pixels, 0)
        bought = purchases(case.given, scores, threshold)
        buys = np.zeros(n, dtype=bool)
        buys[bought.part] = True
        return finish(unary, buys)

    cheap = chain.scores(pixels, 0)
    marginals, both, some = chain.max_marginals(cheap, starts), case.given.features, np.arange(n)
    pieces = {
        "scores of pixels": lambda: chain.scores(pixels, 0),
        "max-marginals": lambda: chain.max_marginals(cheap, starts),
        "gap": lambda: gaps_of(marginals),
        "features and policy, decoder": lambda: policies["decoder"].scores(decoder_features(marginals, cheap, starts)),
        "features and policy, complex": lambda: policies["complex"].scores(
            complex_features(pixels, marginals, cheap, starts)
        ),
        "features and policy, simple": lambda: policies["simple"].scores(simple_features(pixels, cheap)),
        "HOG": lambda: hog(pixels),
        "scores of pixels and HOG": lambda: chain.scores(both, 1),
        "decoding": lambda: chain.decode(cheap, starts),
    }
    whole: dict[str, Any] = {
        "cheap": cpu_us(lambda: chain.decode(chain.scores(pixels, 0), starts), n),
        "all": cpu_us(lambda: chain.decode(costly(some), starts), n),
    }
    for name in ("uniform letters", "own margin", "myopic", "gap", *(f"one-shot {k}" for k in policies)):
        score = wants(name, cheap)
        cuts = [float(np.quantile(score, 1 - share)) for share in SHARES]
        whole[name] = [cpu_us(lambda name=name, cut=cut: one_shot(name, cut), n) for cut in cuts]
    for name, scores in (("gap, decoded again", smallest_gap), ("anytime", learned.scores)):
        lowest = purchases(case.given, scores).lowest()
        cuts = [float(np.sort(lowest)[::-1][round(share * n)]) for share in SHARES]
        whole[name] = [cpu_us(lambda scores=scores, cut=cut: again(scores, cut), n, 3) for cut in cuts]
    return {"pieces": {name: cpu_us(piece, n) for name, piece in pieces.items()}, "whole": whole}


def speed_beside(words: Words) -> dict[str, float]:
    """Seconds of training on pixels alone, 40 epochs, and accuracy; python-crfsuite's averaged perceptron beside."""
    import pycrfsuite

    X, y = as_items(words.pixels, words.starts), as_items(words.labels, words.starts)
    order = np.random.default_rng(0).permutation(len(X))
    test, train = order[: len(X) // 10], order[len(X) // 10 :]
    truth = np.concatenate(take(y, test))
    ChainClassifier(n_epochs=1).fit(take(X, train[:20]), take(y, train[:20]), classes=np.arange(26))
    began = time.process_time()
    chain = ChainClassifier(n_epochs=EPOCHS).fit(take(X, train), take(y, train))
    ours = time.process_time() - began
    flat, starts = np.concatenate(take(X, test)), np.r_[0, np.cumsum([len(x) for x in take(X, test)])]
    unary = chain.scores(flat, 0)
    decoding = cpu_us(lambda: chain.decode(unary, starts), len(flat))
    trainer = pycrfsuite.Trainer(algorithm="ap", verbose=False)
    trainer.set_params({"max_iterations": EPOCHS, "epsilon": 0.0})
    names = [f"p{k}" for k in range(X[0].shape[1])]

    def sequence(item: np.ndarray) -> Any:
        return pycrfsuite.ItemSequence([{names[k]: 1.0 for k in np.flatnonzero(part)} for part in item])

    for x, labels in zip(take(X, train), take(y, train), strict=True):
        trainer.append(sequence(x), [str(k) for k in labels])
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model")
        began = time.process_time()
        trainer.train(path)
        theirs = time.process_time() - began
        tagger = pycrfsuite.Tagger()
        tagger.open(path)
        sequences = [sequence(x) for x in take(X, test)]
        tags = np.array([int(t) for s in sequences for t in tagger.tag(s)])
        both = cpu_us(lambda: [tagger.tag(s) for s in sequences], len(flat), 3)
    return {
        "training": ours,
        "training of crfsuite": theirs,
        "accuracy": float(np.mean(np.concatenate(chain.predict(take(X, test))) == truth)),
        "accuracy of crfsuite": float(np.mean(tags == truth)),
        "decoding": decoding,
        "scores and decoding": decoding + cpu_us(lambda: chain.scores(flat, 0), len(flat)),
        "scores and decoding of crfsuite": both,
    }
