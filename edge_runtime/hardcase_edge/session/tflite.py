# SPDX-License-Identifier: Apache-2.0
"""Runs a user's TFLite model as a scorer: raw readings in, integers within declared bounds out.

The verifier cannot see inside the model, so nothing about it is proved. The model has one float32 input, of shape (n,)
or (1, n) for n features, and one output with as many numbers as the scorer declares. A missing reading would be NaN,
but the verifier proves that none is missing. Outputs are rounded (half to even) and clipped to the declared [low,
high]; NaN becomes low. This module needs ``ai-edge-litert`` or ``tflite-runtime``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from ..errors import BundleError, one_line
from ..program.definition import Number, Opaque
from ..program.readings import Reading

INTERPRETERS = ("ai_edge_litert.interpreter", "tflite_runtime.interpreter")


def prepare_opaque(scorer: Opaque) -> Callable[[Sequence[Reading]], list[Number]]:
    """The scoring function of an opaque scorer.

    Raises
    ------
    BundleError
        No TFLite interpreter is installed, the file is not a TFLite model, or the model has another shape or type than
        declared.
    """
    interpreter = open_interpreter(scorer.blob)
    inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()
    if len(inputs) != 1 or len(outputs) != 1:
        raise BundleError(
            f"the TFLite model has {len(inputs)} inputs and {len(outputs)} outputs, one of each is expected; export it "
            "again"
        )
    _check_shape("input", inputs[0], len(scorer.features))
    _check_shape("output", outputs[0], len(scorer.low))
    if inputs[0]["dtype"].__name__ != "float32":
        raise BundleError(
            f"the TFLite model's input is {inputs[0]['dtype'].__name__}, float32 is expected; export it again"
        )
    shape = inputs[0]["shape"]
    input_index, output_index = inputs[0]["index"], outputs[0]["index"]
    ranges = list(zip(scorer.low, scorer.high, strict=True))

    def score(readings: Sequence[Reading]) -> list[Number]:
        row = [math.nan if x is None else float(x) for x in readings]
        try:
            interpreter.set_tensor(input_index, _float32(row).reshape(shape))
            interpreter.invoke()
            values = interpreter.get_tensor(output_index).reshape(-1).tolist()
        except (RuntimeError, ValueError) as error:
            raise BundleError(
                f"the TFLite model failed: {one_line(error)}; do not use this bundle on this machine"
            ) from error
        return [_clipped(value, low, high) for value, (low, high) in zip(values, ranges, strict=True)]

    return score


def open_interpreter(blob: bytes, remedy: str = "export it again") -> Any:
    """An interpreter of this TFLite file on one thread, with its tensors allocated.

    Parameters
    ----------
    blob : the file's bytes
    remedy : what the error message advises if the file cannot be opened

    Raises
    ------
    BundleError
        No interpreter is installed, or the file cannot be opened.
    """
    for name in INTERPRETERS:
        try:
            module = import_module(name)
        except ImportError:
            continue
        try:
            interpreter = module.Interpreter(model_content=blob, num_threads=1)
            interpreter.allocate_tensors()
        except SystemError as error:  # tflite-runtime was built for numpy 1
            raise BundleError(
                f"{name.partition('.')[0]} does not work with this numpy; pip install 'numpy<2', or ai-edge-litert"
            ) from error
        except (RuntimeError, ValueError) as error:
            raise BundleError(f"the TFLite model cannot be opened: {one_line(error)}; {remedy}") from error
        return interpreter
    raise BundleError(
        "the TFLite model needs an interpreter, and none is installed; pip install ai-edge-litert "
        "(32-bit Raspberry Pi: tflite-runtime)"
    )


def _check_shape(what: str, details: dict[str, Any], count: int) -> None:
    shape = [int(n) for n in details["shape"]]
    if shape not in ([count], [1, count]):
        raise BundleError(f"the TFLite model's {what} has shape {shape}, [1, {count}] is expected; export it again")


def _float32(row: list[float]) -> Any:
    import numpy

    with numpy.errstate(over="ignore"):  # a large f64 reading becomes infinite, as in the framework that trained it
        return numpy.array(row).astype(numpy.float32)


def _clipped(value: float, low: int, high: int) -> int:
    if value != value:
        return low
    return round(min(max(value, low), high))
