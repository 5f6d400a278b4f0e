"""Cuts of a staged policy for a price on costs: each stage answers where going on is not worth its price.

Backwards from the cloud: a stage's rows are sorted by how sure its model is, and those end here for which the chance
of an error saved by going on is worth less than what going on costs. Chances are calibrated, not counted, because
errors are rare and a cut fitted to counted ones only looks good. docs/math.md (20) to (22).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from .staged import NEVER, Cut, Cuts

__all__ = ["Choices", "chance_wrong", "priced_cuts"]

N_PASSES = 4


@dataclass(frozen=True)
class Choices:
    """What each row would meet at each stage, and in the cloud.

    wrong : (n_stages, n) chance that the stage's answer is wrong
    margin : (n_stages, n)
    gate : per stage (n,) or None
    cost : (n_stages, n) of ending there, in the user's unit
    cloud_wrong, cloud_cost : (n,) of being forwarded
    weight : (n,)
    """

    wrong: np.ndarray
    margin: np.ndarray
    gate: Sequence[np.ndarray | None]
    cost: np.ndarray
    cloud_wrong: np.ndarray
    cloud_cost: np.ndarray
    weight: np.ndarray


def chance_wrong(margin: np.ndarray, gate: np.ndarray | None, is_right: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Chance that an answer is wrong, (n,): logistic in the margin, its root, and the gate's score if there is one."""
    total, wrong = weight.sum(), weight[~is_right].sum()
    if not 0 < wrong < total:
        return np.full(len(margin), (wrong + 1) / (total + 2))
    z = np.column_stack([margin, np.sqrt(np.maximum(margin, 0)), *(() if gate is None else (gate,))])
    z = (z - z.mean(axis=0)) / np.maximum(z.std(axis=0), 1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the last digits do not matter
        model = LogisticRegression(C=1e3).fit(z, is_right, sample_weight=weight)
    return np.asarray(model.predict_proba(z)[:, 0])


def priced_cuts(choices: Choices, price: float) -> Cuts:
    """The cuts that lower the mean of ``chance of an error + price * cost``, each given the others.

    Parameters
    ----------
    price : error per unit of cost
    """
    n_stages, n = choices.wrong.shape
    reach = np.ones((n_stages, n), dtype=bool)
    cuts: list[Cut] = []
    for _ in range(N_PASSES):
        wrong, cost = choices.cloud_wrong, choices.cloud_cost
        ends, found = np.zeros((n_stages, n), dtype=bool), []
        for k in reversed(range(n_stages)):
            saved = choices.weight * (choices.wrong[k] - wrong + price * (choices.cost[k] - cost))
            cut = _cut(saved, choices.margin[k], choices.gate[k], reach[k])
            ends[k] = _ends(cut, choices.margin[k], choices.gate[k])
            found.append(cut)
            wrong = np.where(ends[k], choices.wrong[k], wrong)
            cost = np.where(ends[k], choices.cost[k], cost)
        if found[::-1] == cuts:
            break
        cuts = found[::-1]
        reach[1:] = ~np.logical_or.accumulate(ends, axis=0)[:-1]
    return _in_use(cuts, ends & reach)


def _cut(saved: np.ndarray, margin: np.ndarray, gate: np.ndarray | None, reach: np.ndarray) -> Cut:
    """Where ending is worth most: by margin, then by the gate among the rest; ``saved`` above 0: going on is better."""
    rows = np.flatnonzero(reach)
    if len(rows) == 0:
        rows = np.arange(len(reach))
    wide = _prefix(-margin[rows], saved[rows])
    cut = Cut(-wide)
    if gate is None or cut.is_last:
        return cut
    rest = rows[margin[rows] < cut.margin]
    if len(rest) == 0:
        return cut
    easy = _prefix(gate[rest], saved[rest])
    return Cut(-NEVER) if easy >= NEVER else Cut(cut.margin, easy)


def _prefix(key: np.ndarray, saved: np.ndarray) -> float:
    """The bound of ``key`` below which the sum of ``saved`` is least: half-way between two rows, or beyond all."""
    order = np.argsort(key, kind="stable")
    sums = np.cumsum(saved[order])
    last = np.append(np.diff(key[order]) > 0, True)  # rows of one key stay together
    sums = np.where(last, sums, np.inf)
    best = int(np.argmin(sums))
    if sums[best] >= 0:
        return -NEVER
    if best == len(sums) - 1:
        return NEVER
    return float(key[order[best]] + key[order[best + 1]]) / 2


def _ends(cut: Cut, margin: np.ndarray, gate: np.ndarray | None) -> np.ndarray:
    ends = margin >= cut.margin
    return ends if gate is None else ends | (gate <= cut.gate)


def _in_use(cuts: Sequence[Cut], ends: np.ndarray) -> Cuts:
    """The stages at which a row ends, up to the first at which all do."""
    used: Cuts = {}
    for k, cut in enumerate(cuts):
        if ends[k].any():
            used[k] = cut
        if cut.is_last:
            break
    return used
