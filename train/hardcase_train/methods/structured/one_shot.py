# SPDX-License-Identifier: Apache-2.0
"""One-shot policy of chains: which parts get costly features is decided once, part by part (docs/math.md, section 18).

With simple features the policy looks at a part's cheap features alone; with those of the decoder, or complex ones, at a
first inference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator, clone

from ...structured.chain import ChainClassifier
from ...structured.items import as_items
from .chain_features import complex_features, decoder_features, simple_features
from .linear_policy import PartPolicy
from .out_of_fold import Fold, evidence, labels_of, out_of_fold

__all__ = ["FEATURES", "OneShotChain", "buy_share", "features_of"]

FEATURES = ("complex", "decoder", "simple")


class OneShotChain(BaseEstimator):  # type: ignore[misc]
    """A chain, and a policy that buys costly features for some of the parts.

    Parameters
    ----------
    chain : ChainClassifier with two levels
    features : {"complex", "decoder", "simple"}
        "decoder": the ten numbers that a device's decoder gives.
    labels : {"trajectory", "exhaustive", "helping", "wrong"}
        How training items are given their pseudo-labels.
    price : float
        Wrong parts that a purchase must save (lambda).
    least_gain : float
        Of "helping": the least that a step must save after its price (tau).
    is_weighted : bool
        Whether items count by the importance of (4).
    share : float
        Share of training parts for which the policy shall buy; it sets ``threshold_``.
    n_folds, seed : int

    Attributes
    ----------
    chain_ : ChainClassifier, trained on all items
    policy_ : PartPolicy
    threshold_ : float
    """

    def __init__(
        self, chain: ChainClassifier, features: str = "complex", labels: str = "helping", price: float = 0.01,
        least_gain: float = 0.0, is_weighted: bool = False, share: float = 0.3, n_folds: int = 5, seed: int = 0,
    ) -> None:  # fmt: skip
        self.chain = chain
        self.features = features
        self.labels = labels
        self.price = price
        self.least_gain = least_gain
        self.is_weighted = is_weighted
        self.share = share
        self.n_folds = n_folds
        self.seed = seed

    def fit(self, X: Sequence[np.ndarray], y: Sequence[np.ndarray], groups: np.ndarray | None = None) -> Self:
        """Train on lists of (parts, features) and (parts,) labels; ``groups``, one an item, are never divided."""
        self.chain_ = clone(self.chain).fit(X, y, groups=groups)
        return self.fit_policy(out_of_fold(self.chain, X, y, self.n_folds, groups, self.seed))

    def fit_policy(self, folds: Sequence[Fold]) -> Self:
        """Train the policy alone, on items that the folds' chains have not seen."""
        rows = np.concatenate([features_of(fold, self.features) for fold in folds])
        labels = [labels_of(fold, self.labels, self.price, self.least_gain) for fold in folds]
        bought, importance = (np.concatenate(parts) for parts in zip(*labels, strict=True))
        self.policy_ = PartPolicy().fit(rows, bought, importance if self.is_weighted else None)
        self.threshold_ = float(np.quantile(self.policy_.scores(rows), 1 - self.share))
        return self

    def wants(self, fold: Fold) -> np.ndarray:
        """(n,) the policy's scores of parts."""
        return self.policy_.scores(features_of(fold, self.features))

    def predict(self, X: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Labels, and for which parts costly features were bought."""
        item_evidence = evidence(
            self.chain_, X, [np.repeat(self.chain_.classes_[:1], len(x)) for x in X], np.arange(len(X))
        )
        buys = self.wants(item_evidence) > self.threshold_
        unary = np.where(buys[:, None], item_evidence.unary[1], item_evidence.unary[0])
        labels = self.chain_.classes_[self.chain_.decode(unary, item_evidence.starts)]
        return as_items(labels, item_evidence.starts), as_items(buys, item_evidence.starts)


def features_of(fold: Fold, features: str) -> np.ndarray:
    """(n, d) of all parts.

    Raises
    ------
    ValueError
        ``features`` is not one of ``FEATURES``.
    """
    if features not in FEATURES:
        raise ValueError(f"features is {features!r}; features are {', '.join(FEATURES)}")
    cheap = fold.features[:, fold.chain.columns_[: fold.chain.firsts_[1] - 1]]
    if features == "simple":
        return simple_features(cheap, fold.unary[0])
    max_marginals = fold.chain.max_marginals(fold.unary[0], fold.starts)
    if features == "decoder":
        return decoder_features(max_marginals, fold.unary[0], fold.starts)
    return complex_features(cheap, max_marginals, fold.unary[0], fold.starts)


def buy_share(scores: np.ndarray, share: float) -> np.ndarray:
    """(n,) whether a part is among this share of all parts with the highest scores; of equal ones the first."""
    buys = np.zeros(len(scores), dtype=bool)
    buys[np.argsort(-scores, kind="stable")[: round(share * len(scores))]] = True
    return buys
