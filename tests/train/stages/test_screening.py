# SPDX-License-Identifier: Apache-2.0
"""Screening of many sensors: what is kept, and the promise that goes with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hardcase_edge.program.definition import MICRO, Costs, Feature, Sensor, Uplink
from hardcase_train.data.problem import Problem, Rows
from hardcase_train.methods.adapt.gbrt import AdaptGBRT
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.sweep import train as screening
from hardcase_train.sweep.train import learn, screen
from tests.helpers.train.problems import BRIEF

GOOD = (3, 11, 17)


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> Problem:
    """Twenty sensors of which three say anything, where more than five are many and heads begin with two."""
    monkeypatch.setattr(screening, "MANY_SENSORS", 5)
    monkeypatch.setattr(screening, "LEAST_HEAD", 2)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 20)).astype(np.float32).astype(np.float64)
    y = (X[:, GOOD].sum(axis=1) > 0).astype(np.int64)
    p = np.where(y[:, None] == np.arange(2), 0.95, 0.05)
    parts = (np.arange(k, k + 200) for k in (0, 200, 400))
    train, valid, test = (Rows(X[rows], y[rows], p[rows], rows) for rows in parts)
    sensors = tuple(Sensor((s,), (MICRO,)) for s in range(20))
    uplink = Uplink(80, tuple(range(20)))
    return Problem((Feature("f32"),) * 20, sensors, uplink, 2, train, valid, test, effort=BRIEF, costs=Costs(5 * MICRO))


def test_the_sensors_that_say_something_are_kept_and_most_others_are_not(wide: Problem) -> None:
    problem, promise = screen(wide)
    assert promise is not None
    assert set(GOOD) <= set(promise.kept)
    assert len(promise.kept) < 20
    assert problem.offered == promise.kept
    assert str(promise).startswith(f"screened 20 sensors to {len(promise.kept)}: loss of small models ")


@pytest.mark.parametrize("seed", range(3))
def test_the_promise_holds_on_rows_that_the_small_classifiers_have_not_seen(wide: Problem, seed: int) -> None:
    wide = replace(wide, seed=seed)
    promise = screen(wide)[1]
    assert promise is not None
    search = SubsetSearch(Judge(wide), 1)
    kept, everything = (search.row_losses(s) for s in (promise.kept, wide.offered))
    assert not set(search.probed) & set(search.probe_train)
    assert (kept.mean(), everything.mean()) == pytest.approx((promise.loss, promise.loss_of_all))
    difference = kept - everything
    se = difference.std() / np.sqrt(len(difference))
    assert (promise.excess, promise.excess_se) == pytest.approx((difference.mean(), se))
    assert promise.excess <= promise.excess_se


def test_a_table_in_which_every_sensor_counts_keeps_them_all(wide: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small classifiers that lose with each sensor left out: the width grows until nothing is missing."""
    monkeypatch.setattr(SubsetSearch, "row_losses", lambda self, s: np.full(len(self.probed), 1.0 - len(s) / 40))
    promise = screen(wide)[1]
    assert promise is not None
    assert promise.kept == tuple(range(20))
    assert (promise.excess, promise.loss) == (0.0, 0.5)


def test_few_sensors_are_not_screened(wide: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screening, "MANY_SENSORS", 20)
    assert screen(wide) == (wide, None)


def test_every_policy_reads_kept_sensors_alone_and_a_request_carries_all(wide: Problem) -> None:
    lines: list[str] = []
    points = learn(wide, ("static", "dag", "adapt-gbrt", "auto"), quiet=True, jobs=1, say=lines.append)
    kept = set(screen(wide)[0].offered)
    assert any(line.startswith("screened 20 sensors to ") for line in lines)
    assert len(points) > 4
    for point in points[1:]:
        assert point.program is not None
        features = {column.feature for column in point.program.columns}
        assert {int(s) for s in wide.sensor_of[list(features)]} <= kept
    assert points[0].test.cost == wide.forward_cost


def test_a_single_stage_does_not_use_a_sensor_that_is_not_offered(wide: Problem) -> None:
    model = AdaptGBRT(n_rounds=1, trees_per_round=5).learn(Judge(replace(wide, kept=(3, 4))))
    assert set(model.sensors_) <= {3, 4}
