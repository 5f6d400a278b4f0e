# SPDX-License-Identifier: Apache-2.0
"""Regularisation paths of linear models: falling gammas, each model warm-started from the one before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...data.problem import Problem
from ...linear.part import LinearRows, linear_rows, make_standard
from ...linear.proximal import Groups
from ...method import Params
from ...policy.selection import Judge
from .gate_thresholds import Gated

LEAST_GAMMA = 1e-3  # the last gamma before zero, relative to the first
SINGLE_STEP = 2  # starts from single sensors use every second gamma of the path
Fitted = tuple[Gated, Params]


def path_grid(problem: Problem) -> list[Params]:
    """One setting per path.

    The sensor that predicts the label best need not be the one that separates easy from hard cases, and an alternation
    does not leave the local optimum of one for that of the other. So in addition to the path from the empty model,
    there are starts from models of single sensors.
    """
    effort = problem.effort
    order = np.argsort(-_step_values(problem), kind="stable")[: effort.n_linear_starts]
    starts: list[Params] = [{}, *({"start": [int(s)]} for s in order)]
    return [{"p_full": p_full, **start} for start in starts for p_full in effort.linear_p_fulls]


def gamma_path(problem: Problem) -> list[float]:
    """Falling gammas, from just below the largest one at which a sensor is used, down to zero."""
    values = _step_values(problem)
    top = float(values[problem.sensor_costs() > 0].max(initial=0.0))
    n = problem.effort.n_linear_gammas
    return [*(top * np.geomspace(0.9, LEAST_GAMMA, n)).tolist(), 0.0] if top > 0 else [0.0]


def models_from_nothing(make: Any, judge: Judge, gammas: list[float], p_full: float) -> Iterator[Fitted]:
    """From no sensor to all, each model warm-started from the one before; ``make``: AdaptLin or AdaptLstsq."""
    model = None
    for gamma in gammas:
        model = make(p_full=p_full, gamma=gamma).learn(judge, model)
        yield model, {"gamma": gamma, "p_full": p_full}


def models_from_single(
    make: Any, judge: Judge, gammas: list[float], p_full: float, start: list[int]
) -> Iterator[Fitted]:
    """Each model warm-started from the one of a single sensor, trained without a price."""
    first = make(p_full=p_full, is_refitted=False).learn(judge, only=start)
    for gamma in gammas[::SINGLE_STEP]:
        yield make(p_full=p_full, gamma=gamma).learn(judge, first), {"gamma": gamma, "p_full": p_full, "start": start}


def sensor_groups(problem: Problem, gamma: float, n_outputs: int) -> Groups:
    """One group per sensor: the weights of its features for all outputs, priced at gamma times its cost."""
    return Groups(np.repeat(problem.sensor_of[:, None], n_outputs, axis=1), gamma * problem.sensor_costs())


def step_value(problem: Problem, rows: LinearRows) -> np.ndarray:
    """The gamma below which each sensor enters the empty model: docs/math.md (11), (n_sensors,).

    It is the slope of f1's loss along the sensor's group of weights, per unit of cost.
    """
    loss = rows.classes
    slope, _ = loss.derivatives(np.tile(loss.base(), (len(rows.Z), 1)))
    groups = sensor_groups(problem, 1.0, loss.n_outputs)
    values: np.ndarray = groups.norms(rows.Z.T @ slope / rows.total) / np.maximum(groups.price, 1e-9)
    return values


def _step_values(problem: Problem) -> np.ndarray:
    rows = problem.train
    standard = make_standard(rows.X, rows.weight)
    return step_value(problem, linear_rows(problem, standard.transform(rows.X)))
