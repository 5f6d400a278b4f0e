# SPDX-License-Identifier: Apache-2.0
"""Slopes of a loss, compared with finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

STEP = 1e-5


def check_slopes(loss: Any, scores: np.ndarray) -> None:
    """``value_and_slope`` and ``derivatives`` of a loss at these scores (n, n_outputs) are those of its value."""
    _, slope = loss.value_and_slope(scores)
    gradient, hessian = loss.derivatives(scores)
    assert np.allclose(gradient, slope)
    for i, k in np.ndindex(scores.shape):
        step = np.zeros_like(scores)
        step[i, k] = STEP
        (up, rise), (down, fall) = (loss.value_and_slope(scores + s) for s in (step, -step))
        assert (up - down) / (2 * STEP) == pytest.approx(slope[i, k], abs=1e-7)
        assert (rise - fall)[i, k] / (2 * STEP) == pytest.approx(hessian[i, k], abs=1e-6)
