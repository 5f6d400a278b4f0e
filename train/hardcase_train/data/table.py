# SPDX-License-Identifier: Apache-2.0
"""Tables of features and a target, read from .csv, .parquet, Feather and .npz files without unpickling.

An .npz file holds ``X`` (rows, features) and ``feature_names``, or windows: ``X`` (rows, sensors, samples) and
``sensor_names``, whose features ``hardcase_edge.program.window`` computes, as on the device. Targets: ``y``, or
``Y`` with ``target_names``. Integers may come with a ``scale``. An array ``split`` may name each row's split, an array
``group`` its group, an array ``weight`` its weight, and an array ``item_size`` the size of its item.

A feature's whole numbers beyond 2**53 become the nearest double; labels stay exact.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hardcase_edge.base.files import read_most
from hardcase_edge.errors import InputError, one_line
from hardcase_edge.more.batch.tables import check_size, max_bytes, read_npz
from hardcase_edge.program.definition import Feature
from hardcase_edge.program.limits import MAX_NAME
from hardcase_edge.program.window import WINDOW_FEATURES, window_features

from ..columns.files import ARROW_FORMATS, read_columns
from ..columns.kinds import (
    DATE,
    MAX_TOTAL,
    NUMBER,
    NUMERIC,
    TEXT,
    codes_in,
    date_parts,
    finite,
    kind_of,
    labels_in,
    numbers_in,
    plain,
    texts_in,
    why_no_category,
)
from ..columns.suspects import why_numbers

FORMATS = (*ARROW_FORMATS, ".npz")
ROLES = ("split", "group", "weight", "item_size")  # arrays of an .npz file that say something of each row


class Labels(Mapping[str, np.ndarray]):
    """Columns that can be a target or a split, name to (n,) array of objects, made on access."""

    def __init__(self, columns: Mapping[str, Callable[[], list[Any]]]) -> None:
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> np.ndarray:
        values = self._columns[name]()
        column = np.empty(len(values), dtype=object)
        column[:] = values
        return column

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def and_also(self, columns: Mapping[str, Callable[[], list[Any]]]) -> Labels:
        """These columns, and others."""
        return Labels({**self._columns, **columns})


@dataclass(frozen=True)
class Table:
    """Columns of numbers, NaN for missing, and columns of labels.

    X : (n, n_features) float64; NaN in place of infinities
    labels : columns that can be a target or a split: name to (n,) array of objects, None for missing
    windows : number of samples in a window, of each sensor whose features are computed from one
    samples : (n, n_sensors, n_samples) for a table of windows, else None
    kinds : the kind of every column, in the file's order (``columns.kinds``); those of ``NUMERIC`` are in X
    parts : for each column of dates, a function that gives its parts
    categories : the texts of each feature of codes, as ``as_features`` makes them, or as the table's maker says, who
        means a category by it even if its texts look like numbers
    declared : the types of columns that are known beforehand, such as those of a bundle that has read them
    notes : what the user should know about the table, a line each
    roles : those of ``ROLES`` that an .npz file has as arrays, and not as targets
    """

    names: tuple[str, ...]
    X: np.ndarray
    labels: Labels
    sha256: str
    windows: dict[str, int] = field(default_factory=dict)
    samples: np.ndarray | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, Callable[[], dict[str, np.ndarray]]] = field(default_factory=dict)
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    declared: Mapping[str, Feature] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns that do not hold numbers."""
        return tuple(name for name, kind in self.kinds.items() if kind not in NUMERIC)

    def without(self, *columns: str) -> Table:
        """The table without these columns as features."""
        keep = [k for k, name in enumerate(self.names) if name not in columns]
        names = tuple(self.names[k] for k in keep)
        kinds = {name: kind for name, kind in self.kinds.items() if name not in columns}
        return replace(self, names=names, X=self.X[:, keep], kinds=kinds)

    def as_features(self, train: np.ndarray, dates: str = "leave") -> Table:
        """The table with every column a feature: texts become codes, and dates their parts.

        Parameters
        ----------
        train : (n,) bool, the training rows, whose texts are the categories; all other texts are missing
        dates : "leave" leaves dates out, with a note; "parts" makes features such as ``NAME.hour``

        Raises
        ------
        InputError
            A column can be no feature; the message names every one of them. Or none is left.
        """
        columns: dict[str, np.ndarray] = {}
        categories, notes, unfit = {}, list(self.notes), []
        for name, kind in (self.kinds or dict.fromkeys(self.names, NUMBER)).items():
            if kind in NUMERIC:
                columns[name] = self.X[:, self.names.index(name)]
            elif kind == TEXT:
                values = self.labels[name]
                texts = texts_in(values[train])
                numbers = "" if name in self.categories else why_numbers(texts)
                if reason := why_no_category(texts):
                    unfit.append(f"{name!r} ({reason}{'; ' * bool(numbers)}{numbers})")
                elif texts:
                    notes += [f"took the {len(texts)} texts of {name!r} for a category; {numbers}"] * bool(numbers)
                    categories[name], columns[name] = texts, codes_in(values, texts)
                else:
                    notes.append(f"left out {name!r}, which is empty in the training rows")
            elif kind != DATE:
                unfit.append(f"{name!r} (neither numbers nor text)")
            elif dates == "parts":
                columns |= self.date_columns(name)
            else:
                notes.append(f'left out {name!r}, which holds dates; [data] dates = "parts" makes features of them')
        _check_fit(unfit, columns, categories)
        if tuple(columns) == self.names:
            return replace(self, notes=tuple(notes))
        return replace(
            self, names=tuple(columns), X=np.column_stack(list(columns.values())), categories=categories,
            kinds=dict.fromkeys(columns, NUMBER), parts={}, notes=tuple(notes),
        )  # fmt: skip

    def date_columns(self, name: str) -> dict[str, np.ndarray]:
        """The parts of a column of dates by the names of their features.

        Raises
        ------
        InputError
            Another column has the name of a feature.
        """
        columns = {f"{name}.{part}": values for part, values in self.parts[name]().items()}
        clash = next((column for column in columns if column in self.kinds), None)
        if clash is not None:
            raise InputError(f"a part of the dates in {name!r} would be {clash!r}, which is a column; rename one")
        return columns


def _check_fit(unfit: Sequence[str], columns: Collection[str], categories: Mapping[str, Sequence[str]]) -> None:
    if unfit:
        what = "this column" if len(unfit) == 1 else "these columns"
        raise InputError(f"no model can read {what}: {', '.join(unfit)}; name them in [data] drop, or code them")
    if not columns:
        raise InputError("the data has no column besides the target that a model could read; add the sensors' readings")
    sizes = {name: sum(map(len, texts)) for name, texts in categories.items()}
    if sum(sizes.values()) > MAX_TOTAL:
        longest = max(sizes, key=lambda name: sizes[name])
        raise InputError(
            f"the texts of {len(sizes)} columns have {sum(sizes.values())} characters, a bundle holds {MAX_TOTAL}; "
            f"drop some, such as {longest!r}"
        )


def read_table(path: str | Path, as_text: Collection[str] = ()) -> Table:
    """Read a table.

    Parameters
    ----------
    as_text : columns of a CSV file that are text even if they look like numbers

    Raises
    ------
    InputError
        The file is missing, empty, too large or damaged, its format is unknown, or it does not hold a table.
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise InputError(f"data file {path} is not of a known format; use {', '.join(FORMATS)}")
    try:
        check_size(f"data file {path}", path.stat().st_size)
        with open(path, "rb") as file:
            data = read_most(file, max_bytes())
    except OSError as error:
        raise InputError(f"data file {path} cannot be read: {error.strerror}") from error
    check_size(f"data file {path}", len(data))
    if not data:
        raise InputError(f"data file {path} is empty; a header and at least ten rows are expected")
    sha256 = hashlib.sha256(data).hexdigest()
    try:
        if path.suffix == ".npz":
            table = _read_npz(path, data, sha256)
        else:
            columns, notes = read_columns(path, data, as_text)
            table = table_of(f"data file {path}", columns, sha256, notes)
    except InputError:
        raise
    except Exception as error:  # pyarrow and numpy raise many kinds on a damaged file
        raise InputError(f"data file {path} is not a readable {path.suffix} table: {one_line(error)}") from error
    if len(table.X) == 0:
        raise InputError(f"data file {path} has no rows; at least ten are expected")
    return table


def table_of(where: str, columns: Any, sha256: str, notes: tuple[str, ...] = ()) -> Table:
    """The table of an arrow table; ``where`` names its origin in messages.

    Raises
    ------
    InputError
        A column has no name, a long one, or that of another column.
    """
    names = [str(name) for name in columns.column_names]
    _check_names(where, names)
    arrow = {name: plain(column) for name, column in zip(names, columns.columns, strict=True)}
    kinds = {name: kind_of(column) for name, column in arrow.items()}
    numeric = tuple(name for name in names if kinds[name] in NUMERIC)
    X = np.empty((columns.num_rows, len(numeric)))
    for k, name in enumerate(numeric):
        X[:, k] = numbers_in(arrow[name])
    labels = {name: values for name, column in arrow.items() if (values := labels_in(column, kinds[name]))}
    parts = {name: _parts(arrow[name]) for name in names if kinds[name] == DATE}
    return Table(numeric, X, Labels(labels), sha256, kinds=kinds, parts=parts, notes=notes)


def _parts(column: Any) -> Callable[[], dict[str, np.ndarray]]:
    return lambda: date_parts(column)


def _check_names(where: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for k, name in enumerate(names):
        if not name or len(name) > MAX_NAME:
            what = f"a name of {len(name)} characters" if name else "no name"
            raise InputError(f"{where}: column {k + 1} has {what}, 1 to {MAX_NAME} are expected")
        if name in seen:
            raise InputError(f"{where} has the column {name!r} twice; rename one")
        seen.add(name)


# ---------------------------------------------------------------- .npz


def _arrays(path: Path, data: bytes) -> dict[str, np.ndarray]:
    try:
        return read_npz(f"data file {path}", data)
    except zipfile.BadZipFile as error:
        raise InputError(f"data file {path} is not an .npz archive; write it with numpy.savez") from error


def _read_npz(path: Path, data: bytes, sha256: str) -> Table:
    arrays = _arrays(path, data)
    if "X" not in arrays or arrays["X"].ndim not in (2, 3) or arrays["X"].dtype.kind not in "fiub":
        raise InputError(
            f"data file {path} has no array X of shape (rows, features) or (rows, sensors, samples); save one"
        )
    X = np.asarray(arrays["X"], dtype=np.float64)
    if "scale" in arrays:
        X = X * float(arrays["scale"])
    labels, roles = _npz_labels(path, arrays, len(X))
    if X.ndim == 2:
        feature_names = _strings(arrays.get("feature_names", np.array([f"x{k}" for k in range(X.shape[1])])))
        _check_length(path, "feature_names", len(feature_names), X.shape[1])
        return replace(_of_numbers(path, feature_names, X, labels, sha256), roles=roles)
    if "sensor_names" not in arrays:
        raise InputError(f"data file {path} has windows in X, but no sensor_names; add the name of each sensor")
    sensors = _strings(arrays["sensor_names"])
    _check_length(path, "sensor_names", len(sensors), X.shape[1])
    names = tuple(f"{s}.{f}" for s in sensors for f in WINDOW_FEATURES)
    rows = [[x for window in row.tolist() for x in window_features(window)] for row in X]
    table = np.array(rows, dtype=np.float64).reshape(len(X), len(names))
    windows = {s: int(X.shape[2]) for s in sensors}
    return replace(_of_numbers(path, names, table, labels, sha256), windows=windows, samples=X, roles=roles)


def _of_numbers(path: Path, names: tuple[str, ...], X: np.ndarray, labels: Labels, sha256: str) -> Table:
    _check_names(f"data file {path}", names)
    return Table(names, finite(X), labels, sha256, kinds=dict.fromkeys(names, NUMBER))


def _strings(names: np.ndarray) -> tuple[str, ...]:
    return tuple(str(n) for n in (names.astype(str) if names.dtype.kind == "S" else names).ravel())


def _npz_labels(path: Path, arrays: dict[str, np.ndarray], n: int) -> tuple[Labels, tuple[str, ...]]:
    columns: dict[str, np.ndarray] = {}
    for name in ("y", *ROLES):
        if name in arrays and arrays[name].ndim == 1:
            _check_length(path, name, len(arrays[name]), n)
            columns[name] = arrays[name]
    roles = [name for name in ROLES if name in columns]
    if "Y" in arrays and "target_names" in arrays and arrays["Y"].ndim == 2:
        targets = _strings(arrays["target_names"])
        _check_length(path, "target_names", len(targets), arrays["Y"].shape[1])
        _check_length(path, "Y", len(arrays["Y"]), n)
        columns.update(zip(targets, arrays["Y"].T, strict=True))
        roles = [name for name in roles if name not in targets]
    for name, column in columns.items():
        if column.dtype.kind not in "fiubUS":
            raise InputError(f"data file {path}: {name} is of type {column.dtype}, numbers or text are expected")
    text = {k: v.astype(str) if v.dtype.kind == "S" else v for k, v in columns.items()}
    return Labels({name: column.tolist for name, column in text.items()}), tuple(roles)


def _check_length(path: Path, what: str, length: int, expected: int) -> None:
    if length != expected:
        raise InputError(f"data file {path}: {what} has {length} entries, {expected} are expected")
