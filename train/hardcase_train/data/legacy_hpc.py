"""f0 as a system that is not ours: a table of its probabilities for our rows, and of the features each row made it use.

Row k of that table is row k of the data. Its columns are ``p:LABEL``, one per class; ``used:NAME`` of a sensor or a
feature, 0 or 1, which is 1 throughout where there is none; and columns of the data, which must then say the same.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import Meter, to_unit
from hardcase_edge.program.definition import Program

from .table import Table, read_table

__all__ = ["Legacy", "read_legacy"]

SUM_TOLERANCE = 0.02  # what rounding leaves of a row's sum; it is divided out
P, USED = "p:", "used:"

Places = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Legacy:
    """What a legacy system said of every row, and what it looked at.

    name : what bundles and people call it
    p : (n, n_classes) its probabilities
    used : (n, n_features) bool, the features that each row made it use
    sha256 : of the table's file
    """

    name: str
    p: np.ndarray
    used: np.ndarray
    sha256: str

    def split(self, index: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Its probabilities of the rows of each part."""
        return [self.p[rows] for rows in index]

    def carried(self, train: np.ndarray) -> tuple[int, ...]:
        """The features that a training row made it use: what a request carries, for no device knows beforehand.

        Raises
        ------
        InputError
            There are none.
        """
        features = np.flatnonzero(self.used[train].any(axis=0))
        if len(features) == 0:
            raise InputError(
                f"[hpc] table: no training row made {self.name!r} use anything, so a request would carry nothing; "
                f"correct its {USED}NAME columns"
            )
        return tuple(features.tolist())

    def beyond(self, rows: np.ndarray, carried: Sequence[int]) -> int:
        """How many of these rows made it use what a request does not carry: a device gets another answer there."""
        rest = np.ones(self.used.shape[1], dtype=bool)
        rest[list(carried)] = False
        return int(self.used[np.ix_(rows, rest)].any(axis=1).sum())

    def used_cost(self, rows: np.ndarray, program: Program) -> float:
        """Mean cost of these rows if each bought only what it made the system use; by the meter, in the user's unit."""
        meter = Meter(program)
        used = np.stack([self.used[rows][:, list(s.features)].any(axis=1) for s in program.sensors])
        sets, times = np.unique(used, axis=1, return_counts=True)
        prices = [to_unit(meter.total(np.flatnonzero(bought).tolist(), 1)) for bought in sets.T]
        return float(np.average(prices, weights=times))

    def declaration(self, features: Sequence[str], dtypes: Sequence[str], classes: Sequence[Any]) -> dict[str, Any]:
        """Its name and a request's layout, with their SHA-256: what bundles and requests know the system by.

        Parameters
        ----------
        features, dtypes : of what a request carries, in its order
        """
        said = {"name": self.name, "features": list(features), "dtypes": list(dtypes), "classes": list(classes)}
        canonical = json.dumps(said, sort_keys=True, separators=(",", ":"))
        return {**said, "sha256": hashlib.sha256(canonical.encode()).hexdigest()}


def read_legacy(path: Path, name: str, data: Table, classes: Sequence[Any], places: Places) -> Legacy:
    """The table in this file.

    Parameters
    ----------
    name : what the system is called
    data : the data as it was read, target included
    classes : label of each class
    places : the features, by number, that each sensor and each feature stands for

    Raises
    ------
    InputError
        It cannot be read, or does not fit the data; the line names column or row.
    """
    where, table = f"[hpc] table {path}", read_table(path)
    if len(table.X) != len(data.X):
        raise InputError(f"{where} has {len(table.X)} rows, the data {len(data.X)}; one for each is expected, in order")
    columns = [f"{P}{c}" for c in classes]
    _check_columns(where, {*columns, *(f"{USED}{n}" for n in places)}, table, data)
    absent = [c for c in columns if c not in table.names]
    if absent:
        raise InputError(f"{where} has no column {absent[0]!r}; every class needs its probability")
    p = _probabilities(where, columns, table.X[:, [table.names.index(c) for c in columns]])
    return Legacy(name, p, _used(where, table, places), table.sha256)


def _check_columns(where: str, known: set[str], table: Table, data: Table) -> None:
    for column in (*table.names, *table.texts):
        if column in known and column in table.texts:
            raise InputError(f"{where}: the column {column!r} holds no numbers")
        if column in known:
            continue
        if column.startswith((P, USED)) or column not in (*data.names, *data.labels):
            raise InputError(f"{where} has the column {column!r}; {_hint(column, known)}")
        _check_same(where, column, table, data)


def _hint(column: str, known: set[str]) -> str:
    like = sorted(k for k in known if k.startswith(column.partition(":")[0] + ":"))
    near = difflib.get_close_matches(column, like, n=1, cutoff=0.8)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known are {', '.join(like[:20]) or f'{P}LABEL, {USED}SENSOR and the columns of the data'}"


def _check_same(where: str, column: str, table: Table, data: Table) -> None:
    """A column that both tables have shows that their rows are the same."""
    if column not in (*table.names, *table.labels):
        raise InputError(f"{where}: the column {column!r} holds neither numbers nor text; write it as the data does")
    for k, (mine, other) in enumerate(zip(_values(data, column), _values(table, column), strict=True)):
        if mine != other:
            raise InputError(
                f"{where}, row {k + 1}: {column!r} is {str(other)[:40]!r}, the data has {str(mine)[:40]!r}; "
                "its rows must be those of the data, in order"
            )


def _values(table: Table, column: str) -> list[Any]:
    values = table.labels[column] if column in table.labels else table.X[:, table.names.index(column)].tolist()
    return [None if v != v else v for v in values]  # missing is missing


def _probabilities(where: str, columns: Sequence[str], p: np.ndarray) -> np.ndarray:
    wrong = ~((p >= 0) & (p <= 1))  # NaN is not in between
    if wrong.any():
        row, k = np.argwhere(wrong)[0]
        found = "missing" if np.isnan(p[row, k]) else f"{p[row, k]:g}"
        raise InputError(f"{where}, row {row + 1}: {columns[k]!r} is {found}, a probability from 0 to 1 is expected")
    total = p.sum(axis=1)
    odd = np.flatnonzero(np.abs(total - 1) > SUM_TOLERANCE)
    if len(odd):
        raise InputError(
            f"{where}, row {odd[0] + 1}: the probabilities add up to {total[odd[0]]:.4g}, 1 is expected "
            f"(within {SUM_TOLERANCE:g})"
        )
    return p / total[:, None]


def _used(where: str, table: Table, places: Places) -> np.ndarray:
    out = np.ones((len(table.X), len({f for features in places.values() for f in features})), dtype=bool)
    owner: dict[int, str] = {}
    for k, column in enumerate(table.names):
        if not column.startswith(USED):
            continue
        wrong = np.flatnonzero(~np.isin(table.X[:, k], (0, 1)))
        if len(wrong):
            found = table.X[wrong[0], k]
            raise InputError(
                f"{where}, row {wrong[0] + 1}: {column!r} is {'missing' if np.isnan(found) else f'{found:g}'}, "
                "0 or 1 is expected"
            )
        for f in places[column.removeprefix(USED)]:
            if f in owner:
                raise InputError(f"{where}: {owner[f]!r} and {column!r} speak of the same feature; keep one")
            owner[f] = column
            out[:, f] = table.X[:, k] == 1
    return out
