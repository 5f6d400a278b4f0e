# SPDX-License-Identifier: Apache-2.0
"""Confidence tables over gaps: how often a label with at least this gap was right on held-out items."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["table_of"]

MOST_STEPS = 8
LEAST_ROWS = 30  # of a step, so that its share is known to about 9 points


def table_of(gaps: Sequence[int], right: Sequence[bool]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Margins and confidences in basis points, of the gaps of held-out parts or items and whether they were right.

    Steps have equally many gaps; neighbours whose confidence would fall are pooled.
    A confidence is (right + 1) / (n + 2).

    >>> table_of([1] * 30 + [9] * 30, [False] * 30 + [True] * 30)
    ((9,), (312, 9687))
    """
    order = np.argsort(gaps, kind="stable")
    values, hits = np.asarray(gaps)[order], np.asarray(right, dtype=np.int64)[order]
    n_steps = max(1, min(MOST_STEPS, len(values) // LEAST_ROWS))
    cuts = sorted({int(values[len(values) * s // n_steps]) for s in range(1, n_steps)} - {int(values[0])})
    groups = np.searchsorted(cuts, values, side="right")
    steps = [[int((groups == g).sum()), int(hits[groups == g].sum()), cut] for g, cut in enumerate([-1, *cuts])]
    pooled: list[list[int]] = []
    for n, n_right, cut in steps:
        pooled.append([n, n_right, cut])
        while len(pooled) > 1 and _share(pooled[-1]) <= _share(pooled[-2]):
            last = pooled.pop()
            pooled[-1] = [pooled[-1][0] + last[0], pooled[-1][1] + last[1], pooled[-1][2]]
    return tuple(step[2] for step in pooled[1:]), tuple(int(10_000 * _share(step)) for step in pooled)


def _share(step: Sequence[int]) -> float:
    return (step[1] + 1) / (step[0] + 2)
