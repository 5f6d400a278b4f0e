# SPDX-License-Identifier: Apache-2.0
"""ADAPT's step over q, the soft assignment of rows to f0 under a bound of its mean. docs/math.md (3), (4)."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from ...policy.losses import sigmoid


def q_step(a: np.ndarray, b: np.ndarray, p_full: float, weight: np.ndarray | None = None) -> tuple[np.ndarray, float]:
    """Solve (OPT1): ``min_q mean[(1-q)A + qB - H(q)]`` subject to ``mean(q) <= p_full``.

    Parameters
    ----------
    a, b : ndarray of shape (n,)
        Losses of answering locally (A) and of forwarding (B), each including the gate's log loss.
    p_full : float in [0, 1]
    weight : (n,) row weights in both means; None: 1 each

    Returns
    -------
    q : ndarray of shape (n,)
        ``1 / (1 + exp(B - A + beta))``
    beta : float >= 0, the multiplier; 0 if the constraint does not bind, inf if ``p_full`` is 0

    Examples
    --------
    >>> q, _ = q_step(np.array([0.1, 2.0]), np.array([0.5, 0.5]), p_full=0.25)
    >>> q.round(2).tolist()
    [0.09, 0.41]
    """
    if p_full <= 0:
        return np.zeros_like(a), np.inf

    weight = np.ones(len(a)) if weight is None else weight
    total = weight.sum()

    def excess(beta: float) -> float:
        return float((sigmoid(a - b - beta) * weight).sum() / total - p_full)

    if excess(0.0) <= 0:
        return sigmoid(a - b), 0.0
    top = float((a - b).max()) - np.log(p_full) + 1.0
    beta = brentq(excess, 0.0, top, xtol=1e-12)
    while excess(beta) > 0:  # rounding must not leave the mean above the bound
        beta = np.nextafter(beta, np.inf) + 1e-12
    return sigmoid(a - b - beta), float(beta)
