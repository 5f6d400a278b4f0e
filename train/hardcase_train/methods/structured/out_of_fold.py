# SPDX-License-Identifier: Apache-2.0
"""Chains that have not seen the items which policies learn from (appendix B of the paper)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from sklearn.base import clone

from ...structured.chain import ChainClassifier
from ...structured.chain_core import chain_losses
from ...structured.items import folds_of, take
from ...structured.jobs import Pool, in_turn, results_of
from .chain_features import decoder_features
from .pseudo_labels import Losses, PseudoLabel, exhaustive, helping_steps, trajectory, wrong_parts

LABELS = ("trajectory", "exhaustive", "helping", "wrong")


@dataclass(frozen=True)
class Fold:
    """Items that ``chain`` has not seen: all parts' features (n, F), scores (2, n, K) cheap and costly, and truth."""

    chain: ChainClassifier
    items: np.ndarray
    features: np.ndarray
    unary: np.ndarray
    truth: np.ndarray
    starts: np.ndarray

    def losses(self, j: int) -> Losses:
        """Wrong parts of item j of the fold in each of (m, n) states."""
        a, b = self.starts[j], self.starts[j + 1]
        scores, truth, chain = np.ascontiguousarray(self.unary[:, a:b]), self.truth[a:b], self.chain
        return lambda states: chain_losses(
            scores, truth, states.astype(np.int64), chain.transitions, chain.start, chain.stop
        )

    def labels_in(self, bought: np.ndarray) -> np.ndarray:
        """(n,) numbers of labels if these parts have costly features."""
        return self.chain.decode(np.where(bought[:, None], self.unary[1], self.unary[0]), self.starts)

    def features_in(self, bought: np.ndarray) -> np.ndarray:
        """(n, 10) what the decoder says in this state."""
        return self.features_of(np.arange(len(self.starts) - 1), np.arange(len(bought)), self.starts, bought)

    def features_of(self, items: np.ndarray, parts: np.ndarray, starts: np.ndarray, bought: np.ndarray) -> np.ndarray:
        """(m, 10) the same of some items alone, with m parts, whose items begin at ``starts``."""
        unary = np.where(bought[:, None], self.unary[1][parts], self.unary[0][parts])
        return decoder_features(self.chain.max_marginals(unary, starts), unary, starts)


def evidence(chain: ChainClassifier, X: Sequence[np.ndarray], y: Sequence[np.ndarray], items: np.ndarray) -> Fold:
    """What a chain says of items, and their truth; a label unknown to the chain counts as wrong."""
    features, starts = chain.flat(take(X, items))
    labels = np.concatenate(take(y, items))
    at = np.minimum(np.searchsorted(chain.classes_, labels), len(chain.classes_) - 1)
    truth = np.where(chain.classes_[at] == labels, at, -1)
    unary = np.stack([chain.scores(features, 0), chain.scores(features, chain.n_levels - 1)])
    return Fold(chain, items, features, unary, truth, starts)


def out_of_fold(
    chain: ChainClassifier, X: Sequence[np.ndarray], y: Sequence[np.ndarray], n_folds: int = 5,
    groups: np.ndarray | None = None, seed: int = 0, pool: Pool = in_turn,
) -> list[Fold]:  # fmt: skip
    """Each item as a chain sees it that was trained on the other folds, on ``pool``; groups are not divided."""
    fold = folds_of(len(X), n_folds, np.random.default_rng(seed), groups)
    return results_of(pool, _seen_by_others, _Divided(chain, X, y, groups, fold), range(n_folds))


@dataclass(frozen=True)
class _Divided:
    """What the folds share: a chain, items and labels, their groups, and the fold of each item."""

    chain: ChainClassifier
    X: Sequence[np.ndarray]
    y: Sequence[np.ndarray]
    groups: np.ndarray | None
    fold: np.ndarray


def _seen_by_others(shared: _Divided, k: int) -> Fold:
    """The items of fold k, as a chain of the other folds sees them."""
    inside, outside = np.flatnonzero(shared.fold != k), np.flatnonzero(shared.fold == k)
    own = None if shared.groups is None else np.asarray(shared.groups)[inside]
    classes = np.unique(np.concatenate([np.asarray(labels) for labels in shared.y]))
    model = clone(shared.chain).fit(take(shared.X, inside), take(shared.y, inside), groups=own, classes=classes)
    return evidence(model, shared.X, shared.y, outside)


def labels_of(fold: Fold, labels: str, price: float, least_gain: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """(n,) whether each part should buy, and (n,) its item's importance.

    Raises
    ------
    ValueError
        ``labels`` is not one of ``LABELS``.
    """
    if labels not in LABELS:
        raise ValueError(f"labels is {labels!r}; pseudo-labels are {', '.join(LABELS)}")
    is_wrong = fold.chain.decode(fold.unary[0], fold.starts) != fold.truth
    makers: dict[str, Callable[[Losses, int, int], PseudoLabel]] = {
        "trajectory": lambda losses, a, b: trajectory(losses, b - a, price),
        "exhaustive": lambda losses, a, b: exhaustive(losses, b - a, price),
        "helping": lambda losses, a, b: helping_steps(losses, b - a, price, least_gain),
        "wrong": lambda losses, a, b: wrong_parts(losses, is_wrong[a:b], price),
    }
    make, bounds = makers[labels], pairwise(fold.starts)
    pseudo = [make(fold.losses(j), a, b) for j, (a, b) in enumerate(bounds)]
    return np.concatenate([p.state for p in pseudo]), np.repeat([p.weight for p in pseudo], np.diff(fold.starts))
