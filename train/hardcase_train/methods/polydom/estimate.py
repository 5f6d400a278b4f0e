# SPDX-License-Identifier: Apache-2.0
"""A search that estimates the accuracies of sets that it has not trained, and leaves out what promises nothing.

The logarithm of the error is fitted, by ridge regression, to which sensors a set has and to which pairs of them. A set
is trained if its estimate beats what is known to stand for it, the most promising ones first; after each few the fit is
made again. An estimate bounds nothing: unlike ``search_sets``, this search has no promise.

Source: docs/math.md (116) and (117).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

import numpy as np

from .index import Set
from .search import COST, LAMBDAS, Characterise, Progress, Searched, backward, check
from .sets import Costs, Polynomial, bits

AT_ONCE = 12  # sets trained between two fits
RIDGE = 0.05  # penalty on the weight of a sensor or a pair, for each row a squared error of the logarithm
LEAST_ERROR = 1e-3  # smaller errors count as this one
N_BUDGETS = 16  # of each size, on a geometric scale up to the cost of the dearest set
INTERRUPTED = 0.5  # weight of the answer that is there when half of the budget is over


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


# Few models: which sets to ship if only so many models, or bytes of them, fit on the device. docs/math.md (107).


def grid_of(sets: Sequence[Set], sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of size and budget for which a choice of sets is judged."""
    pairs = []
    for size in dict.fromkeys(sizes):
        amounts = [s.at(size) for s in sets if s.mask and s.at(size)]
        if amounts:
            pairs += [(size, round(b)) for b in np.geomspace(min(amounts), max(amounts), N_BUDGETS)]
    return pairs


def best_few(
    sets: Sequence[Set],
    pairs: Sequence[tuple[int, int]],
    max_models: int | None,
    max_bytes: int | None = None,
    n_bytes: Callable[[int], int] = lambda mask: 0,
) -> list[Set]:
    """The sets to ship, most accurate first: greedily those that raise the mean accuracy most.

    The mean is over pairs of size and budget, and over two answers: that of the best set that fits, and that of the
    best subset of it which fits into half of the budget, because readings may take longer than expected.

    Parameters
    ----------
    sets : to choose from; the empty set is always shipped, and counts as no model
    pairs : as ``grid_of`` gives them
    max_bytes, n_bytes : of the models, and of the model of a set
    """
    order = sorted(sets, key=lambda s: (-s.accuracy, s.mask))
    costs = np.array([[s.at(size) for size, _ in pairs] for s in order], dtype=np.float64).reshape(len(order), -1)
    budgets = np.array([budget for _, budget in pairs], dtype=np.float64)
    accuracy = np.array([s.accuracy for s in order])
    fits, halves = costs <= budgets, costs <= INTERRUPTED * budgets
    is_subset = np.array([[a.mask & ~b.mask == 0 for a in order] for b in order])
    shipped = [k for k, s in enumerate(order) if not s.mask]
    spent = 0

    def value(chosen: list[int]) -> float:
        rows = np.array(sorted(chosen))
        best = rows[fits[rows].argmax(axis=0)]  # the first that fits is the most accurate; the empty set always does
        partly = halves[rows] & is_subset[np.ix_(best, rows)].T
        half = rows[partly.argmax(axis=0)]
        return float((1 - INTERRUPTED) * accuracy[best].mean() + INTERRUPTED * accuracy[half].mean())

    if not pairs:
        return list(order)
    while max_models is None or len(shipped) - 1 < max_models:
        options = [
            k for k in range(len(order))
            if k not in shipped and (max_bytes is None or spent + n_bytes(order[k].mask) <= max_bytes)
        ]  # fmt: skip
        if not options:
            break
        chosen = max(options, key=lambda k: (value([*shipped, k]), -k))
        shipped.append(chosen)
        spent += n_bytes(order[chosen].mask)
    return [order[k] for k in sorted(shipped)]
