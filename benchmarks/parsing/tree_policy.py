# SPDX-License-Identifier: Apache-2.0
"""One-shot policy of parsers: which words get costly templates, and the peers that look at heads' scores.

A word's margin is its best head's score minus the second best, of the cheap scores. Simple features need scores alone;
complex ones also the tree that is decoded from them and its gaps: how much it loses if a word has another head.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
# mypy: disable-error-code="untyped-decorator,no-any-return,assignment,operator"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
from numba import njit
from sklearn.base import BaseEstimator, clone

from benchmarks.parsing.eisner import eisner_all, offsets_of, tree_gaps
from benchmarks.parsing.tree_core import PRUNED, cheap_scores, costly_scores, tree_losses
from benchmarks.parsing.trees import NO_DICTIONARY, Sentences, TreeParser
from hardcase_train.methods.structured.linear_policy import PartPolicy
from hardcase_train.methods.structured.pseudo_labels import Losses, helping_steps, trajectory, wrong_parts
from hardcase_train.structured.items import folds_of, take

FINE, COARSE = 64, 32
SIMPLE_NUMBERS, NUMBERS, MOST_GAP = 14, 23, 30.0  # columns that are numbers; a gap beyond this is certain
NO_TREE = (np.zeros(0, np.int64), np.zeros(0))


@dataclass(frozen=True)
class TreeFold:
    """Sentences that a parser has not seen: their cheap and costly scores of all edges, and heads."""

    given: Sentences
    cheap: np.ndarray
    costly: np.ndarray
    truth: np.ndarray

    def losses(self, s: int) -> Losses:
        """Wrong heads of sentence s in each of (m, n) states."""
        a, b = self.given.starts[s], self.given.starts[s + 1]
        at, size = offsets_of(self.given.starts)[s], b - a + 1
        cheap, costly = (f[at : at + size * size].reshape(size, size) for f in (self.cheap, self.costly))
        return lambda states: tree_losses(cheap, costly, self.truth[a:b], states)

    @property
    def starts(self) -> np.ndarray:
        """Where each sentence's words begin, and the end."""
        return self.given.starts

    def scores_in(self, bought: np.ndarray) -> np.ndarray:
        """Scores of all edges if these words (n,) have costly templates."""
        return mixed_scores(self.cheap, self.costly, self.starts, bought)

    def labels_in(self, bought: np.ndarray) -> np.ndarray:
        """(n,) heads in this state."""
        return np.asarray(eisner_all(self.scores_in(bought), self.starts))

    def features_in(self, bought: np.ndarray) -> np.ndarray:
        """(n, NUMBERS) what policies see in this state: the numbers among complex features."""
        return features_of_words(self.scores_in(bought), self.given, True)[:, :NUMBERS]

    def features_of(self, items: np.ndarray, parts: np.ndarray, starts: np.ndarray, bought: np.ndarray) -> np.ndarray:
        """(m, NUMBERS) what policies see of some sentences, with m words, which begin at ``starts``."""
        at = offsets_of(self.starts)
        edges = np.concatenate([np.arange(at[s], at[s + 1]) for s in items])
        flat = mixed_scores(self.cheap[edges], self.costly[edges], starts, bought)
        return features_of_words(flat, self.given.only(items), True)[:, :NUMBERS]


def tree_fold(parser: TreeParser, X: Sequence[np.ndarray], y: Sequence[np.ndarray]) -> TreeFold:
    """What a parser says of sentences."""
    sentences = Sentences(X)
    cheap, _ = cheap_scores(sentences.tokens, sentences.starts, parser.weights_, NO_DICTIONARY)
    costly = cheap.copy()
    costly_scores(
        costly, sentences.tokens, sentences.starts, parser.weights_, np.ones(int(sentences.starts[-1]), bool), 0
    )
    return TreeFold(sentences, cheap, costly, np.concatenate(list(y)).astype(np.int64))


def tree_folds(
    parser: TreeParser, X: Sequence[np.ndarray], y: Sequence[np.ndarray], n_folds: int = 5, seed: int = 0
) -> list[TreeFold]:
    """Each sentence as a parser sees it that was trained on the other folds."""
    fold = folds_of(len(X), n_folds, np.random.default_rng(seed))
    out = []
    for k in range(n_folds):
        inside, outside = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        out.append(tree_fold(clone(parser).fit(take(X, inside), take(y, inside)), take(X, outside), take(y, outside)))
    return out


@njit(nogil=True, cache=True)
def head_margins(flat: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """(n, 2) each word's margin and its best head, 0 for the root."""
    out, at = np.zeros((starts[-1], 2)), offsets_of(starts)
    for s in range(len(starts) - 1):
        n = starts[s + 1] - starts[s] + 1
        scores = flat[at[s] : at[s + 1]].reshape(n, n)
        for m in range(1, n):
            best, second, head = -np.inf, -np.inf, 0
            for h in range(n):
                if h != m:
                    value = scores[h, m]
                    if value > best:
                        best, second, head = value, best, h
                    elif value > second:
                        second = value
            out[starts[s] + m - 1, 0] = min(best - max(second, PRUNED), 1e3) if n > 2 else 1e3
            out[starts[s] + m - 1, 1] = head
    return out


@njit(nogil=True, cache=True)
def mixed_scores(cheap: np.ndarray, costly: np.ndarray, starts: np.ndarray, bought: np.ndarray) -> np.ndarray:
    """Scores of all edges, of ``costly`` for the words that are bought and of ``cheap`` for others."""
    out, at = cheap.copy(), offsets_of(starts)
    for s in range(len(starts) - 1):
        size = starts[s + 1] - starts[s] + 1
        for m in range(1, size):
            if bought[starts[s] + m - 1]:
                for h in range(size):
                    out[at[s] + h * size + m] = costly[at[s] + h * size + m]
    return out


def features_of_words(flat: np.ndarray, given: Sentences, is_complex: bool) -> np.ndarray:
    """(n, d) features of words, from the scores of edges in their state."""
    tree = (eisner_all(flat, given.starts), tree_gaps(flat, given.starts, MOST_GAP)) if is_complex else NO_TREE
    return np.asarray(word_features(flat, given.tokens, given.starts, head_margins(flat, given.starts), *tree))


@njit(nogil=True, cache=True)
def word_features(
    flat: np.ndarray, tokens: np.ndarray, starts: np.ndarray, margins: np.ndarray, heads: np.ndarray, gaps: np.ndarray
) -> np.ndarray:
    """(n, d) of each word: numbers, then tags; ``heads`` and ``gaps`` are empty for simple features."""
    is_complex, at = len(heads) > 0, offsets_of(starts)
    first = NUMBERS if is_complex else SIMPLE_NUMBERS
    width = first + FINE + 4 * COARSE + (COARSE if is_complex else 0)
    out = np.zeros((starts[-1], width), np.float32)
    for s in range(len(starts) - 1):
        a, n = starts[s], starts[s + 1] - starts[s]
        t = tokens[a + 3 * s : a + n + 3 + 3 * s]
        scores = flat[at[s] : at[s + 1]].reshape(n + 1, n + 1)
        mean, crossed = 0.0, 0
        for m in range(1, n + 1):
            mean += np.exp(-margins[a + m - 1, 0]) / n
            if is_complex and heads[a + m - 1] != margins[a + m - 1, 1]:
                crossed += 1
        for m in range(1, n + 1):
            row, margin, best = out[a + m - 1], margins[a + m - 1, 0], np.int64(margins[a + m - 1, 1])
            row[0] = np.exp(-margin)
            row[1] = np.exp(-3 * margin)
            row[2] = np.log(margin + 0.1)
            row[3] = min(margin, 3.0)
            row[4] = np.exp(-margins[a + m - 2, 0]) if m > 1 else 0.0
            row[5] = np.exp(-margins[a + m, 0]) if m < n else 0.0
            row[6] = mean
            row[7] = np.exp(-margins[a + best - 1, 0]) if best > 0 else 0.0
            row[8] = np.log(n)
            row[9] = np.log(1.0 + abs(best - m))
            row[10] = best > m
            row[11] = best == 0
            row[12] = m / n
            row[13] = row[0] * row[9]
            row[first + t[m + 1, 2] % FINE] = 1
            by = first + FINE
            row[by + t[m, 3]] = 1
            row[by + COARSE + t[m + 2, 3]] = 1
            row[by + 2 * COARSE + t[best + 1, 3]] = 1
            row[by + 3 * COARSE + t[m + 1, 3]] = row[0]
            if is_complex:
                head, gap = heads[a + m - 1], max(gaps[a + m - 1], 0.0)
                row[14] = head != best
                row[15] = min(max(scores[best, m] - scores[head, m], 0.0), 3.0)
                row[16] = np.log(1.0 + abs(head - m))
                row[17] = crossed / n
                row[18] = head == 0
                row[19] = head > 0 and heads[a + head - 1] != margins[a + head - 1, 1]
                row[20] = np.exp(-gap)
                row[21] = np.exp(-3 * gap)
                row[22] = np.log(gap + 0.1)
                row[by + 4 * COARSE + t[head + 1, 3]] = 1
    return out


def smallest_gap(t: int, features: np.ndarray) -> np.ndarray:
    """The peer without learning: the word with the smallest gap first, for ``purchases``."""
    return np.asarray(-features[:, NUMBERS - 1])


class OneShotTrees(BaseEstimator):  # type: ignore[misc]
    """Which words get costly templates.

    Parameters
    ----------
    features : {"complex", "simple"}
    labels : {"helping", "trajectory", "wrong"}
    price : float
        Wrong heads that a purchase must save (lambda).
    buy_weight : float or "balanced"
        Class weight of words that should buy.
    is_weighted : bool
        Whether sentences count by the importance of (4).
    most_words : int
        Longer sentences are not learned from: a trajectory decodes (words squared) / 2 times.
    """

    def __init__(
        self, features: str = "complex", labels: str = "helping", price: float = 0.01,
        buy_weight: float | str = "balanced", is_weighted: bool = False, most_words: int = 40,
    ) -> None:  # fmt: skip
        self.features = features
        self.labels = labels
        self.price = price
        self.buy_weight = buy_weight
        self.is_weighted = is_weighted
        self.most_words = most_words

    def fit_policy(self, folds: Sequence[TreeFold]) -> Self:
        """Learn from sentences that the folds' parsers have not seen.

        Raises
        ------
        ValueError
            ``features`` or ``labels`` is unknown.
        """
        if self.features not in ("complex", "simple") or self.labels not in ("helping", "trajectory", "wrong"):
            raise ValueError("features are complex, simple; labels are helping, trajectory, wrong")
        parts = [self._examples(fold) for fold in folds]
        rows, bought, importance = (np.concatenate(column) for column in zip(*parts, strict=True))
        policy = PartPolicy(buy_weight=self.buy_weight)
        self.policy_ = policy.fit(rows, bought, importance if self.is_weighted else None)
        return self

    def wants(self, flat: np.ndarray, given: Sentences) -> np.ndarray:
        """(n,) the policy's scores of words, from cheap scores of edges."""
        return self.policy_.scores(features_of_words(flat, given, self.features == "complex"))

    def _examples(self, fold: TreeFold) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        heads, starts = eisner_all(fold.cheap, fold.given.starts), fold.given.starts
        is_wrong = heads != fold.truth
        rows = features_of_words(fold.cheap, fold.given, self.features == "complex")
        use, bought, importance = np.zeros(len(heads), bool), np.zeros(len(heads), bool), np.zeros(len(heads))
        for s, (a, b) in enumerate(pairwise(starts)):
            if b - a <= self.most_words:
                losses = fold.losses(s)
                if self.labels == "wrong":
                    pseudo = wrong_parts(losses, is_wrong[a:b], self.price)
                else:
                    pseudo = (helping_steps if self.labels == "helping" else trajectory)(losses, b - a, self.price)
                use[a:b], bought[a:b], importance[a:b] = True, pseudo.state, pseudo.weight
        return rows[use], bought[use], importance[use]
