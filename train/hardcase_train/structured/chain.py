# SPDX-License-Identifier: Apache-2.0
"""Linear chains whose parts have cheap or costly features, trained under random states.

Level s of a part's features has weights of its own, so that scores of all levels have one scale
(docs/math.md, section 18). A state is an int per part: the level that the part has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone

from .chain_core import decode_all, forward_backward_all, max_marginals_all, score_all, train_chain
from .items import as_items, flatten, folds_of, take
from .jobs import Pool, in_turn, results_of

LEARNERS = ("hinge", "perceptron", "mira")
STEP = 0.1
MOST_MIRA = 1.0  # the largest step of MIRA, which chooses each step itself


@dataclass(frozen=True)
class _Inner:
    """What the trials of a step share: a chain, items and labels, the fold of each item, and all labels."""

    chain: ChainClassifier
    X: Sequence[np.ndarray]
    y: Sequence[np.ndarray]
    fold: np.ndarray
    classes: np.ndarray | None


def _tried(shared: _Inner, trial: tuple[int, float]) -> list[float]:
    """The shares of a fold's parts that a chain with this step decides rightly, in the cheapest and dearest state."""
    k, step = trial
    inside, outside = np.flatnonzero(shared.fold != k), np.flatnonzero(shared.fold == k)
    model = clone(shared.chain).set_params(transition_step=step)
    model.fit(take(shared.X, inside), take(shared.y, inside), classes=shared.classes)
    truth, items = np.concatenate(take(shared.y, outside)), take(shared.X, outside)
    levels = sorted({0, model.n_levels - 1})
    return [float(np.mean(np.concatenate(model.predict(items, level)) == truth)) for level in levels]


class ChainClassifier(BaseEstimator):  # type: ignore[misc]
    """Labels of the parts of items, by a linear chain.

    Parameters
    ----------
    levels : sequence of column lists or None
        The columns that a part has in state 0, 1 and so on, cheapest first; None: one state with all columns.
    learner : {"hinge", "perceptron", "mira"}
        Structured hinge with a margin of 1 for each wrong part, or none of it, or the least step that meets it.
    n_epochs : int
        Passes over the items; weights are averaged over all steps.
    transition_step : float or sequence
        The step of transitions, as a share of the weights' step. Of several the one that is best on ``n_folds`` inner
        folds is taken, with ``groups`` divided as a whole.
    n_folds : int
        Inner folds that choose the transition step.
    seed : int
    bits : int
        0: features are numbers. Else they are keys, ints from 0 on, and the chain has 2^bits rows of weights: the row
        of a key is the hash of the key, its column and the part's state.

    Attributes
    ----------
    classes_ : (K,) array
    weights : list of (columns + 1, K) float32 arrays, one a level; the bias is the last row
    transitions : (K, K) float32 array, from label to label
    start, stop : (K,) float32 arrays
    transition_step_ : float
    """

    def __init__(
        self, levels: Sequence[Sequence[int]] | None = None, learner: str = "hinge", n_epochs: int = 15,
        transition_step: float | Sequence[float] = 1.0, n_folds: int = 3, seed: int = 0, bits: int = 0,
    ) -> None:  # fmt: skip
        self.levels = levels
        self.learner = learner
        self.n_epochs = n_epochs
        self.transition_step = transition_step
        self.n_folds = n_folds
        self.seed = seed
        self.bits = bits

    def fit(
        self, X: Sequence[np.ndarray], y: Sequence[np.ndarray], groups: np.ndarray | None = None,
        classes: np.ndarray | None = None,
    ) -> Self:  # fmt: skip
        """Train on a list of (parts, features) and a list of (parts,) labels; ``classes`` are all labels there are.

        Raises
        ------
        ValueError
            An item has no parts or another number of labels, a label is not in ``classes`` or there is one alone,
            ``learner`` is unknown, or a level names a column that there is not.
        """
        if self.learner not in LEARNERS:
            raise ValueError(f"learner is {self.learner!r}; learners are {', '.join(LEARNERS)}")
        features, starts = self.flat(X)
        labels = np.concatenate([np.asarray(part) for part in y])
        if [len(a) for a in X] != [len(b) for b in y]:
            raise ValueError("an item's labels are not as many as its parts; give one label a part")
        self.classes_ = np.unique(labels if classes is None else classes)
        if len(self.classes_) < 2:
            raise ValueError("there is one label alone, so there is nothing to learn; give items with two at least")
        codes = np.searchsorted(self.classes_, labels)
        if np.any(codes == len(self.classes_)) or np.any(self.classes_[codes] != labels):
            raise ValueError("a label is not one of classes; give all labels that there are")
        self._set_levels(features.shape[1])
        self.transition_step_ = self.best_step(X, y, groups, self.classes_)
        self._train(features, codes.astype(np.int64), starts, self.transition_step_)
        return self

    def _set_levels(self, n_columns: int) -> None:
        levels = [list(range(n_columns))] if self.levels is None else [list(level) for level in self.levels]
        if not levels or any(not 0 <= column < n_columns for level in levels for column in level):
            raise ValueError(f"levels name columns that are not among the {n_columns} of the parts; name those")
        self.columns_ = np.concatenate([[*level, -1] for level in levels]).astype(np.int64)  # -1 stands for the bias
        self.firsts_ = np.cumsum([0, *(len(level) + 1 for level in levels)]).astype(np.int64)

    def _train(self, features: np.ndarray, codes: np.ndarray, starts: np.ndarray, chain_step: float) -> None:
        n_labels = len(self.classes_)
        stacked, chain = train_chain(
            features, codes, starts, self.columns_, self.firsts_,
            np.zeros((self.mask + 1 if self.bits else len(self.columns_), n_labels), np.float32),
            np.zeros((2 + n_labels, n_labels), np.float32),
            self.n_epochs, 0.0 if self.learner == "perceptron" else 1.0,
            MOST_MIRA if self.learner == "mira" else STEP, chain_step, self.learner == "mira", self.seed, self.mask,
        )  # fmt: skip
        self._stacked = stacked
        self.start, self.stop, self.transitions = chain[0].copy(), chain[1].copy(), chain[2:].copy()

    def best_step(
        self, X: Sequence[np.ndarray], y: Sequence[np.ndarray], groups: np.ndarray | None = None,
        classes: np.ndarray | None = None, pool: Pool = in_turn,
    ) -> float:  # fmt: skip
        """The transition step that is right most often on inner folds, in the cheapest and in the dearest state.

        Arguments are those of ``fit``; the chains of the folds are trained on ``pool``.
        """
        steps = np.atleast_1d(np.asarray(self.transition_step, dtype=np.float64)).tolist()
        if len(steps) == 1:
            return float(steps[0])
        fold = folds_of(len(X), self.n_folds, np.random.default_rng(self.seed), groups)
        trials = [(k, step) for k in range(self.n_folds) for step in steps]
        right = np.zeros(len(steps))
        for n, shares in enumerate(results_of(pool, _tried, _Inner(self, X, y, fold, classes), trials)):
            for share in shares:
                right[n % len(steps)] += share
        return float(steps[np.argmax(right)])

    def flat(self, X: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """All parts one after the other, as ``scores`` wants them, and where each item begins."""
        return flatten(X, np.int64 if self.bits else np.float32)

    @property
    def mask(self) -> int:
        """The rows of hashed weights, less one; 0 if features are numbers."""
        return (1 << self.bits) - 1 if self.bits else 0

    @property
    def n_levels(self) -> int:
        """How many states a part can have."""
        return len(self.firsts_) - 1

    @property
    def weights(self) -> list[np.ndarray]:
        """(columns + 1, K) of each level, the bias last; of hashed weights all rows, (2^bits, K), for every level."""
        if self.bits:
            return [self._stacked] * self.n_levels
        return [self._stacked[a:b] for a, b in zip(self.firsts_[:-1], self.firsts_[1:], strict=True)]

    # ------------------------------------------------------------ all parts one after the other

    def scores(self, features: np.ndarray, states: np.ndarray | int) -> np.ndarray:
        """(n, K) scores of single parts, float32; ``states`` (n,) or one for all.

        Raises
        ------
        ValueError
            Parts have fewer columns than the levels name, or a state is not one of the levels.
        """
        states = np.broadcast_to(np.asarray(states, dtype=np.int64), len(features))
        n_columns, n_levels = int(self.columns_.max()) + 1, self.n_levels
        if features.shape[1] < n_columns:
            raise ValueError(f"parts have {features.shape[1]} columns; the chain was trained on {n_columns} at least")
        if len(states) and not 0 <= states.min() <= states.max() < n_levels:
            raise ValueError(f"a state is not one of the {n_levels} levels; states are 0 to {n_levels - 1}")
        return score_all(features, np.ascontiguousarray(states), self.columns_, self.firsts_, self._stacked, self.mask)

    def decode(self, unary: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """(n,) numbers of the labels of the best labelling of each item; of equal ones the lowest, from the first."""
        return decode_all(unary, starts, self.transitions, self.start, self.stop)

    def max_marginals(self, unary: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """(n, K) the best score of a labelling that has this label here (docs/math.md)."""
        return max_marginals_all(unary, starts, self.transitions, self.start, self.stop)

    def probabilities(self, unary: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """(n, K) marginal probabilities of labels, by forward and backward sums."""
        return forward_backward_all(unary, starts, self.transitions, self.start, self.stop)

    # ------------------------------------------------------------ lists of items

    def predict(self, X: Sequence[np.ndarray], states: Any = None) -> list[np.ndarray]:
        """Labels of each item; ``states`` is one level for all parts, or a list of (parts,); None: the dearest."""
        features, starts = self.flat(X)
        states = self.n_levels - 1 if states is None else states
        flat = np.asarray(states) if np.isscalar(states) else np.concatenate([np.asarray(s) for s in states])
        return as_items(self.classes_[self.decode(self.scores(features, flat), starts)], starts)

    def score(self, X: Sequence[np.ndarray], y: Sequence[np.ndarray], states: Any = None) -> float:
        """Share of all parts whose label is right."""
        return float(np.mean(np.concatenate(self.predict(X, states)) == np.concatenate([np.asarray(p) for p in y])))
