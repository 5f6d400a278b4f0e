# SPDX-License-Identifier: Apache-2.0
"""The synthetic data of Xu et al. (2014), 6.1: four quadrants, two cheap signs, and an expert for each quadrant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.quadrants import COSTS, QUADRANTS, cascade_cost, exits_of, fitted_path, quadrants


@pytest.mark.parametrize("seed", range(2))
def test_no_error_at_cost_twelve(seed: int) -> None:
    """Signs at 1 each say which expert, at 10, knows the label."""
    X, y = quadrants(np.random.default_rng(seed + 100), 400)
    for weights, has, made in fitted_path(seed, n_prices=4, slope=3.0):
        error, cost = exits_of(replace(made, Z=X), weights, has, y)
        if error < 1e-12 and cost == 12.0:
            return
    pytest.fail("no price finds it")


def test_the_data_are_those_of_the_paper() -> None:
    X, y = quadrants(np.random.default_rng(0), 400)
    number = (X[:, 0] > 0) * 2 + (X[:, 1] > 0)
    assert X[np.arange(400), 2 + number] == pytest.approx(y)
    assert [y[number == k].mean() for k in range(4)] == pytest.approx(QUADRANTS, abs=0.5)
    assert COSTS == (1.0, 1.0, 10.0, 10.0, 10.0, 10.0)


def test_a_fixed_set_costs_42_and_a_cascade_27_at_best() -> None:
    assert sum(COSTS) == 42.0
    assert cascade_cost() == 27.0
