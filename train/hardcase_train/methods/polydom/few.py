# SPDX-License-Identifier: Apache-2.0
"""Few models: which sets to ship if only so many models, or bytes of them, fit on the device. docs/math.md (107)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .index import Set

__all__ = ["best_few", "grid_of"]

N_BUDGETS = 16  # of each size, on a geometric scale up to the cost of the dearest set
INTERRUPTED = 0.5  # weight of the answer that is there when half of the budget is over


def grid_of(sets: Sequence[Set], sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of size and budget for which a choice of sets is judged."""
    pairs = []
    for size in dict.fromkeys(sizes):
        amounts = [s.at(size) for s in sets if s.mask and s.at(size)]
        if amounts:
            pairs += [(size, round(b)) for b in np.geomspace(min(amounts), max(amounts), N_BUDGETS)]
    return pairs


def best_few(
    sets: Sequence[Set],
    pairs: Sequence[tuple[int, int]],
    max_models: int | None,
    max_bytes: int | None = None,
    n_bytes: Callable[[int], int] = lambda mask: 0,
) -> list[Set]:
    """The sets to ship, most accurate first: greedily those that raise the mean accuracy most.

    The mean is over pairs of size and budget, and over two answers: that of the best set that fits, and that of the
    best subset of it which fits into half of the budget, because readings may take longer than expected.

    Parameters
    ----------
    sets : to choose from; the empty set is always shipped, and counts as no model
    pairs : as ``grid_of`` gives them
    max_bytes, n_bytes : of the models, and of the model of a set
    """
    order = sorted(sets, key=lambda s: (-s.accuracy, s.mask))
    costs = np.array([[s.at(size) for size, _ in pairs] for s in order], dtype=np.float64).reshape(len(order), -1)
    budgets = np.array([budget for _, budget in pairs], dtype=np.float64)
    accuracy = np.array([s.accuracy for s in order])
    fits, halves = costs <= budgets, costs <= INTERRUPTED * budgets
    is_subset = np.array([[a.mask & ~b.mask == 0 for a in order] for b in order])
    shipped = [k for k, s in enumerate(order) if not s.mask]
    spent = 0

    def value(chosen: list[int]) -> float:
        rows = np.array(sorted(chosen))
        best = rows[fits[rows].argmax(axis=0)]  # the first that fits is the most accurate; the empty set always does
        partly = halves[rows] & is_subset[np.ix_(best, rows)].T
        half = rows[partly.argmax(axis=0)]
        return float((1 - INTERRUPTED) * accuracy[best].mean() + INTERRUPTED * accuracy[half].mean())

    if not pairs:
        return list(order)
    while max_models is None or len(shipped) - 1 < max_models:
        options = [
            k for k in range(len(order))
            if k not in shipped and (max_bytes is None or spent + n_bytes(order[k].mask) <= max_bytes)
        ]  # fmt: skip
        if not options:
            break
        chosen = max(options, key=lambda k: (value([*shipped, k]), -k))
        shipped.append(chosen)
        spent += n_bytes(order[chosen].mask)
    return [order[k] for k in sorted(shipped)]
