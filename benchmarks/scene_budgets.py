# SPDX-License-Identifier: Apache-2.0
"""Scenes in time: what each method answers rightly before a deadline, from recorded extraction times.

``benchmarks/polydom.py`` runs it on the record of ``benchmarks/scene_extractors.py``. Images are split 45/15/40, all
sizes of an image on one side. Choices are made on validation images; test images are answered once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import linprog

from hardcase_edge.program.definition import Acquire, Answer, Node, Select, Slice
from hardcase_train.methods.polydom.estimate import search_estimated
from hardcase_train.methods.polydom.few import best_few, grid_of
from hardcase_train.methods.polydom.greedy import ACCURACY, CHEAPEST, PRICES, make_sequences
from hardcase_train.methods.polydom.index import Set, candidates, make_index
from hardcase_train.methods.polydom.plan import Shipped, anytime_nodes, index_nodes, sequence_nodes
from hardcase_train.methods.polydom.search import SANDWICH, Searched, search_sets
from hardcase_train.methods.polydom.sets import Costs, bits, members

__all__ = ["QUANTILES", "SIDES", "Bank", "Race", "Scenes", "answers_of", "methods_in_time", "searches"]

MAX_COLUMNS = 40  # principal components of an extractor
RIDGE = 0.03
SIDES = (96, 48, 32, 24)  # of the record
DEGREE = 2  # of costs in the side in pixels
N_BUDGETS = 10
QUANTILES = (0.25, 0.5, 0.75, 0.9, 1.0)  # of extraction times, as costs
E = 0.01
BATCH = 32  # sets whose accuracies are computed at once

Nodes = Sequence[Node]


@dataclass
class Scenes:
    """One split of the recorded scenes.

    blocks : columns of each extractor
    Z : rows of each part, "train", "valid" and "test", (n, n_columns); rows are all images at one size, then the next
    y, sizes, ms : of the same rows; ms (n, n_extractors) by clock
    """

    names: list[str]
    blocks: list[np.ndarray]
    Z: dict[str, np.ndarray]
    y: dict[str, np.ndarray]
    sizes: dict[str, np.ndarray]
    ms: dict[str, dict[str, np.ndarray]]

    @classmethod
    def read(cls, path: Path, seed: int) -> Scenes:
        """The record, split by image."""
        with np.load(path) as data:
            names, sides, y = data["names"].tolist(), data["sizes"], data["y"]
            raw = [data[f"x.{name}"].astype(np.float32) for name in names]
            times = {clock: data[f"{clock}_ms"] for clock in ("cpu", "wall")}
        n = len(y)
        order = np.random.default_rng(seed).permutation(n)
        ends = [round(0.45 * n), round(0.6 * n)]
        parts = dict(zip(("train", "valid", "test"), np.split(order, ends), strict=True))

        def rows(values: np.ndarray, part: str) -> np.ndarray:
            return values[:, parts[part]].reshape(-1, values.shape[-1])

        Z: dict[str, list[np.ndarray]] = {part: [] for part in parts}
        for values in raw:
            reduce = _components(rows(values, "train"))
            for part in parts:
                Z[part].append(reduce(rows(values, part)))
        widths = np.cumsum([0, *(block.shape[1] for block in Z["train"])])
        return cls(
            names,
            [np.arange(a, b) for a, b in pairwise(widths)],
            {part: np.hstack(blocks) for part, blocks in Z.items()},
            {part: np.tile(y[rows_], len(sides)).astype(np.int64) for part, rows_ in parts.items()},
            {part: np.repeat(sides, len(rows_)) for part, rows_ in parts.items()},
            {clock: {part: rows(values, part) for part in parts} for clock, values in times.items()},
        )

    def bank(self) -> Bank:
        """A least-squares classifier for every set."""
        return Bank(self)

    def costs(self, clock: str, quantile: float) -> Costs:
        """Costs of the extractors in micro-ms: polynomials above this quantile at each recorded side."""
        ms, sizes = self.ms[clock]["train"], self.sizes["train"]
        sides = np.unique(sizes)
        at = np.array([np.quantile(ms[sizes == side], quantile, axis=0) for side in sides])
        powers = sides[:, None].astype(float) ** np.arange(DEGREE + 1)
        scale = powers.max(axis=0)
        polynomials = []
        for k in range(len(self.names)):
            weight = 1 / at[:, k]
            fit = linprog((powers / scale * weight[:, None]).sum(axis=0), A_ub=-powers / scale, b_ub=-at[:, k])
            polynomials.append(tuple(int(np.ceil(c * 1e6)) for c in fit.x / scale))
        return Costs(polynomials, int(sides.max()))


def _components(train: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Standardised readings, or as many of their principal components as are kept, each of deviation 1."""
    mean, deviation = train.mean(axis=0), np.maximum(train.std(axis=0), 1e-6)
    Z = (train - mean) / deviation
    if Z.shape[1] <= MAX_COLUMNS:
        return lambda rows: np.clip((rows - mean) / deviation, -8, 8)
    values, vectors = np.linalg.eigh(Z.T @ Z / len(Z))
    turn = vectors[:, ::-1][:, :MAX_COLUMNS] / np.sqrt(np.maximum(values[::-1][:MAX_COLUMNS], 1e-6))
    return lambda rows: np.clip((rows - mean) / deviation @ turn, -8, 8)


class Bank:
    """Least-squares classifiers of sets of extractors, from one Gram matrix; accuracies on validation rows."""

    def __init__(self, scenes: Scenes) -> None:
        self.scenes = scenes
        Z, y = scenes.Z["train"], scenes.y["train"]
        self._A = {
            part: np.hstack([values, np.ones((len(values), 1), values.dtype)]) for part, values in scenes.Z.items()
        }
        self._gram = (self._A["train"].T @ self._A["train"]).astype(np.float64) / len(Z)
        self._cross = (self._A["train"].T @ np.eye(15)[y]).astype(np.float64) / len(Z)
        self._by_size: dict[int, np.ndarray] = {}
        self._test: dict[int, np.ndarray] = {}
        self._sides = np.unique(scenes.sizes["valid"])

    def rows(self, part: str) -> np.ndarray:
        """The rows of a part, with a 1 behind each."""
        return self._A[part]

    def sums(self) -> tuple[np.ndarray, np.ndarray]:
        """Means of products of training rows with themselves, and with their classes; copies."""
        return self._gram.copy(), self._cross.copy()

    def columns(self, mask: int) -> np.ndarray:
        """The columns that a set reads, and the constant."""
        return np.concatenate([*(self.scenes.blocks[k] for k in members(mask)), [len(self._gram) - 1]]).astype(int)

    def _coef(self, mask: int) -> np.ndarray:
        terms = self.columns(mask)
        gram = self._gram[np.ix_(terms, terms)].copy()
        gram[np.diag_indices(len(terms) - 1)] += RIDGE
        return np.asarray(cho_solve(cho_factor(gram), self._cross[terms]).astype(np.float32))

    def _right(self, mask: int, part: str) -> np.ndarray:
        return np.asarray(
            (self._A[part][:, self.columns(mask)] @ self._coef(mask)).argmax(axis=1) == self.scenes.y[part]
        )

    def fill(self) -> None:
        """Know the accuracies of all sets; many at once, which is quicker than one by one."""
        open_ = [m for m in range(1 << len(self.scenes.blocks)) if m not in self._by_size]
        goal, sizes = self.scenes.y["valid"][:, None], self.scenes.sizes["valid"]
        for batch in np.array_split(open_, max(1, len(open_) // BATCH)):
            coef = np.zeros((len(self._gram), len(batch), 15), dtype=np.float32)
            for k, mask in enumerate(batch.tolist()):
                coef[self.columns(mask), k] = self._coef(mask)
            scores = (self._A["valid"] @ coef.reshape(len(coef), -1)).reshape(len(goal), len(batch), 15)
            right = scores.argmax(axis=2) == goal
            accuracy = np.array([right[sizes == side].mean(axis=0) for side in self._sides])
            self._by_size |= {mask: accuracy[:, k] for k, mask in enumerate(batch.tolist())}

    def by_size(self, mask: int) -> np.ndarray:
        """(n_sizes,) accuracy on validation rows of each size, by rising size."""
        if mask not in self._by_size:
            right, sizes = self._right(mask, "valid"), self.scenes.sizes["valid"]
            self._by_size[mask] = np.array([right[sizes == side].mean() for side in self._sides])
        return self._by_size[mask]

    def accuracy(self, mask: int) -> float:
        """Accuracy on all validation rows, of which each size has as many."""
        return float(self.by_size(mask).mean())

    def right(self, mask: int, part: str) -> np.ndarray:
        """Whether each row of a part is answered rightly."""
        if part != "test":
            return self._right(mask, part)
        if mask not in self._test:
            self._test[mask] = self._right(mask, part)
        return self._test[mask]

    def n_bytes(self, mask: int) -> int:
        """Bytes of the weights, 2 each, and of the biases."""
        return 15 * (2 * (len(self.columns(mask)) - 1) + 8)


# ---------------------------------------------------------------- searches


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


# ---------------------------------------------------------------- in time


def answered(
    nodes: Nodes, costs: Costs, sizes: np.ndarray, ms: np.ndarray, budget_ms: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The number of the model that answers each row, and whether a reading was cut, by the clock.

    Extractors are read one after the other. What they took is spent; a reading that would pass the deadline is given
    up there, and the walk goes on at ``otherwise``. Candidates and sets must fit by their declared costs.
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
        self._right: dict[tuple[str, int], np.ndarray] = {}
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
        right = np.stack([self.rights(s.mask, part) for s in sets])
        n, m = len(sizes), len(self.budgets)
        answer, cut = answered(nodes, costs, np.tile(sizes, m), np.tile(ms, (m, 1)), np.repeat(self.budgets, n))
        good = right[answer, np.tile(np.arange(n), m)] & (may_be_cut | ~cut)
        return np.asarray(good.reshape(m, n).mean(axis=1))

    def rights(self, mask: int, part: str) -> np.ndarray:
        """Whether each row of a part is answered rightly by a set's model."""
        if (part, mask) not in self._right:
            self._right[part, mask] = self.bank.right(mask, part)
        return self._right[part, mask]

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
        return {"score": float(curve.mean()), "quantile": best[1], "models": len(sets) - 1, "curve": curve.tolist()}


def answers_of(sets: Sequence[Set]) -> list[Answer]:
    """The answer of each set's model."""
    return [Answer(Slice(k, 0, 15)) for k in range(len(sets))]


def methods_in_time(scenes: Scenes, bank: Bank, clock: str, masks: Sequence[int]) -> dict[str, Any]:
    """Every method's score; ``masks``: the sets that the search has trained."""
    race = Race(scenes, bank, clock, masks)
    sides = [int(s) for s in np.unique(scenes.sizes["train"])]

    def shipped(costs: Costs, limits: dict[str, Any] | None = None) -> list[Set]:
        sets = race.best(costs)
        if limits is None:
            return sets
        return best_few(sets, grid_of(sets, sides), n_bytes=bank.n_bytes, **limits)

    def plan(kind: Any, limits: dict[str, Any] | None = None) -> Callable[[Costs], tuple[Nodes, Sequence[Set]]]:
        def make(costs: Costs) -> tuple[Nodes, Sequence[Set]]:
            sets = shipped(costs, limits)
            return kind(Shipped(tuple(sets), costs), answers_of(sets)), sets

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
        "hybrid": race.tested(plan(anytime), True),
        "hybrid, 16 models": race.tested(plan(anytime, {"max_models": 16}), True),
        "hybrid, 100 KB": race.tested(plan(anytime, {"max_models": None, "max_bytes": 100_000}), True),
        "hybrid, 8 models": race.tested(plan(anytime, {"max_models": 8}), True),
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
        return float((race.rights(s.mask, part) & (time <= budget)).mean())

    curve = []
    for budget in race.budgets:
        best = max(sets, key=lambda s, budget=budget: share(s, "valid", budget))
        curve.append(share(best, "test", budget))
    return {"score": float(np.mean(curve)), "quantile": None, "models": len(sets) - 1, "curve": curve}


def _own_sizes(race: Race) -> dict[str, Any]:
    """Poly-Dom with the accuracy of each size in place of one for all sizes."""
    sides = np.unique(race.scenes.sizes["train"])

    def make(costs: Costs) -> tuple[Nodes, Sequence[Set]]:
        from hardcase_edge.program.definition import Candidate

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
