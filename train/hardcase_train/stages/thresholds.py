"""Cuts of a staged policy for a price on costs: each stage answers where going on is not worth its price.

Backwards from the cloud: a stage's rows are sorted by how sure its model is, and those end here for which the chance
of an error saved by going on is worth less than what going on costs. Chances are calibrated, not counted, because
errors are rare and a cut fitted to counted ones only looks good. docs/math.md (26) and (27).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..policy.answers import NEVER

__all__ = ["Choices", "Cut", "Cuts", "Meeting", "best_bound", "best_way", "expected", "mean_value", "priced_cuts"]

N_PASSES = 4


@dataclass(frozen=True)
class Cut:
    """Where a stage answers: margins of at least ``margin``, and gate scores of at most ``gate``."""

    margin: float
    gate: float = -NEVER  # no row

    @property
    def is_last(self) -> bool:
        """Every row ends here."""
        return self.margin <= -NEVER


Cuts = dict[int, Cut]  # by stage; a stage without one is passed over


@dataclass(frozen=True)
class Meeting:
    """What each row meets at a stage, (n,) each.

    wrong : chance that the stage's answer is wrong
    cost : of ending there, in the user's unit
    """

    margin: np.ndarray
    gate: np.ndarray | None
    wrong: np.ndarray
    cost: np.ndarray

    @cached_property
    def by_margin(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows by falling margin, and which of them is the last of its margin."""
        return _sorted(-self.margin)

    @cached_property
    def by_gate(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows by rising gate score, likewise."""
        assert self.gate is not None
        return _sorted(self.gate)

    def ends(self, cut: Cut) -> np.ndarray:
        """Which rows end here if they come, (n,) bool."""
        wide = self.margin >= cut.margin
        return wide if self.gate is None else wide | (self.gate <= cut.gate)


@dataclass(frozen=True)
class Choices:
    """The stages, first to last, and the cloud behind them: (n,) chance that f0 is wrong, cost of forwarding."""

    stages: Sequence[Meeting]
    cloud_wrong: np.ndarray
    cloud_cost: np.ndarray
    weight: np.ndarray


def expected(choices: Choices, cuts: Cuts) -> tuple[float, float]:
    """Mean chance of an error, and mean cost, under these cuts."""
    wrong, cost = choices.cloud_wrong, choices.cloud_cost
    for k in sorted(cuts, reverse=True):
        stage = choices.stages[k]
        ends = stage.ends(cuts[k])
        wrong, cost = np.where(ends, stage.wrong, wrong), np.where(ends, stage.cost, cost)
    return float(np.average(wrong, weights=choices.weight)), float(np.average(cost, weights=choices.weight))


def mean_value(choices: Choices, cuts: Cuts, price: float) -> float:
    """Mean of ``chance of an error + price * cost`` under these cuts."""
    wrong, cost = expected(choices, cuts)
    return wrong + price * cost


def priced_cuts(choices: Choices, price: float) -> Cuts:
    """The cuts that lower ``mean_value``, each given the others: backwards, again while rows come elsewhere.

    Parameters
    ----------
    price : error per unit of cost
    """
    stages, n = choices.stages, len(choices.weight)
    reach = np.ones((len(stages), n), dtype=bool)
    cuts: list[Cut] = []
    for _ in range(N_PASSES):
        met = choices.cloud_wrong + price * choices.cloud_cost
        ends, found = np.zeros((len(stages), n), dtype=bool), []
        for k in reversed(range(len(stages))):
            stage = stages[k]
            here = stage.wrong + price * stage.cost
            found.append(_cut(stage, choices.weight * (here - met), reach[k] if reach[k].any() else np.ones(n, bool)))
            ends[k] = stage.ends(found[-1])
            met = np.where(ends[k], here, met)
        if found[::-1] == cuts:
            break
        cuts = found[::-1]
        reach[1:] = ~np.logical_or.accumulate(ends, axis=0)[:-1]
    return _in_use(cuts, ends & reach)


def _cut(stage: Meeting, loss: np.ndarray, reach: np.ndarray) -> Cut:
    """Where ending is worth most: by margin, then by the gate among the rest; ``loss`` above 0: going on is better."""
    cut = Cut(-_bound(-stage.margin, *stage.by_margin, np.where(reach, loss, 0.0)))
    if stage.gate is None or cut.is_last:
        return cut
    easy = _bound(stage.gate, *stage.by_gate, np.where(reach & (stage.margin < cut.margin), loss, 0.0))
    return Cut(-NEVER) if easy >= NEVER else Cut(cut.margin, easy)


def best_bound(key: np.ndarray, loss: np.ndarray) -> float:
    """The bound of ``key`` (n,) below which the sum of ``loss`` (n,) is least; -NEVER where every sum loses."""
    return _bound(key, *_sorted(key), loss)


def best_way(costs: np.ndarray, margin: np.ndarray, weight: np.ndarray) -> tuple[float, int]:
    """The margin from which on rows best stop if all others take one and the same action, and that action.

    Parameters
    ----------
    costs : (n, n_actions), the first of stopping
    """
    order, is_last = _sorted(-margin)
    best, found = np.inf, (-NEVER, 0)
    for action in range(1, costs.shape[1]):
        lost = weight * (costs[:, 0] - costs[:, action])
        cut = -_bound(-margin, order, is_last, lost)
        spent = float(lost[margin >= cut].sum() + weight @ costs[:, action])
        if spent < best:
            best, found = spent, (cut, action)
    return found


def _sorted(key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(key, kind="stable")
    return order, np.append(np.diff(key[order]) > 0, True)


def _bound(key: np.ndarray, order: np.ndarray, is_last: np.ndarray, loss: np.ndarray) -> float:
    """The bound of ``key`` below which the sum of ``loss`` is least: half-way between two rows, or beyond all."""
    sums = np.where(is_last, np.cumsum(loss[order]), np.inf)  # rows of one key stay together
    best = int(np.argmin(sums))
    if sums[best] >= 0:
        return -NEVER
    if sums[-1] <= sums[best]:
        return NEVER
    return float(key[order[best]] + key[order[best + 1]]) / 2


def _in_use(cuts: Sequence[Cut], ends: np.ndarray) -> Cuts:
    """The stages at which a row ends, up to the first at which all do."""
    used: Cuts = {}
    for k, cut in enumerate(cuts):
        if ends[k].any():
            used[k] = cut
        if cut.is_last:
            break
    return used
