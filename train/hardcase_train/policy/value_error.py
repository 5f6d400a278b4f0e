# SPDX-License-Identifier: Apache-2.0
"""Error model of values: the expected squared error of an answer, log-linear in the scores of its uncertainty.

Fitted to the judged rows by Poisson regression, whose estimates sum to the observed errors (quasi-likelihood: McCullagh
and Nelder, *Generalized Linear Models*, 1989, chapter 9). Cuts of problems of values go by it as those of classes go by
the probability of an error.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.linear_model import PoissonRegressor

__all__ = ["expected_square"]

RIDGE = 1e-4  # L2 penalty on standardised features
LEAST = 1e-12  # expected square of an answer that was always exact


def expected_square(
    features: Sequence[np.ndarray], answer: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """Expected squared error of each answer, (n,).

    Parameters
    ----------
    features : (n,) each, scores that rise with the error, such as a stage's score of uncertainty; none: the mean
    answer, y : (n,) values
    weight : (n,)
    """
    squares = np.square(answer - y)
    mean = float(np.average(squares, weights=weight))
    z = np.column_stack(features) if features else np.zeros((len(y), 0))
    spread = z.std(axis=0)
    z = (z - z.mean(axis=0))[:, spread > LEAST] / spread[spread > LEAST]
    if mean <= LEAST or not z.shape[1]:
        return np.full(len(y), max(mean, LEAST))
    model = PoissonRegressor(alpha=RIDGE, max_iter=200).fit(z, squares / mean, sample_weight=weight)
    return np.asarray(np.maximum(model.predict(z) * mean, LEAST))
