"""A picked program's parts as files of a target, each replayed on all test rows before a byte is written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError, one_line
from hardcase_edge.program.definition import Opaque, Program

from .drafts.rows import Rows
from .integers.decide import codes_of, readings_of
from .scorers.parts import Part, parts_of
from .scorers.replay import Replayed, feeds_of, onnx_runner, open_onnx, replay, tflite_runner, wanted_scores
from .to_onnx.hpc import MAX_APART, as_held
from .to_onnx.scorer import onnx_of
from .to_tflite.int8 import int8_of
from .to_tflite.scorer import tflite_of

__all__ = ["DESCRIPTION", "Models", "hpc_model", "onnx_models", "tflite_models"]

DESCRIPTION = "models.json"
HPC_FILE = "hpc.onnx"
MAX_HPC_BYTES = 2**31 - 1  # what a protobuf holds
ROUNDED = 0.5  # a user's model says a number, the program the integer nearest to it


@dataclass
class Models:
    """Files by name, and what ``models.json`` says of each."""

    files: dict[str, bytes] = field(default_factory=dict)
    entries: list[dict[str, Any]] = field(default_factory=list)

    def add(self, name: str, data: bytes, found: dict[str, Any]) -> None:
        """One more file."""
        self.files[name] = data
        self.entries.append({"file": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), **found})

    def join(self, others: Iterable[Models]) -> Models:
        """All of them as one."""
        out = Models(dict(self.files), list(self.entries))
        for other in others:
            out.files.update(other.files)
            out.entries += other.entries
        return out


def onnx_models(program: Program, manifest: Manifest, rows: Rows) -> Models:
    """``gate.onnx`` and ``lpc.onnx``, numbered where there are several; exact.

    Raises
    ------
    InputError
        A part cannot be made, or differs from the program on a row.
    """
    made, out = _Parts(program, manifest, rows), Models()
    for part in made.parts:
        name = f"{part.name}.onnx"
        data = onnx_of(program, part, manifest)
        found = made.replay(part, name, onnx_runner(data)(feeds_of(part, made.readings)), 0.0)
        out.add(name, data, found)
    return out


def tflite_models(program: Program, manifest: Manifest, rows: Rows, valid: Rows) -> Models:
    """``gate.tflite`` and ``lpc.tflite``, exact; of linear scorers ``.int8.tflite`` too, as near as it says.

    Parameters
    ----------
    rows : replayed
    valid : say which range of scores the int8 form spans
    """
    made, out = _Parts(program, manifest, rows), Models()
    for part in made.parts:
        name = f"{part.name}.tflite"
        data = tflite_of(program, part)
        scores = tflite_runner(data)(feeds_of(part, made.readings))
        is_opaque = isinstance(program.scorers[part.scores.scorer], Opaque)
        out.add(name, data, made.opaque(part, name, scores) if is_opaque else made.replay(part, name, scores, 0.0))
        small = int8_of(program, part, codes_of(program, readings_of(program, valid.X)))
        if small is not None:
            name = f"{part.name}.int8.tflite"
            scores = tflite_runner(small.data)(feeds_of(part, made.readings))
            wanted = small.wanted(codes_of(program, made.readings))
            found = made.replay(part, name, scores, small.allowed, wanted)
            found["test"]["same_best"] = made.same_best(part, scores)
            out.add(name, small.data, {**found, "range": list(small.range)})
    return out


class _Parts:
    """A program's parts and what they should say of these rows."""

    def __init__(self, program: Program, manifest: Manifest, rows: Rows) -> None:
        self.program, self.manifest = program, manifest
        self.parts = parts_of(program)
        self.readings = readings_of(program, rows.X)

    def opaque(self, part: Part, name: str, scores: NDArray[Any]) -> dict[str, Any]:
        """A user's model: its numbers, held within what is declared, are half a step from the program's at most."""
        scorer = self.program.scorers[part.scores.scorer]
        assert isinstance(scorer, Opaque)
        held = np.where(np.isnan(scores), scorer.low, np.clip(scores, scorer.low, scorer.high))
        return self.replay(part, name, held[:, part.scores.start : part.scores.stop], ROUNDED)

    def replay(
        self, part: Part, name: str, scores: NDArray[Any], allowed: float, instead: NDArray[Any] | None = None
    ) -> dict[str, Any]:
        """What ``models.json`` says of a file; ``instead`` of the program's own scores where it aims at others."""
        wanted, may_score = wanted_scores(self.program, part, self.readings)
        found = replay(name, scores, wanted if instead is None else instead, may_score, allowed)
        return {**part.to_json(self.program, self.manifest), **_said(found, allowed)}

    def same_best(self, part: Part, scores: NDArray[Any]) -> int:
        """On how many rows the best score is the program's best, the first of equals."""
        wanted, may_score = wanted_scores(self.program, part, self.readings)
        return int((_best(scores) == _best(wanted))[may_score].sum())


def _best(scores: NDArray[Any]) -> NDArray[np.int64]:
    """Of one score s, as of the pair (0, s)."""
    return np.asarray(scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1), np.int64)


def _said(found: Replayed, allowed: float) -> dict[str, Any]:
    return {"test": {"rows": found.rows, "apart": found.apart, "gap": found.gap}, "allowed": allowed}


# ---------------------------------------------------------------- f0


def hpc_model(build: Path, program: Program, manifest: Manifest, rows: Rows) -> Models:
    """The build's ``hpc.onnx``, checked and replayed: its labels are those that training wrote beside the test rows.

    Raises
    ------
    InputError
        The file cannot be read or run, is another than the rows were answered by, or more labels differ than training
        allows.
    """
    import onnx

    path = build / HPC_FILE
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_HPC_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; train again") from error
    if len(data) > MAX_HPC_BYTES:
        raise InputError(f"{path} has more than {MAX_HPC_BYTES} bytes, which no ONNX file has; train again")
    if rows.sha256 not in ("", hashlib.sha256(data).hexdigest()):
        raise InputError(f"{path} is not the f0 that answered the rows of {build / 'test.npz'}; train again")
    try:
        onnx.checker.check_model(onnx.load_from_string(data))
        session = open_onnx(data)
        wide = session.get_inputs()[0].type == "tensor(double)"
        with np.errstate(over="ignore"):
            X = as_held(rows.X, [f.dtype for f in program.features]).astype(np.float64 if wide else np.float32)
        (labels,) = session.run(["label"], {"X": X})
    except InputError:
        raise
    except Exception as error:  # onnx and onnxruntime have no common base for their errors
        raise InputError(f"{path} does not pass ({one_line(error)}); train again") from error
    apart = int(np.sum(np.asarray(labels) != rows.hpc))
    if apart > MAX_APART * len(rows.y):
        raise InputError(
            f"{path} gives {apart} of {len(rows.y)} test rows another label than training did, at most "
            f"{MAX_APART:.1%} may differ; train again"
        )
    out = Models()
    test = {"rows": len(rows.y), "apart": apart}
    out.add(HPC_FILE, data, {"inputs": {"X": list(manifest.features)}, "test": test, "allowed": MAX_APART})
    return out
