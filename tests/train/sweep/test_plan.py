# SPDX-License-Identifier: Apache-2.0
"""The plan of a sweep: said before the long work, with the settings of each method."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hardcase_edge.more.batch.quality import R2
from hardcase_train.sweep.train import learn, plan_of
from tests.helpers.train.problems import BRIEF, make_problem


def methods_of(plan: str) -> set[str]:
    """Their names, of a line."""
    return {part.partition(" (")[0] for part in plan.partition("settings about: ")[2].split(", ")}


def test_the_plan_counts_rows_sensors_and_settings() -> None:
    plan = plan_of(make_problem(effort=BRIEF), ("auto", "l1"))
    assert plan.startswith("150 training rows, 3 sensors, effort quick; settings about: ")
    assert methods_of(plan) == {"cascade", "dag", "route", "adapt-gbrt", "static", "l1"}


def test_the_plan_names_the_methods_that_will_run() -> None:
    """Values in streams have an order, but what holds labels answers classes alone."""
    problem = make_problem(effort=BRIEF)
    parts = {k: getattr(problem, k) for k in ("train", "valid", "test")}
    rows = {
        k: replace(part, y=part.X[:, 0], hpc=part.X[:, :1], sequence=np.zeros(len(part.y), dtype=np.int64))
        for k, part in parts.items()
    }
    plan = plan_of(replace(problem, n_classes=0, quality=R2, **rows), ("auto", "duty-cycle"))
    assert methods_of(plan) == {"cascade", "dag", "adapt-gbrt", "static"}


def test_a_plan_is_said_once_and_before_the_search() -> None:
    lines: list[str] = []
    learn(make_problem(effort=BRIEF), ("static",), quiet=True, jobs=1, say=lines.append)
    assert len(lines) == 1
    assert "static (" in lines[0]
