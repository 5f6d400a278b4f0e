# SPDX-License-Identifier: Apache-2.0
"""Small networks in ONNX files: dense layers one after another, as skl2onnx, PyTorch and Keras write them.

Behind the last layer a Sigmoid or Softmax may stand, and nodes that look up the label. What these do is not read: the
labels of the network are compared with those of onnxruntime.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.manifest import Label
from hardcase_edge.errors import InputError

from .onnx_graph import constants_of, input_of, steps_before, value_of
from .preprocessing import behind
from .source import LOGISTIC, MAX_CLASSES, NONE, Layer, Network, Source

__all__ = ["is_network", "network_source"]

DENSE = ("MatMul", "Gemm")
ACTIVATIONS = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "logistic"}
CARRIERS = ("Identity", "Cast", "Flatten")  # between layers they change nothing
ENDS = ("Softmax", "Sigmoid", "ArgMax", "ArrayFeatureExtractor", "Sub", "Concat", "ZipMap", "Reshape", "Squeeze")
STRING = 8  # of TensorProto
MAX_LAYERS = 16


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
            elif node.op_type not in CARRIERS:
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
