"""Source models of scikit-learn's histogram gradient boosting: float64 comparisons, sets of categories, gaps.

Categories are numbers that an encoder has seen; any other number counts as missing, as it does in scikit-learn. A set
of them is written as the parts just below, at and above each of its numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError

from .source import LOGISTIC, NONE, Source, SourceTree, Split

__all__ = ["from_hist"]

LINKS = ("IdentityLink", "LogitLink", "MultinomialLogit")


def from_hist(estimator: Any) -> Source:
    """The source model of a fitted HistGradientBoostingClassifier or -Regressor; ``from_sklearn`` checks it.

    Raises
    ------
    InputError
        A category is no number, or it answers something else than classes or the sum of its leaves.
    """
    from .estimator import _about, plain_predict

    about = _about(estimator, plain_predict(estimator))
    link = type(estimator._loss.link).__name__
    if link not in LINKS:
        raise InputError(
            f"{about['name']} answers through a {link}, a program says plain sums; train it with another loss"
        )
    categories, order = _categories(estimator)
    trees = [
        _tree(predictor, k, categories, order) for stage in estimator._predictors for k, predictor in enumerate(stage)
    ]
    base = np.asarray(estimator._baseline_prediction, dtype=np.float64).ravel()
    return Source(
        **about, dtype="f64", is_nullable=True, base=tuple(base.tolist()), trees=tuple(trees),
        link=LOGISTIC if about["classes"] else NONE,
    )  # fmt: skip


def _categories(estimator: Any) -> tuple[dict[int, NDArray[np.float64]], list[int]]:
    """The numbers that are categories of each feature that has some, and the features in the order trees count them."""
    is_set = estimator.is_categorical_
    if is_set is None:
        return {}, list(range(int(estimator.n_features_in_)))
    mask = np.asarray(is_set, dtype=bool)
    sets = np.flatnonzero(mask).tolist()
    found = {}
    for feature, known in zip(sets, estimator._preprocessor.named_transformers_["encoder"].categories_, strict=True):
        known = np.asarray(known)
        if known.dtype.kind not in "iuf":
            raise InputError(
                f"feature {feature} has categories that are no numbers; code them as numbers and train again"
            )
        values = known.astype(np.float64)
        found[feature] = values[~np.isnan(values)]
    return found, [*sets, *np.flatnonzero(~mask).tolist()]


def _tree(predictor: Any, output: int, categories: dict[int, NDArray[np.float64]], order: list[int]) -> SourceTree:
    nodes = predictor.nodes
    is_leaf = np.asarray(nodes["is_leaf"], dtype=bool)
    place = np.where(is_leaf, -np.cumsum(is_leaf), np.cumsum(~is_leaf) - 1).tolist()
    splits, children = [], []
    names = ("feature_idx", "num_threshold", "missing_go_to_left", "left", "right", "is_categorical", "bitset_idx")
    for asked, cut, missing_left, left, right, is_set, which in zip(
        *(nodes[name][~is_leaf].tolist() for name in names), strict=True
    ):
        feature = order[asked]
        if is_set:
            splits.append(_set(feature, categories[feature], predictor.raw_left_cat_bitsets[which], bool(missing_left)))
        else:
            splits.append(Split(feature, (cut,), (True, False), bool(missing_left)))
        children.append((place[left], place[right]))
    return SourceTree(output, splits, children, np.asarray(nodes["value"], dtype=np.float64)[is_leaf][:, None])


def _set(feature: int, known: NDArray[np.float64], bits: NDArray[np.uint32], missing_left: bool) -> Split:
    """Known numbers go where their bit says, all others where missing readings go."""
    cuts: list[float] = []
    sides: list[bool] = []
    for k, value in sorted(enumerate(known.tolist()), key=lambda pair: pair[1]):
        cuts += [math.nextafter(value, -math.inf), value]
        sides += [missing_left, bool(int(bits[k // 32]) >> (k % 32) & 1)]
    joined = dict(zip(cuts, sides, strict=True))  # neighbouring doubles: the part between them is empty
    return Split(feature, tuple(joined), (*joined.values(), missing_left), missing_left)
