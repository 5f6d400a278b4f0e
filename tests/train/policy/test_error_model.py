# SPDX-License-Identifier: Apache-2.0
"""What an answer is expected to lose where errors have costs."""

from __future__ import annotations

import numpy as np
import pytest

from hardcase_train.policy.confidences import expected_loss


def test_of_three_labels_each_with_enough_wrong_rows_has_a_model_of_its_own() -> None:
    """Margins say nothing, so a label's mean expected loss is its share of wrong rows times what these cost."""
    rng = np.random.default_rng(0)
    n, shares = 6_000, np.array([0.5, 0.2, 0.05])
    label = rng.integers(0, 3, n)
    y = np.where(rng.random(n) < shares[label], (label + 1) % 3, label)
    errors = np.array([[0.0, 1.0, 9.0], [4.0, 0.0, 1.0], [1.0, 2.0, 0.0]])
    loss = expected_loss(rng.random(n), None, label, y, np.ones(n), errors)
    for a in range(3):
        wrong = (label == a) & (y != label)
        known = wrong.sum() / (label == a).sum() * errors[(a + 1) % 3, a]
        assert loss[label == a].mean() == pytest.approx(known, rel=0.1)
