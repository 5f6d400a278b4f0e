"""Linear models over paths of gamma, from no sensor to all, each model going on from the one before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...data.problem import Problem
from ...linear.part import LinearRows, linear_rows
from ...linear.proximal import Groups
from ...linear.standardise import make_standard
from ...method import Params
from ...policy.selection import Judge
from .gate_thresholds import Gated

__all__ = ["gamma_path", "models_from_nothing", "models_from_single", "path_grid", "sensor_groups", "step_value"]

LEAST_GAMMA = 1e-3  # the last gamma before zero, of the first
SINGLE_STEP = 2  # single sensors begin at every second gamma of the path
Fitted = tuple[Gated, Params]


def path_grid(problem: Problem) -> list[Params]:
    """A setting per path.

    The sensor that says most of the label need not be the one that tells easy cases from hard, and an alternation does
    not leave the one for the other. So beside the path from nothing, models start from those of one sensor each.
    """
    effort = problem.effort
    order = np.argsort(-_step_values(problem), kind="stable")[: effort.n_linear_starts]
    starts: list[Params] = [{}, *({"start": [int(s)]} for s in order)]
    return [{"p_full": p_full, **start} for start in starts for p_full in effort.linear_p_fulls]


def gamma_path(problem: Problem) -> list[float]:
    """Falling gammas: just below the one at which even the best first sensor does not pay, down to zero."""
    values = _step_values(problem)
    top = float(values[problem.sensor_costs() > 0].max(initial=0.0))
    n = problem.effort.n_linear_gammas
    return [*(top * np.geomspace(0.9, LEAST_GAMMA, n)).tolist(), 0.0] if top > 0 else [0.0]


def models_from_nothing(make: Any, judge: Judge, gammas: list[float], p_full: float) -> Iterator[Fitted]:
    """From no sensor to all, each model going on from the one before; ``make``: AdaptLin or AdaptLstsq."""
    model = None
    for gamma in gammas:
        model = make(p_full=p_full, gamma=gamma).learn(judge, model)
        yield model, {"gamma": gamma, "p_full": p_full}


def models_from_single(
    make: Any, judge: Judge, gammas: list[float], p_full: float, start: list[int]
) -> Iterator[Fitted]:
    """Each model from the one that reads a single sensor, whatever it costs."""
    first = make(p_full=p_full, is_refitted=False).learn(judge, only=start)
    for gamma in gammas[::SINGLE_STEP]:
        yield make(p_full=p_full, gamma=gamma).learn(judge, first), {"gamma": gamma, "p_full": p_full, "start": start}


def sensor_groups(problem: Problem, gamma: float, n_outputs: int) -> Groups:
    """A group per sensor: its features' weights for all outputs, at gamma times its cost."""
    return Groups(np.repeat(problem.sensor_of[:, None], n_outputs, axis=1), gamma * problem.sensor_costs())


def step_value(problem: Problem, rows: LinearRows) -> np.ndarray:
    """Slope of f1's loss along each sensor's group, per unit of cost, from a model that reads nothing, (n_sensors,).

    The gamma up to which a sensor's weights leave zero as the first: docs/math.md (11).
    """
    loss = rows.classes
    slope, _ = loss.derivatives(np.tile(loss.base(), (len(rows.Z), 1)))
    groups = sensor_groups(problem, 1.0, loss.n_outputs)
    return groups.norms(rows.Z.T @ slope / rows.total) / np.maximum(groups.price, 1e-9)


def _step_values(problem: Problem) -> np.ndarray:
    rows = problem.train
    standard = make_standard(rows.X, rows.weight)
    return step_value(problem, linear_rows(problem, standard.transform(rows.X)))
