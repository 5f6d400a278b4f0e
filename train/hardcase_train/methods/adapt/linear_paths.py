"""The linear learners over paths of gamma, from no sensor to all, each model going on from the one before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...data.problem import Problem
from ...linear.part import GATE_RATES, linear_rows
from ...linear.standardise import make_standard
from ...policy.front import Point
from ...policy.selection import Judge
from ...stages.subset_search import SubsetSearch
from .gate_thresholds import Gated, path_points
from .l1_baseline import L1Baseline
from .least_squares import AdaptLstsq
from .linear import AdaptLin, step_value

__all__ = ["LINEAR_METHODS", "gamma_path", "linear_grid", "linear_run"]

LINEAR_METHODS = ("adapt-lin", "adapt-lstsq", "l1")
N_GAMMAS = 8
REACH = 1e-3  # the last gamma before zero, of the first
P_FULLS = (0.05, 0.2, 0.6)
# The sensor that says most of the label need not be the one that tells easy cases from hard, and an alternation does
# not leave the one for the other. So beside the path from nothing, models start from those of one sensor each.
N_SINGLES = 2
SINGLE_STEP = 2  # for every second gamma of the path
Fitted = tuple[Gated, dict[str, Any]]


def linear_grid(method: str, search: SubsetSearch) -> list[dict[str, Any]]:
    """A setting per path of "adapt-lin", "adapt-lstsq" or "l1": the whole path is one setting."""
    if method == "l1":
        return [{}]
    order = np.argsort(-_step_values(search.problem), kind="stable")[:N_SINGLES]
    starts = [{}, *({"start": [int(s)]} for s in order)]
    return [{"p_full": p, **start} for start in starts for p in P_FULLS]


def linear_run(method: str, search: SubsetSearch, params: dict[str, Any]) -> list[Point]:
    """The points of all models on one path."""
    judge = search.judge
    gammas = gamma_path(judge.problem)
    if method == "l1":
        return path_points(judge, method, list(_l1_path(judge, gammas)), GATE_RATES)
    make = {"adapt-lin": AdaptLin, "adapt-lstsq": AdaptLstsq}[method]
    walk = _from_single if "start" in params else _path
    return path_points(judge, method, list(walk(make, judge, gammas, **params)), GATE_RATES)


def gamma_path(problem: Problem) -> list[float]:
    """Falling gammas: just below the one at which even the best first sensor does not pay, down to zero."""
    values = _step_values(problem)
    costs = np.array([s.cost[0] for s in problem.sensors])
    top = float(values[costs > 0].max(initial=0.0))
    return [*(top * np.geomspace(0.9, REACH, N_GAMMAS)).tolist(), 0.0] if top > 0 else [0.0]


def _step_values(problem: Problem) -> np.ndarray:
    rows = problem.train
    standard = make_standard(rows.X, rows.weight)
    return step_value(problem, linear_rows(problem, standard.transform(rows.X)))


def _path(make: type[AdaptLin], judge: Judge, gammas: list[float], p_full: float) -> Iterator[Fitted]:
    """From no sensor to all, each model going on from the one before."""
    model = None
    for gamma in gammas:
        model = make(p_full=p_full, gamma=gamma).learn(judge, model)
        yield model, {"gamma": gamma, "p_full": p_full}


def _from_single(
    make: type[AdaptLin], judge: Judge, gammas: list[float], p_full: float, start: list[int]
) -> Iterator[Fitted]:
    """Each model from the one that reads a single sensor, whatever it costs."""
    first = make(p_full=p_full, is_refitted=False).learn(judge, only=start)
    for gamma in gammas[::SINGLE_STEP]:
        yield make(p_full=p_full, gamma=gamma).learn(judge, first), {"gamma": gamma, "p_full": p_full, "start": start}


def _l1_path(judge: Judge, gammas: list[float]) -> Iterator[Fitted]:
    model = None
    for gamma in gammas:
        model = L1Baseline(gamma=gamma).learn(judge, model)
        yield model, {"gamma": gamma}
