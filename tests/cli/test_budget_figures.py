# SPDX-License-Identifier: Apache-2.0
"""``budgets.json``: a method is shown, at each budget, by the point that is best on validation rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hardcase.training import budgets
from tests.helpers.train.problems import make_problem


def test_points_are_chosen_on_validation_rows_and_shown_on_test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(n=60)
    shares = {("a", "valid"): 0.9, ("a", "test"): 0.5, ("b", "valid"): 0.8, ("b", "test"): 1.0}

    def rights(rows: Any, program: str, amounts: list[int]) -> list[np.ndarray]:
        name = "valid" if rows is problem.valid else "test"
        return [np.arange(len(rows.y)) < shares[program, name] * len(rows.y) for _ in amounts]

    monkeypatch.setattr(budgets, "_rights", rights)
    monkeypatch.setattr(budgets, "programs", lambda points: [(0, "a", None), (1, "b", None)])
    points: Any = [SimpleNamespace(method="poly-dom")] * 2
    made = budgets.budget_figures(problem, points, "ms")
    assert made["accuracy"]["poly-dom"] == pytest.approx(np.full((1, 10), 0.5), abs=0.05)
