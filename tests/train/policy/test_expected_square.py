# SPDX-License-Identifier: Apache-2.0
"""Expected squared errors of values: they follow the uncertainty, sum to what was seen, and need no spread."""

from __future__ import annotations

import numpy as np
import pytest

from hardcase_train.policy.confidences import expected_square


def test_expected_squares_follow_the_uncertainty() -> None:
    rng = np.random.default_rng(0)
    log_square = rng.uniform(-6, 0, 20_000)
    answer = rng.normal(size=20_000)
    y = answer + rng.normal(size=20_000) * np.exp(log_square / 2)
    found = expected_square([log_square, rng.normal(size=20_000)], answer, y, np.ones(20_000))
    for low, high in ((-6, -5), (-3, -2), (-1, 0)):
        rows = (log_square >= low) & (log_square < high)
        assert found[rows].mean() == pytest.approx(np.exp(log_square[rows]).mean(), rel=0.1)


def test_expected_squares_sum_to_the_squares() -> None:
    rng = np.random.default_rng(1)
    answer, y, u = rng.normal(size=(3, 500))
    weight = rng.random(500) + 0.1
    found = expected_square([u], answer, y, weight)
    assert np.average(found, weights=weight) == pytest.approx(
        np.average(np.square(answer - y), weights=weight), rel=1e-3
    )


def test_without_features_or_errors_it_is_the_mean() -> None:
    y, ones = np.array([1.0, 2.0, 4.0]), np.ones(3)
    assert expected_square([], y + 1, y, ones).tolist() == [1.0, 1.0, 1.0]
    assert expected_square([np.full(3, 7.0)], y + 1, y, ones).tolist() == [1.0, 1.0, 1.0]
    assert (expected_square([y], y, y, ones) > 0).all()
