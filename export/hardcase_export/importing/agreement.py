# SPDX-License-Identifier: Apache-2.0
"""Agreement of an imported program with its source: counted on rows, and estimated for other rows.

Classifiers are compared by their labels. Rounding can change a label only where the source's two best scores nearly
tie, so the expected share of changed labels is the density of rows there times the mean error of the scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.more.batch.choices import margins_of

from ..sources.source import Source
from .leaves import Summed
from .reference import labels_of_scores

NEAR = 50  # rows nearest to a tie, which give the density of rows there


@dataclass(frozen=True, slots=True)
class Match:
    """A comparison on ``n`` rows. ``off``: the largest difference of scores, in the source's unit.

    ``differ``: rows whose labels differ, or whose values differ by more than the bound. ``ties``: rows whose labels
    differ only because the source's two best scores are closer than the rounding of its own sums. ``expected``: an
    estimate of the labels that quantisation changes in 100,000 such rows. ``reference``: what the program was compared
    with.
    """

    n: int
    differ: int
    ties: int
    off: float
    expected: float
    reference: str

    @property
    def agreement(self) -> float:
        """The share of rows that agree."""
        return 1 - self.differ / self.n

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain JSON values."""
        return {
            "rows": self.n, "differ": self.differ, "ties": self.ties, "off": self.off,
            "expected_per_100000": self.expected, "beside": self.reference,
        }  # fmt: skip


def compare(
    source: Source,
    summed: Summed,
    scores: NDArray[np.integer],
    X: NDArray[np.float64],
    answers: NDArray[Any] | None,
    exact: NDArray[np.float64],
) -> Match:
    """Compare a program with its source on rows that both can read.

    Parameters
    ----------
    scores : (n, n_outputs) by the last scorer of ``summed``
    X : (n, n_features) float64, NaN for missing
    answers : (n,) the source's own class indices or values; None: they are taken from ``exact``
    exact : (n, n_outputs) the source's scores by ``reference``
    """
    steps = scores - int(source.ties_up and source.linear is None)
    off = np.abs(steps / summed.scale - exact)
    reference = "its own numbers in float64" if answers is None else source.name
    slack = float_bound(source, X)
    if source.kind.has_classes:
        labels = labels_of_scores(exact, ties_up=source.ties_up) if answers is None else answers
        differ = labels_of_scores(scores) != labels
        close = margins_of(exact) <= 2 * slack
        counts = int((differ & ~close).sum()), int((differ & close).sum())
        expected = _expected(exact[~close], (steps / summed.scale)[~close])
        return Match(len(X), *counts, float(off.max()), expected, reference)
    values = exact[:, 0] if answers is None else np.asarray(answers, dtype=np.float64).ravel()
    apart = np.abs(steps[:, 0] / summed.scale - values)
    differ = apart > float(summed.off.max()) / summed.scale + slack
    return Match(len(X), int(differ.sum()), 0, float(apart.max()), 0.0, reference)


def float_bound(source: Source, X: NDArray[np.float64]) -> float:
    """How far the source's own sums, rounded after each addition, can be from the exact sums."""
    eps = 2.0**-24 if source.sums == "f32" else 2.0**-53
    if source.linear is not None:
        X = source.linear.filled(X)
        size = (np.abs(X) @ np.abs(source.linear.weights).T + np.abs(source.linear.bias)).max()
        return float(2 * eps * (X.shape[1] + 1) * size)
    added = max(
        sum(t.output <= o < t.output + t.leaves.shape[1] for t in source.trees) for o in range(len(source.base))
    )
    return float(2 * eps * (added + 1) * score_size(source))


def score_size(source: Source) -> float:
    """The largest absolute score that the trees can add up to."""
    size = np.abs(np.array(source.base, dtype=np.float64))
    for t in source.trees:
        size[t.output : t.output + t.leaves.shape[1]] += np.abs(t.leaves).max(axis=0)
    return float(size.max())


def _expected(exact: NDArray[np.float64], scores: NDArray[np.float64]) -> float:
    """The number of labels in 100,000 that rounding is expected to change; the caller leaves out ties."""
    if len(exact) == 0:
        return 0.0
    if exact.shape[1] == 1:
        moved = np.abs(scores - exact)[:, 0]
    else:
        best = np.argpartition(exact, -2, axis=1)[:, -2:]
        moved = np.abs(np.diff(np.take_along_axis(scores - exact, best, axis=1), axis=1))[:, 0]
    margin = margins_of(exact)
    near = min(NEAR, len(margin)) - 1
    width = float(np.partition(margin, near)[near])
    density = (near + 1) / len(margin) / width
    return 1e5 * density * float(moved.mean()) / 2
