# SPDX-License-Identifier: Apache-2.0
"""Searches for sets of extractors on the scenes: how many sets they train, and what they lose to all sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.scene_bank import Bank, Scenes
from hardcase_train.methods.polydom.estimate import search_estimated
from hardcase_train.methods.polydom.index import candidates, make_index
from hardcase_train.methods.polydom.search import SANDWICH, Searched, search_sets
from hardcase_train.methods.polydom.sets import Costs, bits

E = 0.01


def searches(scenes: Scenes, bank: Bank, exhaustive: bool) -> dict[str, Any]:
    """Sets trained by both prunings, what they lose to all sets, and how often information hurts."""
    costs = scenes.costs("cpu", 0.5)
    polynomials = [costs.of(1 << k) for k in range(costs.n)]
    figures: dict[str, Any] = {}
    found: dict[str, Searched] = {}
    for name, prune in (("paper", SANDWICH), ("ours", "cost")):
        found[name] = search_sets(polynomials, costs.largest, bank.accuracy, bank.accuracy(0), tolerance=E, prune=prune)
    found["estimated"] = search_estimated(polynomials, costs.largest, bank.accuracy, bank.accuracy(0), tolerance=E)
    figures |= {f"{name} trained": one.n_trained for name, one in found.items()}
    if exhaustive:
        whole = np.array([bank.accuracy(mask) for mask in range(1 << costs.n)])
        is_in = bits(costs.n)
        drops = []
        for k in range(costs.n):
            without = np.flatnonzero(~is_in[:, k])
            drops.append(whole[without] - whole[without | 1 << k])
        drop = np.concatenate(drops)
        figures["violations"] = {
            "share": float((drop > 0).mean()), "p95": float(np.quantile(np.maximum(drop, 0), 0.95)),
            "largest": float(drop.max()), "by distance": _by_distance(whole, costs.n),
        }  # fmt: skip
        figures["by tolerance"] = _by_tolerance(polynomials, costs.largest, whole)
        all_sets = make_index(candidates(Searched(costs, dict(enumerate(whole.tolist())))), costs.largest)
        for name, one in found.items():
            index = make_index(candidates(one), costs.largest)
            figures[f"{name} loss"] = _loss(all_sets, index, costs)
    return figures


def _by_distance(whole: np.ndarray, n: int) -> list[list[float]]:
    """For 1 to 8 extractors more: the median, 95th percentile and largest drop of accuracy, of 20,000 random pairs."""
    rng = np.random.default_rng(0)
    lines = []
    for distance in range(1, 9):
        order = rng.permuted(np.tile(np.arange(n), (20_000, 1)), axis=1)
        large = rng.integers(distance, n + 1, len(order))
        place = np.arange(n)
        above = ((place < large[:, None]) << order).sum(axis=1)
        below = ((place < (large - distance)[:, None]) << order).sum(axis=1)
        drop = whole[below] - whole[above]
        lines.append([float(v) for v in (np.median(drop), np.quantile(drop, 0.95), drop.max())])
    return lines


def _by_tolerance(polynomials: Sequence[Any], largest: int, whole: np.ndarray) -> list[dict[str, float]]:
    """Sets trained and entries of the index for some factors and tolerances."""
    rows = []
    for alpha in (1.0, 1.05):
        for tolerance in (0.0, 0.01, 0.02, 0.04):
            found = search_sets(
                polynomials, largest, lambda m: float(whole[m]), float(whole[0]), alpha=alpha, tolerance=tolerance
            )
            entries = make_index(candidates(found), largest).n_entries
            rows.append({"alpha": alpha, "tolerance": tolerance, "trained": found.n_trained, "entries": entries})
    return rows


def _loss(best: Any, index: Any, costs: Costs) -> float:
    losses = []
    for size in (24, 32, 48, 96):
        amounts = costs.at(size)
        for budget in np.geomspace(amounts[1:].min(), amounts.max(), 40):
            one, other = best.pick(size, int(budget)), index.pick(size, int(budget))
            losses.append(one.accuracy - other.accuracy)
    return float(np.mean(losses))
