# SPDX-License-Identifier: Apache-2.0
"""Whether values are spread as in training: the population stability index of the last window of them.

The index of a window is the sum over the bins of (a - e) log(a / e), with a the bin's share in the window and e its
share in training; a bin without values counts half a value. An index above ``LARGE`` is the usual sign that a
distribution has moved. Where training had few rows, sampling alone goes beyond it, so the limit is at least the
quantile of sampling (docs/math.md (130), (131)): independent values pass it in at most about one window of 100,000.
Bins are steps between readings, so they are groups of codes.

Values are kept until a window is whole, and then counted at once: that takes less time than to count each.
"""

from __future__ import annotations

from itertools import pairwise
from math import log, sqrt
from typing import TYPE_CHECKING

from .arithmetic import below

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...bundle.monitors import Histogram

    Below = Callable[[Sequence[float], Sequence[float]], Sequence[int]]

WINDOW = 512  # values
LASTING = 4  # windows that are looked at together
LARGE = 0.25  # an index above it, and above what sampling gives: the distribution has moved
SURE = 4.9  # standard normal quantile of one in two million


def stability_index(counts: Sequence[int], reference: Sequence[int]) -> float:
    """The population stability index of counts in bins; both have as many.

    >>> round(stability_index([50, 50], [50, 50]), 3), round(stability_index([90, 10], [50, 50]), 3)
    (0.0, 0.879)
    """
    n, total = sum(counts), sum(reference)
    shares = [(max(a, 0.5) / n, e / total) for a, e in zip(counts, reference, strict=True)]
    return sum((a - e) * log(a / e) for a, e in shares)


def limit_of(reference: Sequence[int], n: int = WINDOW) -> float:
    """The index above which n values are not a draw from this reference, whatever the size of the reference.

    MATH.md (131), with the quantile of chi-square after Wilson and Hilferty.

    >>> round(limit_of([25] * 8), 3), limit_of([250] * 8), round(limit_of([4] * 8), 3)
    (0.304, 0.25, 1.451)
    """
    freedom = len(reference) - 1
    part = 2 / (9 * freedom)
    quantile = freedom * (1 - part + SURE * sqrt(part)) ** 3
    return max(LARGE, quantile * (1 / n + 1 / sum(reference)))


class Stability:
    """The index of one number, window by window.

    Parameters
    ----------
    reference : of training

    Attributes
    ----------
    index : float or None
        Of the last whole window; None before there is one.
    limit : float
        Above it the distribution has moved.
    lasting : float or None
        The index of the last ``LASTING`` windows together, in which a night and a day are one; None before there are so
        many.
    """

    __slots__ = ("_edges", "_last", "_reference", "_values", "index", "lasting", "limit")

    def __init__(self, reference: Histogram) -> None:
        self._edges, self._reference = reference.edges, reference.counts
        self._values: list[float] = []
        self._last: list[list[int]] = []
        self.index: float | None = None
        self.lasting: float | None = None
        self.limit = limit_of(reference.counts)

    def see(self, values: Sequence[float]) -> None:
        """More values, in their order."""
        self._values += values
        while len(self._values) >= WINDOW:
            counts = [0, *below(self._values[:WINDOW], self._edges), WINDOW]
            del self._values[:WINDOW]
            self._last = [*self._last[1 - LASTING :], [b - a for a, b in pairwise(counts)]]
            self.index = stability_index(self._last[-1], self._reference)
            if len(self._last) == LASTING:
                self.lasting = stability_index(
                    [sum(counts) for counts in zip(*self._last, strict=True)], self._reference
                )

    @property
    def has_moved_for_long(self) -> bool:
        """Whether the last windows together are far from training."""
        return self.lasting is not None and self.lasting > limit_of(self._reference, LASTING * WINDOW)

    @property
    def has_moved(self) -> bool:
        """Whether the last whole window is far from training."""
        return self.index is not None and self.index > self.limit
