# SPDX-License-Identifier: Apache-2.0
"""Labelled rows with f0's answers: ``valid.npz``, ``test.npz`` and ``calibration.npz`` of a build, checked.

The reader bounds the unpacked size before it unpacks, and never loads a pickle.
"""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError, one_line
from hardcase_edge.fleet.release.archive import UNREADABLE_ZIP
from hardcase_edge.more.batch.streams import remembered
from hardcase_edge.more.batch.tables import read_npz
from hardcase_edge.program.definition import Program
from hardcase_edge.program.inner import COIN, DRAW, MEMORY
from hardcase_edge.program.limits import MAX_ITEM_SIZE
from hardcase_edge.stream.layout import layout_of

KEYS = ("X", "y", "feature_names", "hpc", "hpc_confidence", "index")
OPTIONAL = ("hpc_sha256", "group", "weight", "limits", "item_size", "sequence")
MAX_CONFIDENCE = 10_000  # basis points
MAX_VALUE = 1e30  # of a target, in its unit; squares of it are far from the largest float
KINDS = {"f": "floats", "iu": "integers"}  # kinds of numpy types


@dataclass(frozen=True)
class Rows:
    """Labelled rows with f0's answer to each.

    ``X``: (n, n_features) float64, NaN = missing. ``y``: (n,) class index, the label; or float64, the true value.
    ``hpc`` and ``confidence``: (n,) f0's class index or value, and its confidence in basis points. ``sha256``
    identifies that f0; empty if the file does not name it. ``group``: (n,) number of each row's group, None if each row
    stands for itself. ``weight``: (n,) of the rows, at least 0; None: they are equal. ``limits``: (n_features, 2)
    lowest and highest value of the rows that trained and chose the policies, NaN where there is none; None: not in the
    file. ``sizes``: (n,) size of each row's item, from 1; None: all are 1. ``sequence``: (n,) number of the stream of
    each row, whose rows follow each other; None: rows have no order. The columns of a memory
    or a coin in ``X`` are empty.
    """

    X: NDArray[np.float64]
    y: NDArray[Any]
    hpc: NDArray[Any]
    confidence: NDArray[np.int64]
    sha256: str = ""
    group: NDArray[np.int64] | None = None
    weight: NDArray[np.float64] | None = None
    limits: NDArray[np.float64] | None = None
    sizes: NDArray[np.int64] | None = None
    sequence: NDArray[np.int64] | None = None


def is_rows(path: str | Path) -> bool:
    """Whether this is an .npz file of rows that training wrote."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {f"{key}.npy" for key in KEYS} <= set(archive.namelist())
    except UNREADABLE_ZIP:
        return False


def read_rows(path: str | Path, manifest: Manifest) -> Rows:
    """The rows in this file, if they have the manifest's features and classes.

    Raises
    ------
    InputError
        The file cannot be read, is damaged, or does not fit the manifest.
    """
    arrays = _load(Path(path))
    names = tuple(arrays["feature_names"].tolist())
    n_own = len(manifest.features) - n_remembered(manifest)
    if names != manifest.features[:n_own]:
        odd = sorted(map(str, set(names) ^ set(manifest.features[:n_own])))[:3]
        raise InputError(
            f"{path} has other features than the bundle ({', '.join(odd) or 'in another order'}); "
            "name rows of the same training run"
        )
    n = len(arrays["y"]) if arrays["y"].ndim == 1 else 0
    _need(arrays, "X", "f", (n, len(names)), path)
    for key in ("hpc_confidence", *(key for key in ("group", "item_size", "sequence") if key in arrays)):
        _need(arrays, key, "iu", (n,), path)
    for key in ("y", "hpc"):
        _need(arrays, key, "iu" if manifest.classes else "f", (n,), path)
    if n == 0:
        raise InputError(f"{path} has no rows; train on more data")
    y, hpc = (np.asarray(arrays[key], np.int64 if manifest.classes else np.float64) for key in ("y", "hpc"))
    confidence = np.asarray(arrays["hpc_confidence"], np.int64)
    sha256 = str(arrays["hpc_sha256"]) if "hpc_sha256" in arrays else ""
    more: dict[str, NDArray[np.float64]] = {}
    for key, shape in {"weight": (n,), "limits": (len(names), 2)}.items():
        if key in arrays:
            _need(arrays, key, "f", shape, path)
            more[key] = np.asarray(arrays[key], np.float64)
    if "weight" in more and not (np.isfinite(more["weight"]).all() and more["weight"].min() >= 0):
        raise InputError(f"{path}: weight has values below 0 or infinite ones; train again")
    group = np.asarray(arrays["group"], np.int64) if "group" in arrays else None
    sizes = np.asarray(arrays["item_size"], np.int64) if "item_size" in arrays else None
    if sizes is not None and not 1 <= sizes.min() <= sizes.max() <= MAX_ITEM_SIZE:
        raise InputError(f"{path}: item_size has values outside 1 to {MAX_ITEM_SIZE}; train again")
    sequence = np.asarray(arrays["sequence"], np.int64) if "sequence" in arrays else None
    empty = np.full((n, len(manifest.features) - n_own), np.nan)
    if "limits" in more:
        more["limits"] = np.vstack([more["limits"], np.full((empty.shape[1], 2), np.nan)])
    X = np.hstack([np.asarray(arrays["X"], np.float64), empty])
    rows = Rows(X, y, hpc, confidence, sha256, group, **more, sizes=sizes, sequence=sequence)
    last = len(manifest.classes) - 1
    highest = (MAX_VALUE, MAX_VALUE, MAX_CONFIDENCE) if last < 0 else (last, last, MAX_CONFIDENCE)
    lowest = (-MAX_VALUE, -MAX_VALUE, 0) if last < 0 else (0, 0, 0)
    answers = {"y": rows.y, "hpc": rows.hpc, "hpc_confidence": rows.confidence}
    for (what, values), low, high in zip(answers.items(), lowest, highest, strict=True):
        if not (low <= values.min() and values.max() <= high):  # refuses NaN, too
            raise InputError(
                f"{path}: {what} has values from {values.min()} to {values.max()}, but {low:g} to {high:g} are "
                "expected; train again"
            )
    return rows


def group_name(trained: dict[str, Any]) -> str | None:
    """The column that named the groups of a manifest's training rows; None if each row stood for itself."""
    return _column(trained, "group")


def size_name(trained: dict[str, Any]) -> str | None:
    """The column that held the item sizes of a manifest's training rows; None if all were 1."""
    return _column(trained, "item_size")


def sequence_name(trained: dict[str, Any]) -> str | None:
    """The column that named the streams of a manifest's training rows; None if none did."""
    return _column(trained, "sequence")


def n_remembered(manifest: Manifest) -> int:
    """How many of a manifest's features, the last ones, are those of a memory or a coin; no file of rows has them."""
    own = f"{MEMORY}."
    n = sum(name.startswith(own) for name in manifest.features) if MEMORY in manifest.sensors else 0
    return n + (COIN in manifest.sensors and DRAW in manifest.features)


def is_training_table(trained: dict[str, Any], path: Path) -> bool:
    """Whether a file is the table that a manifest's policy was trained on, of which most rows are training rows."""
    known = _column(trained, "sha256")
    if known is None:
        return False
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == known


def _column(trained: dict[str, Any], use: str) -> str | None:
    data = trained.get("data")
    name = data.get(use) if isinstance(data, dict) else None
    return name if isinstance(name, str) else None


def _load(path: Path) -> dict[str, NDArray[Any]]:
    try:
        arrays = read_npz(path, path, (*KEYS, *OPTIONAL))
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror or error}; name rows that hardcase train wrote"
        ) from error
    except UNREADABLE_ZIP as error:
        raise InputError(f"{path} is not a readable .npz file ({one_line(error)}); train again") from error
    missing = [key for key in KEYS if key not in arrays]
    if missing:
        raise InputError(f"{path} has no {', '.join(missing)}; name rows that hardcase train wrote")
    return arrays


def file_sha256(path: Path, remedy: str = "name a readable file") -> str:
    """SHA-256 of a file's bytes, in hex.

    Raises
    ------
    InputError
        The file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; {remedy}") from error


def _need(arrays: dict[str, NDArray[Any]], key: str, kinds: str, shape: tuple[int, ...], path: str | Path) -> None:
    array = arrays[key]
    if array.dtype.kind not in kinds or array.shape != shape:
        raise InputError(
            f"{path}: {key} has type {array.dtype} and shape {array.shape}, but {KINDS[kinds]} of shape {shape} are "
            "expected; train again"
        )


# Rows of streams for a program with a memory: its columns filled as the program walks the rows in their order.


def in_order(program: Program, manifest: Manifest, rows: Rows) -> Rows:
    """The rows with what a memory says of each, as ``program`` decides those before it; the same without a memory.

    From then on each row stands for itself. Rows without an order are each a stream of their own. They may have been
    read for another policy of the build, which remembers more or less than this one.
    """
    layout, n_features = layout_of(program, manifest.features, manifest.sensors), len(manifest.features)
    if rows.X.shape[1] != n_features:
        n_empty = n_remembered(manifest)
        empty = np.full((len(rows.y), n_empty), np.nan)
        rows = replace(rows, X=np.hstack([rows.X[:, : n_features - n_empty], empty]))
    if layout is None:
        return rows
    sequence = np.arange(len(rows.y)) if rows.sequence is None else rows.sequence
    hpc = rows.hpc if program.n_classes else None
    return replace(rows, X=remembered(program, layout, rows.X, sequence, hpc, sizes=rows.sizes))
