# SPDX-License-Identifier: Apache-2.0
"""Ridge regressions of values on the same terms, one for each weighting of the rows."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve

__all__ = ["ridge_regression"]

LEAST = 1e-9  # of the mean square of terms, added to each, so that terms that depend on others have a solution


def ridge_regression(values: np.ndarray, y: np.ndarray, weight: np.ndarray, ridge: float) -> np.ndarray:
    """Coefficients of the regressions, (n_problems, n_terms) float64.

    Each minimises half its weighted mean squared error plus ``ridge / 2`` times its squared coefficients, without term
    0.

    Parameters
    ----------
    values : (n_terms, n) terms of the rows, term 0 the constant
    y : (n,)
    weight : (n_problems, n) at least 0; each problem divides its own by their sum. If all are 0, coefficients are 0
    """
    values = values.astype(np.float64)
    pull = np.full(len(values), ridge)
    pull[0] = 0.0
    out = np.zeros((len(weight), len(values)))
    for k, own in enumerate(weight.astype(np.float64)):
        if own.any():
            weighted = values * (own / own.sum())
            gram = weighted @ values.T
            gram += np.diag(np.maximum(pull, LEAST * np.trace(gram) / len(gram)))
            out[k] = solve(gram, weighted @ y, assume_a="pos")
    return out
