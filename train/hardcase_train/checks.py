"""What must be true of every learner, beside what scikit-learn's ``check_estimator`` asks of it.

Each check takes an estimator, fits clones of it on made-up data, and raises AssertionError where it does not hold.
Whoever adds a learner calls those of ``ALL_CHECKS`` one by one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import clone

from hardcase_edge.program.cost import to_micro, to_unit
from hardcase_edge.program.readings import normalise
from hardcase_edge.session.drive import drive
from hardcase_edge.session.session import CLOUD, Decision, Machine, Session

from .estimator import PolicyClassifier
from .policy.batch import Outcome

__all__ = ["ALL_CHECKS"]

SENSORS = ((0, 1), (2, 3))  # columns 4 and 5 are sensors of their own
COSTS = (3.0, 1.0, 2.0, 5.0)
FORWARD_COST = 4.0
N_ROWS = 240


def _data() -> tuple[np.ndarray, np.ndarray]:
    """Three classes; few distinct values and a column that says what another says, so that ties abound; gaps."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, N_ROWS)
    X = np.round(rng.normal(size=(N_ROWS, 6)) + y[:, None] * (1.0, 0.5, 0.0, 1.0, 0.7, 0.0), 1)
    X[:, 5] = 2 * X[:, 0] + 1
    X[rng.random(N_ROWS) < 0.1, 3] = np.nan
    return X, np.array(["a", "b", "c"])[y]


def _fitted(estimator: PolicyClassifier, X: np.ndarray, y: np.ndarray, said: Any = None, **params: Any) -> Any:
    params = {"sensors": SENSORS, "costs": COSTS, "forward_cost": FORWARD_COST, "random_state": 0} | params
    known = estimator.get_params(deep=False)
    made = clone(estimator).set_params(**{k: v for k, v in params.items() if k in known})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "no policy of")  # a small table: the nearest will do
        return made.fit(X, y, **(said or {}))


def _device(model: PolicyClassifier, row: np.ndarray, reply: int, budget: int | None = None) -> Decision:
    """What the device's own session decides on this row, f0 replying with this class."""
    program = model.program_
    readings = normalise(row.tolist(), [f.dtype for f in program.features])
    session = Session(Machine(program), budget=budget)
    return drive(
        session,
        lambda asked: {s: [readings[f] for f in program.sensors[s].features] for s in asked},
        lambda request: (reply, 10_000),
    )


def _same(one: Outcome, other: Outcome) -> bool:
    return (one.label.tolist(), one.cost.tolist(), one.forwarded.tolist()) == (
        other.label.tolist(), other.cost.tolist(), other.forwarded.tolist(),
    )  # fmt: skip


def check_one_row_is_decided_as_in_a_batch(estimator: PolicyClassifier) -> None:
    """Label, cost and route of a row do not depend on the rows beside it."""
    X, y = _data()
    model = _fitted(estimator, X, y)
    whole = model.decide(X)
    for k in range(0, N_ROWS, 6):
        one = model.decide(X[k : k + 1])
        found, expected = ((o.label[i], o.cost[i], o.forwarded[i]) for o, i in ((one, 0), (whole, k)))
        assert found == expected, f"row {k} alone: {found}, among others: {expected}"


def check_shuffled_columns_change_nothing(estimator: PolicyClassifier) -> None:
    """With columns, sensors and costs shuffled alike, every row has the same label, cost and route.

    f0's probabilities are given: what f0 makes of another order of columns is f0's. Columns that have the same
    readings in all training rows cannot be told apart; here are none.
    """
    X, y = _data()
    said = np.random.default_rng(1).dirichlet((1.0, 1.0, 1.0), N_ROWS)
    said[np.arange(N_ROWS), np.searchsorted(["a", "b", "c"], y)] += 2.0
    said /= said.sum(axis=1, keepdims=True)
    groups = [*SENSORS, (4,), (5,)]
    first = _fitted(estimator, X, y, {"hpc_proba": said}).decide(X, said)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        columns, sensors = rng.permutation(6), rng.permutation(4)
        place = np.argsort(columns)
        moved = [[int(place[f]) for f in rng.permutation(groups[s])] for s in sensors]
        prices = [COSTS[s] for s in sensors]
        model = _fitted(estimator, X[:, columns], y, {"hpc_proba": said}, sensors=moved, costs=prices)
        assert _same(model.decide(X[:, columns], said), first), f"columns {columns}, sensors {sensors}"


def check_cost_never_exceeds_a_hard_budget(estimator: PolicyClassifier) -> None:
    """On the device, whatever the budget of a decision; and a budget that is large enough changes nothing."""
    X, y = _data()
    model = _fitted(estimator, X, y)
    top = sum(COSTS) + FORWARD_COST
    for row in X[:12]:
        for budget in np.arange(0, top + 0.5, 0.5):
            cost = _device(model, row, 0, to_micro(budget)).cost
            assert cost <= to_micro(budget), f"the budget is {budget}, the decision costs {to_unit(cost)}"
        assert _device(model, row, 0, to_micro(top)) == _device(model, row, 0)


def check_a_costless_sensor_is_used_where_it_helps(estimator: PolicyClassifier) -> None:
    """One that says the label and costs nothing is bought and answers, though all others are too dear to buy."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, N_ROWS)
    X = rng.normal(size=(N_ROWS, 4))
    X[:, 2] = (2 * y - 1) * (1 + rng.random(N_ROWS))
    costs = (1.0, 1.0, 0.0, 1.0)
    model = _fitted(estimator, X, y, sensors=None, costs=costs, gamma=10.0)
    outcome = model.decide(X)
    assert model.sensors_ == [2], f"bought are {model.sensors_}"
    right = (outcome.label == y) & ~outcome.forwarded
    assert right.mean() >= 0.97, f"{right.mean():.3f} of the rows are answered here and rightly"


def check_missing_values_are_answered(estimator: PolicyClassifier) -> None:
    """Rows with gaps, a row of nothing else, and a column that is always missing."""
    X, y = _data()
    X[:, 4] = np.nan
    model = _fitted(estimator, X, y)
    rows = np.vstack([X, np.full((1, 6), np.nan)])
    assert set(model.predict(rows)) <= {"a", "b", "c"}
    proba = model.predict_proba(rows)
    assert np.isfinite(proba).all()
    assert np.allclose(proba.sum(axis=1), 1)
    for k in range(6):
        gaps = rows[:40].copy()
        gaps[:, k] = np.nan
        assert np.isfinite(model.cost(gaps)).all()


def check_a_refit_gives_the_same_program(estimator: PolicyClassifier) -> None:
    """Same data and seed, same program to the last digit; a fitted estimator forgets what it was fitted to."""
    X, y = _data()
    first = _fitted(estimator, X, y)
    again = _fitted(estimator, X, y)
    assert again.program_ == first.program_
    other = _fitted(estimator, X[::-1], y)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "no policy of")
        other.fit(X, y)
    assert other.program_ == first.program_


def check_the_device_decides_as_predict(estimator: PolicyClassifier) -> None:
    """The session walks the program to the same label, cost and route on every row, gaps included."""
    X, y = _data()
    model = _fitted(estimator, X, y)
    X = X.copy()
    X[::7, 0] = np.nan  # never so in training: the sensor has failed
    outcome = model.decide(X)
    for k, row in enumerate(X):
        one = _device(model, row, int(outcome.label[k]))
        found = (one.result, to_unit(one.cost), one.route == CLOUD)
        expected = (outcome.label[k], outcome.cost[k], outcome.forwarded[k])
        assert found == expected, f"row {k} on the device: {found}, by decide: {expected}"


def check_weights_count(estimator: PolicyClassifier) -> None:
    """A row of weight 0 is as if it were not there, twice all weights are the same, and a heavy class is said more."""
    X, y = _data()
    rng = np.random.default_rng(2)
    weight = rng.integers(0, 4, N_ROWS).astype(float)
    model = _fitted(estimator, X, y, {"sample_weight": weight})
    kept = weight > 0
    assert _fitted(estimator, X[kept], y[kept], {"sample_weight": weight[kept]}).program_ == model.program_
    assert _fitted(estimator, X, y, {"sample_weight": 2 * weight}).program_ == model.program_
    light, heavy = (
        (_fitted(estimator, X, y, {"sample_weight": np.where(y == "b", w, 1.0)}).predict(X) == "b").mean()
        for w in (0.05, 20.0)
    )
    assert light < heavy, f"of weight 0.05 a class is said in {light:.3f} of the rows, of weight 20 in {heavy:.3f}"


ALL_CHECKS: tuple[Callable[[PolicyClassifier], None], ...] = (
    check_one_row_is_decided_as_in_a_batch,
    check_shuffled_columns_change_nothing,
    check_cost_never_exceeds_a_hard_budget,
    check_a_costless_sensor_is_used_where_it_helps,
    check_missing_values_are_answered,
    check_a_refit_gives_the_same_program,
    check_the_device_decides_as_predict,
    check_weights_count,
)
