# SPDX-License-Identifier: Apache-2.0
"""Source models of scikit-learn's histogram gradient boosting, with sets of categories and missing readings.

The estimator compares in float64. Categories are the numbers that its encoder has seen; every other number counts as
missing, as in scikit-learn. A set of categories becomes intervals just below, at and above each of its numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError

from .source import LOGISTIC, NONE, Source, SourceTree, Split, source_fields

__all__ = ["from_hist"]

LINKS = ("IdentityLink", "LogitLink", "MultinomialLogit")


def from_hist(estimator: Any) -> Source:
    """The source model of a fitted HistGradientBoostingClassifier or -Regressor; ``from_sklearn`` checks it.

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
