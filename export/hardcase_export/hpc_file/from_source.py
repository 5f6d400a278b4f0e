# SPDX-License-Identifier: Apache-2.0
"""A source model as an ONNX graph, for an f0 that skl2onnx does not know or that comes as a file.

Trees become one TreeEnsembleRegressor over float32 readings, whose thresholds are numbers of that type; missing
readings go where the source sends them. Sums are float32, so a probability differs from the source's by some 1e-7 of
its largest leaf.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hardcase_edge.errors import InputError

from ..importing.trees import grow_trees
from ..sources.source import LOGISTIC, MEAN, Network, Source
from ..to_onnx.graph import OnnxGraph

READINGS, PROBABILITIES, VALUES = "f32", "probabilities", "values"  # the graph's input and outputs
OPSETS = {"": 18, "ai.onnx.ml": 3}
OPERATORS = {"relu": "Relu", "tanh": "Tanh", "logistic": "Sigmoid"}
NODES = (
    "nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes", "nodes_truenodeids",
    "nodes_falsenodeids", "nodes_missing_value_tracks_true",
)  # fmt: skip
TARGETS = ("target_treeids", "target_nodeids", "target_ids", "target_weights")
MAX_F32 = float(np.finfo(np.float32).max)


def model_of(source: Source) -> Any:
    """The ONNX model of a checked source, (n, n_features) float32 to (n, n_classes) float32.

    Raises
    ------
    InputError
        The source answers values, or has scores from which no probability follows.
    """
    if not source.kind.has_classes or source.link not in (MEAN, LOGISTIC):
        raise InputError(
            f"the {source.name} gives no probabilities, which gates need; take a classifier with predict_proba"
        )
    g = OnnxGraph()
    scores = g.op("Div", _scores(g, source), g.const(source.unit, "f4"))
    _probabilities(g, source, scores)
    n_features, n_classes = len(source.features), len(source.classes)
    return g.unchecked("f0", {READINGS: n_features}, PROBABILITIES, n_classes, "f32", OPSETS)


def values_of(source: Source) -> tuple[Any, float]:
    """The ONNX model of a checked source of values, (n, n_features) to (n, 1) float32, and what to add to its output.

    Trees are centred on 0, so that their float32 sums lose no digits to a target far from 0.

    Raises
    ------
    InputError
        The source answers classes.
    """
    if source.kind.has_classes:
        raise InputError(f"the {source.name} answers classes, but values are asked for; take a regressor")
    centre = 0.0
    if source.trees:
        middles = [float(tree.leaves.min() / 2 + tree.leaves.max() / 2) for tree in source.trees]
        trees = tuple(replace(t, leaves=t.leaves - m) for t, m in zip(source.trees, middles, strict=True))
        source, centre = replace(source, trees=trees, base=(0.0,)), float(np.sum([*source.base, *middles]))
    g = OnnxGraph()
    g.op("Div", _scores(g, source), g.const(source.unit, "f4"), output=VALUES)
    return g.unchecked("f0", {READINGS: len(source.features)}, VALUES, 1, "f32", OPSETS), centre / source.unit


def _probabilities(g: OnnxGraph, source: Source, scores: str) -> None:
    if len(source.base) > 1:
        if source.link == MEAN:
            g.op("Identity", scores, output=PROBABILITIES)
        else:
            g.op("Softmax", scores, output=PROBABILITIES, axis=1)
        return
    if source.link == MEAN:  # the second class's share less the first's
        second = g.op("Mul", g.op("Add", scores, g.const(1, "f4")), g.const(0.5, "f4"))
    else:
        second = g.op("Sigmoid", scores)
    g.op("Concat", g.op("Sub", g.const(1, "f4"), second), second, output=PROBABILITIES, axis=1)


def _scores(g: OnnxGraph, source: Source) -> str:
    """(n, n_outputs) float32."""
    if source.linear is not None:
        x = _filled(g, READINGS, source.linear.fill)
        return _layer(g, x, source.linear.weights, source.linear.bias)
    if source.network is not None:
        return _network(g, source.network)
    sums = g.op("TreeEnsembleRegressor", READINGS, domain="ai.onnx.ml", **_trees(source))
    return g.op("Add", sums, g.const([source.base], "f4"))


def _filled(g: OnnxGraph, x: str, fill: Any) -> str:
    return x if fill is None else g.op("Where", g.op("IsNaN", x), g.const([fill], "f4"), x)


def _layer(g: OnnxGraph, x: str, weights: Any, bias: Any) -> str:
    return g.op("Add", g.op("MatMul", x, g.const(np.asarray(weights).T, "f4")), g.const([bias], "f4"))


def _network(g: OnnxGraph, network: Network) -> str:
    x = g.op("Sub", _filled(g, READINGS, network.fill), g.const([network.centre], "f4"))
    x = g.op("Mul", x, g.const([network.factor], "f4"))
    for layer in network.layers:
        x = _layer(g, x, layer.weights, layer.bias)
        x = g.op(OPERATORS[layer.activation], x) if layer.activation in OPERATORS else x
    return x


def _trees(source: Source) -> dict[str, Any]:
    """Attributes of the ensemble: the splits of a tree have the first numbers, its leaves the next."""
    n = len(source.features)
    rows: list[tuple[Any, ...]] = []  # NODES
    leaves: list[tuple[Any, ...]] = []  # TARGETS
    grown = grow_trees(source, ["f32"] * n, [True] * n)
    for t, (tree, (nodes, leaf_of)) in enumerate(zip(source.trees, grown, strict=True)):
        first = len(nodes)
        for k, (feature, cut, missing_left, left, right) in enumerate(nodes):
            yes, no = (child if child >= 0 else first - 1 - child for child in (left, right))
            rows.append((t, k, feature, min(float(cut), MAX_F32), "BRANCH_LEQ", yes, no, int(missing_left)))
        for k, leaf in enumerate(leaf_of):
            rows.append((t, first + k, 0, 0.0, "LEAF", 0, 0, 0))
            leaves += [(t, first + k, tree.output + o, v) for o, v in enumerate(tree.leaves[leaf].tolist())]
    columns = dict(zip(NODES, map(list, zip(*rows, strict=True)), strict=True))
    targets = dict(zip(TARGETS, map(list, zip(*leaves, strict=True)), strict=True))
    return {**columns, **targets, "n_targets": len(source.base)}
