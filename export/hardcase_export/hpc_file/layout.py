# SPDX-License-Identifier: Apache-2.0
"""The layout of hpc.onnx, and any ONNX model of probabilities or of values brought into it.

The file has one input ``X`` (n, n_features), NaN = missing, float32 or float64. The outputs are ``label`` (n,) int64
class index and ``probabilities`` (n, n_classes) float32. The metadata describe the layout of a request:
``hardcase.dtypes`` ("f32,f32,i32") and ``hardcase.classes`` ("4").

A model of values has one output ``value`` (n, 1) float64 in the target's unit, and in place of the classes
``hardcase.task`` ("value"), ``hardcase.steps`` (a reply is the value times 2^steps, rounded) and
``hardcase.confidence`` (of every reply, in basis points).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError, one_line
from hardcase_edge.program.kinds import VALUE

ONNX_TYPES = {"f32": "FLOAT", "f64": "DOUBLE"}
OPSET, OLDEST_OPSET = 18, 9  # of the standard operators: for a model that names none, and the first with all used here
IR_VERSION = 8


@dataclass(frozen=True)
class Classes:
    """An f0 that answers one of ``n`` classes: the likeliest, or by ``targets`` that of the least cost.

    ``targets``: (n, n) what each answer (columns) is worth to a case of each class, or None
    """

    n: int
    targets: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Values:
    """An f0 that answers values, each times 2^``steps`` and rounded (``hardcase_edge.bundle.value``).

    ``span``: the target's highest value minus its lowest, above 0; ``confidence``: of every reply, in basis points
    """

    steps: int
    span: float
    confidence: int = 0


@dataclass(frozen=True)
class Core:
    """An ONNX model with one input and probabilities, (n, n_columns) or of the second class only, (n, 1); or values.

    ``kind``: "f32" or "f64", the type of the input; ``n_features``, ``n_columns``: the widths of both.
    """

    name: str
    model: Any
    input: str
    kind: str
    n_features: int
    output: str
    n_columns: int


def laid_out(
    core: Core,
    dtypes: Sequence[str],
    classes: Sequence[int],
    n_classes: int,
    *,
    order: Sequence[int] | None = None,
    fill: NDArray[np.float64] | None = None,
) -> bytes:
    """The bytes of hpc.onnx.

    Parameters
    ----------
    dtypes : "i32", "f32" or "f64" per feature of a request
    classes : the class index of each column of probabilities; other classes get probability 0
    order : the request's feature behind each of the model's; None: the same order
    fill : (n_features,) what replaces missing readings of a request; None: the model takes NaN

    Raises
    ------
    InputError
        The result is not an ONNX model that passes the checker.
    """
    from onnx import TensorProto

    def head(after: _Nodes, output: str) -> None:
        p = after.op("Cast", output, to=TensorProto.FLOAT)
        if core.n_columns == 1:
            p = after.op("Reshape", p, after.const(np.array([-1, 1], dtype=np.int64)))
            p = after.op("Concat", after.op("Sub", after.const(np.ones((1, 1), dtype=np.float32)), p), p, axis=1)
        places = np.zeros((max(2, core.n_columns), n_classes), dtype=np.float32)
        places[np.arange(len(places)), list(classes)] = 1
        after.node("MatMul", [p, after.const(places)], "probabilities")
        after.node("ArgMax", ["probabilities"], "label", axis=1, keepdims=0)
        after.output("label", TensorProto.INT64, [None])
        after.output("probabilities", TensorProto.FLOAT, [None, n_classes])

    return _built(core, dtypes, head, {"classes": str(n_classes), "dtypes": ",".join(dtypes)}, order, fill)


def values_laid_out(
    core: Core,
    dtypes: Sequence[str],
    *,
    answers: Values,
    centre: float,
    factor: float = 1.0,
    order: Sequence[int] | None = None,
    fill: NDArray[np.float64] | None = None,
) -> bytes:
    """The bytes of an hpc.onnx of values.

    Parameters
    ----------
    dtypes : "i32", "f32" or "f64" per feature of a request
    factor, centre : by which the model's output is multiplied, and what is then added, in float64
    order, fill : as of ``laid_out``

    Raises
    ------
    InputError
        The result is not an ONNX model that passes the checker.
    """
    from onnx import TensorProto

    def head(after: _Nodes, output: str) -> None:
        wide = after.op("Cast", output, to=TensorProto.DOUBLE)
        column = after.op("Reshape", wide, after.const(np.array([-1, 1], dtype=np.int64)))
        if factor != 1.0:
            column = after.op("Mul", column, after.const(np.full((1, 1), factor)))
        after.node("Add", [column, after.const(np.full((1, 1), centre))], VALUE.output)
        after.output(VALUE.output, TensorProto.DOUBLE, [None, 1])

    scale = {"steps": str(answers.steps), "confidence": str(answers.confidence)}
    return _built(core, dtypes, head, {"task": VALUE.name, "dtypes": ",".join(dtypes), **scale}, order, fill)


def _built(
    core: Core,
    dtypes: Sequence[str],
    head: Callable[[_Nodes, str], None],
    metadata: Mapping[str, str],
    order: Sequence[int] | None = None,
    fill: NDArray[np.float64] | None = None,
) -> bytes:
    """The model behind the layout's input; ``head`` adds nodes behind its output, and the layout's outputs."""
    import onnx
    from onnx import TensorProto, helper

    model = onnx.ModelProto()
    model.CopyFrom(core.model)
    graph = model.graph
    names = {"": ""}
    rename(graph, names)
    del graph.value_info[:]
    kind = "f64" if "f64" in dtypes else core.kind
    before, after = _Nodes(graph), _Nodes(graph)
    x = "X"
    if fill is not None:
        values = np.asarray(fill, dtype=np.float32 if kind == "f32" else np.float64)[None]
        x = before.op("Where", before.op("IsNaN", x), before.const(values), x)
    if order is not None and list(order) != list(range(len(dtypes))):
        x = before.op("Gather", x, before.const(np.asarray(order, dtype=np.int64)), axis=1)
    to = getattr(TensorProto, ONNX_TYPES[core.kind])
    before.node("Cast", [x], names[core.input], to=to)
    head(after, names[core.output])
    nodes = [*before.nodes, *graph.node, *after.nodes]
    del graph.node[:], graph.input[:], graph.output[:]
    graph.node.extend(nodes)
    wide = getattr(TensorProto, ONNX_TYPES[kind])
    graph.input.append(helper.make_tensor_value_info("X", wide, [None, len(dtypes)]))
    graph.output.extend(after.outputs)
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if 0 < opset < OLDEST_OPSET:
        raise InputError(f"{core.name} is ONNX of opset {opset}; write it with opset {OLDEST_OPSET} or later")
    if not opset:
        model.opset_import.add(domain="", version=OPSET)
    model.ir_version = max(model.ir_version, IR_VERSION)
    describe(model, metadata)
    try:
        onnx.checker.check_model(model)
    except Exception as error:  # onnx has no common base for its own errors
        raise InputError(f"{core.name} is not a model that onnx accepts ({one_line(error)}); write it again") from error
    return bytes(model.SerializeToString(deterministic=True))


class _Nodes:
    """Nodes to stand before or behind those of a graph, and constants in it."""

    def __init__(self, graph: Any) -> None:
        self.nodes: list[Any] = []
        self.outputs: list[Any] = []
        self._graph = graph

    def node(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(kind, list(inputs), [output], name=f"laid_{output}", **attributes))
        return output

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.node(kind, inputs, f"{kind.lower()}_{inputs[0]}", **attributes)

    def output(self, name: str, dtype: int, shape: Sequence[int | None]) -> None:
        from onnx import helper

        self.outputs.append(helper.make_tensor_value_info(name, dtype, shape))

    def const(self, values: NDArray[Any]) -> str:
        from onnx import numpy_helper

        name = f"constant_{len(self._graph.initializer)}"
        self._graph.initializer.append(numpy_helper.from_array(values, name))
        return name


def describe(model: Any, metadata: Mapping[str, str]) -> None:
    """Write fixed metadata in a fixed order, in place of the converter's version, name and unordered sets.

    ``metadata``: by key, without the prefix "hardcase."
    """
    opsets = sorted((o.domain, o.version) for o in model.opset_import)
    del model.opset_import[:]
    for domain, version in opsets:
        model.opset_import.add(domain=domain, version=version)
    model.producer_name, model.producer_version, model.domain = "hardcase", "", ""
    model.model_version, model.doc_string = 0, ""
    model.graph.name, model.graph.doc_string = "hpc", ""
    del model.metadata_props[:]
    for key, value in metadata.items():
        model.metadata_props.add(key=f"hardcase.{key}", value=value)


def rename(graph: Any, names: dict[str, str]) -> None:
    """Name inner values and nodes by order of appearance, as skl2onnx counts some names over the whole process.

    ``names``: new names by old ones, including names that must stay.
    """

    def name(old: str) -> str:
        return names.setdefault(old, f"value_{len(names)}")

    for node in graph.node:
        node.input[:] = [name(old) for old in node.input]
        node.output[:] = [name(old) for old in node.output]
        node.name = f"to_{node.output[0]}"
        for attribute in node.attribute:
            if attribute.HasField("g"):
                attribute.g.name = f"in_{node.name}"
                rename(attribute.g, names)
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = name(value.name)


# ---------------------------------------------------------------- the least expected cost
# Gives f0's ONNX file the label of least expected cost of errors in place of the likeliest label.


def answer_least_cost(data: bytes, targets: NDArray[np.float64] | None) -> bytes:
    """A model whose ``label`` is the class with the most of ``probabilities @ targets``, the first of equals.

    ``targets``: as of ``Classes``; None: the model as it is
    """
    if targets is None:
        return data
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load_model_from_string(data)
    graph = model.graph
    for node in graph.node:
        node.name = "to_likeliest" if node.name == "to_label" else node.name
        node.output[:] = ["likeliest" if name == "label" else name for name in node.output]
    graph.initializer.append(numpy_helper.from_array(np.asarray(targets, dtype=np.float32), "targets"))
    graph.node.add().CopyFrom(helper.make_node("MatMul", ["probabilities", "targets"], ["stakes"], name="to_stakes"))
    graph.node.add().CopyFrom(helper.make_node("ArgMax", ["stakes"], ["label"], name="to_label", axis=1, keepdims=0))
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString(deterministic=True))
