# SPDX-License-Identifier: Apache-2.0
"""A user's own ``.tflite`` as the bytes that a device runs: checked, written anew, adapted to the program.

Every file is treated as hostile. Its size is bounded before it is read, its contents are counted before they are
unpacked, operators must be on an allow list, and tensors must be static, small and as long as their buffers. Only what
was checked is written into a new file. That file takes readings (1, n) float32 and gives one score per class, or for
two classes the score of class 1 less that of class 0, or one value, in steps that float32 holds as integers: ``reshape,
quantize, the user's operators, dequantize, times steps``.

Call ``own_bytes`` only in the separate process of ``own_process``: unpacking takes as long as the file wants, and an
interpreter is native code.
"""

from __future__ import annotations

import math
from typing import Any

from hardcase_edge.errors import InputError, one_line

from .graph import FILE_ID, TfliteGraph, schema

MAX_MODEL_BYTES = 3_000_000  # a device's decoder reads 4,000,000 numbers, the program included
MAX_TENSORS, MAX_OPERATORS, MAX_ENDS, MAX_DIMENSIONS = 4096, 2048, 64, 6
MAX_ELEMENTS = 4_000_000  # of one tensor
OPERATORS = [
    "ABS", "ADD", "AVERAGE_POOL_2D", "BATCH_MATMUL", "CAST", "CONCATENATION", "CONV_2D", "DEPTHWISE_CONV_2D",
    "DEQUANTIZE", "DIV", "ELU", "EXP", "EXPAND_DIMS", "FULLY_CONNECTED", "GELU", "HARD_SWISH", "L2_NORMALIZATION",
    "LEAKY_RELU", "LOGISTIC", "LOG_SOFTMAX", "MAXIMUM", "MAX_POOL_2D", "MEAN", "MINIMUM", "MUL", "NEG", "PACK", "PAD",
    "PADV2", "PRELU", "QUANTIZE", "REDUCE_MAX", "RELU", "RELU6", "RELU_N1_TO_1", "RESHAPE", "RESIZE_BILINEAR",
    "RESIZE_NEAREST_NEIGHBOR", "RSQRT", "SHAPE", "SLICE", "SOFTMAX", "SPLIT", "SQRT", "SQUARE", "SQUEEZE",
    "STRIDED_SLICE", "SUB", "SUM", "TANH", "TRANSPOSE",
]  # fmt: skip
END_TYPES = {"FLOAT32": "f4", "INT8": "i1", "UINT8": "u1"}  # types of a model's input and output
BYTES = {"FLOAT32": 4, "FLOAT16": 2, "INT32": 4, "INT64": 8, "INT8": 1, "UINT8": 1, "INT16": 2, "BOOL": 1}


def own_bytes(data: bytes, n_features: int, n_classes: int, steps: float) -> bytes:
    """The file as a device runs it.

    Parameters
    ----------
    n_features : number of readings, in the order of the input's elements
    n_classes : number of scores; 0 for a model that gives one value
    steps : factor of the scores, a power of two

    Raises
    ------
    InputError
        The file is not a TFLite model, or not a supported one; the message gives the reason.
    """
    schema()
    model = _unpacked(data)
    graph = model.subgraphs[0]
    (first,), (last,) = graph.inputs, graph.outputs
    outputs_are = f"there are {n_classes} classes" if n_classes else "a value is one number"
    ends = (
        ("input", first, n_features, f"the sensors give {n_features} readings"),
        ("output", last, n_classes or 1, outputs_are),
    )
    for what, tensor, expected, cause in ends:
        t = graph.tensors[tensor]
        need(_type(t) in END_TYPES, f"its {what} is {_type(t)}; convert it with one of {', '.join(END_TYPES)}")
        n_elements = math.prod(_shape(t))
        need(n_elements == expected, f"its {what} has the shape {_shape(t)}, but {cause}")
    return _Adapter(model).bytes(n_features, n_classes, steps)


def need(holds: bool, what: str) -> None:
    """Refuse the file, unless this holds; ``what``: is wrong, and what to do."""
    if not holds:
        raise InputError(f"the TFLite model cannot be used: {what}")


# ---------------------------------------------------------------- reading


def _unpacked(data: bytes) -> Any:
    """The file as objects of the schema, all of them checked."""
    s = schema()
    need(len(data) <= MAX_MODEL_BYTES, f"it has {len(data)} bytes, but at most {MAX_MODEL_BYTES} are read")
    need(data[4:8] == FILE_ID, "it does not begin like a TFLite file")
    try:
        check_counts(s.Model.GetRootAs(data, 0))
        model = s.ModelT.InitFromPackedBuf(data, 0)
        _check(s, model)
    except InputError:
        raise
    except Exception as error:  # flatbuffers reads wherever the file points, and can raise anything
        raise InputError(f"the TFLite model cannot be read ({one_line(error)}); convert it again") from error
    return model


def check_counts(model: Any) -> None:
    """Check the numbers and lengths of all parts before any of them is unpacked."""
    need(model.SubgraphsLength() == 1, f"it has {model.SubgraphsLength()} graphs, but one is expected")
    graph = model.Subgraphs(0)
    need(1 <= graph.TensorsLength() <= MAX_TENSORS, f"it has {graph.TensorsLength()} tensors")
    need(graph.OperatorsLength() <= MAX_OPERATORS, f"it has {graph.OperatorsLength()} operators")
    need(model.OperatorCodesLength() <= MAX_OPERATORS, f"it has {model.OperatorCodesLength()} kinds of operators")
    need(model.BuffersLength() <= MAX_TENSORS, f"it has {model.BuffersLength()} buffers")
    held = sum(model.Buffers(k).DataLength() for k in range(model.BuffersLength()))
    need(held <= MAX_MODEL_BYTES, f"its buffers unpack to {held} bytes")
    ends = graph.InputsLength(), graph.OutputsLength()
    need(ends == (1, 1), f"it has {ends[0]} inputs and {ends[1]} outputs, but one of each is expected")
    for k in range(graph.TensorsLength()):
        t = graph.Tensors(k)
        need(max(t.ShapeLength(), t.ShapeSignatureLength()) <= MAX_DIMENSIONS, f"tensor {k} has too many dimensions")
        q = t.Quantization()
        scales = 0 if q is None else max(q.ScaleLength(), q.ZeroPointLength())
        need(scales <= MAX_TENSORS, f"tensor {k} has {scales} scales")
    for k in range(graph.OperatorsLength()):
        o = graph.Operators(k)
        need(max(o.InputsLength(), o.OutputsLength()) <= MAX_ENDS, f"operator {k} has too many inputs or outputs")


def _check(s: Any, model: Any) -> None:
    """Check operators, tensors and all indices."""
    names = {getattr(s.BuiltinOperator, name): name for name in OPERATORS}
    for code in model.operatorCodes:
        number = max(code.builtinCode, code.deprecatedBuiltinCode)
        need(number in names, f"it uses operator {operator_name(s, number)}, which is not supported")
    graph = model.subgraphs[0]
    n = len(graph.tensors)
    for k, t in enumerate(graph.tensors):
        t.kind = next((name for name in BYTES if getattr(s.TensorType, name) == t.type), "")
        need(bool(t.kind), f"tensor {k} has type {t.type}, which is not supported")
        need(not t.isVariable and t.sparsity is None, f"tensor {k} is variable or sparse")
        shape = _shape(t)
        need(all(d >= 1 for d in shape) and math.prod(shape) <= MAX_ELEMENTS, f"tensor {k} has the shape {shape}")
        need(0 <= t.buffer < len(model.buffers), f"tensor {k} names buffer {t.buffer}, which does not exist")
        buffer = model.buffers[t.buffer]
        n_bytes = 0 if buffer.data is None else len(buffer.data)
        need(not buffer.offset, "it keeps numbers outside its buffers")
        expected = math.prod(shape) * BYTES[t.kind]
        need(n_bytes in (0, expected), f"tensor {k} has {n_bytes} bytes, but {expected} are expected")
    for k, o in enumerate(graph.operators):
        need(0 <= o.opcodeIndex < len(model.operatorCodes), f"operator {k} names a kind that does not exist")
        inputs, outputs = _numbers(o.inputs), _numbers(o.outputs)
        fits = all(-1 <= i < n for i in inputs) and all(0 <= i < n for i in outputs)
        need(fits and len(outputs) >= 1, f"operator {k} names tensors that do not exist")
        need(o.customOptions is None or not len(o.customOptions), f"operator {k} has custom options")
    graph.inputs, graph.outputs = _numbers(graph.inputs), _numbers(graph.outputs)
    need(
        all(0 <= i < n for i in (*graph.inputs, *graph.outputs)),
        "its input or output names a tensor that does not exist",
    )


def operator_name(s: Any, number: int) -> str:
    """Of an operator of the schema, or its number."""
    names = [name for name, value in vars(s.BuiltinOperator).items() if value == number]
    return names[0] if names else str(number)


def _numbers(values: Any) -> list[int]:
    return [] if values is None else [int(v) for v in values]


def _shape(tensor: Any) -> list[int]:
    return _numbers(tensor.shape)


def _type(tensor: Any) -> str:
    return str(tensor.kind)


# ---------------------------------------------------------------- writing


class _Adapter(TfliteGraph):
    """Builder of the new file, with the checked parts of the old one."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._old, self._moved = model, {}  # type: ignore[var-annotated]

    def bytes(self, n_features: int, n_classes: int, steps: float) -> bytes:
        """The new file: readings in, scores out."""
        graph = self._old.subgraphs[0]
        x = self.input("readings", "f4", (1, n_features))
        first, last = self._move(graph.inputs[0]), self._move(graph.outputs[0])
        self._enter(x, first)
        self._operate(graph)
        y = last if last.dtype == "f4" else self.op("DEQUANTIZE", last, dtype="f4")
        y = self.reshape(y, 1, n_classes or 1)
        if n_classes == 2:  # a program reads one score s as the pair (0, s)
            y = self.op("SUB", self.gather(y, [1], 1), self.gather(y, [0], 1))
        return self.model("own", {"scores": self.op("MUL", y, self.const([steps], "f4"))})

    def _enter(self, x: Any, first: Any) -> None:
        if first.dtype == "f4":
            self.into("RESHAPE", [x, self.const(first.shape, "i4")], first, newShape=list(first.shape))
        else:
            self.into("QUANTIZE", [self.reshape(x, *first.shape)], first)

    def _move(self, number: int) -> Any:
        """The tensor of the new file that stands for this tensor of the old one."""
        if number not in self._moved:
            old = self._old.subgraphs[0].tensors[number]
            value = self.tensor(END_TYPES.get(old.kind, "f4"), _shape(old))
            tensor, buffer = self._graph.tensors[value.index], self._old.buffers[old.buffer]
            tensor.type, tensor.quantization = old.type, _plain(self._s, old.quantization)
            if buffer.data is not None and len(buffer.data):
                new_buffer = self._s.BufferT()
                new_buffer.data = buffer.data
                self._model.buffers.append(new_buffer)
                tensor.buffer = len(self._model.buffers) - 1
            self._moved[number] = value
        return self._moved[number]

    def _operate(self, graph: Any) -> None:
        offset = len(self._model.operatorCodes)
        for code in self._old.operatorCodes:
            code.customCode = None
            self._model.operatorCodes.append(code)
        for o in graph.operators:
            node = self._s.OperatorT()
            node.opcodeIndex = offset + o.opcodeIndex
            node.inputs = [i if i < 0 else self._move(i).index for i in _numbers(o.inputs)]
            node.outputs = [self._move(i).index for i in _numbers(o.outputs)]
            node.builtinOptionsType, node.builtinOptions = o.builtinOptionsType, o.builtinOptions
            self._graph.operators.append(node)


def _plain(s: Any, old: Any) -> Any:
    """A quantisation reduced to its scales and zero points."""
    if old is None or old.scale is None:
        return None
    quantisation = s.QuantizationParametersT()
    quantisation.scale, quantisation.zeroPoint = [float(v) for v in old.scale], _numbers(old.zeroPoint)
    quantisation.quantizedDimension = old.quantizedDimension
    return quantisation
