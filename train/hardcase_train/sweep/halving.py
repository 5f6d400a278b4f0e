"""Successive halving: which settings of a method are worth training on all rows.

Weak settings are seen on few rows already. What a setting is worth is what it adds to the others: the front is read at
several losses below f0, as ``hardcase export --max-loss`` does, and at each of them the cheapest point counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..policy.front import Point

__all__ = ["FEW_SETTINGS", "MIN_ROWS", "RUNG", "climbers", "savings"]

RUNG = 4  # the first rung trains on one row in so many; then all rows
MIN_ROWS = 10_000  # of training: below, a rung saves no time, and few rows say too little
FEW_SETTINGS = 4  # below, all of them climb
LOSSES = (0.0, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1)  # of quality, below the reference
LEAST = 1e-3  # of the cost of f0 for every case: cheaper counts no more


def savings(points: Sequence[Point], quality: float, cost: float) -> np.ndarray:
    """Logarithm of how many times cheaper than ``cost`` the cheapest point is at each of LOSSES, from 0, (n_losses,).

    Parameters
    ----------
    quality : that the losses are below
    cost : of f0 for every case, in the user's unit
    """
    out = np.zeros(len(LOSSES))
    for k, loss in enumerate(LOSSES):
        fit = [p.valid["cost"] for p in points if p.valid["quality"] >= quality - loss - 1e-12]
        if fit and cost > 0:
            out[k] = max(0.0, -np.log(max(min(fit) / cost, LEAST)))
    return out


def climbers(found: Sequence[Sequence[Point]], hpc: dict[str, float]) -> list[int]:
    """The settings, by number in rising order, that together keep most of what all of them save: at most half.

    One after another the setting that adds most to those chosen before, until none adds anything; a quarter climbs
    at least, the rest then chosen among themselves as if nothing had been.

    Parameters
    ----------
    found : per setting its points
    hpc : ``quality`` and ``cost`` of f0 on the rows that the points were judged on
    """
    best = max((p.valid["quality"] for points in found for p in points), default=0.0)
    saved = np.array([savings(points, min(best, hpc["quality"]), hpc["cost"]) for points in found])
    left = list(range(len(found)))
    chosen: list[int] = []
    reached = np.zeros(len(LOSSES))
    while len(chosen) < (len(found) + 1) // 2:
        added = np.maximum(saved[left] - reached, 0).sum(axis=1)
        if added.max() <= 0 and len(chosen) >= (len(found) + 3) // 4:
            break
        if added.max() <= 0 and reached.any():
            reached = np.zeros(len(LOSSES))
            continue
        pick = left.pop(int(added.argmax()))
        chosen.append(pick)
        reached = np.maximum(reached, saved[pick])
    return sorted(chosen)
