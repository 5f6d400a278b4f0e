# SPDX-License-Identifier: Apache-2.0
"""Splits of rows into train, validation, test and calibration parts, and into folds: by row or by whole groups."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from .problem import N_FOLDS

CALIBRATION = 3
PATTERN = (0, 1, 0, 2, 0, 0, 2, 0, 0)  # train, valid and test, without the calibration rows
SHARES = (6 / 9, 1 / 9, 2 / 9)  # the same as shares
CUTS = (0.6, 0.7, 0.8)  # of the rows in time: where training, validation and calibration end
N_BLOCKS = 6 * N_FOLDS  # of rows in time: enough that each fold gets rows of every class
NEAR = 6  # ends of groups that are tried for each cut
LEAST_GROUPS = (N_FOLDS, 1, 1)  # of train, valid and test: models are judged on folds of whole training groups


def strata(y: np.ndarray, n_classes: int) -> np.ndarray:
    """What splits and folds are stratified by, (n,): the class index; of values (``n_classes`` 0), their tenth.

    Few values have fewer strata than ten, so that each has a row for every part.
    """
    if n_classes:
        return y
    n_strata = min(10, max(1, len(y) // len(PATTERN)))
    tenths = np.unique(np.quantile(y, np.linspace(0, 1, n_strata + 1)[1:-1]))
    return np.asarray(np.searchsorted(tenths, y))


def random_split(y: np.ndarray, seed: int, group: np.ndarray | None = None) -> np.ndarray:
    """The part of each row, (n,): train (0) 60 %, valid (1) 10 %, calibration (3) 10 %, test (2) 20 %.

    Calibration rows are a simple random sample: the risk test assumes independent draws, and stratification would
    leave rare classes parts. The other parts are stratified.

    Parameters
    ----------
    group : (n,) group number of each row, of at least ``sum(LEAST_GROUPS)`` groups, or None. Then calibration rows are
        those of a tenth of the groups, a simple random sample of them, and the other groups are dealt by ``deal``
    """
    rng = np.random.default_rng(seed)
    parts = np.full(len(y), CALIBRATION, dtype=np.int64)
    if group is None:
        others = np.sort(rng.permutation(len(y))[round(0.1 * len(y)) :])
        parts[others] = stratified(y[others], rng, PATTERN)
        return parts
    names = np.unique(group)
    drawn = rng.permutation(names)[: min(round(0.1 * len(names)), len(names) - sum(LEAST_GROUPS))]
    others = np.flatnonzero(~np.isin(group, drawn))
    parts[others] = deal(group[others], y[others], rng, SHARES, LEAST_GROUPS)
    return parts


def time_split(n: int, group: np.ndarray | None = None) -> np.ndarray | None:
    """The part of each row, (n,), in row order: train, valid, calibration, test, of the shares of ``random_split``.

    With groups, each cut moves to a place near it at which no group has rows on both sides; None if there are not two
    such places, so that train, valid and test cannot all have rows.
    """
    order = np.array([0, 1, CALIBRATION, 2])
    cuts: Sequence[int] = [round(share * n) for share in CUTS]
    if group is not None:
        _, place = np.unique(group, return_inverse=True)
        last = np.zeros(place.max() + 1, dtype=np.int64)
        last[place] = np.arange(n)
        ends = np.flatnonzero(np.maximum.accumulate(last[place]) == np.arange(n))[:-1] + 1
        near = [ends[np.argsort(np.abs(ends - cut), kind="stable")[:NEAR]].tolist() for cut in cuts]
        possible = [c for c in product(*near) if c[0] < c[1] <= c[2]]
        if not possible:
            return None
        cuts = min(possible, key=lambda c: sum(abs(a - b) for a, b in zip(c, cuts, strict=True)))
    return np.asarray(order[np.searchsorted(cuts, np.arange(n), side="right")])


def stratified(y: np.ndarray, seed: int | np.random.Generator, pattern: Sequence[int]) -> np.ndarray:
    """The part of each row, (n,): the rows of each class are dealt to parts by repeating the pattern.

    The pattern begins with training, so that the first row of a rare class is a training row.
    """
    rng = np.random.default_rng(seed)
    parts = np.zeros(len(y), dtype=np.int64)
    n = len(pattern)
    n_dealt = 0  # continues over classes, so that rounding does not favour one part
    for c in range(int(y.max()) + 1):
        rows = rng.permutation(np.flatnonzero(y == c))
        place = (np.arange(len(rows)) + (n_dealt if len(rows) >= n else 0)) % n
        parts[rows] = np.array(pattern)[place]
        n_dealt += len(rows)
    return parts


# ---------------------------------------------------------------- whole groups


def deal(
    group: np.ndarray, y: np.ndarray, seed: int | np.random.Generator, shares: Sequence[float], least: Sequence[int]
) -> np.ndarray:
    """The part of each row, (n,): whole groups are dealt so that parts get their shares of the rows of every class.

    A group goes to the part that lowers most the sum over parts and classes of (rows wanted - rows dealt)^2 / rows
    wanted. Large groups, by powers of two, are dealt first, and groups of one size in random order. The result depends
    on the numbers of the groups (``canonical_order.content_groups``) and not on the order of the rows.

    Parameters
    ----------
    y : (n,) class index
    shares : of the rows, above 0, one for each part
    least : groups that each part must get; there are at least so many groups
    """
    names, place = np.unique(group, return_inverse=True)
    counts = np.zeros((len(names), int(y.max()) + 1))
    np.add.at(counts, (place, y), 1.0)
    wanted = np.outer(shares, np.maximum(counts.sum(axis=0), 1.0))
    missing = np.outer(shares, counts.sum(axis=0))
    owed = np.array(least)
    part = np.empty(len(names), dtype=np.int64)
    rng = np.random.default_rng(seed)
    order = np.lexsort((rng.permutation(len(names)), -np.frexp(counts.sum(axis=1))[1]))
    for n_left, k in zip(range(len(names), 0, -1), order, strict=True):
        gain = (counts[k] * (2 * missing - counts[k]) / wanted).sum(axis=1)
        is_open = owed > 0 if n_left <= owed.sum() else np.ones(len(owed), dtype=bool)
        part[k] = np.argmax(np.where(is_open, gain, -np.inf))
        missing[part[k]] -= counts[k]
        owed[part[k]] = max(0, owed[part[k]] - 1)
    return part[place]


def group_folds(group: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
    """The fold of each row, (n,), 0 to N_FOLDS - 1; each fold has a group, and no group is in two."""
    return deal(group, y, seed, [1 / N_FOLDS] * N_FOLDS, [1] * N_FOLDS)


def blocks(n: int, n_blocks: int = N_BLOCKS) -> np.ndarray:
    """The block of each of n rows in time, (n,): neighbours are alike, so folds and samples deal blocks of them."""
    return np.arange(n) * n_blocks // max(n, 1)
