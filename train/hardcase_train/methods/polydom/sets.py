# SPDX-License-Identifier: Apache-2.0
"""All sensor sets as bit masks, their costs, and which of them are nowhere dearer than another. docs/math.md (94)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

MAX_SENSORS = 16  # the search keeps arrays of 2^n sets
PIECES = 16  # of the sizes, on each of which costs are compared by their Bernstein coefficients
CLEAR = 1 - 1e-9  # a cost must be lower by this factor where floats compare, as they round

Polynomial = tuple[int, ...]


def members(mask: int) -> tuple[int, ...]:
    """The sensors of a set, in order.

    >>> members(0b1010)
    (1, 3)
    """
    return tuple(k for k in range(mask.bit_length()) if mask >> k & 1)


def mask_of(sensors: Sequence[int]) -> int:
    """The set of these sensors."""
    return sum(1 << k for k in set(sensors))


def bits(n: int) -> np.ndarray:
    """(2^n, n) bool: the members of every set of n sensors."""
    return np.asarray(np.arange(1 << n)[:, None] >> np.arange(n) & 1, dtype=np.bool_)


class Costs:
    """The costs of all sets of a few sensors, for items of size 1 to ``largest``.

    Parameters
    ----------
    polynomials : of each sensor, in micro-units, coefficients at least 0
    largest : the largest item size

    Attributes
    ----------
    coefficients : (2^n, degree + 1) int64, of each set's cost

    Examples
    --------
    >>> costs = Costs([(6,), (1, 1), (0, 3)], largest=4)
    >>> costs.of(0b101), costs.at(3).tolist()
    ((6, 3), [0, 6, 4, 10, 9, 15, 13, 19])
    >>> costs.above(0b010).tolist()  # 1 + s is below 3 s and below 6, for s from 1 to 4
    [False, True, True, True, True, True, True, True]
    """

    def __init__(self, polynomials: Sequence[Polynomial], largest: int) -> None:
        self.n, self.largest = len(polynomials), largest
        width = max((k + 1 for p in polynomials for k, c in enumerate(p) if c), default=1)  # sizes' powers stay small
        polynomials = [p[:width] for p in polynomials]
        single = np.array([[*p, *[0] * (width - len(p))] for p in polynomials], dtype=np.int64).reshape(self.n, width)
        self.coefficients = bits(self.n).astype(np.int64) @ single
        self._bernstein = self.coefficients.astype(np.float64) @ _bernstein(width - 1, largest)

    def of(self, mask: int) -> Polynomial:
        """The cost of a set: its coefficients, without zeros of the highest degree."""
        row = self.coefficients[mask].tolist()
        while len(row) > 1 and row[-1] == 0:
            row.pop()
        return tuple(row)

    def at(self, size: int) -> np.ndarray:
        """(2^n,) int64, the cost of every set for an item of this size."""
        powers = [size**k for k in range(self.coefficients.shape[1])]
        return np.asarray(self.coefficients @ np.array(powers, dtype=np.int64))

    def above(self, mask: int, among: np.ndarray | None = None) -> np.ndarray:
        """Which sets (those numbered ``among``, or all) are nowhere cheaper than this one, bool.

        True is certain; a set that is dearer by next to nothing somewhere, and not in every coefficient, may be False.
        """
        rows = slice(None) if among is None else among
        certain = (self.coefficients[mask] <= self.coefficients[rows]).all(axis=1)
        return np.asarray(certain | (self._bernstein[mask] <= CLEAR * self._bernstein[rows]).all(axis=1))


def _bernstein(degree: int, largest: int) -> np.ndarray:
    """(degree + 1, columns): a row of coefficients times it gives the Bernstein coefficients on pieces of 1..largest.

    On a piece, a polynomial lies between the least and the greatest of them.
    """
    edges = np.unique(np.geomspace(1, max(largest, 1), PIECES + 1))
    columns = []
    for a, b in zip(edges, [*edges[1:], edges[-1]], strict=True):
        power = np.zeros((degree + 1, degree + 1))  # s = a + (b - a) t in powers of t
        for k in range(degree + 1):
            for j in range(k + 1):
                power[k, j] = math.comb(k, j) * a ** (k - j) * (b - a) ** j
        for i in range(degree + 1):
            shares = [math.comb(i, j) / math.comb(degree, j) if j <= i else 0.0 for j in range(degree + 1)]
            columns.append(power @ shares)
    return np.column_stack(columns)
