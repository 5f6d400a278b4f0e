"""Source models of ONNX files: one TreeEnsemble or Linear node of ai.onnx.ml, as skl2onnx and onnxmltools write them.

onnxruntime compares and adds in float32 (float64 where the thresholds are); a node names its comparison and where a
missing reading goes. Nothing but the nodes that carry the label or value from there to an output may stand beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError
from hardcase_edge.manifest import Label

from .source import (
    LOGISTIC,
    MAX_CLASSES,
    MAX_FEATURES,
    MAX_NODES,
    MAX_VALUES,
    MEAN,
    NONE,
    Linear,
    Source,
    SourceTree,
    Split,
    check_source,
)

__all__ = ["read_onnx"]

MODELS = ("TreeEnsembleClassifier", "TreeEnsembleRegressor", "LinearClassifier", "LinearRegressor")
CARRIERS = ("Cast", "Identity", "Reshape", "Normalizer", "ZipMap", "Flatten")
MAX_GRAPH_NODES = 64
FLOAT, DOUBLE = 1, 11  # of TensorProto
LINKS = {"LOGISTIC": LOGISTIC, "SOFTMAX": LOGISTIC, "NONE": NONE, "SOFTMAX_ZERO": LOGISTIC}

Attributes = dict[str, Any]


def read_onnx(data: bytes) -> Source:
    """The source model of an ONNX file; what it predicts is asked of onnxruntime, in one thread.

    Raises
    ------
    InputError
        It is damaged, holds another kind of graph, or an attribute leads nowhere.
    """
    import onnx

    try:
        graph = onnx.load_model_from_string(data).graph
    except Exception as error:  # protobuf has no common base for its own errors
        raise InputError("the model is no ONNX file, or cut; write it again") from error
    try:
        node, scaler = _model_node(graph)
        type_, n_features = _input(graph)
        a = {x.name: _value(x) for x in node.attribute}
        if node.op_type.startswith("Linear"):
            source = _linear(node, a, n_features, scaler)
        elif scaler is not None:
            raise InputError("the ONNX file scales readings before its trees; trees need no scaler, leave it out")
        else:
            source = _trees(node, a, n_features, type_)
        return check_source(_with_predict(source, data, node.output[0], _outputs(graph)))
    except (KeyError, ValueError, IndexError, TypeError, OverflowError) as error:
        line = " ".join(str(error).split())[:120]
        raise InputError(f"the ONNX file is damaged, or not as skl2onnx writes it ({line}); write it again") from error


# ---------------------------------------------------------------- the graph


def _model_node(graph: Any) -> tuple[Any, Attributes | None]:
    """The one node that is the model, and the attributes of a Scaler before it."""
    if len(graph.node) > MAX_GRAPH_NODES:
        raise InputError(f"the ONNX file has {len(graph.node)} nodes, one model and what carries its output are read")
    models = [n for n in graph.node if n.op_type in MODELS and n.domain == "ai.onnx.ml"]
    scalers = [n for n in graph.node if n.op_type == "Scaler"]
    odd = [n.op_type for n in graph.node if n not in models and n not in scalers and n.op_type not in CARRIERS]
    if odd or len(models) != 1 or len(scalers) > 1:
        found = ", ".join(dict.fromkeys(n.op_type for n in graph.node)) or "nothing"
        raise InputError(f"the ONNX file is a graph of {found[:120]}; one of {', '.join(MODELS)} is expected")
    model = models[0]
    at = model.input[0]
    made = {n.output[0]: n for n in graph.node}
    scaler = None
    while at in made:
        before = made.pop(at)
        if before.op_type == "Scaler":
            scaler = {x.name: _value(x) for x in before.attribute}
        elif before.op_type not in ("Cast", "Identity") or _casts_down(before):
            raise InputError(f"the ONNX file changes readings by {before.op_type} before the model; leave it out")
        at = before.input[0]
    if at != _input_name(graph):
        raise InputError("the ONNX model does not read the file's one input; write it with one tensor of all features")
    return model, scaler


def _casts_down(node: Any) -> bool:
    return node.op_type == "Cast" and any(x.name == "to" and x.i not in (FLOAT, DOUBLE) for x in node.attribute)


def _inputs(graph: Any) -> list[Any]:
    held = {x.name for x in graph.initializer}
    return [x for x in graph.input if x.name not in held]


def _input_name(graph: Any) -> str:
    found = _inputs(graph)
    if len(found) != 1:
        raise InputError(f"the ONNX file has {len(found)} inputs; write it with one tensor of all features")
    return str(found[0].name)


def _input(graph: Any) -> tuple[int, int]:
    """Element type and number of features."""
    _input_name(graph)
    tensor = _inputs(graph)[0].type.tensor_type
    dims = [d.dim_value for d in tensor.shape.dim]
    if tensor.elem_type not in (FLOAT, DOUBLE) or len(dims) != 2 or not 1 <= dims[1] <= MAX_FEATURES:
        raise InputError(
            f"the ONNX input has type {tensor.elem_type} and shape {dims}; float or double of shape (n, features) is "
            f"expected, of at most {MAX_FEATURES} features"
        )
    return tensor.elem_type, dims[1]


def _outputs(graph: Any) -> dict[str, str]:
    """Where each tensor of the label's or value's path comes from, by name."""
    carried = {o: n.input[0] for n in graph.node if n.op_type in CARRIERS and n.input for o in n.output}
    found: dict[str, str] = {}
    for output in graph.output:
        at, steps = output.name, 0
        while at in carried and steps < MAX_GRAPH_NODES:
            at, steps = carried[at], steps + 1
        found.setdefault(at, output.name)
    return found


def _value(attribute: Any) -> Any:
    """An attribute as plain numbers, labels as text."""
    from onnx import AttributeProto, numpy_helper

    kind = attribute.type
    if kind == AttributeProto.TENSOR:
        if attribute.t.data_location:
            raise InputError("the ONNX file keeps numbers in another file; write it as one")
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
    found = getattr(attribute, names[kind])
    return found if isinstance(found, int | float) else np.array(found)


# ---------------------------------------------------------------- trees


def _trees(node: Any, a: Attributes, n_features: int, type_: int) -> Source:
    is_class = node.op_type.endswith("Classifier")
    part = "class" if is_class else "target"
    if a.get("aggregate_function", "SUM") not in ("SUM", "AVERAGE"):
        raise InputError(f"the ONNX trees are combined by {a['aggregate_function'][:20]}; SUM or AVERAGE is expected")
    if a.get("post_transform", "NONE") not in (LINKS if is_class else ("NONE",)):
        raise InputError(f"the ONNX model ends in {a['post_transform'][:20]}; a program says plain sums")
    is_double = "nodes_values_as_tensor" in a
    if is_double != (type_ == DOUBLE):
        raise InputError("the ONNX input and its thresholds have different types; write the model for float inputs")
    labels = _labels(a) if is_class else ()
    weights = _floats(a, f"{part}_weights")
    which = np.asarray(a[f"{part}_ids"], dtype=np.int64)
    n_outputs = len(labels) if is_class else int(a.get("n_targets", 1))
    base = _floats(a, "base_values") if _has(a, "base_values") else np.zeros(0)
    if len(weights) > MAX_VALUES or len(which) != len(weights) or not 1 <= n_outputs <= MAX_CLASSES:
        raise InputError(
            f"the ONNX trees have {len(weights)} leaf weights for {n_outputs} outputs, and {len(which)} ids"
        )
    if len(which) == 0 or which.min() < 0 or which.max() >= n_outputs:
        raise InputError(f"a leaf of the ONNX trees adds to an output that does not exist, there are {n_outputs}")
    is_share = is_class and bool((weights >= 0).all())
    is_one = n_outputs == 2 and len(np.unique(which)) == 1
    if len(base) not in ((0, 1) if is_one else (0, n_outputs)):
        raise InputError(f"the ONNX trees have {len(base)} base values for {n_outputs} outputs")
    trees, n_trees = _walk(a, part, weights, np.zeros_like(which) if is_one else which, 1 if is_one else n_outputs)
    start = base if len(base) else np.zeros(1 if is_one else n_outputs)
    if a.get("aggregate_function") == "AVERAGE":
        trees = [SourceTree(t.output, t.splits, t.children, t.leaves / n_trees) for t in trees]
    link = LINKS[a.get("post_transform", "NONE")] if is_class else NONE
    unit = 1.0
    if is_one and is_share:  # onnxruntime says the second class above one half
        start = start - 0.5
        link, unit = (MEAN, 0.5) if link == NONE else (NONE, 1.0)
    elif is_class and is_share and link == NONE:
        link = MEAN
    if n_outputs == 2 and not is_one:
        trees = [_difference(t) for t in trees]
        start = start[1:] - start[:1]
    if not is_class and n_outputs != 1:
        raise InputError(f"the ONNX trees answer {n_outputs} values, one is expected")
    sums = "f64" if is_double else "f32"
    return Source(
        name=f"ONNX {node.op_type}", dtype=sums, sums=sums, is_nullable=True, features=("",) * n_features,
        classes=labels, base=tuple(start.tolist()), trees=tuple(trees), link=link, unit=unit,
    )  # fmt: skip


def _difference(tree: SourceTree) -> SourceTree:
    """How far the second of two classes is above the first."""
    if tree.leaves.shape[1] == 2:
        return SourceTree(0, tree.splits, tree.children, tree.leaves[:, 1:] - tree.leaves[:, :1])
    return SourceTree(0, tree.splits, tree.children, tree.leaves if tree.output == 1 else -tree.leaves)


def _labels(a: Attributes) -> tuple[Label, ...]:
    whole = a.get("classlabels_int64s", a.get("classlabels_ints", ()))  # of trees, of linear models
    found = a.get("classlabels_strings") or np.asarray(whole).tolist()
    if not 1 < len(found) <= MAX_CLASSES:
        raise InputError(f"the ONNX model names {len(found)} classes, 2 to {MAX_CLASSES} are expected")
    return tuple(found)


def _has(a: Attributes, key: str) -> bool:
    return key in a or f"{key}_as_tensor" in a


def _floats(a: Attributes, key: str) -> NDArray[np.float64]:
    found = a[f"{key}_as_tensor"] if f"{key}_as_tensor" in a else a[key]
    return np.atleast_1d(np.asarray(found, dtype=np.float64)).ravel()


def _walk(
    a: Attributes, part: str, weights: NDArray[np.float64], which: NDArray[np.int64], n_outputs: int
) -> tuple[list[SourceTree], int]:
    """The trees, each a run of nodes; leaves as wide as all outputs, or one wide where a tree names one output."""
    columns = [np.asarray(a[f"nodes_{key}"], dtype=np.int64).tolist() for key in
               ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")]  # fmt: skip
    n = len(columns[0])
    tracks = np.asarray(a.get("nodes_missing_value_tracks_true", ()), dtype=bool).tolist() or [False] * n
    cuts, modes = _floats(a, "nodes_values"), a["nodes_modes"]
    owners = [np.asarray(a[f"{part}_{key}"], dtype=np.int64).tolist() for key in ("treeids", "nodeids")]
    if n > 2 * MAX_NODES or any(len(c) != n for c in (*columns, tracks, cuts, modes)) or any(
        len(o) != len(weights) for o in owners
    ):  # fmt: skip
        raise InputError(f"the ONNX trees have {n} nodes and attributes of other lengths; write the file again")
    leaf_weights: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for tree, leaf, output, weight in zip(*owners, which.tolist(), weights.tolist(), strict=True):
        leaf_weights.setdefault((tree, leaf), []).append((output, weight))
    rows: dict[int, list[tuple[int, int, int, int, float, str, bool]]] = {}
    for tree, *row in zip(*columns, cuts.tolist(), modes, tracks, strict=True):
        rows.setdefault(tree, []).append(tuple(row))
    eps_type = np.float64 if "nodes_values_as_tensor" in a else np.float32
    return [_tree(t, found, leaf_weights, n_outputs, eps_type) for t, found in rows.items()], len(rows)


def _tree(
    number: int,
    rows: Sequence[tuple[int, int, int, int, float, str, bool]],
    leaf_weights: dict[tuple[int, int], list[tuple[int, float]]],
    n_outputs: int,
    type_: type[np.floating[Any]],
) -> SourceTree:
    place: dict[int, int] = {}
    n_splits = n_leaves = 0
    for node, *_, mode, _ in rows:
        if node in place:
            raise InputError(f"the ONNX tree {number} has the node {node} twice")
        if mode == "LEAF":
            place[node], n_leaves = -1 - n_leaves, n_leaves + 1
        else:
            place[node], n_splits = n_splits, n_splits + 1
    named = sorted({o for node in place for o, _ in leaf_weights.get((number, node), ())})
    first, width = (named[0], 1) if len(named) == 1 else (0, n_outputs)
    if n_leaves * width > MAX_VALUES:
        raise InputError(f"the ONNX tree {number} has {n_leaves} leaves of {width} values")
    leaves = np.zeros((n_leaves, width))
    splits, children = [], []
    for node, feature, yes, no, cut, mode, track in rows:
        if mode == "LEAF":
            for output, weight in leaf_weights.get((number, node), ()):
                leaves[-1 - place[node], output - first] += weight
            continue
        if yes not in place or no not in place:
            raise InputError(f"the ONNX tree {number} leads from node {node} to one that does not exist")
        splits.append(_split(feature, cut, mode, track, type_))
        children.append((place[yes], place[no]))
    return SourceTree(first, splits, children, leaves)


def _split(feature: int, cut: float, mode: str, track: bool, type_: type[np.floating[Any]]) -> Split:
    """Left is where the comparison holds; a missing reading goes there only if the node says so."""
    if np.isnan(cut):
        raise InputError("a threshold of the ONNX trees is not a number; write the file again")
    below = float(np.nextafter(type_(cut), type_(-np.inf)))
    parts: dict[str, tuple[tuple[float, ...], tuple[bool, ...]]] = {
        "BRANCH_LEQ": ((cut,), (True, False)),
        "BRANCH_LT": ((below,), (True, False)),
        "BRANCH_GTE": ((below,), (False, True)),
        "BRANCH_GT": ((cut,), (False, True)),
        "BRANCH_EQ": ((below, cut), (False, True, False)),
        "BRANCH_NEQ": ((below, cut), (True, False, True)),
    }
    if mode not in parts:
        raise InputError(f"the ONNX trees compare by {mode[:20]!r}; known are {', '.join(parts)}")
    missing = track or mode == "BRANCH_NEQ"
    return Split(feature, *parts[mode], missing)


# ---------------------------------------------------------------- linear models


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
            f"the ONNX linear model has {len(coefficients)} weights for {n_rows} outputs of {n_features} features"
        )
    weights = coefficients.reshape(n_rows, n_features)
    if is_class and n_rows == 2:
        weights, bias = weights[1:] - weights[:1], bias[1:] - bias[:1]
    post = a.get("post_transform", "NONE")
    if post not in (LINKS if is_class else ("NONE",)):
        raise InputError(f"the ONNX model ends in {post[:20]}; a program says plain sums")
    if scaler is not None:
        offset, scale = (np.asarray(scaler[key], dtype=np.float64) for key in ("offset", "scale"))
        if not all(len(v) in (1, n_features) for v in (offset, scale)):
            raise InputError(f"the ONNX Scaler has {len(scale)} factors for {n_features} features")
        weights = weights * scale
        bias = bias - weights @ np.broadcast_to(offset, n_features)
    unit = 2.0 if is_class and len(labels) == 2 and not is_one and post == "LOGISTIC" else 1.0
    return Source(
        name=f"ONNX {node.op_type}", dtype="f32", sums="f32", features=("",) * n_features, classes=labels,
        base=(0.0,) * len(bias), linear=Linear(weights, bias), link=LINKS[post] if is_class else NONE, unit=unit,
    )  # fmt: skip


# ---------------------------------------------------------------- the source's own answer


def _with_predict(source: Source, data: bytes, output: str, outputs: dict[str, str]) -> Source:
    from dataclasses import replace

    import onnxruntime as ort

    if output not in outputs:
        raise InputError("the ONNX file's outputs do not carry the model's label or value; write it again")
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    number = {label: k for k, label in enumerate(source.classes)}

    def predict(X: NDArray[np.float64]) -> NDArray[Any]:
        try:
            session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
            asked = session.get_inputs()[0]
            with np.errstate(over="ignore"):
                rows = X.astype(np.float32 if asked.type == "tensor(float)" else np.float64)
            said = np.asarray(session.run([outputs[output]], {asked.name: rows})[0]).ravel()
            return np.array([number[x] for x in said.tolist()], dtype=np.int64) if number else said
        except Exception as error:  # onnxruntime has no common base for its own errors
            line = " ".join(str(error).split())[:120]
            raise InputError(f"onnxruntime cannot run the model ({line}); write it again") from error

    return replace(source, predict=predict)
