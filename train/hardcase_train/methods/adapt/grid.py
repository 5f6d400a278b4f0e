"""ADAPT-GBRT's grid of settings, and GreedyMiser's."""

from __future__ import annotations

from typing import Any

from hardcase_edge.program.cost import to_unit

from ...data.problem import Problem
from ...policy.front import Point
from ...stages.nested_sets import Chains
from ...stages.subset_search import SubsetSearch
from .gbrt import AdaptGBRT
from .greedy_miser import GreedyMiser
from .stages import staged_points

__all__ = ["GAMMAS", "adapt_grid", "adapt_run", "greedy_grid", "greedy_run"]

GAMMAS = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # loss for the price of all sensors together
P_FULLS = (0.02, 0.15)
STAGED_ROUNDS = (1, 0)


def adapt_grid(search: SubsetSearch) -> list[dict[str, Any]]:
    """Several stages, with gates of their own and without; one, for every gamma and bound of the forward fraction."""
    chain = [list(subset) for subset in search.once(Chains).climbed]
    staged = [{"chain": chain, "rounds": rounds} for rounds in STAGED_ROUNDS]
    return staged + [{"gamma": gamma, "p_full": p} for gamma in _gammas(search.problem) for p in P_FULLS]


def adapt_run(search: SubsetSearch, params: dict[str, Any]) -> list[Point]:
    """The points of one model, or of one chain of them."""
    if "chain" in params:
        return staged_points(search, [tuple(subset) for subset in params["chain"]], params["rounds"])
    return AdaptGBRT(**params).points(search.judge)


def greedy_grid(search: SubsetSearch) -> list[dict[str, Any]]:
    """The same gammas: every case is answered here."""
    return [{"gamma": gamma} for gamma in _gammas(search.problem)]


def greedy_run(search: SubsetSearch, params: dict[str, Any]) -> list[Point]:
    """The one point of a model."""
    return GreedyMiser(**params).points(search.judge)


def _gammas(problem: Problem) -> list[float]:
    """``GAMMAS`` for a unit of cost."""
    total = sum(to_unit(s.cost[0]) for s in problem.sensors) or 1.0
    return [gamma / total for gamma in GAMMAS]
