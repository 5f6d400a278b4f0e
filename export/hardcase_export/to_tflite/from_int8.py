# SPDX-License-Identifier: Apache-2.0
"""Source models of int8 TFLite files: a chain of layers that a program's scorer of integers computes.

Every file is treated as hostile. It is not unpacked: its parts are counted first, then each number is read where the
file has it, within bounds. What was read is written into a new file, and LiteRT runs that one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError, one_line
from hardcase_edge.program.definition import AVERAGE, CONV, DEPTHWISE, LARGEST

from ..importing.read_model import Importer
from ..sources.int8 import ACTIVATIONS, ENDS, Grid, Int8Layer, Int8Network, Pair, covering, mean_layer
from ..sources.source import Source, int8_source
from .graph import FILE_ID, schema
from .own_model import MAX_ELEMENTS, MAX_MODEL_BYTES, check_counts, need, operator_name
from .write_int8 import litert

ELSE = "leave that layer out, or give the file as [lpc] tflite, which is not proved"
TYPES = {"FLOAT32": np.float32, "INT8": np.int8, "UINT8": np.uint8, "INT32": np.int32}
OPTIONS = {
    "CONV_2D": "Conv2DOptions", "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions", "AVERAGE_POOL_2D": "Pool2DOptions", "MAX_POOL_2D": "Pool2DOptions",
}  # fmt: skip


def read_int8(data: bytes) -> Source:
    """The source model of an int8 TFLite file.

    Raises
    ------
    InputError
        The file is damaged, is not quantised to int8, or has an operator that no layer of a program is; the message
        names it.
    """
    s = schema()
    need(len(data) <= MAX_MODEL_BYTES, f"it has {len(data)} bytes, but at most {MAX_MODEL_BYTES} are read")
    need(data[4:8] == FILE_ID, "it does not begin like a TFLite file")
    try:
        model = s.Model.GetRootAs(data, 0)
        check_counts(model)
        network, end = _Reader(s, model).network()
    except InputError:
        raise
    except Exception as error:  # flatbuffers reads wherever the file points, and can raise anything
        raise InputError(f"the TFLite model cannot be read ({one_line(error)}); convert it again") from error
    return int8_source("int8 TFLite network", replace(network, run=partial(litert, network)), end)


TFLITE = Importer("a .tflite file", lambda path, data: path.suffix == ".tflite" or data[4:8] == FILE_ID, read_int8)


@dataclass(frozen=True, slots=True)
class _Tensor:
    """What the file says of a tensor."""

    kind: str
    shape: tuple[int, ...]
    scales: NDArray[np.float64]
    zero_points: tuple[int, ...]
    axis: int
    buffer: int


class _Reader:
    """Follows the one chain of operators from the file's input to its output."""

    def __init__(self, s: Any, model: Any) -> None:
        self._s, self._model, self._graph = s, model, model.Subgraphs(0)
        self._layers: list[Int8Layer] = []
        self._types = {getattr(s.TensorType, name): name for name in TYPES}
        self._activations = {getattr(s.ActivationFunctionType, name): name for name in ACTIVATIONS}
        self._at, self._where = self._graph.Inputs(0), ""
        self._first: tuple[tuple[int, int, int], Grid] | None = None

    def network(self) -> tuple[Int8Network, str]:
        """The layers, and the operator at their end: one of ``ENDS``, or an empty string."""
        end = ""
        for k in range(self._graph.OperatorsLength()):
            o = self._graph.Operators(k)
            need(0 <= o.OpcodeIndex() < self._model.OperatorCodesLength(), f"operator {k} is of no kind")
            code = self._model.OperatorCodes(o.OpcodeIndex())
            kind = operator_name(self._s, max(code.BuiltinCode(), code.DeprecatedBuiltinCode()))
            self._where = f"operator {k}, {kind},"
            inputs = [o.Inputs(j) for j in range(o.InputsLength())]
            need(o.OutputsLength() == 1 and inputs[:1] == [self._at], f"{self._where} is not one of a plain chain")
            need(not end or kind == "DEQUANTIZE", f"{self._where} stands behind the {end}; {ELSE}")
            if kind in ENDS and self._layers:
                end = kind
            else:
                self._take(kind, o, inputs, o.Outputs(0))
            self._at = o.Outputs(0)
        need(self._at == self._graph.Outputs(0), "its output is not that of its last operator")
        need(self._first is not None, f"it has no layer; {ELSE}")
        assert self._first is not None
        return Int8Network(*self._first, tuple(self._layers)), end

    def _take(self, kind: str, operator: Any, inputs: list[int], to: int) -> None:
        if kind in OPTIONS:
            o, table = getattr(self._s, OPTIONS[kind])(), operator.BuiltinOptions()
            need(
                operator.BuiltinOptionsType() == getattr(self._s.BuiltinOptions, OPTIONS[kind]), f"{self._where} is odd"
            )
            o.Init(table.Bytes, table.Pos)
            name = self._activations.get(o.FusedActivationFunction(), "")
            need(bool(name), f"{self._where} has an activation other than {', '.join(ACTIVATIONS)}; {ELSE}")
            layer = self._pool(kind, o, to) if kind.endswith("POOL_2D") else self._weighted(kind, o, inputs, to)
            self._layers.append(replace(layer, activation=name))
        elif kind == "MEAN":
            axes = self._constant(inputs[1], "INT32").ravel().tolist()
            need(sorted(axes) == [1, 2], f"{self._where} is not over rows and columns; {ELSE}")
            self._layers.append(mean_layer(*self._input(), self._grid(to)))
        elif kind == "RESHAPE":
            old, new = self._tensor(self._at), self._tensor(to)
            need(math.prod(old.shape) == math.prod(new.shape), f"{self._where} changes the number of numbers")
        else:
            is_end = (kind == "QUANTIZE" and not self._layers) or (kind == "DEQUANTIZE" and self._layers)
            need(bool(is_end), f"{self._where} is no layer of a program; {ELSE}")

    # ------------------------------------------------------------ layers

    def _weighted(self, kind: str, o: Any, inputs: list[int], to: int) -> Int8Layer:
        weights, values = self._tensor(inputs[1]), self._constant(inputs[1], "INT8")
        axis, n_dimensions = (3 if kind == "DEPTHWISE_CONV_2D" else 0), (2 if kind == "FULLY_CONNECTED" else 4)
        need(values.ndim == n_dimensions, f"{self._where} has weights of shape {weights.shape}")
        n = values.shape[axis]
        if kind == "FULLY_CONNECTED":
            shape = self._input(is_flat=True)[0]
            need(values.shape[1] == math.prod(shape), f"{self._where} has weights of shape {weights.shape} for {shape}")
            layer = Int8Layer(kind, CONV, shape[:2], (1, 1), (0, 0), (1, 1, n), self._grid(to))
        else:
            layer, values = self._convolution(kind, o, values, to)
        scales = weights.scales
        need(len(scales) == 1 or (len(scales) == n and weights.axis == axis), f"{self._where} has {len(scales)} scales")
        need(not any(weights.zero_points), f"{self._where} has weights with a zero point; quantise them symmetrically")
        has_bias = len(inputs) > 2 and inputs[2] >= 0
        bias = self._constant(inputs[2], "INT32") if has_bias else np.zeros(n, np.int32)
        need(bias.shape == (n,), f"{self._where} has {bias.size} biases for {n} channels")
        return replace(layer, weights=np.ascontiguousarray(values), scales=np.broadcast_to(scales, n), bias=bias)

    def _convolution(self, kind: str, o: Any, values: NDArray[np.int8], to: int) -> tuple[Int8Layer, NDArray[np.int8]]:
        """The layer, and its weights in a program's order; one channel that becomes several is a plain convolution."""
        need(o.DilationHFactor() == o.DilationWFactor() == 1, f"{self._where} is dilated; {ELSE}")
        channels, window = self._input()[0][2], (values.shape[1], values.shape[2])
        if kind == "CONV_2D":
            need(values.shape[3] == channels, f"{self._where} is grouped; {ELSE}")
            return self._windowed(kind, CONV, o, window, len(values), to), values
        n = values.shape[3]
        need(len(values) == 1 and channels in (1, n), f"{self._where} makes several channels of each; {ELSE}")
        if channels == n:
            return self._windowed(kind, DEPTHWISE, o, window, n, to), values
        return self._windowed("CONV_2D", CONV, o, window, n, to), np.moveaxis(values, 3, 0).reshape(n, *window, 1)

    def _pool(self, kind: str, o: Any, to: int) -> Int8Layer:
        program_kind = AVERAGE if kind.startswith("AVERAGE") else LARGEST
        return self._windowed(kind, program_kind, o, (o.FilterHeight(), o.FilterWidth()), self._input()[0][2], to)

    def _windowed(self, kind: str, program_kind: str, o: Any, window: Pair, n: int, to: int) -> Int8Layer:
        shape, stride = self._input()[0], (o.StrideH(), o.StrideW())
        need(min(*window, *stride) >= 1, f"{self._where} has windows of {window} by {stride}")
        padding, counts = covering(shape, window, stride, is_same=o.Padding() == self._s.Padding.SAME)
        need(self._image(to) == (*counts, n), f"{self._where} gives the shape {self._tensor(to).shape}")
        return Int8Layer(kind, program_kind, window, stride, padding, (*counts, n), self._grid(to))

    # ------------------------------------------------------------ tensors

    def _input(self, *, is_flat: bool = False) -> tuple[tuple[int, int, int], Grid]:
        """Shape and grid of what the next layer reads; ``is_flat``: it reads the numbers in their order."""
        if self._first is None:
            self._first = self._image(self._at), self._grid(self._at)
        if not self._layers:
            return self._first
        last = self._layers[-1]
        need(self._grid(self._at) == last.grid, f"{self._where} reads numbers on another scale than it is given")
        need(
            is_flat or self._image(self._at) == last.shape,
            f"{self._where} reads another shape than it is given; {ELSE}",
        )
        return last.shape, last.grid

    def _image(self, number: int) -> tuple[int, int, int]:
        shape = self._tensor(number).shape
        need(2 <= len(shape) <= 4 and shape[0] == 1, f"tensor {number} has the shape {shape}; convert it for one row")
        height, width, channels = (1, 1, 1, *shape[1:])[-3:]
        return height, width, channels

    def _grid(self, number: int) -> Grid:
        t = self._tensor(number)
        need(t.kind == "INT8", f"{self._where} works on {t.kind or 'another type'}; quantise it whole, to int8")
        need(len(t.scales) == len(t.zero_points) == 1, f"tensor {number} has {len(t.scales)} scales, not 1")
        return Grid(float(t.scales[0]), t.zero_points[0]).check(f"tensor {number}")

    def _tensor(self, number: int) -> _Tensor:
        need(0 <= number < self._graph.TensorsLength(), f"{self._where} names a tensor that does not exist")
        t = self._graph.Tensors(number)
        kind, shape = self._types.get(t.Type(), ""), tuple(t.Shape(j) for j in range(t.ShapeLength()))
        need(min(shape, default=1) >= 1 and math.prod(shape) <= MAX_ELEMENTS, f"tensor {number} has the shape {shape}")
        q = t.Quantization()
        scales = np.array([q.Scale(j) for j in range(q.ScaleLength())] if q else [], np.float64)
        zeros = tuple(q.ZeroPoint(j) for j in range(q.ZeroPointLength())) if q else ()
        need(t.Sparsity() is None and 0 <= t.Buffer() < self._model.BuffersLength(), f"tensor {number} has no buffer")
        return _Tensor(kind, shape, scales, zeros, q.QuantizedDimension() if q else 0, t.Buffer())

    def _constant(self, number: int, kind: str) -> NDArray[Any]:
        """The numbers of a constant of this type, in its shape."""
        t = self._tensor(number)
        buffer = self._model.Buffers(t.buffer)
        need(t.kind == kind and buffer.DataLength() > 0, f"{self._where} needs constants of {kind} in tensor {number}")
        data = np.frombuffer(buffer.DataAsNumpy().tobytes(), TYPES[kind])
        need(data.size == math.prod(t.shape), f"tensor {number} has {data.size} numbers for the shape {t.shape}")
        return data.reshape(t.shape)
