# SPDX-License-Identifier: Apache-2.0
"""The contracts of estimators and of methods, as checks that raise AssertionError if a property is violated.

Each check of ``ALL_CHECKS`` takes an estimator and fits clones of it on made-up data, in addition to scikit-learn's
``check_estimator``; each of ``METHOD_CHECKS`` takes the class of a method, for the settings and points that sweeps ask
of it. ``run_check`` runs one: a check that ``Method.expected_failures`` names, with a reason, must fail.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from sklearn.base import clone, is_regressor

from hardcase_edge.more.batch.evaluate import Outcome
from hardcase_edge.program.cost import to_micro, to_unit
from hardcase_edge.program.readings import normalise
from hardcase_edge.session.actions import CLOUD, Decision
from hardcase_edge.session.drive import drive
from hardcase_edge.session.session import Machine, Session

from .data.error_costs import named_quality
from .data.from_arrays import make_problem
from .data.problem import Problem
from .estimator import MethodClassifier
from .method import Params
from .policy.front import Point, with_test
from .policy.selection import Judge
from .policy_estimator import PolicyEstimator
from .settings.effort import EFFORTS, QUICK, Effort
from .stages.subset_search import SubsetSearch

BRIEF = replace(  # less than "quick": few settings, small ensembles, few levels, to check the plumbing
    QUICK, tree_share=0.16, forest_trees=4, max_stages=3, max_probes=5, levels=(0.7, 0.9), n_prices=6,
    n_gate_prices=4, n_graph_prices=2, n_gammas=2, forward_rates=(0.0, 0.1, 0.3), gate_trees=5,
    prune_forests=((3, 1.0),), n_prune_prices=2, n_lp_prices=1, lp_rows=12, n_tree_prices=1, n_linear_gammas=2,
)  # fmt: skip

SENSORS = ((0, 1), (2, 3))  # columns 4 and 5 are sensors of their own
COSTS = (3.0, 1.0, 2.0, 5.0)
FORWARD_COST = 4.0
N_ROWS = 240
ROUNDING = 1e-12  # of values, whose terms are added in another order; classes are small whole numbers
TOLERANCE = 0.3  # of values that are 0 or 1


def _classes() -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Rows and indices of three classes; few distinct readings and one redundant column, so that there are many ties;
    missing values."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, N_ROWS)
    X = np.round(rng.normal(size=(N_ROWS, 6)) + y[:, None] * (1.0, 0.5, 0.0, 1.0, 0.7, 0.0), 1)
    X[:, 5] = 2 * X[:, 0] + 1
    X[rng.random(N_ROWS) < 0.1, 3] = np.nan
    return X, y, rng


def _data(estimator: PolicyEstimator) -> tuple[np.ndarray, np.ndarray]:
    """The rows of ``_classes``, with labels or with values around three means."""
    X, y, rng = _classes()
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


def _decided(machine: Machine, row: np.ndarray, reply: Any, budget: int | None = None) -> Decision:
    """The decision of the device's session on this row, with f0 replying this."""
    program = machine.program
    readings = normalise(row.tolist(), [f.dtype for f in program.features])
    return drive(
        Session(machine, budget=budget),
        lambda asked: {s: [readings[f] for f in program.sensors[s].features] for s in asked},
        lambda request: (reply, 10_000),
    )


def _given(estimator: PolicyEstimator, y: np.ndarray) -> tuple[str, np.ndarray]:
    """The keyword of ``fit`` for f0's answers to all rows, and answers that are mostly good."""
    if is_regressor(estimator):
        return "hpc_values", y + np.random.default_rng(1).normal(size=N_ROWS)
    return "hpc_proba", _mostly_good(np.searchsorted(["a", "b", "c"], y))


def _mostly_good(y: np.ndarray) -> np.ndarray:
    """f0's probabilities of the classes, mostly good ones."""
    proba = np.random.default_rng(1).dirichlet((1.0, 1.0, 1.0), N_ROWS)
    proba[np.arange(N_ROWS), y] += 2.0
    answers: np.ndarray = proba / proba.sum(axis=1, keepdims=True)
    return answers


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
    machine, top = Machine(model.program_), sum(COSTS) + FORWARD_COST
    for row in X[:12]:
        for budget in np.arange(0, top + 0.5, 0.5):
            cost = _decided(machine, row, 0, to_micro(budget)).cost
            assert cost <= to_micro(budget), f"the budget is {budget}, the decision costs {to_unit(cost)}"
        assert _decided(machine, row, 0, to_micro(top)) == _decided(machine, row, 0)


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
    """Equal data and seeds give the same program to the last digit, also when a fitted estimator is fitted again."""
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
    machine, outcome = Machine(model.program_), model.decide(X)
    for k, row in enumerate(X):
        one = _decided(machine, row, outcome.label[k].item())
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


# ---------------------------------------------------------------- of methods

Method = type[MethodClassifier]
LEAST_SKILL = 0.01  # of log loss, without which confidences of every method are the same
ABOUT = 2.0  # factor by which ``n_settings`` may differ from the number that the grid has


def _problem(effort: Effort = BRIEF) -> Problem:
    """Three classes and four sensors, as ``_classes`` makes them; f0 is mostly right."""
    X, y, _ = _classes()
    made = make_problem(X, y, np.ones(N_ROWS), 3, SENSORS, COSTS, FORWARD_COST, 0, "auto", effort)
    return made.with_hpc(_mostly_good(y))


def _search(problem: Problem, *, is_alone: bool = False) -> SubsetSearch:
    return SubsetSearch(Judge(problem, is_alone=is_alone), 1)


def _ends(grid: Sequence[Params]) -> list[Params]:
    """The first and the last setting, which differ most."""
    return [grid[0], *grid[-1:]][: len(grid)]


@lru_cache(maxsize=1)
def _forth(method: Method) -> tuple[Problem, list[Params], list[list[Point]]]:
    """A problem, the settings at the ends of its grid, and the points of each, run in this order; for two checks."""
    search = _search(_problem())
    ends = _ends(method.grid(search))
    return search.problem, ends, [method.run(search, params) for params in ends]


def _plain(points: Sequence[Point]) -> list[tuple[Any, ...]]:
    return [(p.method, p.params, p.valid, p.program) for p in points]


def check_settings_are_json_and_stand_once(method: Method) -> None:
    """Settings are values of JSON, none stands twice, and there is one at least."""
    grid = method.grid(_search(_problem()))
    texts = [json.dumps(params, sort_keys=True, allow_nan=False) for params in grid]
    assert grid, "the grid is empty"
    assert [json.loads(text) for text in texts] == grid, "a setting is another one after JSON"
    assert len(set(texts)) == len(texts), "a setting stands twice"


def check_the_number_of_settings_is_known_before(method: Method) -> None:
    """``n_settings`` says about how many settings the grid has, for every effort, and more effort gives no fewer."""
    counts = []
    search = _search(_problem())  # the same sensor sets for all
    for effort in EFFORTS.values():
        search.problem = replace(_problem(), effort=effort)
        counts.append(len(method.grid(search)))
    assert counts == sorted(counts), f"settings by effort: {counts}"
    known, found = method.n_settings(_problem()), len(method.grid(_search(_problem())))
    assert found / ABOUT <= known <= found * ABOUT, f"n_settings says {known}, the grid has {found}"


def check_settings_do_not_depend_on_each_other(method: Method) -> None:
    """A setting's points are the same, whichever setting ran before it."""
    problem, ends, made = _forth(method)
    again = _search(problem)
    method.grid(again)
    back = [_plain(method.run(again, params)) for params in reversed(ends)]
    assert [_plain(points) for points in made] == back[::-1], (
        f"{method.method.name}: settings in another order give other points"
    )


def check_points_are_of_the_method(method: Method) -> None:
    """Points have the method's name, settings of JSON, and programs that a device runs."""
    problem, _, made = _forth(method)
    points = [point for of_one in made for point in of_one]
    assert points, "no setting gives a point"
    for point in points:
        assert point.method == method.method.name, f"a point is of {point.method!r}"
        assert json.loads(json.dumps(point.params, allow_nan=False)) == point.params, "settings are no JSON"
        assert point.program is not None, "a point has no program"
        decision, most = _decided(Machine(point.program), problem.valid.X[0], 0), sum(COSTS) + FORWARD_COST
        cost = to_unit(decision.cost)
        assert cost <= most, f"a row costs {cost:g}, all sensors and a request {most:g}"


def check_confidences_are_those_of_the_program(method: Method) -> None:
    """By log loss, where validation rows alone are judged, the program itself gives a point's figures."""
    problem = replace(_problem(), quality=named_quality("log-loss", range(3), ""))
    search = _search(problem, is_alone=True)
    points = [point for params in _ends(method.grid(search)) for point in method.run(search, params)]
    assert any(abs(point.valid.quality) > LEAST_SKILL for point in points), "no point knows more than shares of classes"
    for point in with_test(replace(problem, test=problem.valid), points):
        found = {} if point.test is None else point.test.to_json()
        stated = {k: getattr(point.valid, k) for k in found}
        assert found, "a point has no figures on test rows"
        assert all(abs(stated[k] - found[k]) <= 1e-6 * max(1, abs(found[k])) for k in found), f"{stated} and {found}"


METHOD_CHECKS: tuple[Callable[[Method], None], ...] = (
    check_settings_are_json_and_stand_once,
    check_the_number_of_settings_is_known_before,
    check_settings_do_not_depend_on_each_other,
    check_points_are_of_the_method,
    check_confidences_are_those_of_the_program,
)


def run_check(check: Callable[[Any], None], subject: Any) -> None:
    """Run a check of an estimator, or of a method's class; one that the method expects to fail must fail.

    Raises
    ------
    AssertionError
        The check fails, or passes although ``Method.expected_failures`` names it.
    """
    expected = subject.method.expected_failures if hasattr(subject, "method") else {}
    if check.__name__ not in expected:
        check(subject)
        return
    try:
        check(subject)
    except AssertionError:
        return
    raise AssertionError(f"{check.__name__} passes; the method expects it to fail: {expected[check.__name__]}")
