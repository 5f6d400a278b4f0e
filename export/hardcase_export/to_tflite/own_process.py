# SPDX-License-Identifier: Apache-2.0
"""A user's own ``.tflite``, checked and run on rows in a separate process, so that a crash or hang stays there.

    python -m hardcase_export.to_tflite.own_process FOLDER

is that process: it reads ``model.tflite``, ``rows.npy`` and ``job.json`` in the folder, and writes ``own.tflite``,
``scores.npy`` and ``steps.txt``, or ``error.txt``.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.base.files import read_bounded
from hardcase_edge.errors import HardcaseError, InputError, one_line
from hardcase_edge.program.definition import Opaque

from ..scorers.replay import tflite_runner
from .own_model import MAX_MODEL_BYTES, own_bytes

TIMEOUT_S = 600.0
MAX_MEMORY_BYTES = 8 * 1024**3
LARGEST = 2**20  # bound, within a factor of 2, on the scores in steps of the rows that set the scale
HELD = 2**23  # bound to which scores are clipped; float32 holds every integer up to here
LARGEST_VALUE, HELD_VALUE = 2**23, 2**25  # of values, whose steps are as fine as a float32 of the largest of them
MAX_STEPS = 126  # of the exponent, to either side: 2 to this power is a float32


@dataclass(frozen=True)
class OwnScorer:
    """The scorer, and its scores (n, n_outputs) int64 on the given rows; a row with a missing reading has zeros.

    ``steps``: a score is what the user's model gives, times 2^steps, rounded.
    """

    scorer: Opaque
    scores: NDArray[np.int64]
    steps: int


def open_own(
    path: Path,
    features: tuple[int, ...],
    X: NDArray[np.float64],
    n_seen: int,
    n_classes: int,
    timeout_s: float = TIMEOUT_S,
) -> OwnScorer:
    """Check the file, adapt it to the program, and run it on rows.

    Parameters
    ----------
    path : the user's .tflite
    features : the program's features that the model takes, in the order of its input
    X : (n, len(features)) rows to score
    n_seen : number of rows, the first ones, that set the scale of the scores
    n_classes : number of scores; 0 for a model that gives one value
    timeout_s : seconds after which the process is stopped

    Raises
    ------
    InputError
        The model is refused, or it crashed, hung or failed.
    """
    data = read_bounded(path, MAX_MODEL_BYTES, "TFLite model", remedy="name one that fits a bundle under [lpc] tflite")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model.tflite").write_bytes(data)
        np.save(folder / "rows.npy", X.astype(np.float64))
        (folder / "job.json").write_text(json.dumps({"n_seen": n_seen, "n_classes": n_classes}), encoding="utf-8")
        _spawn(path, folder, timeout_s)
        blob = (folder / "own.tflite").read_bytes()
        scores = np.load(folder / "scores.npy", allow_pickle=False)
        steps = int((folder / "steps.txt").read_text(encoding="utf-8"))
    width, held = _width(n_classes), _bounds(n_classes)[1]
    if scores.shape != (len(X), width) or scores.dtype != np.int64:
        raise InputError(
            f"{path} gave scores of shape {scores.shape}, but {(len(X), width)} is expected; convert it again"
        )
    return OwnScorer(Opaque(features, blob, (-held,) * width, (held,) * width), scores, steps)


def _width(n_classes: int) -> int:
    """The number of scores of the new file."""
    return 1 if n_classes in (0, 2) else n_classes


def _bounds(n_classes: int) -> tuple[int, int]:
    """Bound, within a factor of 2, on the scores that set the scale, and the bound to which scores are clipped."""
    return (LARGEST, HELD) if n_classes else (LARGEST_VALUE, HELD_VALUE)


def _spawn(path: Path, folder: Path, timeout_s: float) -> None:
    if os.name == "nt":
        raise InputError(f"{path} needs a process with limits, which Windows does not have; train on Linux or macOS")
    command = [sys.executable, "-m", "hardcase_export.to_tflite.own_process", str(folder)]
    try:
        process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise InputError(f"{path} was stopped after {timeout_s:g} s; give a smaller model") from error
    error_file = folder / "error.txt"
    if error_file.is_file():
        refusal = error_file.read_text(encoding="utf-8")[:500]
        raise InputError(f"{path}: {refusal}")
    if process.returncode < 0:
        raise InputError(f"{path} crashed the interpreter (signal {-process.returncode}); convert it again")
    if process.returncode:
        last = process.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise InputError(f"{path} failed ({' '.join(last)[:200]}); convert it again")


# ---------------------------------------------------------------- the separate process


def main(folder: Path) -> int:
    """Do the job in the folder; returns the exit status, 2 if the file is refused."""
    _limit()
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    data = (folder / "model.tflite").read_bytes()
    X = np.load(folder / "rows.npy", allow_pickle=False)
    try:
        blob, scores, steps = _score(data, X, int(job["n_seen"]), int(job["n_classes"]))
    except HardcaseError as error:
        (folder / "error.txt").write_text(str(error), encoding="utf-8")
        return 2
    (folder / "own.tflite").write_bytes(blob)
    np.save(folder / "scores.npy", scores)
    (folder / "steps.txt").write_text(str(steps), encoding="utf-8")
    return 0


def _limit() -> None:
    """Limit this process's memory and its core file."""
    import resource  # not on Windows

    is_macos = sys.platform == "darwin"  # which refuses a limit of address space; its processes have none
    with contextlib.suppress(ValueError) if is_macos else contextlib.nullcontext():
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _score(data: bytes, X: NDArray[np.float64], n_seen: int, n_classes: int) -> tuple[bytes, NDArray[np.int64], int]:
    run = tflite_runner(own_bytes(data, X.shape[1], n_classes, 1.0), "convert it again")
    is_complete = ~np.isnan(X).any(axis=1)
    with np.errstate(over="ignore"):
        rows = X[is_complete].astype(np.float32)
    scores = np.zeros((len(X), _width(n_classes)))
    try:
        scores[is_complete] = run({"readings": rows}) if len(rows) else 0.0
    except (RuntimeError, ValueError) as error:
        raise InputError(f"the TFLite model fails on a row ({one_line(error)}); convert it again") from error
    if not np.isfinite(scores[:n_seen]).all():
        raise InputError("the TFLite model gives scores that are not numbers; train it again")
    largest = float(np.abs(scores[:n_seen]).max(initial=0.0))
    if largest == 0:
        raise InputError("the TFLite model gives zeros on every row; train it on these readings")
    bound, held = _bounds(n_classes)
    steps = math.floor(math.log2(bound / largest))
    if steps > MAX_STEPS:
        raise InputError(f"the TFLite model gives at most {largest:g}, too small for float32; use a smaller unit")
    scores = np.nan_to_num(scores * 2.0**steps, nan=-held)
    whole = np.rint(np.clip(scores, -held, held)).astype(np.int64)
    return own_bytes(data, X.shape[1], n_classes, 2.0**steps), whole, steps


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
