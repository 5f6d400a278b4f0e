# SPDX-License-Identifier: Apache-2.0
"""Checks that every estimator must pass, in addition to scikit-learn's ``check_estimator``.

Each check takes an estimator, fits clones of it on made-up data, and raises AssertionError if a property is violated.
A new estimator's tests run every check of ``ALL_CHECKS``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import clone, is_regressor

from hardcase_edge.program.cost import to_micro, to_unit
from hardcase_edge.program.readings import normalise
from hardcase_edge.session.drive import drive
from hardcase_edge.session.session import CLOUD, Decision, Machine, Session

from .policy.batch import Outcome
from .policy_estimator import PolicyEstimator

__all__ = ["ALL_CHECKS"]

SENSORS = ((0, 1), (2, 3))  # columns 4 and 5 are sensors of their own
COSTS = (3.0, 1.0, 2.0, 5.0)
FORWARD_COST = 4.0
N_ROWS = 240
ROUNDING = 1e-12  # of values, whose terms are added in another order; classes are small whole numbers
TOLERANCE = 0.3  # of values that are 0 or 1


def _data(estimator: PolicyEstimator) -> tuple[np.ndarray, np.ndarray]:
    """Three classes, or values around three means; few distinct readings and one redundant column, so that there are
    many ties; missing values."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, N_ROWS)
    X = np.round(rng.normal(size=(N_ROWS, 6)) + y[:, None] * (1.0, 0.5, 0.0, 1.0, 0.7, 0.0), 1)
    X[:, 5] = 2 * X[:, 0] + 1
    X[rng.random(N_ROWS) < 0.1, 3] = np.nan
    if is_regressor(estimator):
        return X, 10.0 * y + rng.normal(size=N_ROWS)
    return X, np.array(["a", "b", "c"])[y]


def _fitted(estimator: PolicyEstimator, X: np.ndarray, y: np.ndarray, fit: Any = None, **params: Any) -> Any:
    """A fitted clone; ``fit``: further arguments of its ``fit``; parameters that it does not have are left out."""
    params = {"sensors": SENSORS, "costs": COSTS, "forward_cost": FORWARD_COST, "random_state": 0} | params
    names = estimator.get_params(deep=False)
    model = clone(estimator).set_params(**{k: v for k, v in params.items() if k in names})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "No policy of")  # the table is small: the closest policy will do
        return model.fit(X, y, **(fit or {}))


def _device(model: PolicyEstimator, row: np.ndarray, reply: Any, budget: int | None = None) -> Decision:
    """The decision of the device's session on this row, with f0 replying this."""
    program = model.program_
    readings = normalise(row.tolist(), [f.dtype for f in program.features])
    session = Session(Machine(program), budget=budget)
    return drive(
        session,
        lambda asked: {s: [readings[f] for f in program.sensors[s].features] for s in asked},
        lambda request: (reply, 10_000),
    )


def _given(estimator: PolicyEstimator, y: np.ndarray) -> tuple[str, np.ndarray]:
    """The keyword of ``fit`` for f0's answers to all rows, and answers that are mostly good."""
    rng = np.random.default_rng(1)
    if is_regressor(estimator):
        return "hpc_values", y + rng.normal(size=N_ROWS)
    proba = rng.dirichlet((1.0, 1.0, 1.0), N_ROWS)
    proba[np.arange(N_ROWS), np.searchsorted(["a", "b", "c"], y)] += 2.0
    return "hpc_proba", proba / proba.sum(axis=1, keepdims=True)


def _same(one: Outcome, other: Outcome) -> bool:
    return (one.label.tolist(), one.cost.tolist(), one.forwarded.tolist()) == (
        other.label.tolist(), other.cost.tolist(), other.forwarded.tolist(),
    )  # fmt: skip


def check_one_row_is_decided_as_in_a_batch(estimator: PolicyEstimator) -> None:
    """Label, cost and route of a row do not depend on the other rows of the batch."""
    X, y = _data(estimator)
    model = _fitted(estimator, X, y)
    whole = model.decide(X)
    for k in range(0, N_ROWS, 6):
        one = model.decide(X[k : k + 1])
        alone, in_batch = ((o.label[i], o.cost[i], o.forwarded[i]) for o, i in ((one, 0), (whole, k)))
        assert alone == in_batch, f"row {k} alone: {alone}, in a batch: {in_batch}"


def check_shuffled_columns_change_nothing(estimator: PolicyEstimator) -> None:
    """With columns, sensors and costs permuted consistently, every row has the same label, cost and route.

    f0's answers are given, because f0 itself may depend on the order of columns. No two columns of the data are
    equal on all training rows; such columns could not be told apart.
    """
    X, y = _data(estimator)
    key, hpc_answers = _given(estimator, y)
    groups = [*SENSORS, (4,), (5,)]
    first = _fitted(estimator, X, y, {key: hpc_answers}).decide(X, hpc_answers)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        columns, sensors = rng.permutation(6), rng.permutation(4)
        place = np.argsort(columns)
        permuted = [[int(place[f]) for f in rng.permutation(groups[s])] for s in sensors]
        prices = [COSTS[s] for s in sensors]
        model = _fitted(estimator, X[:, columns], y, {key: hpc_answers}, sensors=permuted, costs=prices)
        assert _same(model.decide(X[:, columns], hpc_answers), first), f"columns {columns}, sensors {sensors}"


def check_cost_never_exceeds_a_hard_budget(estimator: PolicyEstimator) -> None:
    """No decision on the device costs more than its budget, and a sufficient budget does not change the decision."""
    X, y = _data(estimator)
    model = _fitted(estimator, X, y)
    top = sum(COSTS) + FORWARD_COST
    for row in X[:12]:
        for budget in np.arange(0, top + 0.5, 0.5):
            cost = _device(model, row, 0, to_micro(budget)).cost
            assert cost <= to_micro(budget), f"the budget is {budget}, the decision costs {to_unit(cost)}"
        assert _device(model, row, 0, to_micro(top)) == _device(model, row, 0)


def check_a_costless_sensor_is_used_where_it_helps(estimator: PolicyEstimator) -> None:
    """A free sensor that determines the label is bought and answers, while all others are too expensive."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, N_ROWS)
    X = rng.normal(size=(N_ROWS, 4))
    X[:, 2] = (2 * y - 1) * (1 + rng.random(N_ROWS))
    costs = (1.0, 1.0, 0.0, 1.0)
    model = _fitted(estimator, X, y, sensors=None, costs=costs, gamma=10.0)
    outcome = model.decide(X)
    assert model.sensors_ == [2], f"bought sensors: {model.sensors_}, expected [2]"
    right = (np.abs(outcome.label - y) < TOLERANCE) & ~outcome.forwarded
    assert right.mean() >= 0.97, f"{right.mean():.3f} of the rows are answered locally and correctly"


def check_missing_values_are_answered(estimator: PolicyEstimator) -> None:
    """Rows with missing values, a row of missing values only, and a column that is always missing."""
    X, y = _data(estimator)
    X[:, 4] = np.nan
    model = _fitted(estimator, X, y)
    rows = np.vstack([X, np.full((1, 6), np.nan)])
    if is_regressor(estimator):
        assert np.isfinite(model.predict(rows)).all()
    else:
        assert set(model.predict(rows)) <= {"a", "b", "c"}
        proba = model.predict_proba(rows)
        assert np.isfinite(proba).all()
        assert np.allclose(proba.sum(axis=1), 1)
    for k in range(6):
        gaps = rows[:40].copy()
        gaps[:, k] = np.nan
        assert np.isfinite(model.cost(gaps)).all()


def check_a_refit_gives_the_same_program(estimator: PolicyEstimator) -> None:
    """The same data and seed give the same program to the last digit, also when a fitted estimator is fitted again."""
    X, y = _data(estimator)
    first = _fitted(estimator, X, y)
    again = _fitted(estimator, X, y)
    assert again.program_ == first.program_
    other = _fitted(estimator, X[::-1], y)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "No policy of")
        other.fit(X, y)
    assert other.program_ == first.program_


def check_the_device_decides_as_predict(estimator: PolicyEstimator) -> None:
    """The device's session gives the same label, cost and route as ``decide``, missing values included."""
    X, y = _data(estimator)
    model = _fitted(estimator, X, y)
    X = X.copy()
    X[::7, 0] = np.nan  # never missing in training: the sensor has failed
    outcome = model.decide(X)
    for k, row in enumerate(X):
        one = _device(model, row, outcome.label[k].item())
        on_device = (one.result, to_unit(one.cost), one.route == CLOUD)
        expected = (outcome.label[k], outcome.cost[k], outcome.forwarded[k])
        same = abs(on_device[0] - expected[0]) <= ROUNDING * abs(expected[0]) and on_device[1:] == expected[1:]
        assert same, f"row {k} on the device: {on_device}, by decide: {expected}"


def check_weights_count(estimator: PolicyEstimator) -> None:
    """Rows of weight 0 and the scale of weights do not matter; rows of larger weight count for more."""
    X, y = _data(estimator)
    rng = np.random.default_rng(2)
    weight = rng.integers(0, 4, N_ROWS).astype(float)
    model = _fitted(estimator, X, y, {"sample_weight": weight})
    is_used = weight > 0
    assert _fitted(estimator, X[is_used], y[is_used], {"sample_weight": weight[is_used]}).program_ == model.program_
    assert _fitted(estimator, X, y, {"sample_weight": 2 * weight}).program_ == model.program_
    if is_regressor(estimator):
        is_upper = y > np.median(y)
        low, high = (_fitted(estimator, X, y, {"sample_weight": np.where(is_upper, w, 1.0)}) for w in (0.05, 20.0))
        light, heavy = (float(np.mean(m.predict(X))) for m in (low, high))
        assert light < heavy, f"mean value {light:.3f} if the upper half weighs 0.05, {heavy:.3f} if it weighs 20"
        return
    light, heavy = (
        (_fitted(estimator, X, y, {"sample_weight": np.where(y == "b", w, 1.0)}).predict(X) == "b").mean()
        for w in (0.05, 20.0)
    )
    assert light < heavy, f"class b is predicted for {light:.3f} of the rows at weight 0.05, {heavy:.3f} at weight 20"


ALL_CHECKS: tuple[Callable[[PolicyEstimator], None], ...] = (
    check_one_row_is_decided_as_in_a_batch,
    check_shuffled_columns_change_nothing,
    check_cost_never_exceeds_a_hard_budget,
    check_a_costless_sensor_is_used_where_it_helps,
    check_missing_values_are_answered,
    check_a_refit_gives_the_same_program,
    check_the_device_decides_as_predict,
    check_weights_count,
)
