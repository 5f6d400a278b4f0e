"""The linear learners over paths of gamma, from no sensor to all, each model going on from the one before."""

from __future__ import annotations

from typing import Any

import numpy as np
from joblib import Parallel, delayed

from .adapt_lin import AdaptLin, step_value
from .adapt_lstsq import AdaptLstsq
from .affine import make_standard
from .front import Point, best_points, with_test
from .gating import Gated, gated_points
from .judge import Judge
from .l1 import L1Baseline
from .linear import GATE_RATES, linear_rows
from .problem import Problem

__all__ = ["LINEAR_METHODS", "gamma_path", "linear_points", "n_linear_settings"]

LINEAR_METHODS = ("adapt-lin", "adapt-lstsq", "l1")
N_GAMMAS = 8
REACH = 1e-3  # the last gamma before zero, of the first
P_FULLS = (0.05, 0.2, 0.6)
# The sensor that says most of the label need not be the one that tells easy cases from hard, and an alternation does
# not leave the one for the other. So beside the path from nothing, models start from those of one sensor each.
N_SINGLES = 2
SINGLE_STEP = 2  # for every second gamma of the path


def n_linear_settings(method: str, problem: Problem) -> int:
    """How many models ``linear_points`` fits."""
    n = len(gamma_path(problem))
    singles = min(N_SINGLES, len(problem.sensors)) * len(range(0, n, SINGLE_STEP))
    return n if method == "l1" else len(P_FULLS) * (n + singles)


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


def linear_points(method: str, judge: Judge, n_jobs: int = 2, progress: Any = None) -> list[Point]:
    """The points that the judged rows keep, over all settings of "adapt-lin", "adapt-lstsq" or "l1"."""
    gammas = gamma_path(judge.problem)
    order = np.argsort(-_step_values(judge.problem), kind="stable")
    singles = [[int(s)] for s in order[:N_SINGLES]]
    jobs: list[Any] = [delayed(_l1_path)(judge, gammas, progress)]
    if method != "l1":
        make = {"adapt-lin": AdaptLin, "adapt-lstsq": AdaptLstsq}[method]
        jobs = [delayed(_path)(method, make, judge, p, gammas, progress) for p in P_FULLS]
        jobs += [delayed(_from_single)(method, make, judge, p, gammas, s, progress) for p in P_FULLS for s in singles]
    found = Parallel(n_jobs=n_jobs, prefer="threads")(jobs)
    return [with_test(judge.problem, p) for p in best_points([p for points in found for p in points])]


def _path(
    method: str, make: type[AdaptLin], judge: Judge, p_full: float, gammas: list[float], progress: Any
) -> list[Point]:
    """From no sensor to all, each model going on from the one before."""
    points: list[Point] = []
    model = None
    for gamma in gammas:
        model = make(p_full=p_full, gamma=gamma).learn(judge, model)
        points += _points(judge, method, model, {"gamma": gamma, "p_full": p_full}, progress)
    return points


def _from_single(
    method: str,
    make: type[AdaptLin],
    judge: Judge,
    p_full: float,
    gammas: list[float],
    single: list[int],
    progress: Any,
) -> list[Point]:
    """Each model from the one that reads a single sensor, whatever it costs."""
    first = make(p_full=p_full, is_refitted=False).learn(judge, only=single)
    points: list[Point] = []
    for gamma in gammas[::SINGLE_STEP]:
        model = make(p_full=p_full, gamma=gamma).learn(judge, first)
        points += _points(judge, method, model, {"gamma": gamma, "p_full": p_full, "start": single}, progress)
    return points


def _l1_path(judge: Judge, gammas: list[float], progress: Any) -> list[Point]:
    points: list[Point] = []
    model = None
    for gamma in gammas:
        model = L1Baseline(gamma=gamma).learn(judge, model)
        points += _points(judge, "l1", model, {"gamma": gamma}, progress)
    return points


def _points(judge: Judge, method: str, model: Gated, params: dict[str, Any], progress: Any) -> list[Point]:
    if progress is not None:
        progress.update(1)
    return gated_points(judge, method, model, params, GATE_RATES)
