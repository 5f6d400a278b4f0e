# SPDX-License-Identifier: Apache-2.0
"""The baseline ``duty-cycle``: buy in every n-th window, and hold the label in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from ...data.problem import N_FOLDS, Problem, with_memory
from ...estimator import MethodClassifier
from ...method import Method, Params
from ...policy.answers import answer_point
from ...policy.compile import compile_bare
from ...policy.front import Point, best_points
from ...stages.subset_search import SubsetSearch
from ...trees.subset_classifier import classifier_kinds
from .held_label import HeldLabel, TooOld
from .nodes import CASE, Holding, hold_nodes

PERIODS = (2, 3, 4, 5, 7, 10, 14, 20, 30, 50, 100)  # windows from one purchase to the next
MOST_SETS = 6
LEAST_VALUES = 4  # of periods or thresholds
T = TypeVar("T")


def some(values: Sequence[T], problem: Problem) -> Sequence[T]:
    """As many of these values as the problem's effort allows, evenly, the first and the last among them."""
    n = min(len(values), max(LEAST_VALUES, round(problem.effort.tree_share * len(values))))
    return [values[round(k * (len(values) - 1) / (n - 1))] for k in range(n)]


def full_sets(search: SubsetSearch) -> list[tuple[int, ...]]:
    """The sensor sets that answer anew: the promising ones of the least loss, and all that is offered."""
    subsets = [s for s in search.walked() if s]
    best = sorted(subsets, key=lambda s: (search.losses([s])[0], len(s)))[:MOST_SETS]
    return sorted({*best, tuple(search.problem.offered)})


@dataclass(eq=False, repr=False)
class DutyCycle(MethodClassifier):
    """Buys a fixed set of sensors in every n-th window of a stream, and answers the label held in the others.

    Rows without an order have no window before them: ``fit`` then buys for each row.

    Parameters
    ----------
    n_jobs : int or None, threads; None: 1
    others : those of ``PolicyClassifier``, by keyword
    """

    n_jobs: int | None = None
    method: ClassVar[Method] = Method(
        name="duty-cycle", against="it buys in every n-th window, whatever the cheap sensors say", turn=23,
        colour="#a6761d", is_baseline=True, auto="always", is_halved=False, searches_subsets=True, needs_order=True,
    )  # fmt: skip

    @classmethod
    def n_settings(cls, problem: Problem) -> int:
        return MOST_SETS * len(classifier_kinds(problem))

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """One setting per sensor set and kind of classifier; all periods share a setting's model."""
        kinds = classifier_kinds(search.problem)
        return [{"sensors": list(s), "classifier": kind} for s in full_sets(search) for kind in kinds]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """Points over periods."""
        problem, judge, bought = search.problem, search.judge, tuple(params["sensors"])
        (whole,) = search.models([bought], params["classifier"], are_cut=False)
        if not problem.is_ordered:
            return [answer_point(judge, cls.method.name, dict(params), bought, whole)]
        bare, memory, periods = *with_memory(problem, bought, ()), some(PERIODS, problem)
        counts = tuple(f for f, _ in memory.since)
        held = HeldLabel(memory.held[0], problem.n_classes, problem.majority)
        parts = (whole.part, held, *(TooOld(counts, n - 1) for n in periods))
        program = compile_bare(bare, parts)
        holding = Holding(judge, whole, bare, memory, [program] * (N_FOLDS + 1 if judge.is_crossed else 1), parts)
        points = [
            holding.point(
                cls.method.name,
                {**params, "period": n},
                hold_nodes(problem, memory.sensor, (), bought, [(2 + k, 0.0)], CASE + 1),
            )
            for k, n in enumerate(periods)
        ]
        return best_points(points)
