# SPDX-License-Identifier: Apache-2.0
"""Builder of a TFLite flatbuffer, tensor by tensor, with the classes of its schema; TensorFlow is not needed.

Shapes are static, for one row at a time. The file has the signature ``serving_default``, which names inputs and
outputs. The builder uses only operators of version 1 that both ai-edge-litert and tflite-runtime 2.14 have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from hardcase_edge.errors import InputError

NEEDS = "flatbuffers or ai-edge-litert, which TFLite files need, is missing; pip install 'hardcase-export[tflite]'"
FILE_ID = b"TFL3"
SCHEMA_VERSION = 3
TYPES = {
    "f4": "FLOAT32", "f8": "FLOAT64", "i1": "INT8", "i2": "INT16", "i4": "INT32", "i8": "INT64", "b1": "BOOL",
    "u1": "UINT8",
}  # fmt: skip
OPTIONS = {
    "ADD": "Add", "SUB": "Sub", "MUL": "Mul", "ABS": "Abs", "CAST": "Cast", "LESS": "Less", "LESS_EQUAL": "LessEqual",
    "GREATER": "Greater", "GREATER_EQUAL": "GreaterEqual", "GATHER": "Gather", "MINIMUM": "MaximumMinimum",
    "MAXIMUM": "MaximumMinimum", "SELECT_V2": "SelectV2", "RESHAPE": "Reshape", "SUM": "Reducer", "FLOOR": "",
    "CONCATENATION": "Concatenation", "BITCAST": "Bitcast", "FLOOR_MOD": "FloorMod", "FLOOR_DIV": "FloorDiv",
    "LOGICAL_AND": "LogicalAnd", "FULLY_CONNECTED": "FullyConnected", "QUANTIZE": "Quantize",
    "DEQUANTIZE": "Dequantize", "RELU": "", "TANH": "", "LOGISTIC": "", "CONV_2D": "Conv2D",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2D", "AVERAGE_POOL_2D": "Pool2D", "MAX_POOL_2D": "Pool2D", "MEAN": "Reducer",
    "SOFTMAX": "Softmax",
}  # fmt: skip
VERSIONS = {
    "FULLY_CONNECTED": 4, "CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "AVERAGE_POOL_2D": 2, "MAX_POOL_2D": 2, "MEAN": 2,
    "SOFTMAX": 2,
}  # fmt: skip


def schema() -> Any:
    """The module with the classes of the TFLite schema.

    Raises
    ------
    InputError
        ai-edge-litert or flatbuffers is not installed.
    """
    try:
        import_module("flatbuffers")
        return import_module("ai_edge_litert.schema_py_generated")
    except ImportError as error:
        raise InputError(NEEDS) from error


class Tensor:
    """A value of a graph under construction: its number in the file, numpy type and shape."""

    def __init__(self, index: int, dtype: str, shape: tuple[int, ...]) -> None:
        self.index, self.dtype, self.shape = index, dtype, shape


class TfliteGraph:
    """A graph under construction. ``options``: for each operator, the name of its options in the schema."""

    options = OPTIONS

    def __init__(self) -> None:
        self._s = schema()
        self._graph, self._model = self._s.SubGraphT(), self._s.ModelT()
        self._graph.tensors, self._graph.operators = [], []
        self._model.buffers, self._model.operatorCodes = [self._s.BufferT()], []
        self._kinds: dict[str, int] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Tensor] = {}
        self._inputs: dict[str, Tensor] = {}

    def tensor(
        self, dtype: str, shape: Sequence[int], scale: float | Sequence[float] = 0.0, buffer: int = 0, name: str = "",
        zero_point: int = 0, axis: int = 0,
    ) -> Tensor:  # fmt: skip
        """A new value; ``scale``: of a quantised value, or of each of its places along ``axis``."""
        entry = self._s.TensorT()
        entry.name = (name or f"t{len(self._graph.tensors)}").encode()
        entry.shape, entry.buffer = list(shape), buffer
        entry.type = getattr(self._s.TensorType, TYPES[dtype])
        if scale:
            q = entry.quantization = self._s.QuantizationParametersT()
            q.scale = [scale] if isinstance(scale, float) else list(scale)
            q.zeroPoint, q.quantizedDimension = [zero_point] * len(q.scale), axis
        self._graph.tensors.append(entry)
        return Tensor(len(self._graph.tensors) - 1, dtype, tuple(shape))

    def input(self, name: str, dtype: str, shape: Sequence[int], **quantised: Any) -> Tensor:
        """A new input of this name."""
        self._inputs[name] = self.tensor(dtype, shape, name=name, **quantised)
        return self._inputs[name]

    def const(self, values: Any, dtype: str, scale: float | Sequence[float] = 0.0, axis: int = 0) -> Tensor:
        """A constant; equal constants are stored once."""
        array = np.ascontiguousarray(values, dtype=dtype)
        key = (f"{dtype} {scale} {axis}", array.shape, array.tobytes())
        if key not in self._constants:
            buffer = self._s.BufferT()
            buffer.data = np.frombuffer(array.tobytes(), np.uint8)
            self._model.buffers.append(buffer)
            self._constants[key] = self.tensor(dtype, array.shape, scale, len(self._model.buffers) - 1, axis=axis)
        return self._constants[key]

    def op(
        self, kind: str, *inputs: Tensor, dtype: str = "", shape: Sequence[int] | None = None, **options: Any
    ) -> Tensor:
        """Append an operator; returns its output, by default of the first input's type and the inputs' common shape."""
        if shape is None:
            shape = np.broadcast_shapes(*(t.shape for t in inputs))
        out = self.tensor(dtype or inputs[0].dtype, shape)
        self.into(kind, inputs, out, **options)
        return out

    def into(self, kind: str, inputs: Sequence[Tensor], out: Tensor, **options: Any) -> None:
        """Append an operator that writes the value ``out``."""
        node = self._s.OperatorT()
        node.opcodeIndex, node.inputs, node.outputs = self._kind(kind), [t.index for t in inputs], [out.index]
        if self.options[kind]:
            name = f"{self.options[kind]}Options"
            node.builtinOptionsType = getattr(self._s.BuiltinOptions, name)
            node.builtinOptions = getattr(self._s, f"{name}T")()
            for key, value in options.items():
                setattr(node.builtinOptions, key, value)
        self._graph.operators.append(node)

    def _kind(self, kind: str) -> int:
        if kind not in self._kinds:
            code = self._s.OperatorCodeT()
            code.builtinCode = getattr(self._s.BuiltinOperator, kind)
            code.deprecatedBuiltinCode = min(code.builtinCode, 127)
            code.version = VERSIONS.get(kind, 1)
            self._kinds[kind] = len(self._model.operatorCodes)
            self._model.operatorCodes.append(code)
        return self._kinds[kind]

    # ------------------------------------------------------------ common operators

    def cast(self, value: Tensor, dtype: str) -> Tensor:
        """The tensor's numbers in another type."""
        return value if value.dtype == dtype else self.op("CAST", value, dtype=dtype)

    def reshape(self, value: Tensor, *shape: int) -> Tensor:
        """The tensor's numbers in another shape."""
        if value.shape == shape:
            return value
        assert math.prod(shape) == math.prod(value.shape)
        return self.op("RESHAPE", value, self.const(shape, "i4"), shape=shape, newShape=list(shape))

    def gather(self, value: Tensor, places: Tensor | Sequence[int], axis: int = 0) -> Tensor:
        """Elements of ``value`` at these positions along an axis."""
        index = places if isinstance(places, Tensor) else self.const(places, "i4")
        shape = (*value.shape[:axis], *index.shape, *value.shape[axis + 1 :])
        return self.op("GATHER", value, index, shape=shape, axis=axis)

    def concat(self, values: Sequence[Tensor], axis: int) -> Tensor:
        """Values joined along an axis."""
        if len(values) == 1:
            return values[0]
        shape = list(values[0].shape)
        shape[axis] = sum(v.shape[axis] for v in values)
        return self.op("CONCATENATION", *values, shape=shape, axis=axis)

    def sum(self, value: Tensor, axis: int) -> Tensor:
        """Sums over an axis, which is removed."""
        shape = value.shape[:axis] + value.shape[axis + 1 :]
        return self.op("SUM", value, self.const([axis], "i4"), shape=shape, keepDims=False)

    def compare(self, kind: str, a: Tensor, b: Tensor) -> Tensor:
        """Bool: where a comparison holds."""
        return self.op(kind, a, b, dtype="b1")

    def select(self, where: Tensor, yes: Tensor, no: Tensor) -> Tensor:
        """``yes`` where ``where`` holds, otherwise ``no``."""
        return self.op("SELECT_V2", where, yes, no, dtype=yes.dtype)

    # ------------------------------------------------------------ the file

    def model(self, name: str, outputs: Mapping[str, Tensor]) -> bytes:
        """The bytes of the file."""
        import flatbuffers

        s = self._s
        signature = s.SignatureDefT()
        signature.signatureKey, signature.subgraphIndex = b"serving_default", 0
        signature.inputs, signature.outputs = self._named(self._inputs), self._named(outputs)
        self._graph.name = name.encode()
        self._graph.inputs = [t.index for t in self._inputs.values()]
        self._graph.outputs = [t.index for t in outputs.values()]
        self._model.version, self._model.subgraphs = SCHEMA_VERSION, [self._graph]
        self._model.description, self._model.signatureDefs = b"hardcase", [signature]
        builder = flatbuffers.Builder(1024)
        builder.Finish(self._model.Pack(builder), FILE_ID)
        return bytes(builder.Output())

    def _named(self, tensors: Mapping[str, Tensor]) -> list[Any]:
        entries = []
        for name, tensor in tensors.items():
            entry = self._s.TensorMapT()
            entry.name, entry.tensorIndex = name.encode(), tensor.index
            self._graph.tensors[tensor.index].name = name.encode()
            entries.append(entry)
        return entries
