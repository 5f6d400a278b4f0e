# SPDX-License-Identifier: Apache-2.0
"""Anytime policies of chains and trees: policy t adds a part to what policies 1 to t - 1 bought (algorithms 1 and 2).

Policy t sees the features of a decoding in the state that it finds, and its score of "buy nothing more" is 0; the
weights of successors are those of theorem 2.3 (docs/math.md, section 18), the surrogate is a hinge of pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, Self

import numpy as np
from sklearn.base import BaseEstimator

from .pseudo_labels import Losses

Scores = Callable[[int, np.ndarray], np.ndarray]  # at time t, of (n, d) features of all parts


class Evidence(Protocol):
    """What a model says of items that it has not seen: a ``Fold`` of words or a ``TreeFold`` of sentences."""

    @property
    def truth(self) -> np.ndarray: ...

    @property
    def starts(self) -> np.ndarray: ...

    def losses(self, j: int, /) -> Losses: ...

    def labels_in(self, bought: np.ndarray) -> np.ndarray: ...

    def features_in(self, bought: np.ndarray) -> np.ndarray: ...

    def features_of(
        self, items: np.ndarray, parts: np.ndarray, starts: np.ndarray, bought: np.ndarray
    ) -> np.ndarray: ...


@dataclass(frozen=True)
class Purchases:
    """What was bought in which order: for the p-th purchase the part, its time t in its item, and its score then."""

    part: np.ndarray
    time: np.ndarray
    score: np.ndarray
    item: np.ndarray

    def lowest(self) -> np.ndarray:
        """(p,) the least score of the item's purchases up to this one: it is made if a threshold is below."""
        order, lowest, before = np.lexsort((self.time, self.item)), np.empty(len(self.part)), -1
        running = np.inf
        for p in order:
            running = min(running, self.score[p]) if self.item[p] == before else self.score[p]
            lowest[p], before = running, self.item[p]
        return lowest

    def above(self, share: float, n_parts: int) -> np.ndarray:
        """(n,) parts bought if items stop at the first score not above a threshold that buys this share."""
        bought = np.zeros(n_parts, dtype=bool)
        bought[self.part[np.lexsort((self.item, self.time, -self.lowest()))[: round(share * n_parts)]]] = True
        return bought

    def within(self, share: float, sizes: np.ndarray) -> np.ndarray:
        """(n,) parts bought if each item may buy this share of its own parts, and buys all that it may."""
        bought = np.zeros(int(sizes.sum()), dtype=bool)
        bought[self.part[self.time < np.round(share * sizes)[self.item]]] = True
        return bought


def purchases(evidence: Evidence, scores: Scores, least: float = -np.inf) -> Purchases:
    """Buy the part with the best score in every item, decode again, and so on (algorithm 2).

    An item ends when all is bought or no score is above ``least``.
    """
    starts = evidence.starts
    bought, steps = np.zeros(int(starts[-1]), dtype=bool), []
    items = np.arange(len(starts) - 1)
    for t in range(int(np.diff(starts).max())):
        sizes = np.diff(starts)[items]
        own = np.r_[0, np.cumsum(sizes)]
        parts = np.repeat(starts[items] - own[:-1], sizes) + np.arange(own[-1])
        wants = scores(t, evidence.features_of(items, parts, own, bought[parts]))
        wants = np.where(bought[parts], -np.inf, wants)
        best = np.array([a + np.argmax(wants[a:b]) for a, b in pairwise(own)])
        goes_on = (wants[best] > least) & (sizes > t)
        items, best = items[goes_on], best[goes_on]
        steps.append((parts[best], np.full(len(best), t), wants[best], items))
        bought[parts[best]] = True
        if not len(items):
            break
    return Purchases(*(np.concatenate(column) for column in zip(*steps, strict=True)))


def smallest_gap(t: int, features: np.ndarray) -> np.ndarray:
    """The peer without learning: the part of a chain with the smallest gap first."""
    return np.asarray(-features[:, 0])


def successor_weights(losses: np.ndarray) -> np.ndarray:
    """Theorem 2.3: what each successor saves against the worst one, of (m,) modified losses."""
    return np.asarray(losses.max() - losses)


class AnytimePolicy(BaseEstimator):  # type: ignore[misc]
    """Policies pi_1 .. pi_T, learned one after the other.

    Parameters
    ----------
    price : float
        Wrong parts that a purchase must save (lambda).
    n_policies : int
        Policies that are learned; the last one serves for longer items, too.
    n_steps : int
        Subgradient steps of each policy.

    Attributes
    ----------
    weights_ : (T, d + 1) array, on the features after a decoding, the bias last
    losses_ : (T + 1,) mean wrong parts of training items before the first and after each policy
    """

    def __init__(self, price: float = 0.01, n_policies: int = 6, n_steps: int = 300) -> None:
        self.price = price
        self.n_policies = n_policies
        self.n_steps = n_steps

    def fit_policy(self, folds: Sequence[Evidence]) -> Self:
        """Algorithm 1, on items that the folds' models have not seen."""
        bought = [np.zeros(len(fold.truth), dtype=bool) for fold in folds]
        self.weights_, self.losses_ = np.zeros((0, 0)), np.array([self._wrong(folds, bought)])
        for _ in range(self.n_policies):
            rows, item, weight = self._successors(folds, bought)
            if not len(rows):
                break
            learned = _hinge_of_pairs(rows, item, weight, self.n_steps)
            self.weights_ = np.vstack([self.weights_.reshape(-1, len(learned)), learned])
            for fold, state in zip(folds, bought, strict=True):
                self._advance(fold, state)
            self.losses_ = np.append(self.losses_, self._wrong(folds, bought))
        return self

    def scores(self, t: int, features: np.ndarray) -> np.ndarray:
        """(n,) what policy t thinks of buying each part; 0 is "buy nothing more"."""
        weights = self.weights_[min(t, len(self.weights_) - 1)]
        return np.asarray(features @ weights[:-1] + weights[-1])

    def _advance(self, fold: Evidence, bought: np.ndarray) -> None:
        """Buy one part more in every item that has one left, by the newest policy."""
        wants = self.scores(len(self.weights_) - 1, fold.features_in(bought))
        wants[bought] = -np.inf
        for a, b in pairwise(fold.starts):
            bought[a + np.argmax(wants[a:b])] = True

    def _successors(
        self, folds: Sequence[Evidence], bought: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Features (m, d + 1), item and weight of each successor; "buy nothing" has features 0."""
        rows, items, weights, n_items = [], [], [], 0
        for fold, state in zip(folds, bought, strict=True):
            features = np.hstack([fold.features_in(state), np.ones((len(state), 1))])
            for j, (a, b) in enumerate(pairwise(fold.starts)):
                left = np.flatnonzero(~state[a:b])
                states = np.repeat(state[None, a:b], len(left) + 1, axis=0)
                states[np.arange(len(left)), left] = True
                losses = fold.losses(j)(states) + self.price * states.sum(axis=1)
                if len(left):
                    rows.append(np.vstack([features[a + left], np.zeros(features.shape[1])]))
                    items.append(np.full(len(left) + 1, n_items))
                    weights.append(successor_weights(losses))
                    n_items += 1
        if not rows:
            return np.zeros((0, 0)), np.zeros(0), np.zeros(0)
        return np.concatenate(rows), np.concatenate(items), np.concatenate(weights)

    def _wrong(self, folds: Sequence[Evidence], bought: Sequence[np.ndarray]) -> float:
        """Mean wrong parts of an item in these states."""
        wrong = sum(float(np.sum(f.labels_in(s) != f.truth)) for f, s in zip(folds, bought, strict=True))
        return wrong / sum(len(f.starts) - 1 for f in folds)


def _hinge_of_pairs(rows: np.ndarray, item: np.ndarray, weight: np.ndarray, n_steps: int) -> np.ndarray:
    """(d,) averaged subgradient steps on sum of (W(best) - W(s)) * max(0, 1 + w x(s) - w x(best)) over successors s.

    Each term is an upper bound of what (8) loses if s is taken in place of the best successor; of equally good ones
    that is "buy nothing", the last row of an item, whose features are 0. The last column is the bias.
    """
    real = rows[:, -1] > 0
    mean, spread = rows[real, :-1].mean(axis=0), rows[real, :-1].std(axis=0) + 1e-9
    scaled = np.hstack([(rows[:, :-1] - mean) / spread, rows[:, -1:]]) * real[:, None]
    starts = np.flatnonzero(np.r_[True, item[1:] != item[:-1]])
    ends = np.r_[starts[1:], len(item)]
    top = np.maximum.reduceat(weight, starts)
    first = np.where(weight == np.repeat(top, ends - starts), np.arange(len(item)), len(item))
    best = np.where(weight[ends - 1] == top, ends - 1, np.minimum.reduceat(first, starts))
    best = np.repeat(best, ends - starts)
    regret = weight[best] - weight
    matters = regret > 0
    change, regret = (scaled - scaled[best])[matters], regret[matters] / max(float(regret.sum()), 1e-12)
    w, total = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    for t in range(n_steps):
        w -= (regret * (1 + change @ w > 0)) @ change / np.sqrt(t + 1)
        total += w
    w = total / n_steps
    plain = w[:-1] / spread
    return np.append(plain, w[-1] - plain @ mean)
