# SPDX-License-Identifier: Apache-2.0
"""How much a plan of scenes can gain: plans by expected accuracy, and a plan that knows all times in advance.

``expected`` is a design of another kind than the hybrid: it knows the distribution of every extractor's times, and
always reads what leads to the best expected accuracy. Let R be the extractors read, b the time left, r(R) the accuracy
of the best shipped set within R, and t_k the time of extractor k, independent of the others; then

    V(R, b) = max( r(R), max over k of E[ V(R + k, b - t_k) if t_k <= b, else r(R) ] ).

``exact`` is the hybrid that knows, from the test rows themselves, how accurate each set is on the rows of each answer.
It bounds what choices by answer can gain with ever more judged rows.
``known`` reads the most accurate set that it will have read in time. A plan that goes by the accuracies of sets is
expected to reach no more, so it bounds what a rule for the next reading can gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.scene_budgets import QUANTILES, Race, answers_of, by_answer
from hardcase_train.methods.polydom.index import Set
from hardcase_train.methods.polydom.plan import Shipped, anytime_nodes, index_nodes
from hardcase_train.methods.polydom.sets import members

__all__ = ["plans"]

N_LEFT = 56  # steps of the time left
N_TIMES = 9  # quantiles that stand for the distribution of a time
EXACT_AT = 0.75  # quantile of extraction times, as costs
LEAST = 1e-4  # of expected accuracy, for which another reading is begun


def plans(race: Race) -> dict[str, Any]:
    """Mean accuracies in time of validation rows by design, each with its best quantile; ``known`` of test rows too."""
    valid: dict[str, list[float]] = {"poly-dom": [], "hybrid": [], "expected": []}
    for quantile in QUANTILES[:-1]:
        costs = race.costs(quantile)
        sets = race.best(costs)
        shipped, answers = Shipped(tuple(sets), costs), answers_of(sets)
        hybrid = anytime_nodes(shipped, answers, most_lost=0)
        valid["poly-dom"].append(race.in_time(index_nodes(shipped, answers), sets, costs, "valid", False).mean())
        valid["hybrid"].append(race.in_time(hybrid, sets, costs, "valid", True).mean())
        valid["expected"].append(Expected(race, sets).in_time("valid"))
    sets = race.sets(race.costs(0.5), race.masks)
    return {
        "valid": {**{name: float(max(scores)) for name, scores in valid.items()}, "known": known(race, sets, "valid")},
        "test": {"known": known(race, sets, "test"), "exact": exact(race)},
    }


def exact(race: Race) -> float:
    """The mean accuracy in time of the hybrid whose gains by answer are those of the rows that it is tried on."""
    costs = race.costs(EXACT_AT)
    sets = race.best(costs)
    shipped = Shipped(tuple(sets), costs, by_answer(race.bank, sets, "test", prior_rows=1.0))
    nodes = anytime_nodes(shipped, answers_of(sets), most_lost=0)
    return float(race.in_time(nodes, sets, costs, "test", True).mean())


def known(race: Race, sets: Sequence[Set], part: str) -> float:
    """Mean accuracy in time if each row is answered by the most accurate set that is read in time."""
    ms = race.scenes.ms[race.clock][part]
    places = [list(members(s.mask)) for s in sets]
    shares = []
    for budget in race.budgets:
        right, is_open = np.zeros(len(ms), dtype=np.bool_), np.ones(len(ms), dtype=np.bool_)
        for s, place in zip(sets, places, strict=True):  # most accurate first
            now = is_open & (ms[:, place].sum(axis=1) <= budget)
            right[now] = race.bank.right(s.mask, part)[now]
            is_open &= ~now
        shares.append(right.mean())
    return float(np.mean(shares))


class Expected:
    """The plan by expected accuracy with these sets shipped: the next extractor by size, state and time left."""

    def __init__(self, race: Race, sets: Sequence[Set]) -> None:
        self.race, self.sets = race, sets
        n = len(race.scenes.names)
        self.left = np.concatenate([[0.0], np.geomspace(0.02, 1.5 * race.budgets[0], N_LEFT)])
        self.place = _best_within(sets, n)
        ms, sizes = race.scenes.ms[race.clock]["train"], race.scenes.sizes["train"]
        middles = (np.arange(N_TIMES) + 0.5) / N_TIMES
        self.next = {
            int(side): self._next(np.quantile(ms[sizes == side], middles, axis=0)) for side in np.unique(sizes)
        }

    def _next(self, times: np.ndarray) -> np.ndarray:
        """(n_states, n_left) the next extractor, -1 to answer, for times (n_times, n_extractors)."""
        n, accuracy = times.shape[1], np.array([s.accuracy for s in self.sets])[self.place]
        after = np.searchsorted(self.left, self.left - times[:, :, None] + 1e-12, side="right") - 1
        states = np.arange(1 << n)
        count = np.array([state.bit_count() for state in states.tolist()])
        value = np.repeat(accuracy[:, None], len(self.left), axis=1)
        chosen = np.full(value.shape, -1, dtype=np.int8)
        for size in range(n - 1, -1, -1):
            for k in range(n):
                here = states[(count == size) & (states >> k & 1 == 0)]
                later, stays = value[here | 1 << k], accuracy[here, None]
                worth = np.mean([np.where(a >= 0, later[:, np.maximum(a, 0)], stays) for a in after[:, k]], axis=0)
                is_better = worth > value[here] + LEAST
                value[here] = np.where(is_better, worth, value[here])
                chosen[here] = np.where(is_better, k, chosen[here])
        return chosen

    def in_time(self, part: str) -> float:
        """Mean accuracy in time; a reading that would pass the deadline is given up, and what is there answers."""
        sizes, ms = self.race.scenes.sizes[part], self.race.scenes.ms[self.race.clock][part]
        right = np.stack([self.race.bank.right(s.mask, part) for s in self.sets])
        return float(
            np.mean([right[self._answered(sizes, ms, b), np.arange(len(ms))].mean() for b in self.race.budgets])
        )

    def _answered(self, sizes: np.ndarray, ms: np.ndarray, budget: float) -> np.ndarray:
        """The number of the set that answers each row."""
        state, left = np.zeros(len(ms), dtype=np.int64), np.full(len(ms), budget)
        open_ = np.arange(len(ms))
        while len(open_):
            step = np.searchsorted(self.left, left[open_], side="right") - 1
            sides = sizes[open_].tolist()
            k = np.array([self.next[s][state[row], g] for s, row, g in zip(sides, open_, step, strict=True)])
            took = ms[open_, k]  # of the last extractor, where the row answers
            goes_on = (k >= 0) & (took <= left[open_])
            open_, k, took = open_[goes_on], k[goes_on], took[goes_on]
            left[open_] -= took
            state[open_] |= 1 << k.astype(np.int64)
        return self.place[state]


def _best_within(sets: Sequence[Set], n: int) -> np.ndarray:
    """(2^n,) for each state the number of the most accurate set within it; sets are most accurate first."""
    place = np.full(1 << n, len(sets) - 1)
    for number in range(len(sets) - 1, -1, -1):
        mask = sets[number].mask
        states = np.arange(1 << n)
        place[states & mask == mask] = number
    return place
