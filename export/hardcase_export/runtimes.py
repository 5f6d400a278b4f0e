# SPDX-License-Identifier: Apache-2.0
"""ONNX and TFLite files of a program's parts and of f0, each compared with the program on all test rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.base.files import read_bounded
from hardcase_edge.bundle.load import Loaded
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError, one_line
from hardcase_edge.program.definition import Opaque, Program
from hardcase_edge.program.kinds import kind_of

from .drafts.rows import Rows, n_remembered
from .hpc_file.hpc import MAX_APART, labels_apart
from .hpc_file.regressor import MAX_GAP
from .hpc_file.replay_rows import as_held
from .integers.decide import codes_of, readings_of
from .scorers.parts import ScorerPart, parts_of
from .scorers.replay import Comparison, compare_scores, expected_scores, feeds_of, onnx_runner, open_onnx, tflite_runner
from .targets import ROUNDED
from .to_onnx.scorer import onnx_of
from .to_tflite.int8 import int8_of
from .to_tflite.scorer import tflite_of

DESCRIPTION = "models.json"
HPC_FILE = "hpc.onnx"
MAX_HPC_BYTES = 2**31 - 1  # the largest protobuf message


@dataclass
class Models:
    """Files by name, and the entry of each in ``models.json``."""

    files: dict[str, bytes] = field(default_factory=dict)
    entries: list[dict[str, Any]] = field(default_factory=list)

    def add(self, name: str, data: bytes, entry: dict[str, Any]) -> None:
        """Add a file; its entry also gets its name, length and SHA-256."""
        self.files[name] = data
        self.entries.append({"file": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), **entry})

    def join(self, others: Iterable[Models]) -> Models:
        """These files and those of the others together."""
        out = Models(dict(self.files), list(self.entries))
        for other in others:
            out.files.update(other.files)
            out.entries += other.entries
        return out


def onnx_models(program: Program, manifest: Manifest, rows: Rows) -> Models:
    """``gate.onnx`` and ``lpc.onnx``, numbered if there are several; their scores equal the program's.

    Parameters
    ----------
    rows : test rows, on which each file is compared with the program

    Raises
    ------
    InputError
        A part cannot be converted, or its file differs from the program on a row.
    """
    parts, out = _PartsOnRows(program, manifest, rows), Models()
    for part in parts.parts:
        name = f"{part.name}.onnx"
        data = onnx_of(program, part, manifest)
        entry = parts.compare(part, name, onnx_runner(data)(feeds_of(part, parts.readings)), 0.0)
        out.add(name, data, entry)
    return out


def golden_rows(loaded: Loaded) -> Rows:
    """The readings of a bundle's golden cases, without labels."""
    cases, width = loaded.bundle.golden, len(loaded.machine.program.features)
    X = np.array([case.readings for case in cases], dtype=np.float64).reshape(len(cases), width)
    return Rows(X, np.zeros(len(X)), np.zeros(len(X)), np.zeros(len(X), np.int64))


def tflite_models(program: Program, manifest: Manifest, rows: Rows, valid: Rows) -> Models:
    """``gate.tflite`` and ``lpc.tflite``, equal to the program; for linear scorers also a bounded ``.int8.tflite``.

    Parameters
    ----------
    rows : test rows, on which each file is compared with the program
    valid : validation rows, which set the range of scores of the int8 form

    Raises
    ------
    InputError
        A part cannot be converted, or its file differs from the program by more than is allowed on a row.
    """
    parts, out = _PartsOnRows(program, manifest, rows), Models()
    for part in parts.parts:
        name = f"{part.name}.tflite"
        data = tflite_of(program, part)
        scores = tflite_runner(data)(feeds_of(part, parts.readings))
        is_opaque = isinstance(program.scorers[part.scores.scorer], Opaque)
        out.add(name, data, parts.opaque(part, name, scores) if is_opaque else parts.compare(part, name, scores, 0.0))
        small = int8_of(program, part, codes_of(program, readings_of(program, valid.X)))
        if small is not None:
            name = f"{part.name}.int8.tflite"
            scores = tflite_runner(small.data)(feeds_of(part, parts.readings))
            expected = small.expected(codes_of(program, parts.readings))
            entry = parts.compare(part, name, scores, small.allowed, expected)
            entry["test"]["same_best"] = parts.same_best(part, scores)
            out.add(name, small.data, {**entry, "range": list(small.range)})
    return out


class _PartsOnRows:
    """A program's parts, and the rows on which their files are compared with the program."""

    def __init__(self, program: Program, manifest: Manifest, rows: Rows) -> None:
        self.program, self.manifest = program, manifest
        self.parts = parts_of(program)
        self.readings = readings_of(program, rows.X)

    def opaque(self, part: ScorerPart, name: str, scores: NDArray[Any]) -> dict[str, Any]:
        """Entry of a user's model; its scores, clipped to the bounds, must be within half a step of the program's."""
        scorer = self.program.scorers[part.scores.scorer]
        assert isinstance(scorer, Opaque)
        clipped = np.where(np.isnan(scores), scorer.low, np.clip(scores, scorer.low, scorer.high))
        return self.compare(part, name, clipped[:, part.scores.start : part.scores.stop], ROUNDED)

    def compare(
        self, part: ScorerPart, name: str, scores: NDArray[Any], allowed: float, instead: NDArray[Any] | None = None
    ) -> dict[str, Any]:
        """The entry of a file in ``models.json``; ``instead``: scores to compare with, if not the program's own."""
        expected, may_score = expected_scores(self.program, part, self.readings)
        comparison = compare_scores(name, scores, expected if instead is None else instead, may_score, allowed)
        return {**part.to_json(self.program, self.manifest), **_summary(comparison, allowed)}

    def same_best(self, part: ScorerPart, scores: NDArray[Any]) -> int:
        """Number of rows on which the highest score is the program's highest; of equal scores the first counts."""
        expected, may_score = expected_scores(self.program, part, self.readings)
        return int((_best(scores) == _best(expected))[may_score].sum())


def _best(scores: NDArray[Any]) -> NDArray[np.int64]:
    """Index of the highest score of each row, (n,); one score s counts as the pair (0, s)."""
    return np.asarray(scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1), np.int64)


def _summary(comparison: Comparison, allowed: float) -> dict[str, Any]:
    return {"test": {"rows": comparison.rows, "apart": comparison.apart, "gap": comparison.gap}, "allowed": allowed}


# ---------------------------------------------------------------- f0


def hpc_model(build: Path, program: Program, manifest: Manifest, rows: Rows) -> Models:
    """The build's ``hpc.onnx``; it must give the labels or values that training stored with the test rows.

    Raises
    ------
    InputError
        The file cannot be read or run, is not the f0 that answered the rows, or gives more other labels, or another
        value, than training allows.
    """
    import onnx

    path = build / HPC_FILE
    data = read_bounded(path, MAX_HPC_BYTES, "f0's file", remedy="train again")
    if rows.sha256 not in ("", hashlib.sha256(data).hexdigest()):
        raise InputError(f"{path} is not the f0 that answered the rows of {build / 'test.npz'}; train again")
    n_own = len(manifest.features) - n_remembered(manifest)  # f0 knows no memory
    try:
        onnx.checker.check_model(onnx.load_from_string(data))
        session = open_onnx(data)
        wide = session.get_inputs()[0].type == "tensor(double)"
        with np.errstate(over="ignore"):
            X = as_held(rows.X[:, :n_own], [f.dtype for f in program.features[:n_own]]).astype(
                np.float64 if wide else np.float32
            )
        outputs = [kind_of(len(manifest.classes)).output, *["probabilities"] * bool(manifest.classes)]
        answers, *probabilities = session.run(outputs, {"X": X})
    except InputError:
        raise
    except Exception as error:  # onnx and onnxruntime have no common base for their errors
        raise InputError(f"{path} cannot be checked or run ({one_line(error)}); train again") from error
    if probabilities:
        apart = labels_apart(rows.hpc, np.ravel(answers), probabilities[0])
    else:
        apart = int(np.sum(~(np.abs(np.ravel(answers) - rows.hpc) <= MAX_GAP * float(np.ptp(rows.y)))))
    allowed = MAX_APART if manifest.classes else 0.0
    if apart > allowed * len(rows.y):
        raise InputError(
            f"{path} and training disagree on the answers to {apart} of {len(rows.y)} test rows, but at most "
            f"{allowed:.1%} may differ; train again"
        )
    out = Models()
    test = {"rows": len(rows.y), "apart": apart}
    out.add(HPC_FILE, data, {"inputs": {"X": list(manifest.features[:n_own])}, "test": test, "allowed": allowed})
    return out
