# SPDX-License-Identifier: Apache-2.0
"""Scenes in time: what each method answers rightly before a deadline, from recorded extraction times.

``benchmarks/polydom.py`` runs it on a split of ``benchmarks/scene_bank.py``. Choices are made on validation images;
test images are answered once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.scene_bank import Bank, Scenes
from hardcase_edge.program.definition import Acquire, Answer, Branch, Candidate, Node, Select, Slice
from hardcase_train.methods.polydom.by_answer import ByAnswer
from hardcase_train.methods.polydom.estimate import best_few, grid_of
from hardcase_train.methods.polydom.greedy import ACCURACY, CHEAPEST, PRICES, make_sequences
from hardcase_train.methods.polydom.index import Set, candidates, make_index
from hardcase_train.methods.polydom.plan import Shipped, anytime_nodes, index_nodes, sequence_nodes
from hardcase_train.methods.polydom.search import Searched
from hardcase_train.methods.polydom.sets import Costs, members
from hardcase_train.successors.gains import PRIOR_ROWS

N_BUDGETS = 10
QUANTILES = (0.25, 0.5, 0.75, 0.9, 1.0)  # of extraction times, as costs

Nodes = Sequence[Node]


def answered(
    nodes: Nodes, costs: Costs, sizes: np.ndarray, ms: np.ndarray, budget_ms: np.ndarray, label: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The number of the model that answers each row, and whether a reading was cut, by the clock.

    Extractors are read one after the other. What they took is spent; a reading that would pass the deadline is given
    up there, and the walk goes on at ``otherwise``. Candidates and sets must fit by their declared costs.

    Parameters
    ----------
    label : (n_models, n_items), the class that each model gives to each item; rows are all items at one budget, then
        at the next
    """
    n = len(sizes)
    at, left = np.zeros(n, dtype=np.int64), budget_ms.astype(np.float64)
    read = np.zeros(ms.shape, dtype=np.bool_)
    answer, cut = np.full(n, -1), np.zeros(n, dtype=np.bool_)
    sides, side_of = np.unique(sizes, return_inverse=True)
    single = np.array([[costs.at(int(s))[1 << k] for k in range(costs.n)] for s in sides]) / 1e6
    for k, node in enumerate(nodes):
        rows = np.flatnonzero(at == k)
        rows = rows[answer[rows] < 0]
        if not len(rows):
            continue
        if isinstance(node, Answer):
            answer[rows] = node.scores.scorer
        elif isinstance(node, Branch):
            at[rows] = np.array(node.targets)[label[node.scores.scorer, rows % label.shape[1]]]
        elif isinstance(node, Select):
            at[rows] = node.otherwise
            open_ = np.ones(len(rows), dtype=np.bool_)
            for c in node.candidates:
                price = np.array([sum(a * int(s) ** d for d, a in enumerate(c.cost)) for s in sides]) / 1e6
                now = open_ & (sizes[rows] <= c.max_size) & (price[side_of[rows]] <= left[rows])
                at[rows[now]] = c.target
                open_ &= ~now
        else:
            assert isinstance(node, Acquire)
            columns = list(node.sensors)
            missing = ~read[np.ix_(rows, columns)]
            fits = (single[side_of[rows]][:, columns] * missing).sum(axis=1) <= left[rows]
            took = (ms[np.ix_(rows, columns)] * missing).sum(axis=1)
            whole = fits & (took <= left[rows])
            cut[rows[fits & ~whole]] = True
            left[rows] = np.where(whole, left[rows] - took, np.where(fits, 0.0, left[rows]))
            done = rows[whole]
            read[np.ix_(done, columns)] = True
            at[rows] = np.where(whole, node.then, node.otherwise)
    return answer, cut


class Race:
    """Methods on one split and clock; ``score`` is the mean accuracy in time over budgets."""

    def __init__(self, scenes: Scenes, bank: Bank, clock: str, masks: Sequence[int]) -> None:
        self.scenes, self.bank, self.clock, self.masks = scenes, bank, clock, masks
        ms, sizes = scenes.ms[clock]["train"], scenes.sizes["train"]
        whole = float(np.median(ms[sizes == sizes.max()].sum(axis=1)))
        self.budgets = [whole / 2**k for k in range(N_BUDGETS)]
        self._costs: dict[float, Costs] = {}
        self._best: dict[int, list[Set]] = {}  # by the identity of costs, which are kept

    def costs(self, quantile: float) -> Costs:
        """Costs at a quantile of extraction times."""
        if quantile not in self._costs:
            self._costs[quantile] = self.scenes.costs(self.clock, quantile)
        return self._costs[quantile]

    def best(self, costs: Costs) -> list[Set]:
        """The sets on the skyline of some size, of all that the search has trained."""
        if id(costs) not in self._best:
            known = Searched(costs, {m: self.bank.accuracy(m) for m in dict.fromkeys([0, *self.masks])})
            index = make_index(candidates(known), costs.largest)
            self._best[id(costs)] = self.sets(costs, [s.mask for s in index.sets])
        return self._best[id(costs)]

    def sets(self, costs: Costs, masks: Sequence[int]) -> list[Set]:
        """Sets of these masks, and the empty one, most accurate first."""
        made = [Set(m, costs.of(m), self.bank.accuracy(m)) for m in dict.fromkeys([0, *masks])]
        return sorted(made, key=lambda s: (-s.accuracy, s.mask))

    def in_time(self, nodes: Nodes, sets: Sequence[Set], costs: Costs, part: str, may_be_cut: bool) -> np.ndarray:
        """(n_budgets,) share of right answers; where it may not be cut, an answer after a cut is late, and wrong."""
        sizes, ms = self.scenes.sizes[part], self.scenes.ms[self.clock][part]
        label = np.stack([self.bank.label(s.mask, part) for s in sets])
        right = label == self.scenes.y[part]
        n, m = len(sizes), len(self.budgets)
        rows = np.tile(sizes, m), np.tile(ms, (m, 1)), np.repeat(self.budgets, n)
        answer, cut = answered(nodes, costs, *rows, label)
        good = right[answer, np.tile(np.arange(n), m)] & (may_be_cut | ~cut)
        return np.asarray(good.reshape(m, n).mean(axis=1))

    def tested(self, make: Callable[[Costs], tuple[Nodes, Sequence[Set]]], may_be_cut: bool,
               quantiles: Sequence[float] = QUANTILES) -> dict[str, Any]:  # fmt: skip
        """The score on test rows with the quantile of costs that is best on validation rows."""
        best: tuple[float, float, Any] = (-1.0, 0.0, None)
        for quantile in quantiles:
            costs = self.costs(quantile)
            nodes, sets = make(costs)
            value = float(self.in_time(nodes, sets, costs, "valid", may_be_cut).mean())
            if value > best[0]:
                best = (value, quantile, (nodes, sets, costs))
        nodes, sets, costs = best[2]
        curve = self.in_time(nodes, sets, costs, "test", may_be_cut)
        return {
            "score": float(curve.mean()),
            "quantile": best[1],
            "models": len(sets) - 1,
            "nodes": len(nodes),
            "curve": curve.tolist(),
        }


def answers_of(sets: Sequence[Set]) -> list[Answer]:
    """The answer of each set's model."""
    return [Answer(Slice(k, 0, 15)) for k in range(len(sets))]


def by_answer(bank: Bank, sets: Sequence[Set], part: str = "valid", prior_rows: float = PRIOR_ROWS) -> ByAnswer:
    """What the sets' models answer to the rows of a part; with validation rows go training rows, out of fold."""
    parts = ("train", "valid") if part == "valid" else (part,)
    rows = [[bank.unseen(s.mask) if p == "train" else bank.label(s.mask, p) for p in parts] for s in sets]
    label = np.stack([np.concatenate(of) for of in rows])
    y = np.concatenate([bank.scenes.y[p] for p in parts])
    return ByAnswer(tuple(s.mask for s in sets), label, label == y, np.ones(len(y)), 15, prior_rows)


def methods_in_time(scenes: Scenes, bank: Bank, clock: str, masks: Sequence[int]) -> dict[str, Any]:
    """Every method's score; ``masks``: the sets that the search has trained."""
    race = Race(scenes, bank, clock, masks)
    sides = [int(s) for s in np.unique(scenes.sizes["train"])]

    def shipped(costs: Costs, limits: dict[str, Any] | None = None) -> list[Set]:
        sets = race.best(costs)
        if limits is None:
            return sets
        return best_few(sets, grid_of(sets, sides), n_bytes=bank.n_bytes, **limits)

    def plan(
        kind: Any, limits: dict[str, Any] | None = None, by_item: bool = False
    ) -> Callable[[Costs], tuple[Nodes, Sequence[Set]]]:
        def make(costs: Costs) -> tuple[Nodes, Sequence[Set]]:
            sets = shipped(costs, limits)
            known = by_answer(bank, sets) if by_item else None
            return kind(Shipped(tuple(sets), costs, known), answers_of(sets)), sets

        return make

    def anytime(shipped: Shipped, answers: Sequence[Answer]) -> Nodes:
        return anytime_nodes(shipped, answers, most_lost=0)  # no extractor fails here before the time is over

    def greedy(prices: Sequence[float], at: Sequence[int]) -> Callable[[Costs], tuple[Nodes, Sequence[Set]]]:
        ends = [*((a + b) // 2 for a, b in pairwise(at)), sides[-1]]

        def make(costs: Costs) -> tuple[Nodes, Sequence[Set]]:
            groups = [make_sequences(costs, bank.accuracy, size, prices) for size in at]
            sets = race.sets(costs, [m for group in groups for m in group.masks])
            nodes = sequence_nodes(Shipped(tuple(sets), costs), list(zip(ends, groups, strict=True)), answers_of(sets))
            return nodes, sets

        return make

    median = [sides[len(sides) // 2]]
    results = {
        "poly-dom, worst-case costs": race.tested(plan(index_nodes), False, (1.0,)),
        "poly-dom": race.tested(plan(index_nodes), False),
        "one set for all sizes": _one_set(race, shipped),
        "greedy-cost": race.tested(greedy((CHEAPEST,), median), True),
        "greedy-acc": race.tested(greedy((ACCURACY,), median), True),
        "greedy": race.tested(greedy(PRICES, median), True),
        "greedy per size": race.tested(greedy(PRICES, sides), True),
        "hybrid": race.tested(plan(anytime, None, True), True),
        "hybrid, alike for all answers": race.tested(plan(anytime), True),
        "hybrid, 16 models": race.tested(plan(anytime, {"max_models": 16}, True), True),
        "hybrid, 100 KB": race.tested(plan(anytime, {"max_models": None, "max_bytes": 100_000}, True), True),
        "hybrid, 8 models": race.tested(plan(anytime, {"max_models": 8}, True), True),
        "poly-dom, 16 models": race.tested(plan(index_nodes, {"max_models": 16}), False),
        "poly-dom, accuracy per size": _own_sizes(race),
    }
    return {"budgets": race.budgets, "methods": results}


def _one_set(race: Race, shipped: Callable[[Costs], list[Set]]) -> dict[str, Any]:
    """For each budget the one set that is best on validation rows, read for items of every size."""
    sets = shipped(race.costs(0.5))
    took = {p: race.scenes.ms[race.clock][p] for p in ("valid", "test")}

    def share(s: Set, part: str, budget: float) -> float:
        time = took[part][:, list(members(s.mask))].sum(axis=1)
        return float((race.bank.right(s.mask, part) & (time <= budget)).mean())

    curve = []
    for budget in race.budgets:
        best = max(sets, key=lambda s, budget=budget: share(s, "valid", budget))
        curve.append(share(best, "test", budget))
    return {"score": float(np.mean(curve)), "quantile": None, "models": len(sets) - 1, "curve": curve}


def _own_sizes(race: Race) -> dict[str, Any]:
    """Poly-Dom with the accuracy of each size in place of one for all sizes."""
    sides = np.unique(race.scenes.sizes["train"])

    def make(costs: Costs) -> tuple[Nodes, Sequence[Set]]:
        groups, used = [], {0: None}
        for s, side in enumerate(sides.tolist()):
            order = sorted(dict.fromkeys([0, *race.masks]), key=lambda m, s=s: (-race.bank.by_size(m)[s], m))
            line: list[int] = []
            for m in order:
                if not line or all(costs.at(side)[m] < costs.at(side)[k] for k in line):
                    line.append(m)
            groups.append((side, [m for m in line if m]))
            used |= dict.fromkeys(line)
        sets = race.sets(costs, list(used))
        place = {s.mask: k for k, s in enumerate(sets)}
        reads = [m for m in used if m]
        first = {m: 1 + k for k, m in enumerate(reads)}
        n = 1 + len(reads)
        options = [Candidate(side, costs.of(m), first[m]) for side, line in groups for m in line]
        nodes: list[Node] = [Select(tuple(options), n + place[0])]
        nodes += [Acquire(members(m), n + place[m], n + place[0]) for m in reads]
        return [*nodes, *answers_of(sets)], sets

    return race.tested(make, False)
