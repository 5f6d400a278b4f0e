"""The trees of an ONNX node, from its attributes: flat lists of nodes and of leaf weights, each naming its tree.

onnxruntime adds in the type of the thresholds. Of two classes with weights for one, it says the second where the sum is
above 0, or above one half if no weight is negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.manifest import Label
from hardcase_edge.errors import InputError

from .source import LOGISTIC, MAX_CLASSES, MAX_NODES, MAX_VALUES, MEAN, NONE, Source, SourceTree, Split

__all__ = ["LINKS", "Attributes", "trees_source"]

LINKS = {"LOGISTIC": LOGISTIC, "SOFTMAX": LOGISTIC, "NONE": NONE, "SOFTMAX_ZERO": LOGISTIC}

Attributes = dict[str, Any]


def trees_source(kind: str, a: Attributes, n_features: int, labels: tuple[Label, ...], *, is_double: bool) -> Source:
    """The source of a TreeEnsembleClassifier or -Regressor; ``from_onnx`` checks it.

    Parameters
    ----------
    kind : the node's type
    a : its attributes as plain numbers
    labels : of the classes; empty for a regressor
    is_double : whether the file's input is float64

    Raises
    ------
    InputError, KeyError, ValueError, IndexError
        An attribute is missing, leads nowhere, or says what a program cannot.
    """
    is_class = kind.endswith("Classifier")
    part = "class" if is_class else "target"
    if a.get("aggregate_function", "SUM") not in ("SUM", "AVERAGE"):
        raise InputError(f"the ONNX trees are combined by {a['aggregate_function'][:20]}; SUM or AVERAGE is expected")
    if a.get("post_transform", "NONE") not in (LINKS if is_class else ("NONE",)):
        raise InputError(f"the ONNX model ends in {a['post_transform'][:20]}; a program says plain sums")
    if is_double != ("nodes_values_as_tensor" in a):
        raise InputError("the ONNX input and its thresholds have different types; write the model for float inputs")
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
        name=f"ONNX {kind}", dtype=sums, sums=sums, is_nullable=True, features=("",) * n_features,
        classes=labels, base=tuple(start.tolist()), trees=tuple(trees), link=link, unit=unit,
    )  # fmt: skip


def _difference(tree: SourceTree) -> SourceTree:
    """How far the second of two classes is above the first."""
    if tree.leaves.shape[1] == 2:
        return SourceTree(0, tree.splits, tree.children, tree.leaves[:, 1:] - tree.leaves[:, :1])
    return SourceTree(0, tree.splits, tree.children, tree.leaves if tree.output == 1 else -tree.leaves)


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
