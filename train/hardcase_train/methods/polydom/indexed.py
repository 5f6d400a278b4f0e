# SPDX-License-Identifier: Apache-2.0
"""The methods ``poly-dom``, ``poly-dom-anytime``, ``greedy``, ``greedy-acc`` and ``greedy-cost``.

Each ships a few linear models and chooses among them by item size and budget. Without a budget, a program buys its most
accurate set; so that fronts have points of lower cost, each method also gives programs without their dearest sets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import ClassVar

import numpy as np

from hardcase_edge.more.batch.choices import margins_of
from hardcase_edge.more.batch.evaluate import Outcome
from hardcase_edge.program.definition import Answer, Node

from ...data.problem import Problem
from ...estimator import MethodClassifier
from ...method import Method, Params
from ...policy.answers import answer_node, bare_answer
from ...policy.compile import Policy, policy_of
from ...policy.front import Point
from ...policy.selection import Judge, Trained
from ...settings.config import IndexSettings
from ...stages.subset_search import SubsetSearch
from .bank import LinearBank
from .estimate import best_few, grid_of, search_estimated
from .greedy import ACCURACY, CHEAPEST, PRICES, make_sequences
from .index import Set, candidates, make_index
from .plan import Shipped, anytime_nodes, index_nodes, sequence_nodes
from .search import Searched, SearchLimits, check, search_all, search_sets
from .sets import Costs, members

Plan = Callable[[Shipped, Sequence[Answer]], tuple[Node, ...]]
MAX_LEVELS = 8  # programs of a method, from the one with all of its sets down
MAX_SIZES = 6  # sizes for which Greedy makes sequences, if it makes them per size


@dataclass(eq=False, repr=False)
class _Indexed(MethodClassifier):
    """What these methods share.

    Parameters
    ----------
    alpha, tolerance, max_models : as ``hardcase_train.settings.config.IndexSettings``
    others : those of ``PolicyClassifier``, by keyword
    """

    alpha: float = 1.0
    tolerance: float = 0.01
    max_models: int | None = None
    by_item: ClassVar[bool] = False  # whether the next reading depends on the answer so far

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """One setting, that of the problem."""
        settings = search.problem.index
        check(len(search.problem.sensors), settings.alpha, settings.tolerance)
        return [{"alpha": settings.alpha, "tolerance": settings.tolerance}]

    def points(self, judge: Judge) -> list[Point]:
        """The points of the estimator's own settings."""
        settings = IndexSettings(alpha=self.alpha, tolerance=self.tolerance, max_models=self.max_models)
        return super().points(Judge(replace(judge.problem, index=settings)))


def _found(search: SubsetSearch) -> Searched:
    """The search over the sets of the problem's sensors, made once."""
    problem, settings, bank = search.problem, search.problem.index, LinearBank.of(search)
    polynomials, prior = [s.cost for s in problem.sensors], bank.accuracy(0)
    if settings.expands_all:
        return search_all(polynomials, problem.max_item_size, bank.accuracy, prior)
    if settings.estimated:
        return search_estimated(
            polynomials, problem.max_item_size, bank.accuracy, prior, alpha=settings.alpha,
            tolerance=settings.tolerance, max_trained=settings.max_trained,
        )  # fmt: skip
    limits = None
    if settings.max_trained is not None or settings.max_minutes is not None:
        limits = SearchLimits(settings.max_trained, None if settings.max_minutes is None else 60 * settings.max_minutes)
    return search_sets(
        polynomials, problem.max_item_size, bank.accuracy, prior, alpha=settings.alpha, tolerance=settings.tolerance,
        limits=limits,
    )  # fmt: skip


def _sizes(problem: Problem) -> list[int]:
    """Item sizes at which programs are compared: quantiles of the training rows' sizes."""
    sizes = np.ones(1, dtype=np.int64) if problem.train.sizes is None else problem.train.sizes
    distinct = np.unique(sizes)
    if len(distinct) > MAX_SIZES:
        distinct = np.unique(np.quantile(sizes, np.linspace(0, 1, MAX_SIZES), method="nearest"))
    return [int(s) for s in distinct.tolist()]


def _few(search: SubsetSearch, sets: Sequence[Set]) -> list[Set]:
    """Those sets that the settings allow to ship, and the empty one, most accurate first."""
    settings, bank = search.problem.index, LinearBank.of(search)
    empty = Set(0, (0,), bank.accuracy(0))
    keeps = search.problem.is_affordable
    better = {  # the others answer worse than without a sensor, or are over the budget
        s.mask: s for s in sets if s.accuracy > empty.accuracy and keeps(members(s.mask))
    }
    every = [*sorted(better.values(), key=lambda s: (-s.accuracy, s.mask)), empty]
    if settings.max_models is None and settings.max_bytes is None:
        return every
    pairs = grid_of(every, _sizes(search.problem))
    return best_few(every, pairs, settings.max_models, settings.max_bytes, bank.n_bytes)


def _levels(sets: Sequence[Set]) -> list[list[Set]]:
    """The sets, and ever fewer of the most accurate ones, down to the least that reads anything."""
    steps = np.unique(np.linspace(0, max(len(sets) - 2, 0), MAX_LEVELS).round().astype(int))
    return [list(sets[k:]) for k in steps.tolist()]


def _answers(search: SubsetSearch, sets: Sequence[Set], models: Sequence[Trained]) -> list[Answer]:
    """The answer of each set, with the confidences of all judged rows."""
    judge, bank, answers = search.judge, LinearBank.of(search), []
    for k, (s, model) in enumerate(zip(sets, models, strict=True)):
        bare, right = bare_answer(search.problem, k), bank.is_right(s.mask)
        answers.append(answer_node(bare, margins_of(model.scores), right, judge.weight))
    return answers


def _points(cls: type[_Indexed], search: SubsetSearch, params: Params, sets: Sequence[Set], plan: Plan) -> list[Point]:
    """A point for each level of these sets, whose nodes ``plan`` makes."""
    judge, bank = search.judge, LinearBank.of(search)
    models = [bank.trained(s.mask) for s in sets]
    answers = _answers(search, sets, models)
    costs = Costs([s.cost for s in search.problem.sensors], search.problem.max_item_size)
    whole = policy_of(search.problem, [m.part for m in models], ())
    known = bank.by_answer([s.mask for s in sets]) if cls.by_item else None
    points = []
    for level in _levels(sets):
        first = len(sets) - len(level)
        policy = Policy(whole.bare, whole.parts, plan(Shipped(tuple(level), costs, known), answers[first:]))
        used = [models[k] for k in policy.used]
        outcome = judge.run(policy.program(), used)
        if search.problem.quality.reads_confidences:
            policy = replace(policy, nodes=_restated(judge, policy.nodes, outcome))
        points.append(Point(cls.method.name, {**params, "sets": len(level) - 1}, judge.summary(outcome), None, policy))
    return points


def _restated(judge: Judge, nodes: Sequence[Node], outcome: Outcome) -> tuple[Node, ...]:
    """The nodes with confidences of the rows that end there, by which such a quality is judged."""
    right = judge.right(outcome.label)
    restated = list(nodes)
    for k in np.unique(outcome.node).tolist():
        rows = outcome.node == k
        restated[k] = answer_node(restated[k], outcome.margin[rows], right[rows], judge.weight[rows])
    return tuple(restated)


# ---------------------------------------------------------------- Poly-Dom


@dataclass(eq=False, repr=False)
class PolyDom(_Indexed):
    """The index of Battle et al. (2014): for an item's size and its budget, the most accurate set that fits.

    Parameters
    ----------
    alpha : at least 1; larger values train fewer models
    tolerance : how much worse a superset of sensors may be
    max_models : of the program
    others : those of ``PolicyClassifier``, by keyword

    Examples
    --------
    >>> import numpy as np
    >>> y = np.arange(200) % 2
    >>> X = np.column_stack([y, 1 - y, np.zeros(200)])
    >>> model = PolyDom(costs=[9.0, 2.0, 1.0], random_state=0).fit(X, y)
    >>> model.sensors_, model.figures_.cost
    ([1], 2.0)
    """

    method: ClassVar[Method] = Method(
        name="poly-dom",
        against="linear models on at most 16 sensors; what it reads first does not change what it reads next",
        turn=12, colour="#117a8b", is_halved=False,
    )  # fmt: skip

    plan: ClassVar[Plan] = staticmethod(index_nodes)

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """Programs with all sets on a skyline, and with fewer."""
        sets = _few(search, cls.sets_of(search, search.once(_found)))
        return _points(cls, search, params, sets, cls.plan_of(search.problem))

    @classmethod
    def sets_of(cls, search: SubsetSearch, searched: Searched) -> Sequence[Set]:
        """The sets to ship: those that are best for some size and budget."""
        return make_index(candidates(searched), searched.costs.largest).sets

    @classmethod
    def plan_of(cls, problem: Problem) -> Plan:
        """The plan of programs for this problem."""
        return cls.plan


@dataclass(eq=False, repr=False)
class PolyDomAnytime(PolyDom):
    """Poly-Dom that chooses again after every reading, and can be interrupted at any time; parameters of ``PolyDom``.

    What is read next depends on the item's size, the time left, and, where that gains on judged rows, on the answer so
    far.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.arange(200) % 2
    >>> X = np.column_stack([y, 1 - y, np.zeros(200)])
    >>> PolyDomAnytime(costs=[9.0, 2.0, 1.0], random_state=0).fit(X, y).sensors_
    [1]
    """

    method: ClassVar[Method] = Method(
        name="poly-dom-anytime", against="linear models on at most 16 sensors; it forwards no case to f0", turn=13,
        colour="#0b4f5c", is_halved=False,
    )  # fmt: skip

    plan: ClassVar[Plan] = staticmethod(anytime_nodes)
    by_item: ClassVar[bool] = True

    @classmethod
    def sets_of(cls, search: SubsetSearch, searched: Searched) -> Sequence[Set]:
        """Those of ``PolyDom``, and, if their number is not limited, a few that only some answers gain by."""
        best, costs, settings = super().sets_of(search, searched), searched.costs, search.problem.index
        if settings.max_models is not None or settings.max_bytes is not None:
            return best
        masks = [m for m in dict.fromkeys([0, *searched.accuracy]) if search.problem.is_affordable(members(m))]
        shipped = [s.mask for s in best if s.mask in masks]
        known = LinearBank.of(search).by_answer(masks)
        added = known.helpful(shipped, costs.at((costs.largest + 1) // 2))
        return [*best, *(Set(m, costs.of(m), searched.accuracy[m]) for m in added)]

    @classmethod
    def plan_of(cls, problem: Problem) -> Plan:
        """Where the budget does not last for every sensor, nothing is read in place of one that failed."""
        return cls.plan if problem.is_affordable(range(len(problem.sensors))) else partial(anytime_nodes, most_lost=0)


# ---------------------------------------------------------------- Greedy


@dataclass(eq=False, repr=False)
class Greedy(_Indexed):
    """Sequences of sensors, each by gain in accuracy minus a price times cost; read as far as the budget lasts.

    There are sequences for the median item size, as in the paper, and others for each of a few sizes; ``fit`` tries
    both. Parameters as of ``PolyDom``.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.arange(200) % 2
    >>> X = np.column_stack([y, 1 - y, np.zeros(200)])
    >>> Greedy(costs=[9.0, 2.0, 1.0], random_state=0).fit(X, y).sensors_
    [1]
    """

    method: ClassVar[Method] = Method(
        name="greedy", maturity="research", against="one sequence of sensors for all cases", turn=14,
        colour="#b7791f", is_halved=False,
    )  # fmt: skip
    prices: ClassVar[tuple[float, ...]] = PRICES

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """Sequences at the median size, and, if there are several sizes, for each of a few."""
        settings = super().grid(search)
        return [
            {**s, "per_size": per_size} for s in settings for per_size in (False, True)[: len(_sizes(search.problem))]
        ]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """Programs that follow all sequences, and that stop earlier."""
        problem, bank = search.problem, LinearBank.of(search)
        costs = Costs([s.cost for s in problem.sensors], problem.max_item_size)
        sizes = _sizes(problem) if params.get("per_size") else [_median(problem)]
        groups = [make_sequences(costs, bank.accuracy, size, cls.prices) for size in sizes]
        ends = [*((a + b) // 2 for a, b in pairwise(sizes)), problem.max_item_size]
        masks = dict.fromkeys(mask for group in groups for mask in group.masks)
        sets = _few(search, [Set(mask, costs.of(mask), bank.accuracy(mask)) for mask in masks])
        grouped = list(zip(ends, groups, strict=True))

        def plan(shipped: Shipped, answers: Sequence[Answer]) -> tuple[Node, ...]:
            return sequence_nodes(shipped, grouped, answers, lambda mask: problem.is_affordable(members(mask)))

        return _points(cls, search, params, sets, plan)


def _median(problem: Problem) -> int:
    """The median item size of the training rows."""
    return 1 if problem.train.sizes is None else int(np.quantile(problem.train.sizes, 0.5, method="nearest"))


@dataclass(eq=False, repr=False)
class GreedyAccuracy(Greedy):
    """One sequence: always the sensor that helps most, whatever it costs (Greedy-Acc).

    Examples
    --------
    >>> GreedyAccuracy.prices
    (0.0,)
    """

    method: ClassVar[Method] = Method(
        name="greedy-acc", maturity="research", against="it ignores costs", turn=15, colour="#8a5a12", is_halved=False
    )
    prices: ClassVar[tuple[float, ...]] = (ACCURACY,)


@dataclass(eq=False, repr=False)
class GreedyCost(Greedy):
    """One sequence: always the cheapest sensor (Greedy-Cost).

    Examples
    --------
    >>> GreedyCost.prices
    (inf,)
    """

    method: ClassVar[Method] = Method(
        name="greedy-cost", maturity="research", against="it ignores accuracy", turn=16, colour="#d9a441",
        is_halved=False,
    )  # fmt: skip
    prices: ClassVar[tuple[float, ...]] = (CHEAPEST,)
