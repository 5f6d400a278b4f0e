# SPDX-License-Identifier: Apache-2.0
"""A search that estimates the accuracies of sets that it has not trained, and leaves out what promises nothing.

The logarithm of the error is fitted, by ridge regression, to which sensors a set has and to which pairs of them. A set
is trained if its estimate beats what is known to stand for it, the most promising ones first; after each few the fit is
made again. An estimate bounds nothing: unlike ``search_sets``, this search has no promise.

Source: docs/math.md (116) and (117).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from .search import COST, LAMBDAS, Characterise, Progress, Searched, backward, check
from .sets import Costs, Polynomial, bits

__all__ = ["design_of", "estimates", "search_estimated"]

AT_ONCE = 12  # sets trained between two fits
RIDGE = 0.05  # penalty on the weight of a sensor or a pair, for each row a squared error of the logarithm
LEAST_ERROR = 1e-3  # smaller errors count as this one


def search_estimated(
    polynomials: Sequence[Polynomial],
    largest: int,
    characterise: Characterise,
    prior: float,
    *,
    alpha: float = 1.0,
    tolerance: float = 0.0,
    max_trained: int | None = None,
) -> Searched:
    """Train the sets that the index may need by an estimate of their accuracies; parameters as of ``search_sets``.

    The estimate is never above what trained supersets allow, plus ``tolerance``.

    Raises
    ------
    InputError
        There are more than 16 sensors, or a number is out of range.
    """
    n = len(polynomials)
    check(n, alpha, tolerance)
    searched = Searched(Costs(polynomials, largest), {0: prior}, tolerance=tolerance)
    progress = Progress(searched, characterise, COST)
    most = max_trained if max_trained is not None else 1 << n
    for mask in _first(progress):
        if searched.n_trained < most and progress.is_open(mask, alpha):
            progress.expand(mask)
    design = design_of(n)
    while searched.n_trained < most:
        trained = [mask for mask in searched.accuracy if mask]
        fit = estimates(design, trained, [searched.accuracy[mask] for mask in trained])
        gain = np.minimum(fit, progress.above + tolerance) - alpha * progress.below
        gain[[0, *trained]] = 0
        chosen = [k for k in np.argsort(-gain, kind="stable")[:AT_ONCE].tolist() if gain[k] > 0]
        if not chosen:
            break
        for mask in chosen[: most - searched.n_trained]:
            progress.expand(mask)
    return searched


def estimates(design: np.ndarray, trained: Sequence[int], accuracy: Sequence[float]) -> np.ndarray:
    """(2^n,) the accuracies that the fit gives all sets; docs/math.md (116).

    Parameters
    ----------
    design : of all sets, as ``design_of`` makes it
    trained, accuracy : the sets that were trained, as bit masks, and theirs
    """
    own, goal = design[trained], np.log(np.maximum(1 - np.asarray(accuracy), LEAST_ERROR))
    gram = own.T @ own
    gram[np.diag_indices(len(gram) - 1)] += RIDGE  # the last column is the constant
    return np.asarray(1 - np.exp(design @ np.linalg.solve(gram, own.T @ goal)))


def _first(progress: Progress) -> Iterator[int]:
    """What the fit begins with: all sensors, each alone, all but each, and greedy backward paths."""
    n, whole = progress.costs.n, (1 << progress.costs.n) - 1
    yield whole
    yield from (1 << k for k in range(n))
    yield from (whole & ~(1 << k) for k in range(n) if n > 1)
    price = progress.costs.at((progress.costs.largest + 1) // 2).astype(np.float64)
    for weight in LAMBDAS:
        yield from backward(progress, price / max(price[whole], 1.0), weight)


def design_of(n: int) -> np.ndarray:
    """(2^n, 1 + n + n (n - 1) / 2) sensors and pairs of each set, and a 1."""
    has = bits(n).astype(np.float64)
    pairs = [has[:, a] * has[:, b] for a, b in combinations(range(n), 2)]
    return np.column_stack([has, *pairs, np.ones(len(has))])
