"""Polynomial terms of standardised readings, made once for all states: a state takes the rows it can compute.

A term is a product of ``degree`` factors, each a feature or the constant 1: homogeneous polynomials of the readings and
a constant, so lower degrees are among them. Terms that say nothing new are left out: a feature of two values is an
affine function of itself squared, and two such features of which one pair of values never meets are one of each other
(all but one product of a one-hot code with itself). docs/math.md (65).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement, islice
from math import comb

import numpy as np

__all__ = ["Terms", "make_terms", "n_terms"]

MAX_TERMS = 20_000


@dataclass(frozen=True)
class Terms:
    """Products of features.

    factors : (n_terms, degree) feature numbers; ``n_features`` stands for the constant. Term 0 is the constant alone
    scale : (n_terms,) root mean square of each term on the training rows, by which its values are divided
    """

    factors: np.ndarray
    n_features: int
    scale: np.ndarray

    def values(self, Z: np.ndarray, mine: np.ndarray | None = None) -> np.ndarray:
        """Scaled terms, (n_terms, n) float32, of standardised rows (n, n_features); ``mine``: term numbers."""
        which = np.arange(len(self.factors)) if mine is None else mine
        factors = np.vstack([Z.T, np.ones(len(Z))]).astype(np.float32)
        out = np.empty((len(which), len(Z)), dtype=np.float32)
        for k, t in enumerate(which):
            np.multiply(factors[self.factors[t, 0]], np.float32(1 / self.scale[t]), out=out[k])
            for f in self.factors[t, 1:]:
                if f < self.n_features:
                    out[k] *= factors[f]
        return out

    def within(self, features: np.ndarray) -> np.ndarray:
        """Numbers of the terms of these features and the constant."""
        known = np.zeros(self.n_features + 1, dtype=bool)
        known[features] = known[-1] = True
        return np.flatnonzero(known[self.factors].all(axis=1))


def n_terms(n_features: int, degree: int) -> int:
    """How many terms there are at most."""
    return comb(n_features + degree, degree)


def make_terms(Z: np.ndarray, degree: int) -> Terms:
    """The terms of these rows, (n, n_features), by rising number of true factors.

    Raises
    ------
    ValueError
        There would be more than 20,000.
    """
    n = Z.shape[1]
    levels = [np.unique(z) for z in Z.T]
    live = [f for f in range(n) if len(levels[f]) > 1]
    dull = _dull_pairs(Z, levels, live)
    found = [(n,) * degree]
    for order in range(1, degree + 1):
        new = (
            (*term, *(n,) * (degree - order))
            for term in combinations_with_replacement(live, order)
            if not any((a, b) in dull for k, a in enumerate(term) for b in term[k + 1 :])
        )
        found += islice(new, MAX_TERMS)
        if len(found) > MAX_TERMS:
            raise ValueError(f"degree {degree} of {len(live)} features has more than {MAX_TERMS} terms; lower it")
    raw = Terms(np.array(found), n, np.ones(len(found)))
    mean_squares = [float(np.square(raw.values(Z, np.array([t]))).mean()) for t in range(len(found))]
    scale = np.sqrt(np.array(mean_squares))
    keep = scale > 1e-6
    return Terms(raw.factors[keep], n, scale[keep])


def _dull_pairs(Z: np.ndarray, levels: list[np.ndarray], live: list[int]) -> set[tuple[int, int]]:
    """Pairs (a, b), a <= b, of two-valued features whose product is affine in them: at most three pairs of values."""
    two = [f for f in live if len(levels[f]) == 2]
    high = np.column_stack([Z[:, f] == levels[f][1] for f in two]).astype(np.float32) if two else np.empty((0, 0))
    both = high.T @ high
    only = np.diag(both)[:, None] - both
    none = len(Z) - both - only - only.T
    cells = (both > 0).astype(int) + (only > 0) + (only.T > 0) + (none > 0)
    return {(a, b) for i, a in enumerate(two) for j, b in enumerate(two) if j >= i and cells[i, j] < 4}
