"""Tables: .csv, .parquet and .npz files become features and a target. Nothing is ever unpickled.

An .npz holds ``X`` (rows, features) and ``feature_names``, or windows: ``X`` (rows, sensors, samples) and
``sensor_names``, whose features are computed here by ``hardcase_edge.window``, as on the device. Targets: ``y``, or
``Y`` with ``target_names``. Integers may come with a ``scale``. An array ``split`` may name each row's split.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hardcase_edge.errors import InputError
from hardcase_edge.window import WINDOW_FEATURES, window_features

__all__ = ["Table", "read_table"]

FORMATS = (".csv", ".parquet", ".npz")


@dataclass(frozen=True)
class Table:
    """Columns of numbers, NaN for missing, and columns of labels.

    X : (n, n_features) float64; what is not finite is NaN
    labels : columns that can be a target or a split: name to (n,) array
    windows : sensors whose features come from so many samples
    samples : (n, n_sensors, n_samples) for a table of windows, else None
    """

    names: tuple[str, ...]
    X: np.ndarray
    labels: dict[str, np.ndarray]
    sha256: str
    windows: dict[str, int] = field(default_factory=dict)
    samples: np.ndarray | None = None

    def without(self, *columns: str) -> Table:
        """The same table, these columns no longer features."""
        keep = [k for k, name in enumerate(self.names) if name not in columns]
        names = tuple(self.names[k] for k in keep)
        return Table(names, self.X[:, keep], self.labels, self.sha256, self.windows, self.samples)


def read_table(path: str | Path) -> Table:
    """Read a table of numbers.

    Raises
    ------
    InputError
        No such file, an unknown format, an empty table, or a file that holds something else.
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise InputError(f"data file {path} is none of {', '.join(FORMATS)}")
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
    if len(set(table.names)) != len(table.names):
        twice = next(n for n in table.names if table.names.count(n) > 1)
        raise InputError(f"data file {path} has the column {twice!r} twice; rename one")
    if len(table.X) == 0:
        raise InputError(f"data file {path} has no rows; at least ten are expected")
    return table


def _read_arrow(path: Path, data: bytes) -> Table:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    source = pa.BufferReader(data)
    arrow = pa.csv.read_csv(source) if path.suffix == ".csv" else pa.parquet.read_table(source)
    names, columns, labels = [], [], {}
    for name, column in zip(arrow.column_names, arrow.columns, strict=True):
        kind = column.type
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        if is_number:
            names.append(name)
            columns.append(_numbers(column.cast(pa.float64()).to_numpy()))
        if is_number or pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind):
            labels[name] = np.array(column.to_pylist(), dtype=object)
    X = np.column_stack(columns) if columns else np.empty((arrow.num_rows, 0))
    return Table(tuple(names), X, labels, hashlib.sha256(data).hexdigest())


def _numbers(values: np.ndarray) -> np.ndarray:
    out = np.asarray(values, dtype=np.float64) + 0.0  # minus zero is zero
    out[~np.isfinite(out)] = np.nan
    return out


def _read_npz(path: Path, data: bytes) -> Table:
    import io

    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    if "X" not in arrays or arrays["X"].ndim not in (2, 3) or arrays["X"].dtype.kind not in "fiub":
        raise InputError(f"data file {path} has no array X of shape (rows, features) or (rows, sensors, samples)")
    X = np.asarray(arrays["X"], dtype=np.float64)
    if "scale" in arrays:
        X = X * float(arrays["scale"])
    labels = _npz_labels(path, arrays, len(X))
    sha256 = hashlib.sha256(data).hexdigest()
    if X.ndim == 2:
        names = arrays.get("feature_names", np.array([f"x{k}" for k in range(X.shape[1])]))
        _same(path, "feature_names", len(names), X.shape[1])
        return Table(tuple(str(n) for n in names), _numbers(X), labels, sha256)
    if "sensor_names" not in arrays:
        raise InputError(f"data file {path} has windows in X, but no sensor_names")
    sensors = [str(s) for s in arrays["sensor_names"]]
    _same(path, "sensor_names", len(sensors), X.shape[1])
    names = [f"{s}.{f}" for s in sensors for f in WINDOW_FEATURES]
    rows = [[x for window in row for x in window_features(window)] for row in X.tolist()]
    table = np.array(rows, dtype=np.float64).reshape(len(X), len(names))
    return Table(tuple(names), _numbers(table), labels, sha256, dict.fromkeys(sensors, X.shape[2]), X)


def _npz_labels(path: Path, arrays: dict[str, np.ndarray], n: int) -> dict[str, np.ndarray]:
    labels = {}
    for name in ("y", "split"):
        if name in arrays and arrays[name].ndim == 1:
            _same(path, name, len(arrays[name]), n)
            labels[name] = np.array(arrays[name].tolist(), dtype=object)
    if "Y" in arrays and "target_names" in arrays and arrays["Y"].ndim == 2:
        _same(path, "target_names", len(arrays["target_names"]), arrays["Y"].shape[1])
        _same(path, "Y", len(arrays["Y"]), n)
        for k, name in enumerate(arrays["target_names"]):
            labels[str(name)] = np.array(arrays["Y"][:, k].tolist(), dtype=object)
    return labels


def _same(path: Path, what: str, found: int, expected: int) -> None:
    if found != expected:
        raise InputError(f"data file {path}: {what} has {found} entries, {expected} are expected")
