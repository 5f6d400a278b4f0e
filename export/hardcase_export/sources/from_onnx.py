# SPDX-License-Identifier: Apache-2.0
"""Source models of ONNX files: a TreeEnsemble, a Linear node or a small network, behind scalers and imputers.

onnxruntime compares and adds in float32, or in float64 if the thresholds are float64. A node names its comparison and
the side of a missing reading. The label or value must reach an output unchanged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.manifest import Label
from hardcase_edge.errors import InputError, one_line

from .onnx_graph import CARRIERS, MAX_GRAPH_NODES, constants_of, input_of, outputs_of, steps_before, value_of
from .onnx_trees import LINKS, Attributes, trees_source
from .preprocessing import behind
from .source import (
    LOGISTIC,
    MAX_CLASSES,
    NONE,
    Layer,
    LinearModel,
    Network,
    Predict,
    Source,
    check_source,
    source_fields,
)

MODELS = ("TreeEnsembleClassifier", "TreeEnsembleRegressor", "LinearClassifier", "LinearRegressor")
BEFORE = ("Scaler", "Imputer", "Add", "Sub", "Mul", "Div")  # a Mul by one stands behind the scores of onnxmltools, too
PICKED = "ArrayFeatureExtractor"  # behind the scores of a LinearSVC or RidgeClassifier; no label passes through it
DENSE = ("MatMul", "Gemm")
ACTIVATIONS = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "logistic"}
BETWEEN = ("Identity", "Cast", "Flatten")  # between layers they change nothing
ENDS = ("Softmax", "Sigmoid", "ArgMax", "ArrayFeatureExtractor", "Sub", "Concat", "ZipMap", "Reshape", "Squeeze")
SURE = ("Sigmoid", "ArgMax", "Sub", "Concat")  # ends behind one score that chooses between classes
STRING = 8  # of TensorProto
MAX_LAYERS = 16


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
        if len(graph.node) > MAX_GRAPH_NODES:
            raise InputError(
                f"the ONNX file has {len(graph.node)} nodes, but at most {MAX_GRAPH_NODES} are read; "
                "write the model alone"
            )
        _, dtype, n_features = input_of(graph)
        if is_network(graph):
            source, output = network_source(graph)
            return check_source(_with_predict(source, data, output))
        node = _model_node(graph)
        steps, kind = steps_before(graph, node.input[0])
        a = {x.name: value_of(x) for x in node.attribute}
        if node.op_type.startswith("Linear"):
            source = _linear(node, a, n_features)
        else:
            labels = _labels(a) if node.op_type.endswith("Classifier") else ()
            source = trees_source(node.op_type, a, n_features, labels, is_double=kind == "f64")
        outputs = outputs_of(graph)
        if node.output[0] not in outputs:
            raise InputError("the ONNX file does not output the model's label or value; write it again")
        source = _with_predict(check_source(source), data, outputs[node.output[0]])
        return check_source(behind(source, steps, dtype))
    except (KeyError, ValueError, IndexError, TypeError, OverflowError) as error:
        raise InputError(
            f"the ONNX file is damaged, or not as skl2onnx writes it ({one_line(error)}); write it again"
        ) from error


def from_catboost(model: Any) -> Source:
    """The source model of a live CatBoostClassifier or CatBoostRegressor, by way of the ONNX file that it writes.

    Raises
    ------
    InputError
        CatBoost cannot write the model as ONNX, or as ``read_onnx``.
    """
    import tempfile
    from pathlib import Path

    kind = type(model).__name__
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        try:
            model.save_model(str(path), format="onnx")
            data = path.read_bytes()
        except Exception as error:  # CatBoost's own error is known only where it is installed
            raise InputError(
                f"the {kind} cannot be written as ONNX ({one_line(error)}); fit it to numbers, without categories"
            ) from error
    source = read_onnx(data)
    if not source.classes:
        return source
    return replace(source, **{**source_fields(model), "name": f"CatBoost {kind}"})


# ---------------------------------------------------------------- the graph


def _model_node(graph: Any) -> Any:
    """The one node that is the model."""
    models = [n for n in graph.node if n.op_type in MODELS and n.domain == "ai.onnx.ml"]
    odd = [n.op_type for n in graph.node if n not in models and n.op_type not in (*CARRIERS, *BEFORE, PICKED)]
    if odd or len(models) != 1:
        kinds = ", ".join(dict.fromkeys(n.op_type for n in graph.node)) or "nothing"
        raise InputError(
            f"the ONNX file is a graph of {kinds[:120]}; "
            f"write one with a single {', '.join(MODELS[:-1])} or {MODELS[-1]}, or a small network of dense layers"
        )
    return models[0]


# ---------------------------------------------------------------- linear models


def _labels(a: Attributes) -> tuple[Label, ...]:
    integers = a.get("classlabels_int64s", a.get("classlabels_ints", ()))  # of trees, of linear models
    labels = a.get("classlabels_strings") or np.asarray(integers).tolist()
    if not 1 < len(labels) <= MAX_CLASSES:
        raise InputError(
            f"the ONNX model names {len(labels)} classes, but 2 to {MAX_CLASSES} are expected; train it on at least two"
        )
    return tuple(labels)


def _linear(node: Any, a: Attributes, n_features: int) -> Source:
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
    unit = 2.0 if is_class and len(labels) == 2 and not is_one and post == "LOGISTIC" else 1.0
    return Source(
        name=f"ONNX {node.op_type}", dtype="f32", sums="f32", features=("",) * n_features, classes=labels,
        base=(0.0,) * len(bias), linear=LinearModel(weights, bias), link=LINKS[post] if is_class else NONE, unit=unit,
    )  # fmt: skip


# ---------------------------------------------------------------- the source's own answer


def _with_predict(source: Source, data: bytes, output: str) -> Source:
    import onnxruntime as ort

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
            answers = np.asarray(session.run([output], {tensor.name: rows}, quiet)[0])
            if source.network is not None and answers.dtype.kind == "f":
                return _labels_of(answers, 0.5 if source.link == LOGISTIC else 0.0)
            return (
                np.array([number[x] for x in answers.ravel().tolist()], dtype=np.int64) if number else answers.ravel()
            )
        except Exception as error:  # onnxruntime has no common base for its own errors
            raise InputError(f"onnxruntime cannot run the model ({one_line(error)}); write it again") from error

    own: Predict = predict
    return replace(source, predict=own)


def _labels_of(answers: NDArray[Any], border: float) -> NDArray[np.int64]:
    """Class indices of a network's scores or probabilities, (n, n_scores); one of two classes is above the border."""
    several = answers.ndim == 2 and answers.shape[1] > 1
    return np.asarray(answers.argmax(axis=1) if several else answers.ravel() > border, dtype=np.int64)


# Small networks in ONNX files: dense layers one after another, as skl2onnx, PyTorch and Keras write them.
#
# Behind the last layer a Sigmoid or Softmax may stand, and nodes that look up the label. What these do is not read: the
# labels of the network are compared with those of onnxruntime.


def is_network(graph: Any) -> bool:
    """Whether the graph has a dense layer, which no other model here has."""
    return any(node.op_type in DENSE for node in graph.node)


def network_source(graph: Any) -> tuple[Source, str]:
    """The source of a network, not yet checked, and the name of the output that has its label or its scores.

    Raises
    ------
    InputError, KeyError, ValueError, IndexError
        The graph is not a chain of dense layers, or has another number of labels than of scores.
    """
    constants = constants_of(graph)
    first = next(node for node in graph.node if node.op_type in DENSE)
    steps, _ = steps_before(graph, first.input[0])
    layers, end = _layers(graph, first, constants)
    n_scores = len(layers[-1].bias)
    classes = _classes(graph, constants, max(2, n_scores))
    if n_scores == 1 and end not in SURE:
        raise InputError(
            "the ONNX network gives one score, which may be a value; end it with a Sigmoid if it chooses between two "
            "classes, or quantise it to int8"
        )
    if n_scores == 2:
        weights, bias = layers[-1].weights, layers[-1].bias
        layers[-1] = replace(layers[-1], weights=weights[1:] - weights[:1], bias=bias[1:] - bias[:1])
    n_features = input_of(graph)[2]
    network = Network(np.zeros(n_features), np.ones(n_features), tuple(layers))
    has_odds = end == "Softmax" or (end == "Sigmoid" and n_scores == 1)
    source = Source(
        name="ONNX network", dtype="f32", sums="f32", features=("",) * n_features, classes=classes,
        base=(0.0,) * len(layers[-1].bias), network=network, link=LOGISTIC if has_odds else NONE,
    )  # fmt: skip
    return behind(source, steps, "f32"), _output(graph)


def _layers(graph: Any, node: Any, constants: dict[str, NDArray[Any]]) -> tuple[list[Layer], str]:
    """The layers from this node on, and the kind of node behind the last one's scores."""
    users: dict[str, list[Any]] = {}
    for user in graph.node:
        for name in user.input:
            users.setdefault(name, []).append(user)
    layers: list[Layer] = []
    while node is not None and node.op_type in DENSE and len(layers) < MAX_LAYERS:
        weights, bias = _dense(node, constants)
        activation, end = "identity", ""
        while True:
            behind_it = users.get(node.output[0], [])
            kinds = [user.op_type for user in behind_it]
            end = next((kind for kind in kinds if kind in ENDS), end)
            node = behind_it[0] if len(behind_it) == 1 else None
            if node is None or node.op_type in DENSE:
                break
            if node.op_type == "Add" and activation == "identity":
                (added,) = (constants[name] for name in node.input if name in constants)
                bias = bias + added.astype(np.float64).ravel()
            elif node.op_type in ACTIVATIONS and activation == "identity":
                activation = ACTIVATIONS[node.op_type]
            elif node.op_type not in BETWEEN:
                break
        layers.append(Layer(weights, bias, activation))
    if node is not None and node.op_type not in ENDS:
        raise InputError(
            f"the ONNX network has a {node.op_type} behind a layer; write it as a chain of {', '.join(DENSE)}, Add, "
            f"{', '.join(ACTIVATIONS)} and one Softmax or Sigmoid"
        )
    if layers[-1].activation == "logistic":
        layers[-1], end = replace(layers[-1], activation="identity"), "Sigmoid"
    return layers, end


def _dense(node: Any, constants: dict[str, NDArray[Any]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights (n_out, n_in) and bias (n_out,)."""
    a = {x.name: value_of(x) for x in node.attribute}
    weights = constants[node.input[1]].astype(np.float64)
    if weights.ndim != 2 or a.get("transA", 0) or a.get("alpha", 1.0) != 1 or a.get("beta", 1.0) != 1:
        raise InputError(f"the ONNX network has a {node.op_type} that is not a plain layer; write it as x W + b")
    weights = weights if a.get("transB", 0) else weights.T
    bias = constants[node.input[2]].astype(np.float64).ravel() if len(node.input) > 2 else np.zeros(len(weights))
    return weights, np.array(np.broadcast_to(bias, len(weights)))


def _classes(graph: Any, constants: dict[str, NDArray[Any]], n: int) -> tuple[Label, ...]:
    """The labels that an ArrayFeatureExtractor looks up, or else numbers from 0."""
    looked_up = [node.input[0] for node in graph.node if node.op_type == "ArrayFeatureExtractor"]
    if not looked_up:
        return tuple(range(min(n, MAX_CLASSES + 1)))
    labels = constants[looked_up[0]].ravel().tolist()
    if len(labels) != n:
        raise InputError(f"the ONNX network has {len(labels)} labels for {n} scores; write it again")
    return tuple(x.decode() if isinstance(x, bytes) else x for x in labels)


def _output(graph: Any) -> str:
    """The output of labels, which are integers or text, or else the first output."""
    labels = [o.name for o in graph.output if o.type.tensor_type.elem_type in (6, 7, STRING)]
    return str([*labels, graph.output[0].name][0])
