# SPDX-License-Identifier: Apache-2.0
"""Source models of XGBoost, read from its JSON or from a live estimator.

XGBoost itself never opens a file here. It holds readings, thresholds and leaves in float32: a reading goes left if it
is less than the threshold, and each node says where a missing reading goes. Early stopping leaves a best iteration in
the file; trees behind it do not count, as in XGBoost's own scikit-learn classes.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError, one_line

from .source import (
    LOGISTIC,
    MAX_CLASSES,
    NONE,
    Source,
    SourceTree,
    Split,
    check_source,
    feature_names,
    labels_of,
    two_as_one,
)

MAX_JSON_BYTES = 64 * 1024**2  # of text, which takes some 20 times as much once it is parsed
TWO, SEVERAL = ("binary:logistic",), ("multi:softprob", "multi:softmax")
PLAIN = (
    "reg:squarederror", "reg:linear", "reg:absoluteerror", "reg:pseudohubererror", "reg:quantileerror",
)  # fmt: skip
SAVE_AS_JSON = "save it with save_model('model.json')"


def read_xgboost(data: bytes) -> Source:
    """The source model of XGBoost's JSON.

    Raises
    ------
    InputError
        The text is not XGBoost's JSON, is damaged, or the model does what a program cannot express.
    """
    if data[1:2] not in (b'"', b" ", b"\n", b"\r", b"\t"):
        raise InputError(f"the model begins like XGBoost's UBJSON, which is not read; {SAVE_AS_JSON}")
    if len(data) > MAX_JSON_BYTES:
        raise InputError(
            f"the XGBoost model has {len(data)} bytes, but at most {MAX_JSON_BYTES} are read; train fewer trees"
        )
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the model is not JSON, or it is cut ({one_line(error)}); {SAVE_AS_JSON}") from error
    if not isinstance(tree, dict) or "learner" not in tree:
        raise InputError(f"the JSON file is not a model of XGBoost; {SAVE_AS_JSON}")
    try:
        with np.errstate(over="ignore"):
            return check_source(_read(tree["learner"]))
    except (AttributeError, KeyError, ValueError, IndexError, TypeError, OverflowError) as error:
        raise InputError(f"the XGBoost model is damaged ({one_line(error)}); {SAVE_AS_JSON}") from error


def from_xgboost(model: Any) -> Source:
    """The source model of a live Booster, XGBClassifier, XGBRegressor or one of XGBoost's random forests.

    Raises
    ------
    InputError
        As ``read_xgboost``, the model is not fitted, or it takes other values than NaN for missing.
    """
    from dataclasses import replace

    kind = type(model).__name__
    missing = getattr(model, "missing", math.nan)
    if missing is None or missing == missing:  # NaN equals nothing
        raise InputError(f"the {kind} takes {missing} for missing, but a program NaN; fit it with missing=nan")
    try:
        booster = model.get_booster() if hasattr(model, "get_booster") else model
    except Exception as error:
        raise InputError(f"the {kind} is not fitted ({one_line(error)}); fit it first") from error
    source = read_xgboost(bytes(booster.save_raw("json")))
    classes = labels_of(model) if source.classes and hasattr(model, "n_classes_") else source.classes
    if len(classes) != len(source.classes):
        raise InputError(f"the {kind} has {len(classes)} classes but trees for {len(source.classes)}; fit it again")
    best = booster.attr("best_iteration")

    def predict(X: NDArray[np.float64]) -> NDArray[Any]:
        used = (0, 0 if best is None else int(best) + 1)
        answers = np.asarray(booster.inplace_predict(X, iteration_range=used, predict_type="margin", strict_shape=True))
        if not classes:
            return answers[:, 0]
        return np.asarray(answers.argmax(axis=1) if answers.shape[1] > 1 else answers[:, 0] > 0, dtype=np.int64)

    return replace(source, classes=classes, predict=predict, name=f"XGBoost {kind}")


# ---------------------------------------------------------------- the file


def _read(learner: dict[str, Any]) -> Source:
    booster = learner["gradient_booster"]
    if booster["name"] != "gbtree":
        raise InputError(f"the XGBoost model has the booster {str(booster['name'])[:20]!r}; train it with gbtree")
    shape, objective = learner["learner_model_param"], str(learner["objective"]["name"])
    n_features, n_classes = int(shape["num_feature"]), int(shape["num_class"])
    classes = _classes(objective, n_classes)
    if int(shape.get("num_target", 1)) != 1:
        raise InputError(f"the XGBoost model answers {shape['num_target']} targets; train one model per target")
    model = booster["model"]
    n_outputs = max(1, n_classes)
    groups, trees = _counted(learner, model, n_outputs)
    source_trees = [_tree(tree, group) for tree, group in zip(trees, groups, strict=True)]
    base = _base(shape["base_score"], objective, n_outputs)
    if n_outputs == 2:
        source_trees, base = two_as_one(source_trees), base[1:] - base[:1]
    return Source(
        name=f"XGBoost {objective}", dtype="f32", sums="f32", is_nullable=True,
        features=feature_names(learner.get("feature_names"), n_features), classes=classes, base=tuple(base.tolist()),
        trees=tuple(source_trees), link=LOGISTIC if classes else NONE,
    )  # fmt: skip


def _classes(objective: str, n_classes: int) -> tuple[int, ...]:
    if objective in TWO and n_classes <= 1:
        return 0, 1
    if objective in SEVERAL and 2 <= n_classes <= MAX_CLASSES:
        return tuple(range(n_classes))
    if objective in PLAIN and n_classes <= 1:
        return ()
    raise InputError(
        f"the XGBoost model has the objective {objective[:40]!r} for {n_classes} classes; "
        f"train it with one of {', '.join((*TWO, *SEVERAL, *PLAIN))}"
    )


def _counted(learner: dict[str, Any], model: dict[str, Any], n_outputs: int) -> tuple[list[int], list[Any]]:
    """The output of each tree, and the trees, up to the best iteration."""
    groups, trees = [int(k) for k in model["tree_info"]], list(model["trees"])
    best = learner.get("attributes", {}).get("best_iteration")
    if best is not None:
        per_round = n_outputs * int(model["gbtree_model_param"].get("num_parallel_tree", 1) or 1)
        n = (int(best) + 1) * per_round
        groups, trees = groups[:n], trees[:n]
    return groups, trees


def _base(text: str, objective: str, n_outputs: int) -> NDArray[np.float64]:
    """First score of each output: one number for all, or since XGBoost 3.1 a list; of two classes a probability."""
    numbers = np.atleast_1d(np.asarray(json.loads(text), dtype=np.float64))
    base = np.array(np.broadcast_to(numbers, n_outputs))
    if objective in TWO:
        if not 0 < base[0] < 1:
            raise InputError(f"the XGBoost model has the base_score {base[0]:g}; train it with one between 0 and 1")
        base = -np.log(1 / base - 1)
    return np.asarray(base.astype(np.float32).astype(np.float64))


def _tree(tree: dict[str, Any], output: int) -> SourceTree:
    """A tree of the nodes that its root reaches; files keep pruned nodes, too."""
    if int(tree["tree_param"].get("size_leaf_vector", 1) or 1) > 1:
        raise InputError(
            "the XGBoost trees have several values in a leaf; train it with multi_strategy one_output_per_tree"
        )
    left, right, feature = ([int(k) for k in tree[key]] for key in ("left_children", "right_children", "split_indices"))
    numbers = np.asarray(tree["split_conditions"], dtype=np.float64).astype(np.float32)
    default_left = [bool(k) for k in tree["default_left"]]
    kinds = [int(k) for k in tree.get("split_type", ())] or [0] * len(left)
    if not left or {len(v) for v in (right, feature, numbers, default_left, kinds)} != {len(left)}:
        raise InputError(f"an XGBoost tree of {len(left)} nodes has columns of other lengths; {SAVE_AS_JSON}")
    place, nodes, leaves = _places(left, right)
    if any(kinds[node] for node in nodes):
        raise InputError("the XGBoost model splits on sets of categories; code them as numbers and train again")
    with np.errstate(over="ignore", under="ignore"):  # next to the smallest number lies -inf, next to 0 a subnormal
        below = np.nextafter(numbers, np.float32(-np.inf)).astype(np.float64).tolist()
    splits = [Split(feature[node], (below[node],), (True, False), default_left[node]) for node in nodes]
    children = [(place[left[node]], place[right[node]]) for node in nodes]
    return SourceTree(output, splits, children, numbers[leaves].astype(np.float64)[:, None])


def _places(left: list[int], right: list[int]) -> tuple[dict[int, int], list[int], list[int]]:
    """The place of each node that the root reaches, a split's number or -1-k of leaf k; and the nodes of both."""
    place: dict[int, int] = {}
    nodes: list[int] = []
    leaves: list[int] = []
    pending = [0]
    while pending:
        node = pending.pop()
        if not 0 <= node < len(left) or node in place:
            raise InputError(f"an XGBoost tree has a node {node} with two parents or out of range; {SAVE_AS_JSON}")
        kind = leaves if left[node] == -1 else nodes
        place[node] = -1 - len(leaves) if kind is leaves else len(nodes)
        kind.append(node)
        pending += [] if kind is leaves else [right[node], left[node]]
    return place, nodes, leaves
