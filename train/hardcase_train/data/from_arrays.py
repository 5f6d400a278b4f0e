# SPDX-License-Identifier: Apache-2.0
"""An estimator's arrays, sensors and costs, checked once and made into a problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any

import numpy as np
from sklearn.utils import check_array

from hardcase_edge.program.cost import to_micro
from hardcase_edge.program.definition import Costs, Sensor, Uplink
from hardcase_edge.program.readings import request_bytes

from ..settings.amounts import check_amount, check_choice, check_kept
from ..settings.config import SIZES
from ..settings.effort import Effort, effort_of
from .dtypes import check_declared, declared, rounded_to_dtypes
from .problem import MIN_ROWS, N_FOLDS, Problem, Rows, scaled, value_unit
from .split import deal, strata, stratified


def row_weights(sample_weight: Any, n: int) -> np.ndarray:
    """Row weights, (n,) float64, scaled to a mean of 1; ones if ``sample_weight`` is None.

    Raises
    ------
    ValueError
        The shape is not (n,), a weight is negative or not a number, or all weights are zero.
    """
    if sample_weight is None:
        return np.ones(n)
    weight = check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    if weight.shape != (n,):
        raise ValueError(f"sample_weight has the shape {weight.shape}; {(n,)} is expected")
    if (weight < 0).any() or not (weight > 0).any():
        raise ValueError("sample_weight has a negative weight, or only zeros; give at least one row a positive weight")
    return scaled(weight)


def group_names(groups: Any, n: int) -> np.ndarray:
    """The name of each row's group, (n,).

    Raises
    ------
    ValueError
        The shape is not (n,), or a name is missing.
    """
    names = np.asarray(groups)
    if names.shape != (n,):
        raise ValueError(f"groups has the shape {names.shape}; {(n,)} is expected")
    absent = [name for name in names.tolist() if name is None or name != name]
    if absent:
        raise ValueError(f"groups has {len(absent)} missing names; drop these rows or name their groups")
    return names


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
    group: np.ndarray | None = None,
    *,
    per_decision: float = 0.0,
) -> Problem:
    """A problem with training and validation rows (3 to 1, stratified); f0's probabilities are still zero.

    Parameters
    ----------
    X : (n, n_features), NaN for missing; whole numbers may be coincidental, so no column is declared i32
    y : (n,) class index; values if ``n_classes`` is 0
    weight : (n,), above 0
    sensors, costs, forward_cost, per_decision, size, effort : as of ``PolicyClassifier``
    group : (n,) group number of each row, none of which is divided; None if each row stands for itself

    Raises
    ------
    ValueError
        Sensors do not fit the columns, no row is left for validation, or the groups are too few.
    InputError
        No program could declare these sensors and features, a cost is none, or no size or effort has that name.
    """
    size, effort = check_choice("the parameter size", size, SIZES), effort_of("the parameter effort", effort)
    stratum = strata(y, n_classes)
    split = stratified(stratum, seed, (0, 1, 0, 0)) if group is None else _of_groups(group, stratum, seed)
    if len(y) < MIN_ROWS or not (split == 1).any():
        raise ValueError(
            f"n_samples={len(y)} of {n_classes} classes are too few: no row is left for validation; add rows"
        )
    unit = value_unit(y[split == 0], weight[split == 0]) if not n_classes else (0.0, 1.0)
    y = (y - unit[0]) / unit[1] if not n_classes else y
    features = declared(X, split == 0, has_whole=False)
    X = rounded_to_dtypes(X, features)
    others = Costs(
        per_request=to_micro(_amount("forward_cost", forward_cost)),
        per_decision=to_micro(_amount("per_decision", per_decision)),
    )
    uplink = Uplink(
        request_bytes=request_bytes([f.dtype for f in features]),
        features=tuple(range(len(features))),
    )
    sensor_groups = _sensors(len(features), sensors, costs)
    check_declared(features, sensor_groups, uplink, others)
    train, valid, test = (
        Rows(
            X[rows],
            y[rows],
            np.zeros((len(rows), n_classes or 1)),
            rows,
            weight[rows],
            None if group is None else group[rows],
        )
        for rows in (np.flatnonzero(split == k) for k in range(3))
    )
    parts = (features, sensor_groups, uplink, n_classes, train, valid, test, seed)
    return Problem(*parts, size_name=size, effort=effort, value_unit=unit, costs=others)


def _of_groups(group: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
    """0 (train) or 1 (valid) for each row."""
    n_groups = len(np.unique(group))
    if n_groups <= N_FOLDS:
        raise ValueError(f"groups has {n_groups} groups; at least {N_FOLDS + 1} are expected, one of them to validate")
    return deal(group, y, seed, (0.75, 0.25), (N_FOLDS, 1))


def _sensors(
    n_features: int, sensors: Sequence[Sequence[int]] | None, costs: Sequence[float] | None
) -> tuple[Sensor, ...]:
    if isinstance(costs, Mapping):
        raise ValueError("costs is a dict; give a list of costs, in the order of the sensors")
    try:
        groups = [[index(f) for f in group] for group in (() if sensors is None else sensors)]
        amounts = None if costs is None else list(costs)
    except TypeError as error:
        raise ValueError(
            f"sensors is {str(sensors)[:60]} and costs is {str(costs)[:60]}; give each sensor a list of column numbers "
            "and a cost, such as [[0, 1]] and [9]"
        ) from error
    grouped = [f for group in groups for f in group]
    if len(set(grouped)) != len(grouped) or not set(grouped) <= set(range(n_features)) or not all(groups):
        raise ValueError(
            f"sensors is {groups}; each sensor needs at least one column of 0 to {n_features - 1}, and no two share one"
        )
    groups += [[f] for f in range(n_features) if f not in set(grouped)]
    amounts = [1.0] * len(groups) if amounts is None else amounts
    if len(amounts) != len(groups):
        raise ValueError(
            f"costs has {len(amounts)} entries for {len(groups)} sensors; a column in no group is a sensor too"
        )
    return tuple(
        Sensor(tuple(group), (to_micro(_amount(f"the cost of sensor {k}", amount)),))
        for k, (group, amount) in enumerate(zip(groups, amounts, strict=True))
    )


def _amount(what: str, value: float) -> float:
    amount = check_amount(what, value)
    check_kept(what, amount)
    return amount
