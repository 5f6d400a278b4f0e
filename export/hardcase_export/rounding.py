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

__all__ = ["Kept", "drop_path", "round_weights"]

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


def round_weights(form: Array, kept: Kept, steps: Array, most: int) -> tuple[NDArray[np.int64], float]:
    """Weights in whole steps, and the bias that makes good what is left.

    Parameters
    ----------
    form : as of ``drop_path``
    steps : (n,) of the kept weights; a weight is that many times its integer
    most : largest magnitude of an integer
    """
    order = np.append(np.argsort(-np.abs(kept.weights[:-1] / steps), kind="stable"), len(steps))  # the largest first
    mine = kept.inputs[order]
    inverse = np.linalg.inv(form[np.ix_(mine, mine)])
    upper = np.linalg.cholesky(inverse).T  # row k: what rounding weight k asks of those after it
    left, whole = kept.weights[order].copy(), np.zeros(len(steps), dtype=np.int64)
    for k in range(len(steps)):
        step = steps[order[k]]
        whole[order[k]] = np.clip(np.rint(left[k] / step), -most, most)
        left[k:] -= (left[k] - whole[order[k]] * step) / upper[k, k] * upper[k, k:]
    return whole, float(left[-1])
