"""A linear scorer's weights as few small integers: which to keep, and how to round them so that scores move least.

Scores are sums of ``weight * input``, and inputs go together: what dropping or rounding one weight takes away, others
can give back. So a weight is dropped where the others can best stand in for it (Hassibi and Stork, *Optimal Brain
Surgeon*, 1993), and each rounding is made good by the weights that are not rounded yet (Frantar et al., *GPTQ*, 2022).
Both look at the same quadratic form: the squared change of the score over rows. docs/math.md (51) to (54).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Kept", "Rounder", "drop_path"]

Array = NDArray[np.float64]
DROP = 0.75  # of the weights at once are kept, then all is fitted anew


@dataclass(frozen=True)
class Kept:
    """Numbers of the inputs that are left, rising, the bias always the last, and their weights fitted anew."""

    inputs: NDArray[np.int64]
    weights: Array


def drop_path(form: Array, weights: Array, shares: Sequence[float]) -> list[Kept]:
    """The weights with fewer and fewer inputs: one for each share of them, the shares falling.

    Parameters
    ----------
    form : (n + 1, n + 1) positive definite; ``d @ form @ d`` is what a change d of weights and bias costs
    weights : (n + 1,) the bias last; it is never dropped
    """
    n = len(weights) - 1
    kept = Kept(np.arange(n + 1), weights.copy())
    out = []
    for share in shares:
        wanted = min(len(kept.inputs) - 1, int(np.ceil(share * n)))
        while len(kept.inputs) - 1 > wanted:
            inverse = np.linalg.inv(form[np.ix_(kept.inputs, kept.inputs)])
            missed = kept.weights[:-1] ** 2 / np.diag(inverse)[:-1]
            left = max(wanted, int(DROP * (len(kept.inputs) - 1)))
            stay = np.append(np.sort(np.argsort(-missed, kind="stable")[:left]), len(kept.inputs) - 1)
            kept = _fitted(form, weights, kept.inputs[stay])
        out.append(kept)
    return out


def _fitted(form: Array, weights: Array, inputs: NDArray[np.int64]) -> Kept:
    """The best weights of these inputs: as near to all weights as the form can see."""
    gone = np.setdiff1d(np.arange(len(weights)), inputs)
    given = np.linalg.solve(form[np.ix_(inputs, inputs)], form[np.ix_(inputs, gone)] @ weights[gone])
    return Kept(inputs, weights[inputs] + given)


class Rounder:
    """Rounds kept weights at any step.

    Parameters
    ----------
    form : as of ``drop_path``
    unit : (n,) of the kept inputs; a weight is its integer times the step times its unit
    """

    def __init__(self, form: Array, kept: Kept, unit: Array) -> None:
        self._unit = unit
        order = np.argsort(-np.abs(kept.weights[:-1] / unit), kind="stable")  # the largest first
        self._order = np.append(order, len(unit))
        mine = kept.inputs[self._order]
        inverse = np.linalg.inv(form[np.ix_(mine, mine)])
        self._upper = np.linalg.cholesky(inverse).T  # row k: what rounding weight k asks of those after it
        self._form, self._weights = form[np.ix_(mine, mine)], kept.weights[self._order]
        self.largest = float(np.abs(kept.weights[:-1] / unit).max(initial=0.0))

    def round(self, step: float, most: int) -> tuple[NDArray[np.int64], float, float]:
        """Integers of the kept inputs within ``most``, the bias that makes good what is left, and what it all costs."""
        left, whole = self._weights.copy(), np.zeros(len(self._unit), dtype=np.int64)
        for k, at in enumerate(self._order[:-1].tolist()):
            size = step * self._unit[at]
            whole[at] = int(np.clip(np.rint(left[k] / size), -most, most))
            left[k:] -= (left[k] - whole[at] * size) / self._upper[k, k] * self._upper[k, k:]
        moved = left - self._weights
        moved[:-1] = (whole * step * self._unit)[self._order[:-1]] - self._weights[:-1]
        return whole, float(left[-1]), float(moved @ self._form @ moved)
