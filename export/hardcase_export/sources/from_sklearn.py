# SPDX-License-Identifier: Apache-2.0
"""Source models of live scikit-learn estimators: trees, forests, boosting, linear models and networks.

scikit-learn's trees hold a reading in float32 and send it left if it is at most a float64 threshold. A forest answers
the mean of its trees' shares; gradient boosting adds leaves to a first score in float64. Linear models use float64.
Networks do too, but become float32. Histogram boosting compares in float64. Its categories are the numbers that its
encoder has seen; every other number counts as missing, as in scikit-learn. A set of categories becomes intervals just
below, at and above each of its numbers.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError, one_line

from .source import (
    LOGISTIC,
    MEAN,
    NONE,
    Layer,
    LinearModel,
    Network,
    Source,
    SourceTree,
    Split,
    check_source,
    source_fields,
)

TREES = ("DecisionTreeClassifier", "DecisionTreeRegressor", "ExtraTreeClassifier", "ExtraTreeRegressor")
FORESTS = ("RandomForestClassifier", "RandomForestRegressor", "ExtraTreesClassifier", "ExtraTreesRegressor")
BOOSTED = ("GradientBoostingClassifier", "GradientBoostingRegressor")
HISTOGRAM = ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor")
LOGISTICS = ("LogisticRegression", "LogisticRegressionCV")
CLASSIFIERS = ("LinearSVC", "Perceptron", "RidgeClassifier", "RidgeClassifierCV", "SGDClassifier")
LINKS = ("IdentityLink", "LogitLink", "MultinomialLogit")  # of histogram boosting
REGRESSORS = (
    "ElasticNet", "HuberRegressor", "Lasso", "LinearRegression", "LinearSVR", "Ridge", "RidgeCV", "SGDRegressor",
)  # fmt: skip
KNOWN = (*TREES, *FORESTS, *BOOSTED, *HISTOGRAM, *LOGISTICS, *CLASSIFIERS, *REGRESSORS, "MLPClassifier")


def from_sklearn(estimator: Any) -> Source:
    """The source model of a fitted estimator.

    Raises
    ------
    InputError
        The kind of estimator is not supported, it is not fitted, or it has several targets.
    """
    kind = type(estimator).__name__
    if kind not in KNOWN:
        raise InputError(
            f"a {kind} cannot be imported; give one of {', '.join(KNOWN)}, a Pipeline with one of them, or a model of "
            "LightGBM, XGBoost, CatBoost or interpret"
        )
    try:
        return check_source(_read(kind, estimator))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"the {kind} cannot be read ({one_line(error)}); fit it, with one target, by scikit-learn 1.4 or later"
        ) from error


def _read(kind: str, estimator: Any) -> Source:
    if kind in HISTOGRAM:
        return _histogram(estimator)
    if kind in TREES:
        return _forest(estimator, [estimator])
    if kind in FORESTS:
        return _forest(estimator, list(estimator.estimators_))
    if kind == "MLPClassifier":
        return _network(estimator)
    return _boosted(estimator) if kind in BOOSTED else _linear(kind, estimator)


# ---------------------------------------------------------------- trees


def _nodes(tree: Any, leaves: NDArray[np.float64], output: int) -> SourceTree:
    """A ``tree_`` as a source tree; ``leaves``: (n_nodes, width) values of all its nodes."""
    left, right = np.asarray(tree.children_left), np.asarray(tree.children_right)
    inner = left != -1
    place = np.where(inner, np.cumsum(inner) - 1, -np.cumsum(~inner))
    ids = np.flatnonzero(inner)
    if len(ids) and not (
        0 <= left[ids].min() <= max(left[ids].max(), right[ids].max()) < len(left) and right[ids].min() >= 0
    ):
        raise InputError("a tree has a child that does not exist; fit the estimator again")
    missing = np.asarray(tree.missing_go_to_left, dtype=bool)[ids].tolist()
    nodes = zip(np.asarray(tree.feature)[ids].tolist(), np.asarray(tree.threshold)[ids].tolist(), missing, strict=True)
    splits = [Split(feature, (cut,), (True, False), goes_left) for feature, cut, goes_left in nodes]
    children = list(zip(place[left[ids]].tolist(), place[right[ids]].tolist(), strict=True))
    if not inner[0] or not len(ids):
        children, splits = [], []
    return SourceTree(output, splits, children, leaves[~inner])


def _forest(estimator: Any, members: list[Any]) -> Source:
    """The mean of trees; for two classes, the second class's share less the first's."""
    if int(estimator.n_outputs_) != 1:
        raise InputError(
            f"the {type(estimator).__name__} has {estimator.n_outputs_} targets, but one is expected; "
            "fit one estimator per target"
        )
    fields = source_fields(estimator)
    n_classes = len(fields["classes"])
    trees = []
    for member in members:
        values = np.asarray(member.tree_.value, dtype=np.float64)[:, 0, :]
        if n_classes == 2:
            values = values[:, 1:] - values[:, :1]
        elif not n_classes:
            values = values / len(members)
        trees.append(_nodes(member.tree_, values, 0))
    base = (0.0,) * (n_classes if n_classes > 2 else 1)
    link = MEAN if n_classes else NONE
    return Source(
        **fields, dtype="f32", is_nullable=_may_miss(members[0]), base=base, trees=tuple(trees), link=link,
        unit=float(len(members)) if n_classes else 1.0,
    )  # fmt: skip


def _may_miss(member: Any) -> bool:
    """Whether the tree accepts a row with a missing reading."""
    mask = getattr(member, "_support_missing_values", None)
    return bool(mask is not None and mask(np.zeros((1, 1), dtype=np.float32)))


def _boosted(estimator: Any) -> Source:
    first = estimator.init_
    if not isinstance(first, str) and type(first).__name__ not in ("DummyClassifier", "DummyRegressor"):
        raise InputError(
            f"gradient boosting that begins with a {type(first).__name__} cannot be imported; fit it without init"
        )
    n = int(estimator.n_features_in_)
    base = np.asarray(estimator._raw_predict_init(np.zeros((1, n), dtype=np.float32)), dtype=np.float64)[0]
    rate = float(estimator.learning_rate)
    trees = [
        _nodes(member.tree_, rate * np.asarray(member.tree_.value, dtype=np.float64)[:, 0, :1], k)
        for stage in np.asarray(estimator.estimators_)
        for k, member in enumerate(stage)
    ]
    fields = source_fields(estimator)
    is_two = len(fields["classes"]) == 2
    link = _boosted_link(estimator) if fields["classes"] else NONE
    return Source(**fields, dtype="f32", base=tuple(base.tolist()), trees=tuple(trees), link=link, ties_up=is_two)


def _boosted_link(estimator: Any) -> str:
    return LOGISTIC if estimator.loss == "log_loss" else NONE


# ---------------------------------------------------------------- linear models


def _linear(kind: str, estimator: Any) -> Source:
    fields = source_fields(estimator)
    weights = np.atleast_2d(np.asarray(estimator.coef_, dtype=np.float64))
    bias = np.atleast_1d(np.asarray(estimator.intercept_, dtype=np.float64))
    bias = np.broadcast_to(bias, (len(weights),)).copy()
    if str(getattr(getattr(estimator, "_label_binarizer", None), "y_type_", "")).startswith("multilabel"):
        raise InputError(f"the {kind} gives several labels to a row; fit one per label")
    if weights.shape[0] != 1 and not fields["classes"]:
        raise InputError(f"the {kind} has {len(weights)} targets, but one is expected; fit one estimator per target")
    is_softmax = (
        len(bias) == 1 or getattr(estimator, "solver", "") != "liblinear"
    )  # which fits one class against the rest
    link = LOGISTIC if kind in LOGISTICS and is_softmax else NONE
    return Source(**fields, dtype="f64", base=(0.0,) * len(bias), linear=LinearModel(weights, bias), link=link)


def _network(estimator: Any) -> Source:
    fields = source_fields(estimator)
    layers = [
        Layer(np.asarray(w, dtype=np.float64).T, np.asarray(b, dtype=np.float64), str(estimator.activation))
        for w, b in zip(estimator.coefs_, estimator.intercepts_, strict=True)
    ]
    layers[-1] = replace(layers[-1], activation="identity")  # neither a sigmoid nor a softmax changes the label
    if estimator.out_activation_ == "logistic" and len(layers[-1].bias) > 1:
        raise InputError("the MLPClassifier gives several labels to a row; fit one per label")
    n = len(fields["features"])
    return Source(
        **fields, dtype="f32", sums="f32", base=(0.0,) * len(layers[-1].bias),
        network=Network(np.zeros(n), np.ones(n), tuple(layers)), link=LOGISTIC,
    )  # fmt: skip


# ---------------------------------------------------------------- histogram boosting


def _histogram(estimator: Any) -> Source:
    """The source model of histogram boosting.

    Raises
    ------
    InputError
        A category is not a number, or the answer is not a class or the plain sum of leaves.
    """
    fields = source_fields(estimator)
    link = type(estimator._loss.link).__name__
    if link not in LINKS:
        raise InputError(
            f"{fields['name']} transforms its scores by a {link}, but a program answers plain sums; "
            "train it with another loss"
        )
    categories, order = _categories(estimator)
    trees = [
        _tree(predictor, k, categories, order) for stage in estimator._predictors for k, predictor in enumerate(stage)
    ]
    base = np.asarray(estimator._baseline_prediction, dtype=np.float64).ravel()
    return Source(
        **fields, dtype="f64", is_nullable=True, base=tuple(base.tolist()), trees=tuple(trees),
        link=LOGISTIC if fields["classes"] else NONE,
    )  # fmt: skip


def _categories(estimator: Any) -> tuple[dict[int, NDArray[np.float64]], list[int]]:
    """Categories by categorical feature, as numbers; and the features in the order in which trees number them."""
    is_set = estimator.is_categorical_
    if is_set is None:
        return {}, list(range(int(estimator.n_features_in_)))
    mask = np.asarray(is_set, dtype=bool)
    sets = np.flatnonzero(mask).tolist()
    categories = {}
    for feature, seen in zip(sets, estimator._preprocessor.named_transformers_["encoder"].categories_, strict=True):
        seen = np.asarray(seen)
        if seen.dtype.kind not in "iuf":
            raise InputError(
                f"feature {feature} has categories that are not numbers; code them as numbers and train again"
            )
        values = seen.astype(np.float64)
        categories[feature] = values[~np.isnan(values)]
    return categories, [*sets, *np.flatnonzero(~mask).tolist()]


def _tree(predictor: Any, output: int, categories: dict[int, NDArray[np.float64]], order: list[int]) -> SourceTree:
    nodes = predictor.nodes
    is_leaf = np.asarray(nodes["is_leaf"], dtype=bool)
    place = np.where(is_leaf, -np.cumsum(is_leaf), np.cumsum(~is_leaf) - 1).tolist()
    splits, children = [], []
    names = ("feature_idx", "num_threshold", "missing_go_to_left", "left", "right", "is_categorical", "bitset_idx")
    for number, cut, missing_left, left, right, is_set, bitset in zip(
        *(nodes[name][~is_leaf].tolist() for name in names), strict=True
    ):
        feature = order[number]
        if is_set:
            splits.append(
                _set(feature, categories[feature], predictor.raw_left_cat_bitsets[bitset], bool(missing_left))
            )
        else:
            splits.append(Split(feature, (cut,), (True, False), bool(missing_left)))
        children.append((place[left], place[right]))
    return SourceTree(output, splits, children, np.asarray(nodes["value"], dtype=np.float64)[is_leaf][:, None])


def _set(feature: int, categories: NDArray[np.float64], bits: NDArray[np.uint32], missing_left: bool) -> Split:
    """A split on a set: each category goes where its bit says, every other number where missing readings go."""
    cuts: list[float] = []
    sides: list[bool] = []
    for k, value in sorted(enumerate(categories.tolist()), key=lambda pair: pair[1]):
        cuts += [math.nextafter(value, -math.inf), value]
        sides += [missing_left, bool(int(bits[k // 32]) >> (k % 32) & 1)]
    joined = dict(zip(cuts, sides, strict=True))  # between neighbouring doubles an interval is empty
    return Split(feature, tuple(joined), (*joined.values(), missing_left), missing_left)
