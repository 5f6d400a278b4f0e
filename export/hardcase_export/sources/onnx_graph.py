# SPDX-License-Identifier: Apache-2.0
"""The graph around the model of an ONNX file: its one input, the steps before the model, and its outputs.

onnxruntime computes each step in the type of its input, float32 or float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError

from .preprocessing import CAST, FILL, Step
from .source import MAX_FEATURES

CARRIERS = ("Cast", "Identity", "Reshape", "Normalizer", "ZipMap", "Flatten")
MAX_GRAPH_NODES = 64
FLOAT, DOUBLE = 1, 11  # of TensorProto
KINDS = {FLOAT: "f32", DOUBLE: "f64"}
ARITHMETIC = {"Add": "add", "Sub": "subtract", "Mul": "multiply", "Div": "divide"}


def input_of(graph: Any) -> tuple[str, str, int]:
    """Name and type ("f32" or "f64") of the file's one input, and the number of features.

    Raises
    ------
    InputError
        There are several inputs, or the input is of another type or shape.
    """
    constants = {x.name for x in graph.initializer}
    inputs = [x for x in graph.input if x.name not in constants]
    if len(inputs) != 1:
        raise InputError(f"the ONNX file has {len(inputs)} inputs; write it with one tensor of all features")
    tensor = inputs[0].type.tensor_type
    dims = [d.dim_value for d in tensor.shape.dim]
    if tensor.elem_type not in KINDS or len(dims) != 2 or not 1 <= dims[1] <= MAX_FEATURES:
        raise InputError(
            f"the ONNX input has type {tensor.elem_type} and shape {dims}; write it as float or double of shape "
            f"(n, features), of at most {MAX_FEATURES} features"
        )
    return str(inputs[0].name), KINDS[tensor.elem_type], dims[1]


def steps_before(graph: Any, tensor: str) -> tuple[list[Step], str]:
    """The steps from the file's input to this tensor, and the type of the tensor, "f32" or "f64".

    Raises
    ------
    InputError
        The tensor does not come from the input, or a step is not a scaler, an imputer, or arithmetic with constants.
    """
    name, kind, n = input_of(graph)
    constants = constants_of(graph)
    producers = {n.output[0]: n for n in graph.node if n.output}
    before: list[Any] = []
    while tensor in producers:
        node = producers.pop(tensor)
        others = [x for x in node.input if x not in constants]
        if len(others) != 1:
            raise _odd(node)
        before.append(node)
        tensor = others[0]
    if tensor != name:
        raise InputError("the ONNX model does not read the file's one input; write it with one tensor of all features")
    steps: list[Step] = []
    for node in reversed(before):
        node_steps, kind = _steps(node, constants, kind, n)
        steps += node_steps
    return steps, kind


def _steps(node: Any, constants: dict[str, NDArray[Any]], kind: str, n: int) -> tuple[list[Step], str]:
    """The steps of a node whose input is of type ``kind``, and the type of its output."""
    a = {x.name: value_of(x) for x in node.attribute}

    def step(operation: str, numbers: Any) -> Step:
        return Step(operation, np.array(np.broadcast_to(np.asarray(numbers, dtype=np.float64).ravel(), n)), kind)

    if node.op_type == "Identity":
        return [], kind
    if node.op_type == "Cast" and a.get("to") in KINDS:
        kind = KINDS[a["to"]]
        return [step(CAST, 0.0)], kind
    if node.op_type == "Scaler" and kind == "f32":
        return [step("subtract", a["offset"]), step("multiply", a["scale"])], kind
    if node.op_type == "Imputer" and np.isnan(a.get("replaced_value_float", 0.0)):
        return [step(FILL, a["imputed_value_floats"])], kind
    if node.op_type in ARITHMETIC and len(node.input) == 2:
        is_first = node.input[0] not in constants
        if is_first or node.op_type in ("Add", "Mul"):
            return [step(ARITHMETIC[node.op_type], constants[node.input[1 if is_first else 0]])], kind
    raise _odd(node)


def _odd(node: Any) -> InputError:
    return InputError(
        f"the ONNX file changes readings by {node.op_type} before the model; only scalers and imputers of NaN are "
        "read, leave that step out"
    )


def outputs_of(graph: Any) -> dict[str, str]:
    """The output that each inner tensor reaches through carrying nodes; both by name."""
    carried = {o: n.input[0] for n in graph.node if n.op_type in CARRIERS and n.input for o in n.output}
    reached: dict[str, str] = {}
    for output in graph.output:
        tensor, steps = output.name, 0
        while tensor in carried and steps < MAX_GRAPH_NODES:
            tensor, steps = carried[tensor], steps + 1
        reached.setdefault(tensor, output.name)
    return reached


def constants_of(graph: Any) -> dict[str, NDArray[Any]]:
    """The file's constants, by name."""
    return {x.name: _array(x) for x in graph.initializer}


def value_of(attribute: Any) -> Any:
    """An attribute's value: numbers, an array, or text."""
    from onnx import AttributeProto

    kind = attribute.type
    if kind == AttributeProto.TENSOR:
        return _array(attribute.t)
    if kind == AttributeProto.STRING:
        return attribute.s.decode()
    if kind == AttributeProto.STRINGS:
        return [s.decode() for s in attribute.strings]
    names = {
        AttributeProto.INT: "i",
        AttributeProto.FLOAT: "f",
        AttributeProto.INTS: "ints",
        AttributeProto.FLOATS: "floats",
    }
    value = getattr(attribute, names[kind])
    return value if isinstance(value, int | float) else np.array(value)


def _array(tensor: Any) -> NDArray[Any]:
    from onnx import numpy_helper

    if tensor.data_location:
        raise InputError("the ONNX file keeps numbers in another file; write it as a single file")
    return np.asarray(numpy_helper.to_array(tensor))
