# SPDX-License-Identifier: Apache-2.0
"""Histogram tree grower for several outputs, with a penalty on each sensor that splits acquire.

Growth is best-first. Every open leaf keeps the best raw gain of *each feature*; the next split is the one with the
largest gain after its sensor's penalty. A sensor pays once: as soon as it is acquired, its penalty is zero for every
other open leaf, and gains never get a bonus (Nan and Saligrama 2017, equations (1) and (2)).

    gain = 1/2 sum_k [ GL_k^2/(HL_k + l2) + GR_k^2/(HR_k + l2) - G_k^2/(H_k + l2) ]  -  penalty of the sensor
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .binning import pack
from .growth import Growth, room, width_of
from .histogram import grow_tree, leaves_of

CHARGES = ("once", "per-split")


@dataclass(frozen=True)
class GrownTree:
    """A tree over bins: ``children`` as in a program's ``Tree``; leaf k has ``leaves[k]`` (n_outputs,)."""

    features: np.ndarray  # (n_nodes,) int32
    bins: np.ndarray  # (n_nodes,) int32: go left if bin <= this
    missing_left: np.ndarray  # (n_nodes,) bool
    children: np.ndarray  # (n_nodes, 2) int32
    leaves: np.ndarray  # (n_leaves, n_outputs) float64
    leaf_of_row: np.ndarray  # (n,) int32, of the training rows; empty in an ensemble


def grow(
    codes: np.ndarray,
    n_bins: np.ndarray,
    sensor_of: np.ndarray,
    gradient: np.ndarray,
    hessian: np.ndarray,
    penalty: np.ndarray,
    *,
    max_leaves: int,
    max_depth: int,
    min_rows: int,
    l2: float,
    charge: str = "once",
) -> GrownTree:
    """Grow one tree by second-order gain.

    Parameters
    ----------
    codes : ndarray of shape (n_features, n), uint8
        Bins, ``MISSING_BIN`` for missing.
    n_bins : ndarray of shape (n_features,), int
        Bins in use; a feature with fewer than 2 is never split unless it can be missing.
    sensor_of : ndarray of shape (n_features,), int
        The sensor of each feature; -1 for a feature that must not be used.
    gradient, hessian : ndarray of shape (n, n_outputs)
        Of the loss to be lowered, weights included; leaves are ``-G / (H + l2)``, 0 where all hessians are 0.
    penalty : ndarray of shape (n_sensors,), in the loss's unit
        Cost of the first use of a sensor; set to 0 *in place* for sensors that this tree uses.
    min_rows : int
        Least number of rows of a leaf, regardless of their weights.
    charge : "once" or "per-split"
        Whether a sensor that is new in this tree pays at its first split, or at every split of this tree.

    Raises
    ------
    ValueError
        ``charge`` has another value.
    """
    grower = Grower(codes, n_bins, sensor_of)
    return grower.grow(
        gradient, hessian, penalty, max_leaves=max_leaves, max_depth=max_depth, min_rows=min_rows, l2=l2, charge=charge
    )


class Grower:
    """Grows trees on the same rows, one after the other, not concurrently; parameters as of ``grow``."""

    def __init__(self, codes: np.ndarray, n_bins: np.ndarray, sensor_of: np.ndarray) -> None:
        self._codes = np.ascontiguousarray(codes)
        self._sensor_of = np.asarray(sensor_of, dtype=np.int64)
        self._packed = pack(self._codes, np.asarray(n_bins), (self._sensor_of >= 0) & (np.asarray(n_bins) >= 1))
        self._steps = np.empty((0, 0))
        self._growth: Growth | None = None

    def grow(
        self,
        gradient: np.ndarray,
        hessian: np.ndarray,
        penalty: np.ndarray,
        *,
        max_leaves: int,
        max_depth: int,
        min_rows: int,
        l2: float,
        charge: str = "once",
    ) -> GrownTree:
        """Grow one tree."""
        if charge not in CHARGES:
            raise ValueError(f"charge is {charge!r}; use one of {', '.join(CHARGES)}")
        k = gradient.shape[1]
        t = self._start(2 * k, max_leaves)
        self._steps[:, :k], self._steps[:, k : 2 * k] = gradient, hessian
        is_once = charge == "once"
        unpaid = penalty if is_once else penalty.copy()
        shape = (max_leaves, max_depth, min_rows, float(l2), is_once)
        grow_tree(t, self._packed, self._codes, self._steps, self._sensor_of, unpaid, *shape)
        leaf_of_row, leaves = leaves_of(t, self._steps, float(l2))
        n = len(leaves) - 1
        penalty[self._sensor_of[t.features[:n]]] = 0.0
        tree = (t.features[:n].copy(), t.bins[:n].copy(), t.missing_left[:n].copy(), t.children[:n].copy())
        return GrownTree(*tree, leaves, leaf_of_row)

    def release(self) -> None:
        """Free the memory of a tree's sums until the next tree."""
        self._growth, self._steps = None, np.empty((0, 0))

    def _start(self, n_sums: int, max_leaves: int) -> Growth:
        """Memory for a tree, reused by the next."""
        if self._growth is None or self._growth.totals.shape != (max_leaves, n_sums):
            n_features, n = self._codes.shape
            self._steps = np.zeros((n, width_of(n_sums)))
            self._steps[:, n_sums] = 1.0
            self._growth = room(n, n_features, int(self._packed.cell[-1]), n_sums, max_leaves)
        return self._growth
