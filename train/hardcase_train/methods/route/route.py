# SPDX-License-Identifier: Apache-2.0
"""The method ``route``: what is read next depends on what was read.

A first sensor has cells (``roots``), each cell has a model of its own (``bayes``) and states of its own (``growth``),
and a price decides where rows stop (``policy``). Where naive Bayes is better than trees at each step, all rows in one
cell are tried, too; where neither is so there are no points: on most tables one order of sensors serves all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...data.problem import Problem, Subset
from ...estimator import MethodClassifier
from ...method import Method, Params
from ...policy.front import Point, best_points
from ...policy.prices import prices
from ...policy.selection import Judge, Trained
from ...policy_estimator import Limits
from ...stages.subset_search import SubsetSearch
from ...trees.subset_classifier import classifier_kinds
from .bayes import Cell, RouteRows
from .cells import Cells
from .growth import State, grow, key_of
from .policy import Routes
from .roots import find_roots, lead, without_root

LEAST_PRICE, MOST_PRICE = 0.01, 0.5  # errors per cost of the most expensive case, and of the cheapest sensor
MAX_CLASSES = 40
MAX_CELLS = 8
WAYS = ("answers", "cells")  # whether answers lead on to states of their own, or a cell has one order
BAYES = "bayes"
MOST_MODELS = 48  # sensor sets that have trees, those with fewer sensors first; larger ones keep naive Bayes


@dataclass(eq=False, repr=False)
class RouteClassifier(MethodClassifier):
    """A policy whose next sensor depends on the readings so far.

    Parameters
    ----------
    max_cells : cells of the first sensor's reading at most, 2 to 16
    n_jobs : int or None, threads; None: 1
    others : those of ``PolicyClassifier``, by keyword

    Examples
    --------
    >>> model = RouteClassifier(max_cells=4, costs=[1.0, 3.0, 9.0], forward_cost=20.0)
    >>> model.method.name, model.max_cells
    ('route', 4)
    """

    max_cells: int = MAX_CELLS
    n_jobs: int | None = None
    method: ClassVar[Method] = Method(
        name="route", maturity="proven",
        against="on most tables it makes no policy; it learns at most 40 classes, and no values", turn=6,
        colour="#b9770e", auto="always", is_halved=False, searches_subsets=True,
    )  # fmt: skip
    _limits: ClassVar[Limits] = {"max_cells": (2, 16)}

    @classmethod
    def n_settings(cls, problem: Problem) -> int:
        return len(WAYS) * (1 + len(classifier_kinds(problem)))

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """Ways of each answer's own, and one order for each cell; naive Bayes and trees that answer in the states."""
        kinds = (BAYES, *classifier_kinds(search.problem))
        return [{"ways": ways, "max_cells": MAX_CELLS, "classifier": kind} for kind in kinds for ways in WAYS]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """The points of one setting over first sensors and prices; none if no first sensor pays or is in reach."""
        if search.problem.n_classes > MAX_CLASSES or not search.problem.offered:
            return []
        found = search.once(_roots_of)(params["max_cells"], params["classifier"])
        return best_points([p for cells in found for p in _points(search, cells, params)])

    def points(self, judge: Judge) -> list[Point]:
        """Points over prices; where no first sensor pays, all rows are one cell."""
        search = SubsetSearch(judge, self.n_jobs or 1)
        settings = [{**params, "max_cells": self.max_cells} for params in self.grid(search)]
        found = [point for params in settings for point in self.run(search, params)]
        if found or not judge.problem.offered:
            return found
        return best_points([p for params in settings for p in _points(search, None, params)])


class _Roots:
    """The first sensors that pay, found once for each largest number of cells, and how often naive Bayes leads."""

    def __init__(self, search: SubsetSearch) -> None:
        self.rows, self._search = RouteRows(search.judge), search
        self._found: dict[int, list[tuple[Cells | None, float]]] = {}

    def __call__(self, max_cells: int, kind: str) -> list[Cells | None]:
        """Cells by which naive Bayes is better than fixed sets somewhere; for trees, those by which it is not always.

        Where naive Bayes is better than small trees on fixed sets at each step, trees in its states cost time alone.
        None stands for all rows in one cell, if naive Bayes is always better there: then answers lead on by themselves.
        """
        if max_cells not in self._found:
            found = [(root.cells, lead(root, self._search)) for root in find_roots(self.rows, max_cells)]
            alone = lead(without_root(self.rows), self._search)
            self._found[max_cells] = [*found, *([(None, alone)] if alone == 1 else ())]
        return [cells for cells, share in self._found[max_cells] if (share > 0 if kind == BAYES else share < 1)]


def _roots_of(search: SubsetSearch) -> _Roots:
    return _Roots(search)


def _points(search: SubsetSearch, cells: Cells | None, params: Params) -> list[Point]:
    """The points of one first sensor, or of none."""
    problem, rows = search.problem, search.once(_roots_of).rows
    states = _states(rows, cells, params["ways"] == "answers")
    routes = Routes(rows, states, cells, _models(search, states, params["classifier"]))
    costs = problem.sensor_costs()
    cheapest = float(costs[costs > 0].min(initial=np.inf))
    highest = max(LEAST_PRICE, MOST_PRICE * problem.cost_unit / cheapest)
    grid = prices(problem, problem.effort.n_prices, LEAST_PRICE, highest)
    own = {} if cells is None else {"first": cells.sensor, "cells": cells.n}
    return routes.points(RouteClassifier.method.name, {**params, **own}, grid, search.deadline)


def _models(search: SubsetSearch, states: Sequence[State], kind: str) -> dict[Subset, Trained]:
    """Trees for the sensors of the states; none where naive Bayes answers."""
    if kind == BAYES:
        return {}
    sets = list(dict.fromkeys(s.sensors for s in states))[:MOST_MODELS]
    return dict(zip(sets, search.models(sets, kind), strict=True))


def _states(rows: RouteRows, cells: Cells | None, is_own: bool) -> list[State]:
    """The states of a policy, those with fewer sensors first; the first one has none."""
    offered = rows.problem.offered
    everyone = np.ones(len(rows.y), dtype=bool)
    if cells is None:
        return grow(Cell(rows, everyone, offered), 0, (), is_own)
    first = (cells.sensor,)
    grown = [grow(Cell(rows, cells.of == m, offered), m, first, is_own) for m in range(cells.n)]
    onward = [(*states[0].targets, states[0].key)[0] for states in grown]  # where nothing gains, no state has the key
    every = Cell(rows, everyone, first)
    root = State(key_of(-1, first), every, onward, is_root=True)
    start = State((-1, ()), every, [root.key] * rows.problem.n_classes)
    return sorted([start, root, *(s for states in grown for s in states[1:])], key=lambda s: len(s.sensors))
