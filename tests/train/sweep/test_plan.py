# SPDX-License-Identifier: Apache-2.0
"""The plan of a sweep: said before the long work, with settings and an estimate of the time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hardcase_edge.more.batch.quality import R2
from hardcase_train.sweep.halving import Ladder
from hardcase_train.sweep.train import Plan, learn, make_plan
from tests.helpers.train.problems import BRIEF, make_problem


def test_the_plan_counts_rows_sensors_and_settings_and_estimates_the_time() -> None:
    plan = make_plan(Ladder(make_problem(effort=BRIEF)), ("auto", "l1"), 2)
    assert (plan.n_rows, plan.n_sensors, plan.effort) == (150, 3, "quick")
    assert set(plan.settings) == {"cascade", "dag", "route", "adapt-gbrt", "static", "l1"}
    assert plan.seconds > 0


def test_the_plan_counts_the_methods_that_will_run() -> None:
    """Values in streams have an order, but what holds labels answers classes alone."""
    problem = make_problem(effort=BRIEF)
    parts = {k: getattr(problem, k) for k in ("train", "valid", "test")}
    rows = {
        k: replace(part, y=part.X[:, 0], hpc=part.X[:, :1], sequence=np.zeros(len(part.y), dtype=np.int64))
        for k, part in parts.items()
    }
    plan = make_plan(Ladder(replace(problem, n_classes=0, quality=R2, **rows)), ("auto", "duty-cycle"), 1)
    assert set(plan.settings) == {"cascade", "dag", "adapt-gbrt", "static"}


def test_more_work_takes_longer() -> None:
    ladder = Ladder(make_problem(effort=BRIEF))
    make_plan(ladder, ("static",), 1)  # compiled code is loaded
    one, two = (make_plan(Ladder(make_problem(effort=BRIEF)), methods, 1) for methods in (["l1"], ["l1", "lp-tree"]))
    assert two.seconds > one.seconds
    slow = Plan(10, 2, "normal", {"static": 3}, 600.0)
    assert str(slow) == "10 training rows, 2 sensors, effort normal; settings about: static (3); about 10 min from now"


def test_a_plan_is_said_once_and_before_the_search() -> None:
    lines: list[str] = []
    learn(make_problem(effort=BRIEF), ("static",), quiet=True, jobs=1, say=lines.append)
    assert len(lines) == 1
    assert "static (" in lines[0]
