# SPDX-License-Identifier: Apache-2.0
"""Early-exit thresholds (cuts) of a staged policy for a price on cost, chosen backwards from the cloud.

A stage answers the rows for which the errors that going on would avoid are worth less than its cost. Therefore its rows
are sorted by margin, and the threshold minimises the sum of ``loss + price * cost``. Probabilities of an error
are calibrated instead of counted, because errors are rare and a threshold fitted to counts overfits. docs/math.md (26)
and (27).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..policy.confidences import NEVER

FORBIDDEN = 1e6  # loss of going on where the limits of policies leave no way
N_PASSES = 4  # a stage's cut changes the rows that later stages see


@dataclass(frozen=True)
class Cut:
    """A stage's exit rule: it answers at margins of at least ``margin``, and at gate scores of at most ``gate``.

    >>> Cut(0.5).is_last, Cut(-NEVER).is_last
    (False, True)
    """

    margin: float
    gate: float = -NEVER  # no row

    @property
    def is_last(self) -> bool:
        """Every row exits here."""
        return self.margin <= -NEVER


Cuts = dict[int, Cut]  # by stage; a stage without a cut is skipped


@dataclass(frozen=True)
class Meeting:
    """A stage's arrays, (n,) each, for all rows.

    wrong : expected loss of the stage's answer: the probability that it is wrong, if each error counts 1
    cost : of exiting at the stage, in the user's unit
    """

    margin: np.ndarray
    gate: np.ndarray | None
    wrong: np.ndarray
    cost: np.ndarray

    @cached_property
    def by_margin(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows by falling margin, and for each of them whether it is the last of its margin."""
        return _sorted(-self.margin)

    @cached_property
    def by_gate(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows by rising gate score, and for each of them whether it is the last of its score."""
        assert self.gate is not None
        return _sorted(self.gate)

    def ends(self, cut: Cut) -> np.ndarray:
        """The rows that exit here if they reach the stage, (n,) bool."""
        is_wide = self.margin >= cut.margin
        return is_wide if self.gate is None else is_wide | (self.gate <= cut.gate)


@dataclass(frozen=True)
class Choices:
    """The stages, first to last, and the cloud: (n,) expected loss of f0's answer, and cost of forwarding."""

    stages: Sequence[Meeting]
    cloud_wrong: np.ndarray
    cloud_cost: np.ndarray
    weight: np.ndarray


def expected(choices: Choices, cuts: Cuts) -> tuple[float, float]:
    """Weighted mean expected loss, and mean cost, under these cuts."""
    wrong, cost = choices.cloud_wrong, choices.cloud_cost
    for k in sorted(cuts, reverse=True):
        stage = choices.stages[k]
        ends = stage.ends(cuts[k])
        wrong, cost = np.where(ends, stage.wrong, wrong), np.where(ends, stage.cost, cost)
    return float(np.average(wrong, weights=choices.weight)), float(np.average(cost, weights=choices.weight))


def mean_value(choices: Choices, cuts: Cuts, price: float) -> float:
    """Weighted mean of ``loss + price * cost`` under these cuts."""
    wrong, cost = expected(choices, cuts)
    return wrong + price * cost


def priced_cuts(choices: Choices, price: float) -> Cuts:
    """The cuts that minimise ``mean_value``, each given the others, by passes from the last stage to the first.

    Passes repeat while the rows that reach a stage change, at most ``N_PASSES`` times.

    Parameters
    ----------
    price : errors per unit of cost

    Examples
    --------
    >>> margin, ones = np.array([0.1, 0.2, 0.8, 0.9]), np.ones(4)
    >>> stage = Meeting(margin, None, wrong=np.array([0.5, 0.4, 0.1, 0.0]), cost=ones)
    >>> choices = Choices([stage], cloud_wrong=0.05 * ones, cloud_cost=5 * ones, weight=ones)
    >>> priced_cuts(choices, price=0.05)
    {0: Cut(margin=0.5, gate=-1000000.0)}
    """
    stages, n = choices.stages, len(choices.weight)
    reach = np.ones((len(stages), n), dtype=bool)
    cuts: list[Cut] = []
    for _ in range(N_PASSES):
        onward = choices.cloud_wrong + price * choices.cloud_cost  # of going on, as later stages are cut
        ends, new_cuts = np.zeros((len(stages), n), dtype=bool), []
        for k in reversed(range(len(stages))):
            stage = stages[k]
            stopping = stage.wrong + price * stage.cost
            rows = reach[k] if reach[k].any() else np.ones(n, bool)
            new_cuts.append(_cut(stage, choices.weight * (stopping - onward), rows))
            ends[k] = stage.ends(new_cuts[-1])
            onward = np.where(ends[k], stopping, onward)
        if new_cuts[::-1] == cuts:
            break
        cuts = new_cuts[::-1]
        reach[1:] = ~np.logical_or.accumulate(ends, axis=0)[:-1]
    return _in_use(cuts, ends & reach)


def _cut(stage: Meeting, loss: np.ndarray, reach: np.ndarray) -> Cut:
    """The best cut: first by margin, then by gate on the other rows; where ``loss`` is above 0, going on is better."""
    cut = Cut(-_bound(-stage.margin, *stage.by_margin, np.where(reach, loss, 0.0)))
    if stage.gate is None or cut.is_last:
        return cut
    easy = _bound(stage.gate, *stage.by_gate, np.where(reach & (stage.margin < cut.margin), loss, 0.0))
    return Cut(-NEVER) if easy >= NEVER else Cut(cut.margin, easy)


def best_bound(key: np.ndarray, loss: np.ndarray) -> float:
    """The threshold of ``key`` (n,) below which the sum of ``loss`` (n,) is least; -NEVER if no sum is negative."""
    return _bound(key, *_sorted(key), loss)


def best_way(costs: np.ndarray, margin: np.ndarray, weight: np.ndarray) -> tuple[float, int]:
    """The best margin from which on rows stop if all other rows take a single action, and that action.

    Parameters
    ----------
    costs : (n, n_actions), where action 0 is stopping
    margin, weight : (n,)
    """
    order, is_last = _sorted(-margin)
    least, best = np.inf, (-NEVER, 0)
    for action in range(1, costs.shape[1]):
        excess = weight * (costs[:, 0] - costs[:, action])
        cut = -_bound(-margin, order, is_last, excess)
        total = float(excess[margin >= cut].sum() + weight @ costs[:, action])
        if total < least:
            least, best = total, (cut, action)
    return best


def _sorted(key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(key, kind="stable")
    return order, np.append(np.diff(key[order]) > 0, True)


def _bound(key: np.ndarray, order: np.ndarray, is_last: np.ndarray, loss: np.ndarray) -> float:
    """The threshold of ``key`` below which the sum of ``loss`` is least: half-way between two rows, or beyond all."""
    sums = np.where(is_last, np.cumsum(loss[order]), np.inf)  # rows of equal keys stay together
    best = int(np.argmin(sums))
    if sums[best] >= 0:
        return -NEVER
    if sums[-1] <= sums[best]:
        return NEVER
    return float(key[order[best]] + key[order[best + 1]]) / 2


def _in_use(cuts: Sequence[Cut], ends: np.ndarray) -> Cuts:
    """The cuts of stages at which some row exits, up to the first at which all do."""
    used: Cuts = {}
    for k, cut in enumerate(cuts):
        if ends[k].any():
            used[k] = cut
        if cut.is_last:
            break
    return used
