# SPDX-License-Identifier: Apache-2.0
"""The HPC as an ONNX file: onnxruntime runs the high-cost model that answers forwarded cases.

The file's metadata describe a request: ``hardcase.dtypes``, such as "f32,f32,i32", gives the types of its readings, and
``hardcase.classes``, such as "4", the number of classes. The model has one input of shape (n, n_features), float32 or
float64 with NaN for missing, and two outputs: ``label`` of shape (n,), int64 class indices, and ``probabilities`` of
shape (n, n_classes).

A model of values has ``hardcase.task`` "value" in place of the classes, and one output: ``value`` of shape (n,) or
(n, 1), in the target's unit. ``hardcase.steps``, such as "20", gives the scale: a result is the value times 2^steps,
rounded. ``hardcase.confidence`` gives the confidence of every reply in basis points, 0 if absent.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hardcase_edge.base.files import read_bounded
from hardcase_edge.bundle.value import MAX_STEPS, to_result
from hardcase_edge.errors import InputError, one_line
from hardcase_edge.program.kinds import VALUE
from hardcase_edge.program.limits import MAX_CLASSES
from hardcase_edge.program.readings import DTYPES, Reading

MAX_HPC_BYTES = 1024**3  # checked before a byte is parsed; a large forest has tens of MB
MAX_FEATURES = 16_384
INPUT_TYPES: dict[str, type[np.floating[Any]]] = {"tensor(float)": np.float32, "tensor(double)": np.float64}
BASIS_POINTS = 10_000


class Hpc:
    """A loaded ONNX model.

    Parameters
    ----------
    path : path of the ONNX file
    threads : int
        Threads that one batch may use; more than one is faster only for very large models.

    Attributes
    ----------
    sha256 : str
        SHA-256 of the file's bytes, in hex: the model's identity in bundles and requests.
    dtypes : tuple of str
        Type of each reading in a request, in the order of the model's features.
    n_classes : int
        0 for a model of values.
    steps : int or None
        Of values: a result is the value times 2^steps; None for classes.

    Raises
    ------
    InputError
        The file cannot be read, is not an ONNX model, or lacks the metadata, input or outputs described above.
    """

    def __init__(self, path: str | Path, *, threads: int = 1) -> None:
        data = _read(Path(path))
        self.path = Path(path)
        self.sha256 = hashlib.sha256(data).hexdigest()
        self._session = _open(data, self.path, threads)
        meta = self._session.get_modelmeta().custom_metadata_map
        self.dtypes = self._dtypes(meta)
        self.steps: int | None = None
        self.n_classes = 0
        if meta.get("hardcase.task") == VALUE.name:
            self.steps = self._integer(meta, "steps", -MAX_STEPS, MAX_STEPS)
            self._confidence = self._integer({"hardcase.confidence": "0", **meta}, "confidence", 0, BASIS_POINTS)
        else:
            self.n_classes = self._integer(meta, "classes", 2, MAX_CLASSES)
        self._outputs = ["label", "probabilities"] if self.steps is None else [VALUE.output]
        self._input, self._type = self._check_input()
        self._check_outputs()

    def answer(self, rows: Sequence[Sequence[Reading]]) -> list[tuple[int, int]]:
        """The class index or result, and the confidence in basis points, of each row, from one run of the model.

        Raises
        ------
        InputError
            The model fails on these rows, or returns other shapes or classes than declared, or a value that is not a
            number.
        """
        if not rows:
            return []
        nan = float("nan")
        with np.errstate(over="ignore"):
            X = np.array([[nan if x is None else x for x in row] for row in rows], dtype=self._type)
        try:
            outputs = [np.asarray(output) for output in self._session.run(self._outputs, {self._input: X})]
        except Exception as error:  # onnxruntime has no common base for its own errors
            raise InputError(f"HPC {self.path.name} fails on a batch of {len(rows)}: {one_line(error)}") from error
        if self.steps is None:
            return self._from_probabilities(outputs[0], outputs[1], len(rows))
        return results_of(outputs[0], len(rows), self.steps, self._confidence, f"HPC {self.path.name}")

    def _from_probabilities(self, labels: Any, probabilities: Any, n: int) -> list[tuple[int, int]]:
        if labels.shape != (n,) or probabilities.shape != (n, self.n_classes):
            raise InputError(
                f"HPC {self.path.name} returns labels {labels.shape} and probabilities {probabilities.shape} for {n} "
                f"rows of {self.n_classes} classes; export it again"
            )
        chosen: list[int] = labels.tolist()
        if min(chosen) < 0 or max(chosen) >= self.n_classes:
            raise InputError(
                f"HPC {self.path.name} returns a label outside its {self.n_classes} classes; export it again"
            )
        return [(k, _basis_points(probabilities.item(row, k))) for row, k in enumerate(chosen)]

    # ------------------------------------------------------------ checks of the file

    def _dtypes(self, meta: Mapping[str, str]) -> tuple[str, ...]:
        dtypes = tuple(meta.get("hardcase.dtypes", "").split(","))
        if not set(dtypes) <= set(DTYPES) or not 1 <= len(dtypes) <= MAX_FEATURES:
            raise InputError(
                f"{self.path} does not declare the types of its readings (hardcase.dtypes); use an hpc.onnx that "
                "hardcase train wrote"
            )
        return dtypes

    def _integer(self, meta: Mapping[str, str], key: str, low: int, high: int) -> int:
        text = meta.get(f"hardcase.{key}", "")
        if not re.fullmatch(r"-?[0-9]{1,7}", text, re.ASCII) or not low <= int(text) <= high:
            raise InputError(
                f"{self.path} does not declare its {key} (hardcase.{key}) as a number from {low} to {high}; use an "
                "hpc.onnx that hardcase train wrote"
            )
        return int(text)

    def _check_input(self) -> tuple[str, type[np.floating[Any]]]:
        inputs = self._session.get_inputs()
        n = len(self.dtypes)
        if len(inputs) != 1 or inputs[0].type not in INPUT_TYPES or len(inputs[0].shape) != 2:
            raise InputError(
                f"{self.path} has other inputs than one table of floats; use an hpc.onnx that hardcase train wrote"
            )
        width = inputs[0].shape[1]
        if isinstance(width, int) and width != n:
            raise InputError(f"{self.path} takes {width} features, its hardcase.dtypes name {n}; export it again")
        return inputs[0].name, INPUT_TYPES[inputs[0].type]

    def _check_outputs(self) -> None:
        outputs = {o.name for o in self._session.get_outputs()}
        if not set(self._outputs) <= outputs:
            expected = " and ".join(self._outputs)
            raise InputError(
                f"{self.path} has the outputs {', '.join(sorted(outputs))}, {expected} are expected; use an "
                "hpc.onnx that hardcase train wrote"
            )


def _basis_points(probability: float) -> int:
    """A probability as a reply carries it; 0 for NaN, and the nearest that there is for what is none.

    Plain arithmetic, because numpy's functions take longer than the model where few rows are asked.

    >>> [_basis_points(p) for p in (0.5, 0.00005, 1.5, -1.0, float("nan"))]
    [5000, 0, 10000, 0, 0]
    """
    return round(min(1.0, max(0.0, probability)) * BASIS_POINTS) if probability == probability else 0


def rounded(labels: Any, probabilities: Any) -> list[tuple[int, int]]:
    """Class indices (n,) and their probabilities (n,), as a reply carries them: the latter in basis points."""
    confidences = np.rint(probabilities.astype(np.float64) * BASIS_POINTS)
    return [(int(k), int(c)) for k, c in zip(labels, confidences, strict=True)]


def results_of(values: Any, n: int, steps: int, confidence: int, what: str) -> list[tuple[int, int]]:
    """The results of n values as replies carry them, with one confidence; ``what`` begins the message of an error.

    Raises
    ------
    InputError
        The values are not n finite numbers.
    """
    if values.shape not in ((n,), (n, 1)) or values.dtype.kind not in "fiub":
        raise InputError(
            f"{what} returns {values.dtype} of shape {values.shape}; one number for each of {n} rows is due"
        )
    if not np.isfinite(values).all():
        raise InputError(f"{what} returns a value that is not a finite number")
    return [(to_result(v, steps), confidence) for v in values.astype(np.float64).ravel().tolist()]


def _read(path: Path) -> bytes:
    data = read_bounded(path, MAX_HPC_BYTES, "HPC", remedy="name a file that hardcase train wrote")
    if not data:
        raise InputError(f"HPC {path} has no bytes; write it again with hardcase train")
    return data


def _open(data: bytes, path: Path, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # fatal messages only, because errors are raised as exceptions
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # waiting threads must not use a core
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has no common base for its own errors
        raise InputError(
            f"{path} is not an ONNX model that onnxruntime can run: {one_line(error)}; write it again"
        ) from error
