# SPDX-License-Identifier: Apache-2.0
"""Tables of features and a target, read from .csv, .parquet and .npz files without unpickling.

An .npz file holds ``X`` (rows, features) and ``feature_names``, or windows: ``X`` (rows, sensors, samples) and
``sensor_names``, whose features ``hardcase_edge.program.window`` computes, as on the device. Targets: ``y``, or
``Y`` with ``target_names``. Integers may come with a ``scale``. An array ``split`` may name each row's split, an array
``group`` its group, and an array ``weight`` its weight.

A feature's whole numbers beyond 2**53 become the nearest double; labels stay exact.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hardcase_edge.bundle.manifest import MAX_NAME
from hardcase_edge.errors import InputError
from hardcase_edge.program.window import WINDOW_FEATURES, window_features

__all__ = ["Labels", "Table", "read_table"]

FORMATS = (".csv", ".parquet", ".npz")
MAX_UNPACKED_BYTES = 16 * 1024**3  # of an .npz, checked before it is unpacked


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


@dataclass(frozen=True)
class Table:
    """Columns of numbers, NaN for missing, and columns of labels.

    X : (n, n_features) float64; NaN in place of infinities
    labels : columns that can be a target or a split: name to (n,) array of objects, None for missing
    windows : number of samples in a window, of each sensor whose features are computed from one
    samples : (n, n_sensors, n_samples) for a table of windows, else None
    texts : names of the columns that do not hold numbers
    """

    names: tuple[str, ...]
    X: np.ndarray
    labels: Mapping[str, np.ndarray]
    sha256: str
    windows: dict[str, int] = field(default_factory=dict)
    samples: np.ndarray | None = None
    texts: tuple[str, ...] = ()

    def without(self, *columns: str) -> Table:
        """The same table without these columns as features."""
        keep = [k for k, name in enumerate(self.names) if name not in columns]
        names = tuple(self.names[k] for k in keep)
        texts = tuple(t for t in self.texts if t not in columns)
        return replace(self, names=names, X=self.X[:, keep], texts=texts)

    def check_features(self) -> None:
        """Check that all columns hold numbers and that there is at least one.

        Raises
        ------
        InputError
            A column holds text (only the target and the split may), or the table has no features.
        """
        if self.texts:
            raise InputError(
                f"the column {self.texts[0]!r} does not hold numbers; drop it or code it as numbers "
                "(only the target, a split column and a group column may be text)"
            )
        if not self.names:
            raise InputError("the data has no column of numbers besides the target; add the sensors' readings")


def read_table(path: str | Path) -> Table:
    """Read a table of numbers.

    Raises
    ------
    InputError
        The file is missing, empty or damaged, its format is unknown, or it does not hold a table of numbers.
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise InputError(f"data file {path} is not of a known format; use {', '.join(FORMATS)}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"data file {path} cannot be read: {error.strerror}") from error
    if not data:
        raise InputError(f"data file {path} is empty; a header and at least ten rows are expected")
    try:
        table = _read_npz(path, data) if path.suffix == ".npz" else _read_arrow(path, data)
    except InputError:
        raise
    except Exception as error:  # pyarrow and numpy raise many kinds on a damaged file
        raise InputError(f"data file {path} is not a readable {path.suffix} table: {str(error)[:200]}") from error
    _check_names(path, [*table.names, *table.texts])
    if len(table.X) == 0:
        raise InputError(f"data file {path} has no rows; at least ten are expected")
    return table


def _check_names(path: Path, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for k, name in enumerate(names):
        if not name or len(name) > MAX_NAME:
            what = f"a name of {len(name)} characters" if name else "no name"
            raise InputError(f"data file {path}: column {k + 1} has {what}, 1 to {MAX_NAME} are expected")
        if name in seen:
            raise InputError(f"data file {path} has the column {name!r} twice; rename one")
        seen.add(name)


# ---------------------------------------------------------------- .csv and .parquet


def _read_arrow(path: Path, data: bytes) -> Table:
    import pyarrow as pa

    arrow = _arrow_table(path, data)
    _check_names(path, arrow.column_names)
    names, columns, labels, texts = [], [], {}, []
    for name, column in zip(arrow.column_names, arrow.columns, strict=True):
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        kind = column.type
        if any(is_a(kind) for is_a in (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)):
            labels[name] = column.to_pylist
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
            labels[name] = column.to_pylist
            texts.append(name)
            continue
        elif pa.types.is_null(kind):  # all values are missing
            labels[name] = column.to_pylist
        elif not pa.types.is_decimal(kind):
            texts.append(name)
            continue
        names.append(name)
        columns.append(_numbers(column.cast(pa.float64(), safe=False).to_numpy()))
    X = np.column_stack(columns) if columns else np.empty((arrow.num_rows, 0))
    return Table(tuple(names), X, Labels(labels), hashlib.sha256(data).hexdigest(), texts=tuple(texts))


def _arrow_table(path: Path, data: bytes) -> Any:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    source = pa.BufferReader(data)
    if path.suffix == ".parquet":
        return pa.parquet.read_table(source)
    return pa.csv.read_csv(
        source,
        convert_options=pa.csv.ConvertOptions(strings_can_be_null=True),
    )


def _numbers(values: np.ndarray) -> np.ndarray:
    numbers = np.asarray(values, dtype=np.float64) + 0.0  # minus zero becomes zero
    numbers[~np.isfinite(numbers)] = np.nan
    return numbers


# ---------------------------------------------------------------- .npz


def _arrays(path: Path, data: bytes) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(info.file_size for info in archive.infolist())
    except zipfile.BadZipFile as error:
        raise InputError(f"data file {path} is not an .npz archive; write it with numpy.savez") from error
    if size > MAX_UNPACKED_BYTES:
        raise InputError(f"data file {path} unpacks to {size} bytes, at most {MAX_UNPACKED_BYTES} are read")
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _read_npz(path: Path, data: bytes) -> Table:
    arrays = _arrays(path, data)
    if "X" not in arrays or arrays["X"].ndim not in (2, 3) or arrays["X"].dtype.kind not in "fiub":
        raise InputError(
            f"data file {path} has no array X of shape (rows, features) or (rows, sensors, samples); save one"
        )
    X = np.asarray(arrays["X"], dtype=np.float64)
    if "scale" in arrays:
        X = X * float(arrays["scale"])
    labels = _npz_labels(path, arrays, len(X))
    sha256 = hashlib.sha256(data).hexdigest()
    if X.ndim == 2:
        feature_names = arrays.get("feature_names", np.array([f"x{k}" for k in range(X.shape[1])]))
        _check_length(path, "feature_names", len(feature_names), X.shape[1])
        return Table(_strings(feature_names), _numbers(X), labels, sha256)
    if "sensor_names" not in arrays:
        raise InputError(f"data file {path} has windows in X, but no sensor_names; add the name of each sensor")
    sensors = _strings(arrays["sensor_names"])
    _check_length(path, "sensor_names", len(sensors), X.shape[1])
    names = tuple(f"{s}.{f}" for s in sensors for f in WINDOW_FEATURES)
    rows = [[x for window in row for x in window_features(window)] for row in X.tolist()]
    table = np.array(rows, dtype=np.float64).reshape(len(X), len(names))
    windows = {s: int(X.shape[2]) for s in sensors}
    return Table(names, _numbers(table), labels, sha256, windows, X)


def _strings(names: np.ndarray) -> tuple[str, ...]:
    return tuple(str(n) for n in (names.astype(str) if names.dtype.kind == "S" else names).ravel())


def _npz_labels(path: Path, arrays: dict[str, np.ndarray], n: int) -> Labels:
    columns: dict[str, np.ndarray] = {}
    for name in ("y", "split", "group", "weight"):
        if name in arrays and arrays[name].ndim == 1:
            _check_length(path, name, len(arrays[name]), n)
            columns[name] = arrays[name]
    if "Y" in arrays and "target_names" in arrays and arrays["Y"].ndim == 2:
        _check_length(path, "target_names", len(arrays["target_names"]), arrays["Y"].shape[1])
        _check_length(path, "Y", len(arrays["Y"]), n)
        columns.update(zip(_strings(arrays["target_names"]), arrays["Y"].T, strict=True))
    for name, column in columns.items():
        if column.dtype.kind not in "fiubUS":
            raise InputError(f"data file {path}: {name} is of type {column.dtype}, numbers or text are expected")
    text = {k: v.astype(str) if v.dtype.kind == "S" else v for k, v in columns.items()}
    return Labels({name: column.tolist for name, column in text.items()})


def _check_length(path: Path, what: str, length: int, expected: int) -> None:
    if length != expected:
        raise InputError(f"data file {path}: {what} has {length} entries, {expected} are expected")
