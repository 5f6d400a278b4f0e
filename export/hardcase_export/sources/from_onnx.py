# SPDX-License-Identifier: Apache-2.0
"""Source models of ONNX files: one TreeEnsemble or Linear node, as skl2onnx and onnxmltools write it.

onnxruntime compares and adds in float32, or in float64 if the thresholds are float64. A node names its comparison and
the side of a missing reading. The graph may hold nothing else but nodes that carry the label or value to an output.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.manifest import Label
from hardcase_edge.errors import InputError, one_line

from .onnx_trees import LINKS, Attributes, trees_source
from .source import MAX_CLASSES, MAX_FEATURES, NONE, LinearModel, Source, check_source

__all__ = ["read_onnx"]

MODELS = ("TreeEnsembleClassifier", "TreeEnsembleRegressor", "LinearClassifier", "LinearRegressor")
CARRIERS = ("Cast", "Identity", "Reshape", "Normalizer", "ZipMap", "Flatten")
MAX_GRAPH_NODES = 64
FLOAT, DOUBLE = 1, 11  # of TensorProto


def read_onnx(data: bytes) -> Source:
    """The source model of an ONNX file; its ``predict`` runs onnxruntime in one thread.

    Raises
    ------
    InputError
        The file is damaged, holds another kind of graph, or has an index out of range.
    """
    import onnx

    try:
        graph = onnx.load_model_from_string(data).graph
    except Exception as error:  # protobuf has no common base for its own errors
        raise InputError("the model is not an ONNX file, or it is cut; write it again") from error
    try:
        node, scaler = _model_node(graph)
        type_, n_features = _input(graph)
        a = {x.name: _value(x) for x in node.attribute}
        if node.op_type.startswith("Linear"):
            source = _linear(node, a, n_features, scaler)
        elif scaler is not None:
            raise InputError(
                "the ONNX file scales readings before its trees; leave the scaler out, as trees do not need one"
            )
        else:
            labels = _labels(a) if node.op_type.endswith("Classifier") else ()
            source = trees_source(node.op_type, a, n_features, labels, is_double=type_ == DOUBLE)
        return check_source(_with_predict(source, data, node.output[0], _outputs(graph)))
    except (KeyError, ValueError, IndexError, TypeError, OverflowError) as error:
        raise InputError(
            f"the ONNX file is damaged, or not as skl2onnx writes it ({one_line(error)}); write it again"
        ) from error


# ---------------------------------------------------------------- the graph


def _model_node(graph: Any) -> tuple[Any, Attributes | None]:
    """The one node that is the model, and the attributes of a Scaler before it."""
    if len(graph.node) > MAX_GRAPH_NODES:
        raise InputError(
            f"the ONNX file has {len(graph.node)} nodes, but at most {MAX_GRAPH_NODES} are read; write the model alone"
        )
    models = [n for n in graph.node if n.op_type in MODELS and n.domain == "ai.onnx.ml"]
    scalers = [n for n in graph.node if n.op_type == "Scaler"]
    odd = [n.op_type for n in graph.node if n not in models and n not in scalers and n.op_type not in CARRIERS]
    if odd or len(models) != 1 or len(scalers) > 1:
        kinds = ", ".join(dict.fromkeys(n.op_type for n in graph.node)) or "nothing"
        raise InputError(
            f"the ONNX file is a graph of {kinds[:120]}; "
            f"write one with a single {', '.join(MODELS[:-1])} or {MODELS[-1]}"
        )
    model = models[0]
    value = model.input[0]
    producers = {n.output[0]: n for n in graph.node}
    scaler = None
    while value in producers:
        producer = producers.pop(value)
        if producer.op_type == "Scaler":
            scaler = {x.name: _value(x) for x in producer.attribute}
        elif producer.op_type not in ("Cast", "Identity") or _casts_down(producer):
            raise InputError(
                f"the ONNX file changes readings by {producer.op_type} before the model; leave that step out"
            )
        value = producer.input[0]
    if value != _input_name(graph):
        raise InputError("the ONNX model does not read the file's one input; write it with one tensor of all features")
    return model, scaler


def _casts_down(node: Any) -> bool:
    """Whether the node casts readings to another type than float or double."""
    return node.op_type == "Cast" and any(x.name == "to" and x.i not in (FLOAT, DOUBLE) for x in node.attribute)


def _inputs(graph: Any) -> list[Any]:
    constants = {x.name for x in graph.initializer}
    return [x for x in graph.input if x.name not in constants]


def _input_name(graph: Any) -> str:
    inputs = _inputs(graph)
    if len(inputs) != 1:
        raise InputError(f"the ONNX file has {len(inputs)} inputs; write it with one tensor of all features")
    return str(inputs[0].name)


def _input(graph: Any) -> tuple[int, int]:
    """Element type of the file's one input, and the number of features."""
    _input_name(graph)
    tensor = _inputs(graph)[0].type.tensor_type
    dims = [d.dim_value for d in tensor.shape.dim]
    if tensor.elem_type not in (FLOAT, DOUBLE) or len(dims) != 2 or not 1 <= dims[1] <= MAX_FEATURES:
        raise InputError(
            f"the ONNX input has type {tensor.elem_type} and shape {dims}; write it as float or double of shape "
            f"(n, features), of at most {MAX_FEATURES} features"
        )
    return tensor.elem_type, dims[1]


def _outputs(graph: Any) -> dict[str, str]:
    """The output that each inner tensor reaches through carrying nodes; both by name."""
    carried = {o: n.input[0] for n in graph.node if n.op_type in CARRIERS and n.input for o in n.output}
    reached: dict[str, str] = {}
    for output in graph.output:
        tensor, steps = output.name, 0
        while tensor in carried and steps < MAX_GRAPH_NODES:
            tensor, steps = carried[tensor], steps + 1
        reached.setdefault(tensor, output.name)
    return reached


def _value(attribute: Any) -> Any:
    """An attribute's value: numbers, an array, or text."""
    from onnx import AttributeProto, numpy_helper

    kind = attribute.type
    if kind == AttributeProto.TENSOR:
        if attribute.t.data_location:
            raise InputError("the ONNX file keeps numbers in another file; write it as a single file")
        return numpy_helper.to_array(attribute.t)
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


# ---------------------------------------------------------------- linear models


def _labels(a: Attributes) -> tuple[Label, ...]:
    integers = a.get("classlabels_int64s", a.get("classlabels_ints", ()))  # of trees, of linear models
    labels = a.get("classlabels_strings") or np.asarray(integers).tolist()
    if not 1 < len(labels) <= MAX_CLASSES:
        raise InputError(
            f"the ONNX model names {len(labels)} classes, but 2 to {MAX_CLASSES} are expected; train it on at least two"
        )
    return tuple(labels)


def _linear(node: Any, a: Attributes, n_features: int, scaler: Attributes | None) -> Source:
    is_class = node.op_type.endswith("Classifier")
    labels = _labels(a) if is_class else ()
    n_rows = len(labels) if is_class else int(a.get("targets", 1))
    coefficients = np.asarray(a["coefficients"], dtype=np.float64)
    bias = np.asarray(a.get("intercepts", np.zeros(n_rows)), dtype=np.float64)
    is_one = is_class and n_rows == 2 and len(coefficients) == n_features
    n_rows = 1 if is_one else n_rows
    if len(coefficients) != n_rows * n_features or len(bias) != n_rows or (not is_class and n_rows != 1):
        raise InputError(
            f"the ONNX linear model has {len(coefficients)} weights and {len(bias)} biases for {n_rows} outputs of "
            f"{n_features} features; write it again, with one target"
        )
    weights = coefficients.reshape(n_rows, n_features)
    if is_class and n_rows == 2:
        weights, bias = weights[1:] - weights[:1], bias[1:] - bias[:1]
    post = a.get("post_transform", "NONE")
    if post not in (LINKS if is_class else ("NONE",)):
        raise InputError(
            f"the ONNX model ends in {post[:20]}, but a program answers plain sums; write it with post_transform NONE"
        )
    if scaler is not None:
        offset, scale = (np.asarray(scaler[key], dtype=np.float64) for key in ("offset", "scale"))
        if not all(len(v) in (1, n_features) for v in (offset, scale)):
            raise InputError(f"the ONNX Scaler has {len(scale)} factors for {n_features} features; write it again")
        weights = weights * scale
        bias = bias - weights @ np.broadcast_to(offset, n_features)
    unit = 2.0 if is_class and len(labels) == 2 and not is_one and post == "LOGISTIC" else 1.0
    return Source(
        name=f"ONNX {node.op_type}", dtype="f32", sums="f32", features=("",) * n_features, classes=labels,
        base=(0.0,) * len(bias), linear=LinearModel(weights, bias), link=LINKS[post] if is_class else NONE, unit=unit,
    )  # fmt: skip


# ---------------------------------------------------------------- the source's own answer


def _with_predict(source: Source, data: bytes, output: str, outputs: dict[str, str]) -> Source:
    from dataclasses import replace

    import onnxruntime as ort

    if output not in outputs:
        raise InputError("the ONNX file does not output the model's label or value; write it again")
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    quiet = ort.RunOptions()
    options.log_severity_level = quiet.log_severity_level = 4
    number = {label: k for k, label in enumerate(source.classes)}

    def predict(X: NDArray[np.float64]) -> NDArray[Any]:
        try:
            session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
            tensor = session.get_inputs()[0]
            with np.errstate(over="ignore"):
                rows = X.astype(np.float32 if tensor.type == "tensor(float)" else np.float64)
            answers = np.asarray(session.run([outputs[output]], {tensor.name: rows}, quiet)[0]).ravel()
            return np.array([number[x] for x in answers.tolist()], dtype=np.int64) if number else answers
        except Exception as error:  # onnxruntime has no common base for its own errors
            raise InputError(f"onnxruntime cannot run the model ({one_line(error)}); write it again") from error

    return replace(source, predict=predict)
