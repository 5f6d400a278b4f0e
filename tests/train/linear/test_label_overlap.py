# SPDX-License-Identifier: Apache-2.0
"""Whether like labels need like sensors, and what the command says of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hardcase.verbs.train import _overlap, _paths
from hardcase_train.data.problem import Problem
from hardcase_train.linear.label_overlap import label_overlap, overlap_by_distance
from tests.helpers.train.problems import make_problem


def problem(n: int = 240) -> tuple[Problem, np.ndarray]:
    """Four labels: sensor 0 tells the lower two apart, sensors 0 and 1 the middle two, sensor 1 the upper two."""
    made, rng = make_problem(2, n=n), np.random.default_rng(0)
    y = rng.integers(0, 4, n)
    X = 0.1 * rng.normal(size=(n, 6))
    X[:, 0] += np.minimum(y, 2)
    X[:, 2] += np.maximum(y, 1)
    return replace(made, train=replace(made.train, X=X)), y


def test_the_overlap_falls_with_the_distance_of_labels_that_need_other_sensors() -> None:
    made, y = problem()
    assert label_overlap(made, y).tolist() == [[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]]
    assert overlap_by_distance(label_overlap(made, y)) == [0.5, 0.0]


def test_two_labels_and_labels_of_few_rows_have_no_overlap() -> None:
    made, y = problem()
    assert label_overlap(made, y % 2).shape == (0, 0)
    y[:-2] %= 2
    assert label_overlap(made, y).shape == (0, 0)


@pytest.mark.parametrize(
    ("shares", "end"),
    [([0.5, 0.1], ": it falls, which suits trees"), ([0.5, 0.6], ", which does not suit trees"), ([0.5], "distance")],
)
def test_the_command_says_so(shares: list[float], end: str) -> None:
    (line,) = _overlap({"label_overlap": shares})
    assert line.endswith(end)
    assert _overlap({}) == []


def test_the_command_says_how_far_path_costs_differ() -> None:
    best = {"cstc": {"params": {"path_costs": [3.0, 12.5, 3.0]}}, "static": {"params": {}}}
    assert _paths(best, "mJ") == ["cstc: the sensors of its 3 paths cost 3 to 12.5 mJ"]
