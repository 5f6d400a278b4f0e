# SPDX-License-Identifier: Apache-2.0
"""A policy from training to its exports, in one process."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hardcase
from hardcase_edge.program.definition import Program
from hardcase_export.integers import point

pytestmark = pytest.mark.usefixtures("brief_effort", "no_compiler")


def test_a_point_is_quantised_once_for_the_report_a_bundle_and_two_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, quantise = Counter[Program](), point.make_integers

    def counted(draft: Program, *args: Any, **options: Any) -> Any:
        made[draft] += 1
        return quantise(draft, *args, **options)

    monkeypatch.setattr(point, "make_integers", counted)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    X = y[:, None] + rng.normal(size=(400, 3)) * (1.5, 0.7, 0.2)
    costs, sensors = {"cheap": 1.0, "good": 20.0}, {"cheap": [0, 1], "good": [2]}
    policy = hardcase.train(X, y, sensors=sensors, costs=costs, methods="static", effort="quick")
    by_training = made.total()
    exported = policy.export(tmp_path / "a.hcb")
    policy.export_to("onnx", tmp_path / "onnx")
    policy.export_c(tmp_path / "c")
    assert exported.path.is_file()
    assert by_training >= 1
    assert made.total() == by_training, "the exports read what the report made"
    assert set(made.values()) == {1}
