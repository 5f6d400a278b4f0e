# SPDX-License-Identifier: Apache-2.0
"""A legacy system as f0: a table of its probabilities or values and of the features that it used, row by row.

Row k of that table is row k of the data. Its columns are ``p:LABEL``, one per class, or ``value``; ``used:NAME`` of a
sensor or a feature, 0 or 1, which counts as 1 in every row if the column is absent; and columns of the data, whose
values must then equal those of the data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hardcase_edge.base.hints import did_you_mean
from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import Meter, to_unit
from hardcase_edge.program.definition import Program

from ..data.problem import MAX_VALUE
from ..data.table import Table, read_table

SUM_TOLERANCE = 0.02  # of a row's probabilities, for rounding; each row is divided by its sum
P, USED, VALUE = "p:", "used:", "value"  # columns of the table

Places = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Legacy:
    """The answers of a legacy system for every row, and the features that it used.

    name : its name in bundles and messages
    p : (n, n_classes) its probabilities, or (n, 1) its values
    used : (n, n_features) bool, the features that it used for each row
    sha256 : of the table's file
    """

    name: str
    p: np.ndarray
    used: np.ndarray
    sha256: str

    def split(self, index: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Its answers to the rows of each part."""
        return [self.p[rows] for rows in index]

    def carried(self, train: np.ndarray) -> tuple[int, ...]:
        """The features that it used for any training row: a request carries all of them, as no device can know which.

        Raises
        ------
        InputError
            It used no feature for any training row.
        """
        features = np.flatnonzero(self.used[train].any(axis=0))
        if len(features) == 0:
            raise InputError(
                f"[hpc] table: {self.name!r} used no feature for any training row, so a request would carry nothing; "
                f"correct its {USED}NAME columns"
            )
        return tuple(features.tolist())

    def beyond(self, rows: np.ndarray, carried: Sequence[int]) -> int:
        """Number of these rows for which it used a feature that a request lacks: its answer there may differ."""
        is_absent = np.ones(self.used.shape[1], dtype=bool)
        is_absent[list(carried)] = False
        return int(self.used[np.ix_(rows, is_absent)].any(axis=1).sum())

    def used_cost(self, rows: np.ndarray, program: Program, sizes: np.ndarray | None = None) -> float:
        """Mean cost of these rows, in the user's unit, if each acquired only the sensors that the system used.

        ``sizes``: (n,) item sizes of these rows; None: all are 1.
        """
        used = np.stack([self.used[rows][:, list(s.features)].any(axis=1) for s in program.sensors])
        sizes = np.ones(len(rows), dtype=np.int64) if sizes is None else sizes
        sets, counts = np.unique(np.vstack([used, sizes]), axis=1, return_counts=True)
        costs = [
            to_unit(Meter(program, int(size)).total(np.flatnonzero(is_used).tolist(), 1)) for *is_used, size in sets.T
        ]
        return float(np.average(costs, weights=counts))

    def declaration(self, features: Sequence[str], dtypes: Sequence[str], classes: Sequence[Any]) -> dict[str, Any]:
        """Its name and the layout of a request, with their SHA-256: the system's identity in bundles.

        Parameters
        ----------
        features, dtypes : names and types of the features that a request carries, in its order
        """
        layout: dict[str, Any] = {
            "name": self.name,
            "features": list(features),
            "dtypes": list(dtypes),
            "classes": list(classes),
        }
        canonical = json.dumps(layout, sort_keys=True, separators=(",", ":"))
        return {**layout, "sha256": hashlib.sha256(canonical.encode()).hexdigest()}


def read_legacy(path: Path, name: str, data: Table, classes: Sequence[Any], places: Places) -> Legacy:
    """Read the table of a legacy system.

    Parameters
    ----------
    name : the system's name
    data : the data as read, target included
    classes : label of each class; empty for values
    places : feature numbers behind each name of a sensor or a feature

    Raises
    ------
    InputError
        The file cannot be read, or does not fit the data; the message names the column or the row.
    """
    where, table = f"[hpc] table {path}", read_table(path)
    if len(table.X) != len(data.X):
        raise InputError(
            f"{where} has {len(table.X)} rows, the data {len(data.X)}; write one row for each of them, in order"
        )
    columns = [f"{P}{c}" for c in classes] or [VALUE]
    _check_columns(where, {*columns, *(f"{USED}{n}" for n in places)}, table, data)
    absent = [c for c in columns if c not in table.names]
    if absent:
        kind = "one column of probabilities for each class" if classes else "its values there"
        raise InputError(f"{where} has no column {absent[0]!r}; add {kind}")
    answers = table.X[:, [table.names.index(c) for c in columns]]
    p = _probabilities(where, columns, answers) if classes else _finite(where, answers)
    return Legacy(name, p, _used(where, table, places), table.sha256)


def _check_columns(where: str, expected: set[str], table: Table, data: Table) -> None:
    for column in (*table.names, *table.texts):
        if column in expected and column in table.texts:
            raise InputError(f"{where}: the column {column!r} does not hold numbers; write it as numbers")
        if column in expected:
            continue
        if column.startswith((P, USED)) or column not in (*data.names, *data.labels):
            raise InputError(f"{where} has the column {column!r}; {_hint(column, expected)}")
        _check_same(where, column, table, data)


def _hint(column: str, expected: set[str]) -> str:
    same_kind = sorted(k for k in expected if k.startswith(column.partition(":")[0] + ":"))
    columns = ", ".join(same_kind[:20]) or f"{P}LABEL, {USED}SENSOR and the columns of the data"
    return did_you_mean(column, same_kind, f"known columns are {columns}", cutoff=0.8)


def _check_same(where: str, column: str, table: Table, data: Table) -> None:
    """Compare a column that both tables have, which shows that their rows correspond."""
    if column not in (*table.names, *table.labels):
        raise InputError(f"{where}: the column {column!r} holds neither numbers nor text; write it as in the data")
    for k, (expected, value) in enumerate(zip(_values(data, column), _values(table, column), strict=True)):
        if expected != value:
            raise InputError(
                f"{where}, row {k + 1}: {column!r} is {str(value)[:40]!r}, the data has {str(expected)[:40]!r}; "
                "write the table for these rows, in their order"
            )


def _values(table: Table, column: str) -> list[Any]:
    values = table.labels[column] if column in table.labels else table.X[:, table.names.index(column)].tolist()
    return [None if v != v else v for v in values]  # NaN, which equals nothing, becomes None


def _probabilities(where: str, columns: Sequence[str], p: np.ndarray) -> np.ndarray:
    is_wrong = ~((p >= 0) & (p <= 1))  # also of NaN
    if is_wrong.any():
        row, k = np.argwhere(is_wrong)[0]
        value = "missing" if np.isnan(p[row, k]) else f"{p[row, k]:g}"
        raise InputError(f"{where}, row {row + 1}: {columns[k]!r} is {value}, a probability from 0 to 1 is expected")
    total = p.sum(axis=1)
    odd = np.flatnonzero(np.abs(total - 1) > SUM_TOLERANCE)
    if len(odd):
        raise InputError(
            f"{where}, row {odd[0] + 1}: the probabilities add up to {total[odd[0]]:.4g}, 1 is expected "
            f"(within {SUM_TOLERANCE:g})"
        )
    return np.asarray(p / total[:, None])


def _finite(where: str, values: np.ndarray) -> np.ndarray:
    odd = np.flatnonzero(~(np.abs(values[:, 0]) <= MAX_VALUE))  # also of NaN
    if len(odd):
        wish = f"a number within {MAX_VALUE:g} is expected"
        raise InputError(f"{where}, row {odd[0] + 1}: {VALUE!r} is missing or too large, {wish}")
    return values


def _used(where: str, table: Table, places: Places) -> np.ndarray:
    used = np.ones((len(table.X), len({f for features in places.values() for f in features})), dtype=bool)
    owner: dict[int, str] = {}
    for k, column in enumerate(table.names):
        if not column.startswith(USED):
            continue
        wrong = np.flatnonzero(~np.isin(table.X[:, k], (0, 1)))
        if len(wrong):
            value = table.X[wrong[0], k]
            raise InputError(
                f"{where}, row {wrong[0] + 1}: {column!r} is {'missing' if np.isnan(value) else f'{value:g}'}, "
                "0 or 1 is expected"
            )
        for f in places[column.removeprefix(USED)]:
            if f in owner:
                raise InputError(f"{where}: {owner[f]!r} and {column!r} name the same feature; keep one of them")
            owner[f] = column
            used[:, f] = table.X[:, k] == 1
    return used
