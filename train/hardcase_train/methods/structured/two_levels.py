# SPDX-License-Identifier: Apache-2.0
"""A chain of two levels for a device, and policies that buy the second: learned, by the gap alone, never and always."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone

from ...settings.config import ItemSettings
from ...settings.effort import NORMAL, Effort
from ...structured.chain import ChainClassifier
from ...structured.items import as_items
from ...structured.jobs import Pool, in_turn
from .anytime import AnytimePolicy, Scores, purchases
from .chain_features import DECODER, complex_features, decoder_features, gaps_of, simple_features
from .linear_policy import PartPolicy
from .out_of_fold import Fold, evidence, labels_of, out_of_fold

EVERYTHING = 1e6  # a gap that no part has, in the scale of scores
ROUNDS = "rounds"  # the release of a policy for each round
LEARNED = "structured"
BY_GAP = "gap"  # the peer without learning: the smallest gap of max-marginals
FIXED = "static"  # the policies that buy never and always
BASELINES = (BY_GAP, FIXED)
METHODS = (LEARNED, *BASELINES)
Setting = tuple[str, str, float, bool]  # method, release, share of parts that buy, whether any are asked
FEATURES = ("complex", "decoder", "simple")


@dataclass(frozen=True)
class BuyPolicy:
    """Buys the second level of a part whose ``features @ weights + bias`` is above ``threshold``.

    The features are ``chain_features.DECODER``. ``ask_margin``: parts whose best score is, with both levels, less than
    this above the second best are asked; 0: none. ``later``: policies of the second round and those after it.
    """

    method: str
    release: str
    share: float
    weights: np.ndarray  # (10,)
    bias: float
    threshold: float
    ask_margin: float = 0.0
    later: np.ndarray = field(default_factory=lambda: np.zeros((0, len(DECODER) + 1)))  # the bias last

    @property
    def setting(self) -> Setting:
        """What tells it from the other policies of a chain."""
        return self.method, self.release, self.share, self.ask_margin > 0

    @property
    def params(self) -> dict[str, Any]:
        """What the front says of it."""
        return {"release": self.release, "share": self.share, "asks": self.ask_margin > 0}


@dataclass(frozen=True)
class TwoLevels:
    """A trained chain in the units of readings, and its policies."""

    weights: tuple[np.ndarray, np.ndarray]  # (columns of the first level + 1, K), (all columns + 1, K)
    transitions: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    transition_step: float
    policies: tuple[BuyPolicy, ...]

    @property
    def settings(self) -> list[Setting]:
        """Of all policies."""
        return [p.setting for p in self.policies]


def tried(joint: ItemSettings, effort: Effort) -> dict[str, Any]:
    """The ``shares``, ``releases`` and ``steps`` that are tried: those that ``[joint]`` names, else the effort's.

    >>> tried(ItemSettings(shares=(0.2,)), NORMAL)["shares"], tried(ItemSettings(), NORMAL)["releases"]
    ((0.2,), ('one-shot', 'anytime'))
    """
    usual = ItemSettings()
    return {
        "shares": effort.part_shares if joint.shares == usual.shares else joint.shares,
        "releases": effort.part_releases if joint.releases == usual.releases else joint.releases,
        "steps": effort.transition_steps,
    }


def learn_two_levels(
    X: Sequence[np.ndarray], y: Sequence[np.ndarray], n_first: int, n_classes: int, *,
    group: np.ndarray | None = None, methods: Sequence[str] = METHODS, shares: Sequence[float] = (0.3,),
    releases: Sequence[str] = ("one-shot",), ask: float = 0.0, labels: str = "helping",
    steps: Sequence[float] = NORMAL.transition_steps, seed: int = 0, pool: Pool = in_turn,
) -> TwoLevels:  # fmt: skip
    """Train a chain under random states, and its policies on items that the chain of their fold has not seen.

    Parameters
    ----------
    X : items of (parts, columns) in the units of readings, those of the first level first
    y : items of (parts,) class indices
    n_first : columns of the first level
    group : (n_items,) no fold divides one
    methods : names in ``METHODS``, whose policies are made
    shares, releases, ask, labels : as ``settings.config.ItemSettings``
    steps : of transitions, of which inner folds choose
    pool : where the chains of folds are trained
    """
    scale = np.abs(np.concatenate(X)).max(axis=0)
    scale[scale == 0] = 1.0
    scaled = [item / scale for item in X]
    levels = [list(range(n_first)), list(range(len(scale)))]
    classes = np.arange(n_classes)
    step = ChainClassifier(levels, transition_step=steps, seed=seed).best_step(scaled, y, group, classes, pool)
    once = ChainClassifier(levels, transition_step=step, seed=seed)
    folds = out_of_fold(once, scaled, y, groups=group, seed=seed, pool=pool)
    chain = clone(once).fit(scaled, y, groups=group, classes=classes)
    rows = np.concatenate([features_of(fold, "decoder") for fold in folds])
    margins = np.concatenate([gaps_of(fold.unary[1]) for fold in folds])
    policies: list[BuyPolicy] = []
    at_once = [r for r in releases if r != ROUNDS]
    for method, weights, bias in _directions(once, folds, labels, seed, methods):
        scores = rows @ weights + bias
        for release in at_once if method == LEARNED else ("one-shot",):
            for share in shares:
                threshold = float(np.quantile(scores, 1 - share))
                policies += _asking(BuyPolicy(method, release, share, weights, bias, threshold), scores, margins, ask)
    if ROUNDS in releases and LEARNED in methods:
        by_round = AnytimePolicy().fit_policy(folds)
        weights, later, scores = by_round.weights_[0], by_round.weights_[1:], _lowest(folds, by_round.scores)
        for share in shares:
            policy = BuyPolicy(
                LEARNED, ROUNDS, share, weights[:-1], weights[-1], float(np.quantile(scores, 1 - share)), later=later
            )
            policies += _asking(policy, scores, margins, ask)
    if FIXED in methods:
        by_gap = -np.eye(len(DECODER))[0]
        always = BuyPolicy(FIXED, "one-shot", 1.0, by_gap, 0.0, -EVERYTHING)
        policies.append(BuyPolicy(FIXED, "one-shot", 0.0, by_gap, 0.0, 1.0))
        policies += _asking(always, np.zeros(len(margins)), margins, ask)
    cheap, both = (w.astype(np.float64) for w in chain.weights)
    cheap[:-1] /= scale[:n_first, None]
    both[:-1] /= scale[:, None]
    return TwoLevels(
        (cheap, both), chain.transitions.astype(np.float64), chain.start.astype(np.float64),
        chain.stop.astype(np.float64), chain.transition_step_, tuple(policies),
    )  # fmt: skip


def _lowest(folds: Sequence[Fold], scores: Scores) -> np.ndarray:
    """(n,) for each part of all folds the threshold below which it buys, where the chain is decoded after each."""
    lowest = []
    for fold in folds:
        made = purchases(fold, scores)
        own = np.empty(len(fold.truth))
        own[made.part] = made.lowest()
        lowest.append(own)
    return np.concatenate(lowest)


def _directions(
    chain: ChainClassifier, folds: Sequence[Fold], labels: str, seed: int, methods: Sequence[str]
) -> list[tuple[str, np.ndarray, float]]:
    """The learned policy, unless no purchase helps anywhere, and the peer without learning: the smallest gap."""
    directions = []
    if LEARNED in methods:
        learned = OneShotChain(chain, features="decoder", labels=labels, seed=seed).fit_policy(folds).policy_
        directions += [(LEARNED, learned.weights, learned.bias)] if np.any(learned.weights) else []
    if BY_GAP in methods:
        directions.append((BY_GAP, -np.eye(len(DECODER))[0], 0.0))
    return directions


def _asking(policy: BuyPolicy, scores: np.ndarray, margins: np.ndarray, ask: float) -> list[BuyPolicy]:
    """The policy, and, if anything is asked, the same that asks this share of all parts, the least certain ones."""
    if not ask:
        return [policy]
    bought = margins[scores > policy.threshold]
    margin = float(np.quantile(bought, min(1.0, ask * len(margins) / len(bought)))) if len(bought) else 0.0
    return [policy, replace(policy, ask_margin=margin)] if margin > 0 else [policy]


# One-shot policy of chains: which parts get costly features is decided once, part by part (docs/math.md, section 18).
#
# With simple features the policy looks at a part's cheap features alone; with those of the decoder, or complex ones,
# at a first inference.


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
