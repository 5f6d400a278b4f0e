"""Read the rows that training leaves in build/, ``valid.npz`` and ``test.npz``: no pickle, bounded before unpacking."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError

__all__ = ["KEYS", "Rows", "is_rows", "read_rows"]

KEYS = ("X", "y", "feature_names", "hpc", "hpc_confidence", "index")
MAX_UNPACKED_BYTES = 4 * 1024**3
MAX_CONFIDENCE = 10_000


@dataclass(frozen=True)
class Rows:
    """Labelled rows with f0's answer to each.

    ``X`` (n, n_features) float64, NaN = missing; ``y`` and ``hpc`` (n,) class index; ``confidence`` (n,) basis points;
    ``sha256`` what that f0 is known by, empty where the file does not say.
    """

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    hpc: NDArray[np.int64]
    confidence: NDArray[np.int64]
    sha256: str = ""


def is_rows(path: str | Path) -> bool:
    """Is this an .npz file of the kind that training leaves in build/?"""
    try:
        with zipfile.ZipFile(path) as archive:
            return {f"{key}.npy" for key in KEYS} <= set(archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def read_rows(path: str | Path, manifest: Manifest) -> Rows:
    """The rows in this file, if they have the manifest's features and classes.

    Raises
    ------
    InputError
        The file cannot be read, is cut, or does not fit.
    """
    arrays = _load(Path(path))
    names = tuple(arrays["feature_names"].tolist())
    if names != manifest.features:
        odd = sorted(map(str, set(names) ^ set(manifest.features)))[:3]
        raise InputError(f"{path} has other features than the bundle ({', '.join(odd) or 'in another order'})")
    n = len(arrays["y"]) if arrays["y"].ndim == 1 else 0
    _need(arrays, "X", "f", (n, len(names)), path)
    for key in ("y", "hpc", "hpc_confidence"):
        _need(arrays, key, "iu", (n,), path)
    if n == 0:
        raise InputError(f"{path} has no rows; train on more data")
    y, hpc, confidence = (np.asarray(arrays[key], np.int64) for key in ("y", "hpc", "hpc_confidence"))
    sha256 = str(arrays["hpc_sha256"]) if "hpc_sha256" in arrays else ""
    rows = Rows(np.asarray(arrays["X"], np.float64), y, hpc, confidence, sha256)
    for values, most, what in (
        (rows.y, len(manifest.classes) - 1, "y"),
        (rows.hpc, len(manifest.classes) - 1, "hpc"),
        (rows.confidence, MAX_CONFIDENCE, "hpc_confidence"),
    ):
        if values.min() < 0 or values.max() > most:
            raise InputError(f"{path}: {what} holds {values.min()} to {values.max()}, 0 to {most} is expected")
    return rows


def _load(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
        if size > MAX_UNPACKED_BYTES:
            raise InputError(f"{path} unpacks to {size} bytes, at most {MAX_UNPACKED_BYTES} are read")
        with np.load(path, allow_pickle=False) as archive:
            missing = [key for key in KEYS if key not in archive.files]
            if missing:
                raise InputError(f"{path} has no {', '.join(missing)}; name rows that hardcase train wrote")
            return {key: archive[key] for key in (*KEYS, "hpc_sha256") if key in archive.files}
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError) as error:
        line = " ".join(str(error).split())[:120]
        raise InputError(f"{path} is not a readable .npz file ({line}); train again") from error


def _need(arrays: dict[str, NDArray[Any]], key: str, kinds: str, shape: tuple[int, ...], path: str | Path) -> None:
    found = arrays[key]
    if found.dtype.kind not in kinds or found.shape != shape:
        raise InputError(f"{path}: {key} is {found.dtype} of shape {found.shape}, shape {shape} is expected")
