"""ADAPT-GBRT's grid of settings, and GreedyMiser's."""

from __future__ import annotations

from typing import Any

from joblib import Parallel, delayed

from hardcase_edge.meter import to_unit

from .adapt_gbrt import AdaptGBRT
from .binning import make_bins
from .boosting import FULL
from .front import Point, best_points, with_test
from .gating import gated_points
from .greedy_miser import GreedyMiser
from .judge import Judge
from .static_subset import answer_point

__all__ = ["GAMMAS", "N_SETTINGS", "adapt_points", "greedy_points"]

GAMMAS = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # loss for the price of all sensors together
P_FULLS = (0.02, 0.15)
N_SETTINGS = len(GAMMAS) * len(P_FULLS)


def adapt_points(judge: Judge, n_jobs: int = 2, progress: Any = None, **settings: Any) -> list[Point]:
    """The points that the judged rows keep, over all settings."""
    problem = judge.problem
    total = sum(to_unit(s.cost[0]) for s in problem.sensors) or 1.0
    bins = make_bins(problem.train.X, problem.dtypes, (settings.get("settings") or FULL).max_bins)
    grid = [(g, p) for g in GAMMAS for p in P_FULLS]
    models = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(
        delayed(AdaptGBRT(p_full=p, gamma=g / total, **settings).learn)(judge, bins) for g, p in grid
    )
    points: list[Point] = []
    for (gamma, p_full), model in zip(grid, models, strict=True):
        points += gated_points(judge, "adapt-gbrt", model, {"gamma": gamma / total, "p_full": p_full})
        if progress is not None:
            progress.update(1)
    return [with_test(problem, p) for p in best_points(points)]


def greedy_points(judge: Judge, n_jobs: int = 2, progress: Any = None) -> list[Point]:
    """GreedyMiser over the same gammas: every case answered here."""
    total = sum(to_unit(s.cost[0]) for s in judge.problem.sensors) or 1.0
    bins = make_bins(judge.problem.train.X, judge.problem.dtypes, FULL.max_bins)
    models = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(
        delayed(GreedyMiser(gamma=g / total).learn)(judge, bins) for g in GAMMAS
    )
    points = []
    for gamma, model in zip(GAMMAS, models, strict=True):
        said = {"gamma": gamma / total, "sensors": model.sensors_}
        points.append(answer_point(judge, "greedy-miser", said, tuple(model.sensors_), model.trained_))
        if progress is not None:
            progress.update(1)
    return best_points(points)
