# SPDX-License-Identifier: Apache-2.0
"""How accurate sets are for the items that a smaller set answers alike. docs/math.md (157).

Items that look like a coast need other readings than those that look like a street. Judged rows say by how much each
set is better than the one that has just answered, for each of its answers; from few rows, as for all items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...successors.gains import PRIOR_ROWS, gains_by_answer

LEAST_HELP = 0.01  # of accuracy over all rows, for a set to be shipped that is the best one for some answers alone
MOST_HELPFUL = 8  # of them


@dataclass(frozen=True)
class ByAnswer:
    """What the models of sets answered to judged rows.

    Parameters
    ----------
    masks : of the sets
    label : (n_sets, n) class that each one answers
    is_right : (n_sets, n)
    weight : (n,) of the rows, in rows
    n_classes : that a model may answer
    prior_rows : how many rows of each answer the mean gain over all rows counts as
    """

    masks: tuple[int, ...]
    label: np.ndarray
    is_right: np.ndarray
    weight: np.ndarray
    n_classes: int
    prior_rows: float = PRIOR_ROWS

    @cached_property
    def _place(self) -> dict[int, int]:
        return {mask: k for k, mask in enumerate(self.masks)}

    @cached_property
    def _known(self) -> dict[int, np.ndarray]:
        return {}

    def shares(self, mask: int) -> np.ndarray:
        """The share of rows to which the model of a set answers each class, (n_classes,)."""
        label = self.label[self._place[mask]]
        return np.asarray(np.bincount(label, self.weight, self.n_classes) / self.weight.sum())

    def gains(self, mask: int, others: Sequence[int]) -> np.ndarray:
        """By how much the models of other sets are more accurate where that of ``mask`` answers a class.

        Shape (n_classes, n_others); the mean over all rows counts as ``prior_rows`` rows of each answer.
        """
        if mask not in self._known:
            one = self._place[mask]
            answered = self.label[one] == np.arange(self.n_classes)[:, None]
            more = self.is_right.astype(np.float32) - self.is_right[one]
            self._known[mask] = gains_by_answer(answered, more, self.weight, self.prior_rows)
        return np.asarray(self._known[mask][:, [self._place[m] for m in others]])

    def helpful(self, shipped: Sequence[int], amounts: np.ndarray) -> list[int]:
        """A few sets beside those that are shipped, which some answers gain by.

        One after the other, the set that adds most, over all rows, to what the best shipped superset of a shipped set
        gains at no higher cost, where the smaller set answers a class.

        Parameters
        ----------
        shipped : masks of sets that are known here
        amounts : (2^n_sensors,) cost of each set
        """
        masks = np.array(sorted(self.masks, key=lambda mask: amounts[mask]))
        ends = np.searchsorted(amounts[masks], amounts[masks], side="right") - 1  # the last of those that cost as much
        larger = {m: masks & m == m for m in shipped if m}
        gains = {m: self.shares(m)[:, None] * self.gains(m, masks.tolist()) for m in larger}
        is_shipped, added = np.isin(masks, list(shipped)), list[int]()
        while len(added) < MOST_HELPFUL:
            value = np.zeros(len(masks))
            for m, gain in gains.items():
                reached = np.maximum.accumulate(np.where(is_shipped & larger[m], np.maximum(gain, 0.0), 0.0), axis=1)
                more = np.where(larger[m], np.maximum(gain - reached[:, ends], 0.0), 0.0)
                value = np.maximum(value, more.sum(axis=0))
            value[is_shipped] = 0.0
            chosen = int(value.argmax())
            if value[chosen] <= LEAST_HELP:
                break
            is_shipped[chosen] = True
            added.append(int(masks[chosen]))
        return added
