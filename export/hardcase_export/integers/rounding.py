# SPDX-License-Identifier: Apache-2.0
"""Pruning and rounding of a linear scorer's weights to few small integers, with the least change of its scores.

Scores are sums of ``weight * input``, and inputs are correlated: other weights can make up for one that is dropped or
rounded. ``drop_path`` drops the weight that the others replace best (Hassibi and Stork, *Optimal Brain Surgeon*, 1993).
``Rounder`` corrects each rounding by the weights that are not rounded yet (Frantar et al., *GPTQ*, 2022). Both use the
same quadratic form, the squared change of the score over rows. docs/math.md (51) to (54).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Kept", "Rounder", "drop_path"]

Array = NDArray[np.float64]
KEEP = 0.75  # share of the weights kept in one step; the kept weights are then fitted again


@dataclass(frozen=True)
class Kept:
    """Inputs that remain, by number in rising order and the bias last, with their weights fitted again."""

    inputs: NDArray[np.int64]
    weights: Array


def drop_path(form: Array, weights: Array, shares: Sequence[float]) -> list[Kept]:
    """The weights with fewer and fewer inputs, one result for each of the falling shares.

    Parameters
    ----------
    form : (n + 1, n + 1) positive definite; ``d @ form @ d`` is the cost of a change d of the weights and the bias
    weights : (n + 1,) the bias last; it is never dropped
    shares : shares of the inputs to keep
    """
    n = len(weights) - 1
    inputs_left = Kept(np.arange(n + 1), weights.copy())
    path = []
    for share in shares:
        n_inputs = min(len(inputs_left.inputs) - 1, int(np.ceil(share * n)))
        while len(inputs_left.inputs) - 1 > n_inputs:
            inverse = np.linalg.inv(form[np.ix_(inputs_left.inputs, inputs_left.inputs)])
            losses = inputs_left.weights[:-1] ** 2 / np.diag(inverse)[:-1]
            n_kept = max(n_inputs, int(KEEP * (len(inputs_left.inputs) - 1)))
            stay = np.append(np.sort(np.argsort(-losses, kind="stable")[:n_kept]), len(inputs_left.inputs) - 1)
            inputs_left = _fitted(form, weights, inputs_left.inputs[stay])
        path.append(inputs_left)
    return path


def _fitted(form: Array, weights: Array, inputs: NDArray[np.int64]) -> Kept:
    """The weights of these inputs that minimise the form's distance to all weights."""
    dropped = np.setdiff1d(np.arange(len(weights)), inputs)
    correction = np.linalg.solve(form[np.ix_(inputs, inputs)], form[np.ix_(inputs, dropped)] @ weights[dropped])
    return Kept(inputs, weights[inputs] + correction)


class Rounder:
    """Rounds the weights of kept inputs to integers, for any step.

    Parameters
    ----------
    form : as for ``drop_path``
    unit : (n,) per kept input; a weight is its integer times the step times its unit
    """

    def __init__(self, form: Array, kept: Kept, unit: Array) -> None:
        self._unit = unit
        order = np.argsort(-np.abs(kept.weights[:-1] / unit), kind="stable")  # largest first
        self._order = np.append(order, len(unit))
        ordered_inputs = kept.inputs[self._order]
        inverse = np.linalg.inv(form[np.ix_(ordered_inputs, ordered_inputs)])
        self._upper = np.linalg.cholesky(
            inverse
        ).T  # row k: the correction of later weights for the rounding of weight k
        self._form, self._weights = form[np.ix_(ordered_inputs, ordered_inputs)], kept.weights[self._order]
        self.largest = float(np.abs(kept.weights[:-1] / unit).max(initial=0.0))

    def round(self, step: float, limit: int) -> tuple[NDArray[np.int64], float, float]:
        """Integers of the kept inputs, at most ``limit`` in magnitude; the corrected bias; and the cost."""
        remaining, integers = self._weights.copy(), np.zeros(len(self._unit), dtype=np.int64)
        for k, at in enumerate(self._order[:-1].tolist()):
            size = step * self._unit[at]
            integers[at] = int(np.clip(np.rint(remaining[k] / size), -limit, limit))
            remaining[k:] -= (remaining[k] - integers[at] * size) / self._upper[k, k] * self._upper[k, k:]
        change = remaining - self._weights
        change[:-1] = (integers * step * self._unit)[self._order[:-1]] - self._weights[:-1]
        return integers, float(remaining[-1]), float(change @ self._form @ change)
