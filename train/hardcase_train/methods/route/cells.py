# SPDX-License-Identifier: Apache-2.0
"""Cells of a sensor's reading: the nearest of a few centres (k-means), which a program finds by linear scores.

The label plays no part: a reading that says nothing of the label may say which other sensors do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.cluster import KMeans

from ...linear.terms import PolynomialPart, on_grid
from .bayes import RouteRows

LEAST_ROWS = 30  # training rows of a cell
FITTED_ROWS = 4000  # on which centres are fitted
STARTS = 4  # of k-means


@dataclass(frozen=True)
class Cells:
    """Centres of a sensor's reading, (n_cells, n_features of the sensor), and the cell of each row.

    of : (n,) by number as in ``RouteRows``
    """

    sensor: int
    centres: np.ndarray
    of: np.ndarray

    @property
    def n(self) -> int:
        """The number of cells."""
        return len(self.centres)

    def part(self, rows: RouteRows) -> PolynomialPart:
        """The scorer whose best output is the cell."""
        features = rows.features((self.sensor,))
        has = np.array([rows.standard.columns[f] is not None for f in features], dtype=bool)
        weights, bias = on_grid(self.centres.T[has], _bias(self.centres), float(rows.standard.steps))
        return PolynomialPart(rows.standard, features[has][:, None], weights, bias)


def scores(Z: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Half of the squared length of a reading minus half of its squared distance from each centre, (n, n_cells)."""
    return np.asarray(Z @ centres.T + _bias(centres))


def _bias(centres: np.ndarray) -> np.ndarray:
    return np.asarray(-0.5 * np.square(centres).sum(axis=1))


def make_cells(rows: RouteRows, sensor: int, n_cells: int) -> Cells | None:
    """So many cells of a sensor's reading; None if there are no two, or one has few rows."""
    Z = rows.Z[:, rows.features((sensor,))].astype(np.float64)
    train = Z[rows.fold >= 0]
    rng = np.random.default_rng(rows.problem.seed)
    sample = train[rng.permutation(len(train))[:FITTED_ROWS]]
    distinct = np.unique(sample, axis=0)
    if len(distinct) < n_cells or n_cells * LEAST_ROWS > len(train):
        return None
    model = KMeans(n_cells, n_init=STARTS, random_state=rows.problem.seed).fit(sample)
    centres = model.cluster_centers_[np.lexsort(model.cluster_centers_.T)]
    of = scores(Z, centres).argmax(axis=1)
    if np.bincount(of[rows.fold >= 0], minlength=n_cells).min() < LEAST_ROWS:
        return None
    return Cells(sensor, centres, of)
