"""Models beside the program they were made of, on every row: how many rows differ, and by how much at most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError, one_line
from hardcase_edge.program.definition import MISSING, Opaque, Polynomial, Program
from hardcase_edge.program.readings import DTYPES, Reading
from hardcase_edge.session.session import Machine

from ..integers.decide import codes_of
from .parts import Part

__all__ = ["Replayed", "Runner", "feeds_of", "onnx_runner", "open_onnx", "replay", "tflite_runner", "wanted_scores"]

Runner = Callable[[dict[str, NDArray[Any]]], NDArray[Any]]  # inputs by name, (n, k), to scores (n, width)


@dataclass(frozen=True, slots=True)
class Replayed:
    """``rows`` on which the program may score, ``apart`` of them with other scores, ``gap`` the largest difference."""

    rows: int
    apart: int
    gap: float


def replay(
    name: str, found: NDArray[Any], wanted: NDArray[Any], may_score: NDArray[np.bool_], allowed: float
) -> Replayed:
    """Compare scores, (n, width) each.

    Raises
    ------
    InputError
        They differ by more than is allowed; nothing may be written.
    """
    rows = int(may_score.sum())
    differences = np.abs(found[may_score] - wanted[may_score]).max(axis=1, initial=0)
    gap = float(differences.max(initial=0))
    if not gap <= allowed:
        raise InputError(
            f"{name} differs from the program by {gap:g} steps of a score on {int((differences > allowed).sum())} of "
            f"{rows} test rows, at most {allowed:g} is allowed; nothing is written: report it with the versions of "
            "onnxruntime and ai-edge-litert"
        )
    return Replayed(rows, int((differences > 0).sum()), gap)


def feeds_of(part: Part, readings: Sequence[Sequence[Reading]]) -> dict[str, NDArray[Any]]:
    """Readings (n rows, all features) as the inputs of a part's model."""
    out = {}
    for dtype, features in part.inputs.items():
        none = DTYPES[dtype].missing
        rows = [[none if row[f] is None else row[f] for f in features] for row in readings]
        with np.errstate(over="ignore"):  # an f64 reading for a user's model of float32
            out[dtype] = np.array(rows, dtype=DTYPES[dtype].numpy).reshape(len(rows), len(features))
    return out


def wanted_scores(
    program: Program, part: Part, readings: Sequence[Sequence[Reading]]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """What the program scores, (n, width), and on which rows it may: those that lack nothing it cannot do without."""
    scorer = program.scorers[part.scores.scorer]
    score = Machine(program).score[part.scores.scorer]
    if isinstance(scorer, Opaque):
        inputs: Sequence[Any] = [[row[f] for f in scorer.features] for row in readings]
        able = [None not in row for row in inputs]
    else:
        inputs = codes_of(program, readings)
        pairs = zip(scorer.columns, scorer.substitutes, strict=True) if isinstance(scorer, Polynomial) else ()
        needed = [2 * c for c, substitute in pairs if substitute is None]
        able = [all(codes[k] != MISSING for k in needed) for codes in inputs]
    out = np.zeros((len(readings), part.width), np.int64)
    for k, (row, can) in enumerate(zip(inputs, able, strict=True)):
        if can:
            out[k] = score(row)[part.scores.start : part.scores.stop]
    return out, np.array(able, dtype=bool)


# ---------------------------------------------------------------- runtimes


def open_onnx(data: bytes) -> Any:
    """A session of onnxruntime on one thread.

    Raises
    ------
    InputError
        It cannot run the file.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # what goes wrong comes as an exception
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has no common base for its own errors
        raise InputError(f"onnxruntime cannot run the file ({one_line(error)}); 1.20 or later is needed") from error


def onnx_runner(data: bytes) -> Runner:
    """Scores by onnxruntime, all rows at once."""
    session = open_onnx(data)

    def run(feeds: dict[str, NDArray[Any]]) -> NDArray[Any]:
        known = {i.name for i in session.get_inputs()}
        (scores,) = session.run(["scores"], {k: v for k, v in feeds.items() if k in known})
        n = len(next(iter(feeds.values())))
        return np.asarray(np.broadcast_to(scores, (n, scores.shape[1])))

    return run


def tflite_runner(data: bytes, remedy: str = "export it again") -> Runner:
    """Scores by a TFLite interpreter, row by row; ``remedy`` for a file that it does not take.

    Raises
    ------
    InputError
        There is none, or it cannot run the file.
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
