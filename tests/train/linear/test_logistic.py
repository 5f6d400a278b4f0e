# SPDX-License-Identifier: Apache-2.0
"""The steps of many logistic regressions at once."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import cho_factor

from hardcase_train.linear.logistic import _precondition


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
