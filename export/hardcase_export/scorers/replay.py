# SPDX-License-Identifier: Apache-2.0
"""Comparison of an exported model with the program it was made of: rows with other scores, and the largest gap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError, one_line
from hardcase_edge.program.definition import MISSING, Network, Opaque, Polynomial, Program
from hardcase_edge.program.readings import DTYPES, Reading
from hardcase_edge.session.session import Machine

from ..integers.decide import codes_of
from .parts import ScorerPart

Runner = Callable[[dict[str, NDArray[Any]]], NDArray[Any]]  # from inputs by name, (n, k) each, to scores (n, width)


@dataclass(frozen=True, slots=True)
class Comparison:
    """``rows``: on which the program can score; ``apart``: of these, with other scores; ``gap``: largest difference."""

    rows: int
    apart: int
    gap: float


def compare_scores(
    name: str, scores: NDArray[Any], expected: NDArray[Any], may_score: NDArray[np.bool_], allowed: float
) -> Comparison:
    """Compare the scores of a file with the expected scores.

    Parameters
    ----------
    scores, expected : (n, width) each
    may_score : (n,) rows to compare
    allowed : largest difference tolerated, in steps of a score

    Raises
    ------
    InputError
        A score differs by more than is allowed; the file must not be written.
    """
    rows = int(may_score.sum())
    differences = np.abs(scores[may_score] - expected[may_score]).max(axis=1, initial=0)
    gap = float(differences.max(initial=0))
    if not gap <= allowed:
        raise InputError(
            f"{name} differs from the program by up to {gap:g} steps of a score on "
            f"{int((differences > allowed).sum())} of {rows} test rows, but at most {allowed:g} is allowed; nothing is "
            "written: report it with the versions of onnxruntime and ai-edge-litert"
        )
    return Comparison(rows, int((differences > 0).sum()), gap)


def feeds_of(part: ScorerPart, readings: Sequence[Sequence[Reading]]) -> dict[str, NDArray[Any]]:
    """Readings, n rows of all features, as the inputs of a part's model, (n, k) per declared type."""
    out = {}
    for dtype, features in part.inputs.items():
        none = DTYPES[dtype].missing
        rows = [[none if row[f] is None else row[f] for f in features] for row in readings]
        with np.errstate(over="ignore"):  # an f64 reading for a user's model of float32
            out[dtype] = np.array(rows, dtype=DTYPES[dtype].numpy).reshape(len(rows), len(features))
    return out


def expected_scores(
    program: Program, part: ScorerPart, readings: Sequence[Sequence[Reading]]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The program's scores, (n, width), and the rows on which it can score: those with all readings that it needs."""
    scorer = program.scorers[part.scores.scorer]
    score = Machine(program).score[part.scores.scorer]
    if isinstance(scorer, Opaque):
        inputs: Sequence[Any] = [[row[f] for f in scorer.features] for row in readings]
        can_score = [None not in row for row in inputs]
    else:
        inputs = codes_of(program, readings)
        pairs = zip(scorer.columns, scorer.substitutes, strict=True) if isinstance(scorer, Polynomial | Network) else ()
        needed = [2 * c for c, substitute in pairs if substitute is None]
        can_score = [all(codes[k] != MISSING for k in needed) for codes in inputs]
    scores = np.zeros((len(readings), part.width), np.int64)
    for k, (row, is_complete) in enumerate(zip(inputs, can_score, strict=True)):
        if is_complete:
            scores[k] = score(row)[part.scores.start : part.scores.stop]
    return scores, np.array(can_score, dtype=bool)


# ---------------------------------------------------------------- runtimes


def open_onnx(data: bytes) -> Any:
    """A session of onnxruntime on one thread.

    Raises
    ------
    InputError
        onnxruntime cannot run the file.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # errors come as exceptions
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has no common base for its own errors
        raise InputError(
            f"onnxruntime cannot run the file ({one_line(error)}); install version 1.20 or later"
        ) from error


def onnx_runner(data: bytes) -> Runner:
    """A runner by onnxruntime, for all rows at once."""
    session = open_onnx(data)

    def run(feeds: dict[str, NDArray[Any]]) -> NDArray[Any]:
        input_names = {i.name for i in session.get_inputs()}
        (scores,) = session.run(["scores"], {k: v for k, v in feeds.items() if k in input_names})
        n = len(next(iter(feeds.values())))
        return np.asarray(np.broadcast_to(scores, (n, scores.shape[1])))

    return run


def tflite_runner(data: bytes, remedy: str = "export it again") -> Runner:
    """A runner by a TFLite interpreter, row by row; ``remedy``: advice if the interpreter refuses the file.

    Raises
    ------
    InputError
        No interpreter is installed, or it cannot run the file.
    """
    from hardcase_edge.errors import BundleError
    from hardcase_edge.session.tflite import open_interpreter

    try:
        interpreter = open_interpreter(data, remedy)
    except BundleError as error:
        raise InputError(str(error)) from error
    details = interpreter.get_input_details()
    (out,) = interpreter.get_output_details()

    def run(feeds: dict[str, NDArray[Any]]) -> NDArray[Any]:
        rows = []
        for k in range(len(next(iter(feeds.values())))):
            for detail, values in zip(details, feeds.values(), strict=True):  # in the order of the file
                interpreter.set_tensor(detail["index"], values[k : k + 1])
            interpreter.invoke()
            rows.append(interpreter.get_tensor(out["index"])[0])
        return np.array(rows)

    return run
