# SPDX-License-Identifier: Apache-2.0
"""Accelerated proximal gradient method (FISTA) for linear scores with a group-lasso penalty.

It minimises a smooth convex loss of scores ``Z @ W + b`` plus ``l2/2 |W|^2`` plus a weighted sum of group norms. Groups
are sensors (the L2,1 norm of OPT2) or single weights (L1). The step size comes from backtracking. Momentum restarts
when it opposes the step or when the objective would rise, so the objective never rises. docs/math.md (9) to (12). If no
group within reach has a price, the objective is smooth, and L-BFGS needs fewer steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.optimize import minimize

TOLERANCE = 1e-4  # largest slope at the solution, in mean loss per unit of weight
MAX_STEPS = 200
ROUNDING = 1e-14  # relative, of the loss


class SmoothLoss(Protocol):
    """The interface of a convex loss of scores."""

    def value_and_slope(self, scores: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss summed over rows, and its gradient, of the scores' shape."""


@dataclass(frozen=True)
class Groups:
    """Groups of weights that become zero together, with a penalty on each group's norm.

    of : (n_features, n_outputs) group of each weight
    price : (n_groups,) penalty per unit of norm; inf for a group that must stay zero

    >>> groups = Groups(of=np.array([[0], [0], [1]]), price=np.array([1.0, 2.0]))
    >>> weights = np.array([[3.0], [4.0], [1.0]])
    >>> groups.norms(weights), groups.penalty(weights)
    (array([5., 1.]), 7.0)
    >>> groups.shrink(weights, 1.0).ravel().tolist()
    [2.4000000000000004, 3.2, 0.0]
    """

    of: np.ndarray
    price: np.ndarray

    def norms(self, weights: np.ndarray) -> np.ndarray:
        """Euclidean norm of each group, (n_groups,)."""
        return np.sqrt(np.bincount(self.of.ravel(), np.square(weights).ravel(), len(self.price)))

    def penalty(self, weights: np.ndarray) -> float:
        """Sum of price times norm over groups."""
        norms = self.norms(weights)
        used = norms > 0
        return float(self.price[used] @ norms[used])

    def shrink(self, weights: np.ndarray, step: float) -> np.ndarray:
        """The proximal step: the norm of each group less ``step * price``, or zero. docs/math.md (10)."""
        norms = self.norms(weights)
        is_nonzero = norms > step * self.price
        factor = np.zeros(len(norms))
        factor[is_nonzero] = 1 - step * self.price[is_nonzero] / norms[is_nonzero]
        return np.asarray(weights * factor[self.of])

    def within(self, reach: Sequence[int]) -> Groups:
        """These groups, where all except ``reach`` must stay zero."""
        price = np.full(len(self.price), np.inf)
        price[list(reach)] = self.price[list(reach)]
        return Groups(self.of, price)

    def freed(self) -> Groups:
        """These groups, where those within reach are free."""
        return Groups(self.of, np.where(np.isfinite(self.price), 0.0, np.inf))

    def only(self, features: np.ndarray) -> Groups:
        """These groups over some of the features."""
        return Groups(self.of[features], self.price)


def minimise(
    loss: SmoothLoss,
    Z: np.ndarray,
    total: float,
    groups: Groups,
    start: np.ndarray,
    *,
    l2: float = 0.0,
    tolerance: float = TOLERANCE,
    max_steps: int = MAX_STEPS,
) -> np.ndarray:
    """Minimise ``loss(Z @ W + b) / total + l2/2 |W|^2 + groups.penalty(W)``.

    Parameters
    ----------
    Z : (n, n_features)
    total : total weight of the rows, by which the summed loss is divided
    start : (n_features + 1, n_outputs), W above b

    Returns
    -------
    coef : (n_features + 1, n_outputs), W above b; no worse than ``start`` (its groups out of reach set to zero)
    """
    in_reach = np.isfinite(groups.price[groups.of]).any(axis=1)
    smooth = _Smooth(loss, np.ascontiguousarray(Z[:, in_reach]), total, l2)
    coef = np.vstack([np.where(np.isfinite(groups.price)[groups.of], start[:-1], 0.0), start[-1:]])
    rows = np.append(in_reach, True)
    priced = groups.only(in_reach)
    if (priced.price[priced.of] == 0).all():
        coef[rows] = _descend_smooth(smooth, coef[rows], tolerance, max_steps)
    else:
        coef[rows] = _descend(smooth, priced, coef[rows], tolerance, max_steps)
    return coef


class _Smooth:
    """The differentiable part of the objective."""

    def __init__(self, loss: SmoothLoss, Z: np.ndarray, total: float, l2: float) -> None:
        self.loss, self.Z, self.total, self.l2 = loss, Z, total, l2

    def __call__(self, coef: np.ndarray) -> tuple[float, np.ndarray]:
        """Value, and slope by scores, from which ``gradient`` computes the gradient if it is needed."""
        value, slope = self.loss.value_and_slope(self.Z @ coef[:-1] + coef[-1])
        return value / self.total + 0.5 * self.l2 * float(np.square(coef[:-1]).sum()), slope

    def gradient(self, coef: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """Gradient by weights and biases, from the slope by scores."""
        return np.vstack([self.Z.T @ slope / self.total + self.l2 * coef[:-1], slope.sum(axis=0)[None] / self.total])


def _descend_smooth(smooth: _Smooth, start: np.ndarray, tolerance: float, max_steps: int) -> np.ndarray:
    def value(flat: np.ndarray) -> tuple[float, np.ndarray]:
        coef = flat.reshape(start.shape)
        objective, slope = smooth(coef)
        return objective, smooth.gradient(coef, slope).ravel()

    options = {"maxiter": max_steps, "gtol": tolerance, "ftol": 0.0}
    result = minimize(value, start.ravel(), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(result.x).reshape(start.shape)


def _descend(smooth: _Smooth, groups: Groups, start: np.ndarray, tolerance: float, max_steps: int) -> np.ndarray:
    current = ahead = start
    best, steepness, momentum = smooth(current)[0] + groups.penalty(current[:-1]), 1.0, 1.0
    for _ in range(max_steps):
        new, value, steepness = _step(smooth, groups, ahead, steepness)
        objective = value + groups.penalty(new[:-1])
        if objective > best:
            if ahead is current:
                break  # a step without momentum does not lower it either: the last digits are reached
            ahead, momentum = current, 1.0
            continue
        move, pull = new - current, ahead - new
        current, best = new, objective
        if steepness * np.abs(pull).max() <= tolerance:
            break
        if (pull * move).sum() > 0:
            ahead, momentum = current, 1.0
        else:
            larger = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            ahead, momentum = current + (momentum - 1) / larger * move, larger
    return current


def _step(smooth: _Smooth, groups: Groups, ahead: np.ndarray, steepness: float) -> tuple[np.ndarray, float, float]:
    """A proximal step that satisfies its quadratic bound: the new point, its smooth value, and the steepness used."""
    start_value, slope = smooth(ahead)
    gradient = smooth.gradient(ahead, slope)
    while True:
        new = _shrunk(groups, ahead - gradient / steepness, 1 / steepness)
        move = new - ahead
        value, _ = smooth(new)
        bound = start_value + float((gradient * move).sum()) + 0.5 * steepness * float(np.square(move).sum())
        if value <= bound + ROUNDING * abs(start_value) or steepness > 1e12:
            return new, value, steepness
        steepness *= 2


def _shrunk(groups: Groups, coef: np.ndarray, step: float) -> np.ndarray:
    """The proximal step on weights; biases have no penalty."""
    return np.vstack([groups.shrink(coef[:-1], step), coef[-1:]])
