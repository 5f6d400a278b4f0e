"""From arrays, column numbers and costs to a problem: what an estimator is given, checked once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils import check_array

from hardcase_edge.program.cost import to_micro
from hardcase_edge.program.definition import Sensor, Uplink
from hardcase_edge.program.readings import request_bytes

from .config import MAX_COST, check_size
from .dtypes import check_declared, declared, held
from .effort import Effort, effort_of
from .problem import MIN_ROWS, Problem, Rows, scaled
from .split import stratified

__all__ = ["make_problem", "row_weights"]


def row_weights(sample_weight: Any, n: int) -> np.ndarray:
    """(n,) float64, scaled, one for each row unless given.

    Raises
    ------
    ValueError
        Another shape, a weight that is negative or no number, or all are zero.
    """
    if sample_weight is None:
        return np.ones(n)
    weight = check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    if weight.shape != (n,):
        raise ValueError(f"sample_weight has the shape {weight.shape}, {(n,)} is expected")
    if (weight < 0).any() or not (weight > 0).any():
        raise ValueError("sample_weight has a weight below zero, or all are zero; give some rows a positive one")
    return scaled(weight)


def make_problem(
    X: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    n_classes: int,
    sensors: Sequence[Sequence[int]] | None,
    costs: Sequence[float] | None,
    forward_cost: float,
    seed: int,
    size: str = "auto",
    effort: str | Effort = "normal",
) -> Problem:
    """A problem of training and validation rows (3 to 1, by class), f0's probabilities still zero.

    Parameters
    ----------
    X : (n, n_features), NaN for missing; a whole number may be so by chance, so no column is declared i32
    y : (n,) class index
    weight : (n,) above 0
    sensors, costs, forward_cost, size, effort : as of ``PolicyClassifier``

    Raises
    ------
    ValueError
        Sensors or costs do not fit the columns, or no row is left for validation.
    InputError
        No device could run what is trained on so much, or no size or effort has that name.
    """
    size, tried = check_size("the parameter size", size), effort_of("the parameter effort", effort)
    split = stratified(y, seed, (0, 1, 0, 0))
    if len(y) < MIN_ROWS or not (split == 1).any():
        raise ValueError(
            f"n_samples={len(y)} of {n_classes} classes are so few that none is left to judge by; add rows"
        )
    features = declared(X, split == 0, has_whole=False)
    X = held(X, features)
    uplink = Uplink(
        per_request=to_micro(_amount("forward_cost", forward_cost)),
        request_bytes=request_bytes([f.dtype for f in features]),
        features=tuple(range(len(features))),
    )
    bought = _sensors(len(features), sensors, costs)
    check_declared(features, bought, uplink)
    train, valid, test = (
        Rows(X[rows], y[rows], np.zeros((len(rows), n_classes)), rows, weight[rows])
        for rows in (np.flatnonzero(split == k) for k in range(3))
    )
    return Problem(features, bought, uplink, n_classes, train, valid, test, seed, size_name=size, effort=tried)


def _sensors(
    n_features: int, sensors: Sequence[Sequence[int]] | None, costs: Sequence[float] | None
) -> tuple[Sensor, ...]:
    groups = [[int(f) for f in group] for group in (() if sensors is None else sensors)]
    named = [f for group in groups for f in group]
    if len(set(named)) != len(named) or not set(named) <= set(range(n_features)) or not all(groups):
        raise ValueError(f"sensors is {groups}: each has columns of 0 to {n_features - 1}, none of them named twice")
    groups += [[f] for f in range(n_features) if f not in set(named)]
    prices = [1.0] * len(groups) if costs is None else list(costs)
    if len(prices) != len(groups):
        raise ValueError(
            f"costs has {len(prices)} entries for {len(groups)} sensors (columns that none names are sensors too)"
        )
    return tuple(
        Sensor(tuple(group), (to_micro(_amount(f"the cost of sensor {k}", price)),))
        for k, (group, price) in enumerate(zip(groups, prices, strict=True))
    )


def _amount(what: str, value: float) -> float:
    if not 0 <= value <= MAX_COST:  # not a number is not in between
        raise ValueError(f"{what} is {value}, a cost from 0 to {MAX_COST:g} is expected")
    return float(value)
