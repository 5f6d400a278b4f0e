# SPDX-License-Identifier: Apache-2.0
"""Trees of an ONNX TreeEnsemble node: flat attribute lists become one ``SourceTree`` per tree.

onnxruntime adds in the type of the thresholds. If two classes share one list of weights, it answers the second class
where the sum is above 0, or above one half if no weight is negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.manifest import Label
from hardcase_edge.errors import InputError

from .source import LOGISTIC, MAX_CLASSES, MAX_NODES, MAX_VALUES, MEAN, NONE, Source, SourceTree, Split, two_as_one

LINKS = {"LOGISTIC": LOGISTIC, "SOFTMAX": LOGISTIC, "NONE": NONE, "SOFTMAX_ZERO": LOGISTIC}

Attributes = dict[str, Any]


def trees_source(kind: str, a: Attributes, n_features: int, labels: tuple[Label, ...], *, is_double: bool) -> Source:
    """The source of a TreeEnsembleClassifier or -Regressor; ``from_onnx`` checks it.

    Parameters
    ----------
    kind : the node's type
    a : the node's attributes, by name
    labels : the label of each class; empty for a regressor
    is_double : whether the file's input is float64

    Raises
    ------
    InputError, KeyError, ValueError, IndexError
        An attribute is missing, has an index out of range, or asks for what a program cannot express.
    """
    is_class = kind.endswith("Classifier")
    part = "class" if is_class else "target"
    if a.get("aggregate_function", "SUM") not in ("SUM", "AVERAGE"):
        raise InputError(
            f"the ONNX trees are combined by {a['aggregate_function'][:20]}; write them with SUM or AVERAGE"
        )
    if a.get("post_transform", "NONE") not in (LINKS if is_class else ("NONE",)):
        raise InputError(
            f"the ONNX model ends in {a['post_transform'][:20]}, but a program answers plain sums; write it with NONE"
        )
    if not is_double and "nodes_values_as_tensor" in a:
        raise InputError("the ONNX input and its thresholds have different types; write the model for float inputs")
    weights = _floats(a, f"{part}_weights")
    leaf_outputs = np.asarray(a[f"{part}_ids"], dtype=np.int64)
    n_outputs = len(labels) if is_class else int(a.get("n_targets", 1))
    base = _floats(a, "base_values") if _has(a, "base_values") else np.zeros(0)
    if len(weights) > MAX_VALUES or len(leaf_outputs) != len(weights) or not 1 <= n_outputs <= MAX_CLASSES:
        raise InputError(
            f"the ONNX trees have {len(weights)} leaf weights for {n_outputs} outputs, but {len(leaf_outputs)} ids; "
            "write the file again"
        )
    if len(leaf_outputs) == 0 or leaf_outputs.min() < 0 or leaf_outputs.max() >= n_outputs:
        raise InputError(
            f"a leaf of the ONNX trees adds to an output out of range 0..{n_outputs - 1}; write the file again"
        )
    is_share = is_class and bool((weights >= 0).all())
    is_one = n_outputs == 2 and len(np.unique(leaf_outputs)) == 1
    if len(base) not in ((0, 1) if is_one else (0, n_outputs)):
        raise InputError(f"the ONNX trees have {len(base)} base values for {n_outputs} outputs; write the file again")
    trees, n_trees = _walk(
        a, part, weights, np.zeros_like(leaf_outputs) if is_one else leaf_outputs, 1 if is_one else n_outputs, is_double
    )
    start = base if len(base) else np.zeros(1 if is_one else n_outputs)
    if a.get("aggregate_function") == "AVERAGE":
        trees = [SourceTree(t.output, t.splits, t.children, t.leaves / n_trees) for t in trees]
    link = LINKS[a.get("post_transform", "NONE")] if is_class else NONE
    unit = 1.0
    if is_one and is_share:  # onnxruntime answers the second class above one half
        start = start - 0.5
        link, unit = (MEAN, 0.5) if link == NONE else (NONE, 1.0)
    elif is_class and is_share and link == NONE:
        link = MEAN
    if n_outputs == 2 and not is_one:
        trees = two_as_one(trees)
        start = start[1:] - start[:1]
        unit = 2.0 if a.get("post_transform") == "LOGISTIC" else unit  # each score is the log odds of its own class
    if not is_class and n_outputs != 1:
        raise InputError(
            f"the ONNX trees answer {n_outputs} values, but a program answers one; train one model per target"
        )
    sums = "f64" if is_double else "f32"
    return Source(
        name=f"ONNX {kind}", dtype=sums, sums=sums, is_nullable=True, features=("",) * n_features,
        classes=labels, base=tuple(start.tolist()), trees=tuple(trees), link=link, unit=unit,
    )  # fmt: skip


def _has(a: Attributes, key: str) -> bool:
    return key in a or f"{key}_as_tensor" in a


def _floats(a: Attributes, key: str) -> NDArray[np.float64]:
    numbers = a[f"{key}_as_tensor"] if f"{key}_as_tensor" in a else a[key]
    return np.atleast_1d(np.asarray(numbers, dtype=np.float64)).ravel()


def _walk(
    a: Attributes,
    part: str,
    weights: NDArray[np.float64],
    leaf_outputs: NDArray[np.int64],
    n_outputs: int,
    is_double: bool,
) -> tuple[list[SourceTree], int]:
    """The trees and their number. A leaf holds a value per output, or a single value if its tree adds to one output."""
    columns = [np.asarray(a[f"nodes_{key}"], dtype=np.int64).tolist() for key in
               ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")]  # fmt: skip
    n = len(columns[0])
    tracks = np.asarray(a.get("nodes_missing_value_tracks_true", ()), dtype=bool).tolist() or [False] * n
    cuts, modes = _floats(a, "nodes_values"), a["nodes_modes"]
    owners = [np.asarray(a[f"{part}_{key}"], dtype=np.int64).tolist() for key in ("treeids", "nodeids")]
    if n > 2 * MAX_NODES or any(len(c) != n for c in (*columns, tracks, cuts, modes)) or any(
        len(o) != len(weights) for o in owners
    ):  # fmt: skip
        raise InputError(f"the ONNX trees have {n} nodes but attributes of other lengths; write the file again")
    leaf_weights: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for tree, leaf, output, weight in zip(*owners, leaf_outputs.tolist(), weights.tolist(), strict=True):
        leaf_weights.setdefault((tree, leaf), []).append((output, weight))
    rows: dict[int, list[tuple[int, int, int, int, float, str, bool]]] = {}
    for tree, *row in zip(*columns, cuts.tolist(), modes, tracks, strict=True):
        rows.setdefault(tree, []).append(tuple(row))
    cut_type = np.float64 if is_double else np.float32
    return [_tree(t, nodes, leaf_weights, n_outputs, cut_type) for t, nodes in rows.items()], len(rows)


def _tree(
    number: int,
    rows: Sequence[tuple[int, int, int, int, float, str, bool]],
    leaf_weights: dict[tuple[int, int], list[tuple[int, float]]],
    n_outputs: int,
    cut_type: type[np.floating[Any]],
) -> SourceTree:
    place: dict[int, int] = {}
    n_splits = n_leaves = 0
    for node, *_, mode, _ in rows:
        if node in place:
            raise InputError(f"the ONNX tree {number} has the node {node} twice; write the file again")
        if mode == "LEAF":
            place[node], n_leaves = -1 - n_leaves, n_leaves + 1
        else:
            place[node], n_splits = n_splits, n_splits + 1
    outputs = sorted({o for node in place for o, _ in leaf_weights.get((number, node), ())})
    first, width = (outputs[0], 1) if len(outputs) == 1 else (0, n_outputs)
    if n_leaves * width > MAX_VALUES:
        raise InputError(
            f"the ONNX tree {number} has {n_leaves} leaves of {width} values, but at most {MAX_VALUES} values are "
            "read; train a smaller model"
        )
    leaves = np.zeros((n_leaves, width))
    splits, children = [], []
    for node, feature, yes, no, cut, mode, track in rows:
        if mode == "LEAF":
            for output, weight in leaf_weights.get((number, node), ()):
                leaves[-1 - place[node], output - first] += weight
            continue
        if yes not in place or no not in place:
            raise InputError(
                f"the ONNX tree {number} has a child of node {node} that does not exist; write the file again"
            )
        splits.append(_split(feature, cut, mode, track, cut_type))
        children.append((place[yes], place[no]))
    return SourceTree(first, splits, children, leaves)


def _split(feature: int, cut: float, mode: str, track: bool, cut_type: type[np.floating[Any]]) -> Split:
    """Left is where the comparison holds; a missing reading goes left only if the node says so (``track``)."""
    if np.isnan(cut):
        raise InputError("a threshold of the ONNX trees is not a number; write the file again")
    with np.errstate(over="ignore", under="ignore"):  # next to the smallest number lies -inf, next to 0 a subnormal
        below = float(np.nextafter(cut_type(cut), cut_type(-np.inf)))
    intervals: dict[str, tuple[tuple[float, ...], tuple[bool, ...]]] = {
        "BRANCH_LEQ": ((cut,), (True, False)),
        "BRANCH_LT": ((below,), (True, False)),
        "BRANCH_GTE": ((below,), (False, True)),
        "BRANCH_GT": ((cut,), (False, True)),
        "BRANCH_EQ": ((below, cut), (False, True, False)),
        "BRANCH_NEQ": ((below, cut), (True, False, True)),
    }
    if mode not in intervals:
        raise InputError(f"the ONNX trees compare by {mode[:20]!r}; write them with one of {', '.join(intervals)}")
    missing = track or mode == "BRANCH_NEQ"
    return Split(feature, *intervals[mode], missing)
