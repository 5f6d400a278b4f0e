# SPDX-License-Identifier: Apache-2.0
"""``budgets.json``: a method is shown, at each budget, by the point that is best on validation rows."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hardcase.training import budgets
from tests.helpers.train.problems import make_problem


def test_points_are_chosen_on_validation_rows_and_shown_on_test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(n=60)
    shares = {"a": (0.9, 0.5), "b": (0.8, 1.0)}

    def rights(rows: Any, program: Any, amounts: list[int]) -> list[np.ndarray]:
        share = shares[program.name][rows is problem.test]
        return [np.arange(len(rows.y)) < share * len(rows.y) for _ in amounts]

    monkeypatch.setattr(budgets, "_rights", rights)
    made_by = [SimpleNamespace(name=name, sensors=problem.sensors) for name in shares]
    made_by.append(SimpleNamespace(name="remembers", sensors=(*problem.sensors, "memory")))
    monkeypatch.setattr(budgets, "programs", lambda points: [(k, program, None) for k, program in enumerate(made_by)])
    points: Any = [SimpleNamespace(method="poly-dom")] * 2 + [SimpleNamespace(method="duty-cycle")]
    made = budgets.budget_figures(problem, points, "ms")
    assert made["accuracy"] == {"poly-dom": pytest.approx(np.full((1, 10), 0.5), abs=0.05)}


def test_rows_count_by_their_weights_as_in_the_front(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(n=60)
    heavy = np.where(np.arange(len(problem.test.y)) % 2, 3.0, 1.0)
    problem = replace(problem, test=replace(problem.test, weight=heavy))
    program: Any = SimpleNamespace(sensors=problem.sensors)
    monkeypatch.setattr(budgets, "_rights", lambda rows, *_: [np.arange(len(rows.y)) % 2 == 1] * 10)
    monkeypatch.setattr(budgets, "programs", lambda _: [(0, program, None)])
    points: Any = [SimpleNamespace(method="greedy")]
    (row,) = budgets.budget_figures(problem, points, "ms")["accuracy"]["greedy"]
    assert row == pytest.approx([heavy[1::2].sum() / heavy.sum()] * 10)
