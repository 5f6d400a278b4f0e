# SPDX-License-Identifier: Apache-2.0
"""Routing policies for prices: where rows stop, go on or are forwarded, and the nodes of a program for them.

Every judged row has a way of its own through the states, with one state for each number of sensors bought, so a price
is solved backwards, level by level, as for nested sets (``stages.thresholds``): in each state the margin from which on
rows stop, and what all others do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np

from hardcase_edge.more.batch.choices import classes_of, margins_of
from hardcase_edge.more.batch.evaluate import Outcome
from hardcase_edge.program.definition import ARGMAX, MARGIN, Acquire, Answer, Branch, Forward, Node, Slice

from ...data.problem import Subset
from ...policy.answers import answer_node, bare_answer
from ...policy.batch import Batch
from ...policy.compile import Part, Policy, policy_of
from ...policy.confidences import NEVER
from ...policy.front import Point
from ...policy.kinds import learned
from ...policy.selection import Trained
from ...stages.deadline import Deadline
from ...stages.thresholds import FORBIDDEN, best_way
from ...successors.reduce import Graph, learn_graph
from .bayes import Cell, RouteRows
from .cells import Cells
from .growth import Key, State

N_PASSES = 3  # cuts change which rows later states see
OWN_ROWS = 60  # that reach a state, for its cut to be its own, and end there, for its confidence table to be
LEAST_ROWS = 5  # that reach a state, for its cut to be theirs alone
ALONE = 4  # of so many prices, one is also solved without forwarding
GO, CLOUD = 1, 2
T = TypeVar("T")
Ways = dict[Key, tuple[float, int]]  # of each state: the margin from which on rows stop, and what the others do


@dataclass
class Level:
    """The judged rows in states with the same number of sensors; (n,) each, of rows without a state 0.

    key_of : the number of the row's state among ``keys``, -1 if its way has ended before
    """

    keys: list[Key]
    key_of: np.ndarray
    margin: np.ndarray
    label: np.ndarray
    cost: np.ndarray
    cloud_cost: np.ndarray
    wrong: np.ndarray
    cloud: np.ndarray


class Routes:
    """States with the judged rows' ways through them.

    Parameters
    ----------
    states : those with fewer sensors first; the first one has none
    cells : of the first sensor, which lead from its state to those of the cells; None: there are none
    models : that answer in place of the cells' own in states of these sensors; ways go by the cells' own all the same
    """

    def __init__(
        self,
        rows: RouteRows,
        states: Sequence[State],
        cells: Cells | None,
        models: Mapping[Subset, Trained] | None = None,
    ) -> None:
        self.rows, self.problem, self.judge, self.cells = rows, rows.problem, rows.judge, cells
        self.models = models or {}
        self.states = {s.key: s for s in states}
        self._parts: list[Part] = []
        self._scores: list[Callable[[np.ndarray], np.ndarray]] = []  # of each part, of judged rows by number
        self._number: dict[Any, int] = {}
        self.levels = self._walked()

    # ------------------------------------------------------------ the judged rows

    def _walked(self) -> list[Level]:
        n = len(self.judge.y)
        at: dict[Key, np.ndarray] = {next(iter(self.states)): np.arange(n)}
        levels: list[Level] = []
        while at:
            keys = list(at)
            level = Level(keys, np.full(n, -1), *(np.zeros(n) for _ in range(6)))
            onward: dict[Key, list[np.ndarray]] = {}
            for k, key in enumerate(keys):
                state, rows = self.states[key], at[key]
                scores = state.cell.scores(key[1], rows + self.rows.first)
                answers = self.models[key[1]].scores[rows] if key[1] in self.models else scores
                level.key_of[rows] = k
                level.label[rows] = classes_of(answers)
                level.margin[rows] = margins_of(answers)
                level.cost[rows] = self._cost(key[1], rows, 0)
                level.cloud_cost[rows] = self._cost((*key[1], *self.problem.hpc_sensors), rows, 1)
                if not self.problem.may_forward(key[1]):
                    level.cloud[rows] = FORBIDDEN
                if not state.targets:
                    continue
                assert self.cells is not None or not state.is_root
                by = self.cells.of[rows + self.rows.first] if state.is_root and self.cells else classes_of(scores)
                for way in (t for t in state.ways if t in self.states):
                    to = np.array([t == way for t in state.targets])[by]
                    onward.setdefault(way, []).append(rows[to])
            levels.append(level)
            self._estimate(levels)
            at = {key: rows for key, parts in onward.items() if len(rows := np.concatenate(parts))}
        return levels

    def _cost(self, sensors: Sequence[int], rows: np.ndarray, requests: int) -> np.ndarray:
        sizes = None if self.judge.sizes is None else self.judge.sizes[rows]
        return self.problem.row_costs([tuple(set(sensors))], sizes, requests)[:, 0]

    def _estimate(self, levels: Sequence[Level]) -> None:
        """Expected losses of the last level's answers and of f0's, by its margins and those of the levels before."""
        level, kind, judge = levels[-1], learned(self.problem), self.judge
        rows = np.flatnonzero(level.key_of >= 0)
        y, weight = judge.y[rows], judge.weight[rows]
        met = [before.margin[rows] for before in levels[1:-1]]
        label = level.label[rows].astype(np.int64)
        level.wrong[rows] = kind.expected(level.margin[rows], None, met, label, y, weight)
        level.cloud[rows] += kind.cloud(judge.stakes[rows], [*met, level.margin[rows]], y, weight)

    # ------------------------------------------------------------ prices

    def priced(self, price: float, forwards: bool = True) -> Ways:
        """What the rows of each state do when a unit of cost is worth ``price`` errors.

        ``forwards``: whether rows may be forwarded
        """
        levels, spent = self.levels, np.column_stack([level.cost for level in self.levels])
        has_state = np.column_stack([level.key_of >= 0 for level in levels])
        losses = np.where(has_state, np.column_stack([level.wrong for level in levels]), 0.0)
        steps = np.where(has_state[:, 1:], price * np.diff(spent), FORBIDDEN)
        cloud = np.column_stack([level.cloud + price * level.cloud_cost for level in levels]) - price * spent
        graph = Graph(tuple((d,) for d in range(len(levels))), (*(((d + 1),) for d in range(len(levels) - 1)), ()))

        def learn(d: int, costs: np.ndarray, focus: np.ndarray) -> tuple[Ways, np.ndarray]:
            return self._level(levels[d], costs, focus > 0)

        ways, _ = learn_graph(graph, losses, steps, learn, cloud + FORBIDDEN * (not forwards), N_PASSES, floor=0.0)
        return {key: way for level in ways[::-1] for key, way in level.items()}

    def _level(self, level: Level, costs: np.ndarray, reach: np.ndarray) -> tuple[Ways, np.ndarray]:
        """The ways of a level's states, and what each row does.

        Few rows would choose a cut by chance, so a state that few reach takes that of all its level's rows which can
        go on, unless some of its own cannot.
        """
        ways, does, weight = Ways(), np.zeros(len(reach), dtype=np.int64), self.judge.weight
        last = costs.shape[1] - 1  # forwarding
        if last < CLOUD:  # nothing leads on from the last level
            costs = np.insert(costs, GO, FORBIDDEN, axis=1)
        onto = (costs[:, GO] < FORBIDDEN) & (level.key_of >= 0)
        pooled = best_way(costs[onto], level.margin[onto], (weight * reach)[onto]) if (onto & reach).any() else None
        for k, key in enumerate(level.keys):
            rows = np.flatnonzero(level.key_of == k)
            if pooled is not None and reach[rows].sum() < OWN_ROWS and onto[rows].all():
                ways[key] = pooled
            else:
                seen = reach[rows] if reach[rows].sum() >= LEAST_ROWS else np.ones(len(rows), dtype=bool)
                ways[key] = best_way(costs[rows], level.margin[rows], weight[rows] * seen)
            cut, action = ways[key]
            does[rows] = np.where(level.margin[rows] >= cut, 0, action)
        return ways, np.minimum(does, last)

    def outcome(self, ways: Ways) -> tuple[Outcome, np.ndarray, dict[Key, int]]:
        """What becomes of the judged rows, their expected losses (n,), and each state's confidence table.

        Outcomes have the number of the table as their node: rows that end in states where few do share that of states
        with as many sensors.
        """
        n = len(self.judge.y)
        label, cost, wrong = self.judge.hpc_label.copy(), np.zeros(n), np.zeros(n)
        forwarded, margin = np.zeros(n, dtype=bool), np.full(n, np.nan)
        table, left, table_of = np.zeros(n, dtype=np.int64), np.ones(n, dtype=bool), dict[Key, int]()
        for d, level in enumerate(self.levels):
            cuts, actions = (np.array([ways[key][i] for key in level.keys]) for i in (0, 1))
            here = left & (level.key_of >= 0)
            sure = here & (level.margin >= cuts[level.key_of])
            cloud = here & ~sure & (actions[level.key_of] == CLOUD)
            label[sure], margin[sure] = level.label[sure].astype(np.int64), level.margin[sure]
            cost[sure], cost[cloud] = level.cost[sure], level.cloud_cost[cloud]
            wrong[sure], wrong[cloud] = level.wrong[sure], level.cloud[cloud]
            forwarded |= cloud
            left &= ~(sure | cloud)
            ended = np.bincount(level.key_of[sure], minlength=len(level.keys))
            tables = np.where(ended >= OWN_ROWS, len(table_of) + np.arange(len(level.keys)), -1 - d)
            table[sure] = tables[level.key_of[sure]]
            table_of.update(zip(level.keys, tables.tolist(), strict=True))
        return Outcome(label, cost, forwarded, margin, table), wrong, table_of

    # ------------------------------------------------------------ points

    def points(
        self, method: str, params: dict[str, Any], prices: Sequence[float], deadline: Deadline | None = None
    ) -> list[Point]:
        """The front of the policies of these prices by mean cost and expected loss.

        ``deadline``: when it is over no further price begins; under one, the first prices are spread over all of them.
        """
        tried: dict[Any, tuple[float, float, float, Ways]] = {}
        alone = prices[::ALONE] if self.problem.may_forward() else ()
        pairs = [*((p, True) for p in prices), *((p, False) for p in alone)]
        for price, forwards in pairs if deadline is None else _spread(pairs):
            if tried and deadline is not None and deadline.left() < 0:
                break
            ways = self.priced(price, forwards)
            outcome, wrong, _ = self.outcome(ways)
            cost, loss = (float(np.average(values, weights=self.judge.weight)) for values in (outcome.cost, wrong))
            tried.setdefault(tuple(sorted(ways.items())), (cost, loss, price, ways))
        least, points = np.inf, []
        for _, loss, price, ways in sorted(tried.values(), key=lambda t: t[:2]):
            if loss < least and self._is_policy(ways):
                least = loss
                points.append(self._point(method, {**params, "price": price}, ways))
        points.append(self._point(method, {**params, "price": 0.0}, self._patient()))
        shared = tuple(self._parts)  # by all policies, so that their parts are compiled and scored once
        return [replace(p, policy=replace(p.policy, parts=shared)) for p in points if isinstance(p.policy, Policy)]

    def _patient(self) -> Ways:
        """Every row buys until its way ends: from few rows, one learns too low what further readings put right."""
        ways = Ways()
        for level in self.levels[::-1]:
            for key in level.keys:
                goes = any(t in ways for t in self.states[key].ways)
                ways[key] = (NEVER, GO) if goes else (-NEVER, 0)
        return ways

    def _is_policy(self, ways: Ways) -> bool:
        """Whether not every row is forwarded at once: that is f0."""
        cut, action = ways[next(iter(self.states))]
        return action == GO or cut <= -NEVER

    def _point(self, method: str, params: dict[str, Any], ways: Ways) -> Point:
        outcome, _, table_of = self.outcome(ways)
        used = self._used(ways)
        nodes = _Nodes(self, ways, used, outcome, table_of)
        policy = policy_of(self.problem, self._parts, nodes.made())
        if len(self._failed):
            outcome = self._with_failures(outcome, policy, {end: table_of[key] for end, key in nodes.ends.items()})
            policy = replace(policy, nodes=tuple(_Nodes(self, ways, used, outcome, table_of).made()))
        return Point(method, {**params, "states": len(used)}, self.judge.summary(outcome), None, policy)

    @cached_property
    def _failed(self) -> np.ndarray:
        """The judged rows on which a sensor fails, by number: their ways may end before those of ``levels``."""
        X = self.judge.X
        has = [f for f, feature in enumerate(self.problem.features) if not feature.nullable]
        return np.flatnonzero(np.isnan(X[:, has]).any(axis=1))

    def _with_failures(self, outcome: Outcome, policy: Policy, table_at: Mapping[int, int]) -> Outcome:
        """The outcome, of rows on which a sensor fails as the program has it; ``table_at``: of Answer nodes."""
        rows, judge = self._failed, self.judge
        sizes = None if judge.sizes is None else judge.sizes[rows]
        batch = Batch(policy.program(), judge.X[rows], [self._scores[k](rows) for k in policy.used], sizes)
        own = batch.run(judge.hpc_label[rows])
        own = replace(own, node=np.array([table_at.get(k, 0) for k in own.node.tolist()]))
        order = np.arange(len(judge.y))
        order[rows] = len(judge.y) + np.arange(len(rows))
        return Outcome.joined([outcome, own], order)

    def _used(self, ways: Ways) -> list[Key]:
        """The states that some row may come to, those with fewer sensors first."""
        first = next(iter(self.states))
        used = {first: None}
        for key in self.states:
            if key in used and key in ways and ways[key][1] == GO and ways[key][0] > -NEVER:
                used.update(dict.fromkeys(t for t in self.states[key].ways if t in ways))
        return [key for key in self.states if key in used]

    def answerer(self, state: State) -> int:
        """The number of the scorer that answers in a state."""
        if state.sensors not in self.models:
            return self.scorer(state.key, state.cell, state.sensors)
        if state.sensors not in self._number:
            self._number[state.sensors] = len(self._parts)
            model = self.models[state.sensors]
            self._parts.append(model.part)
            self._scores.append(model.scores.__getitem__)
        return self._number[state.sensors]

    def scorer(self, what: Any, cell: Cell | None, sensors: Sequence[int] = ()) -> int:
        """The number of a state's own scorer, or of the cells', among the parts that all policies share."""
        if what not in self._number:
            self._number[what] = len(self._parts)
            assert cell is not None or self.cells is not None
            part: Part
            part = cell.part(tuple(sensors)) if cell is not None else self.cells.part(self.rows)  # type: ignore[union-attr]
            self._parts.append(part)
            self._scores.append(partial(self._own_scores, cell, tuple(sensors)))
        return self._number[what]

    def _own_scores(self, cell: Cell | None, sensors: Subset, rows: np.ndarray) -> np.ndarray:
        """Those of a cell's model, or without one those that name the cell, (n_rows, n_outputs)."""
        if cell is not None:
            return cell.scores(sensors, rows + self.rows.first)
        assert self.cells is not None
        return np.asarray(np.eye(self.cells.n)[self.cells.of[rows + self.rows.first]])


def _spread(items: Sequence[T]) -> list[T]:
    """All items, those first that halve what lies between the ones before."""
    n = len(items)
    order = dict.fromkeys(k for power in range(n.bit_length(), -1, -1) for k in range(0, n, 2**power))
    return [items[k] for k in order]


class _Nodes:
    """The nodes of a policy, state after state; ``ends`` are the states of its Answers, by number of the node."""

    def __init__(self, routes: Routes, ways: Ways, used: list[Key], outcome: Outcome, table_of: dict[Key, int]) -> None:
        self.routes, self.ways, self.used = routes, ways, used
        self.outcome, self.table_of = outcome, table_of
        self.forwards = bool(outcome.forwarded.any())
        self.problem = routes.problem
        self._right = routes.judge.right(outcome.label)
        self._tables: dict[int, Answer] = {}
        self.ends: dict[int, Key] = {}

    def made(self) -> list[Node]:
        """All nodes."""
        begin, at = dict[Key, int](), 0
        for key in self.used:
            begin[key] = at
            at += self._size(key)
            self.ends[at - 1] = key
        return [node for key in self.used for node in self._state(key, begin, begin[key])]

    def _size(self, key: Key) -> int:
        has_cut, ways, is_cloud = self._shape(key)
        return has_cut + (len(ways) > 1) + len(ways) + is_cloud + 1

    def _shape(self, key: Key) -> tuple[bool, list[Key], bool]:
        """Whether a state has a cut, the states that it leads to, and whether it has a node that forwards."""
        cut, action = self.ways[key]
        state = self.routes.states[key]
        ways = [t for t in state.ways if t in self.ways] if action == GO and cut > -NEVER else []
        may_forward = self.forwards and self.problem.may_forward(key[1])
        is_cloud = cut > -NEVER and (action == CLOUD or (bool(ways) and may_forward))
        return -NEVER < cut < NEVER, ways, is_cloud

    def _state(self, key: Key, begin: dict[Key, int], at: int) -> list[Node]:
        """The nodes of a state: cut, purchases, forward, answer."""
        routes, state = self.routes, self.routes.states[key]
        has_cut, ways, is_cloud = self._shape(key)
        scorer = routes.answerer(state)
        routed = len(ways) > 1
        answer = at + has_cut + routed + len(ways) + is_cloud
        lost = answer - is_cloud  # where a row goes whose sensor has failed
        nodes: list[Node] = []
        if has_cut:
            nodes.append(Branch(self._classes(scorer), MARGIN, (at + 1, answer), self.ways[key][0]))
        if routed:
            first = at + has_cut + 1
            place = {t: first + k for k, t in enumerate(ways)}
            if state.is_root:
                assert routes.cells is not None
                by = Slice(routes.scorer("cells", None), 0, routes.cells.n)
            else:
                by = self._classes(routes.scorer(key, state.cell, key[1]))
            nodes.append(Branch(by, ARGMAX, tuple(place.get(t, lost) for t in state.targets)))
        for t in ways:
            new = tuple(s for s in t[1] if s not in key[1])
            nodes.append(Acquire(new, begin[t], lost))
        if is_cloud:
            nodes.append(Forward(self.problem.hpc_sensors, answer))
        return [*nodes, self._answer(key, scorer)]

    def _classes(self, scorer: int) -> Slice:
        return Slice(scorer, 0, self.problem.n_outputs)

    def _answer(self, key: Key, scorer: int) -> Answer:
        """With the confidences of the rows that share the state's table."""
        number, bare = self.table_of[key], bare_answer(self.problem, scorer)
        if number not in self._tables:
            rows = (self.outcome.node == number) & ~self.outcome.forwarded
            weight = self.routes.judge.weight[rows]
            self._tables[number] = answer_node(bare, self.outcome.margin[rows], self._right[rows], weight)
        return replace(self._tables[number], scores=bare.scores)
