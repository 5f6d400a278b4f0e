# SPDX-License-Identifier: Apache-2.0
"""The steps of many logistic regressions at once."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import cho_factor

from hardcase_train.linear.logistic import _Loss, _precondition, _SoftLoss


def test_a_step_is_the_slope_times_the_inverse_that_bfgs_would_keep() -> None:
    """Two updates H = (I - s y' / s'y) H (I - y s' / s'y) + s s' / s'y, from the scaled inverse of the bound."""
    rng = np.random.default_rng(0)
    bound = np.diag([1.0, 2.0, 4.0])
    steps, slope = rng.normal(size=(2, 3)), rng.normal(size=3)
    changes = steps @ np.array([[2.0, 0.3, 0.0], [0.3, 1.0, 0.2], [0.0, 0.2, 3.0]])
    last = changes[-1]
    inverse = np.linalg.inv(bound) * (steps[-1] @ last) / (last @ np.linalg.solve(bound, last))
    for s, y in zip(steps, changes, strict=True):
        away = np.eye(3) - np.outer(s, y) / (s @ y)
        inverse = away @ inverse @ away.T + np.outer(s, s) / (s @ y)
    history = [(s[None, None], y[None, None], np.array([s @ y])) for s, y in zip(steps, changes, strict=True)]
    found = _precondition(history, cho_factor(bound), slope[None, None])
    assert found[0, 0] == pytest.approx(inverse @ slope)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_the_loss_of_soft_targets_is_that_of_labels_where_they_are_certain_and_its_slope_is_that_of_differences(
    n_outputs: int,
) -> None:
    rng = np.random.default_rng(1)
    n_classes = max(n_outputs, 2)
    label, share = rng.integers(n_classes, size=(2, 5)), np.full((2, 5), 0.2)
    scores, both = rng.normal(size=(2, n_outputs, 5)), np.arange(2)
    hard = _Loss(label, share, n_outputs)
    certain = _SoftLoss(label, share, n_outputs, np.eye(n_classes))
    assert certain(scores, both) == pytest.approx(hard(scores, both))
    assert certain.slope(scores) == pytest.approx(hard.slope(scores))
    soft = _SoftLoss(label, share, n_outputs, rng.dirichlet(np.ones(n_classes), n_classes))
    slope, step = soft.slope(scores), 1e-5
    for k in np.ndindex(scores.shape):
        away = np.zeros_like(scores)
        away[k] = step
        expected = (soft(scores + away, both) - soft(scores - away, both)).sum() / (2 * step)
        assert slope[k] == pytest.approx(expected, abs=1e-5)
