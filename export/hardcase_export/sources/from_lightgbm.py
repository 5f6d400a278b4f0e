# SPDX-License-Identifier: Apache-2.0
"""Source models of LightGBM, read from its text format or from a live estimator.

LightGBM itself never opens a file here. It compares in float64 with "at most". A reading within 1e-35 of zero counts as
zero. Each node says whether zero or NaN is its missing reading, and where that goes; a NaN that is not missing counts
as zero. A set of whole numbers goes left.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError, one_line

from .source import LOGISTIC, NONE, Source, SourceTree, Split, check_source, feature_names, labels_of

ZERO = float(np.float32(1e-35))  # readings nearer to zero count as zero
BELOW_ZERO = math.nextafter(-ZERO, -math.inf)
SET, DEFAULT_LEFT = 1, 2  # bits of a decision_type; bits 2 and 3 name the missing reading
ZERO_MISSING, NAN_MISSING = 1, 2
TWO, SEVERAL = ("binary", "cross_entropy", "xentropy"), ("multiclass", "softmax")
PLAIN = ("regression", "regression_l2", "l2", "mean_squared_error", "mse", "regression_l1", "l1", "mae", "huber",
         "fair", "quantile", "mape")  # fmt: skip
MAX_CATEGORIES = 65_536


def read_lightgbm(data: bytes) -> Source:
    """The source model of a LightGBM text model.

    Raises
    ------
    InputError
        The text is cut or damaged, or the model does what a program cannot express.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InputError("the LightGBM model is not text; save it with Booster.save_model") from error
    if not text.startswith("tree\n"):
        raise InputError("the LightGBM model does not begin with 'tree'; save it with Booster.save_model")
    body, end, after = text.partition("\nend of trees\n")
    if not end:
        raise InputError("the LightGBM model is cut, as it has no 'end of trees'; save it again")
    if re.search(r"^pandas_categorical:\[.*[^\[\], ].*\]", after, re.M):
        raise InputError("the LightGBM model has categories named by pandas; code them as numbers and train again")
    try:
        return check_source(_read(body))
    except (KeyError, ValueError, IndexError, OverflowError) as error:
        raise InputError(f"the LightGBM model is damaged ({one_line(error)}); save it again") from error


def from_lightgbm(model: Any) -> Source:
    """The source model of a live Booster, LGBMClassifier or LGBMRegressor.

    Raises
    ------
    InputError
        As ``read_lightgbm``, or the model is not fitted.
    """
    from dataclasses import replace

    try:
        booster = getattr(model, "booster_", model)
        best = int(getattr(booster, "best_iteration", -1))
        source = read_lightgbm(booster.model_to_string(num_iteration=best).encode())
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"the {type(model).__name__} is not fitted ({error}); fit it first") from error
    except Exception as error:
        if type(error).__name__ in ("NotFittedError", "LGBMNotFittedError", "LightGBMError"):
            raise InputError(f"the {type(model).__name__} is not fitted; fit it first") from error
        raise
    if source.classes and hasattr(model, "booster_") and not hasattr(model, "classes_"):
        raise InputError(
            f"the {type(model).__name__} answers a probability, but a program plain sums or classes; train it with one "
            f"of {', '.join(PLAIN)}, or an LGBMClassifier"
        )
    classes = labels_of(model) or source.classes
    if len(classes) != len(source.classes):
        raise InputError(
            f"the model has {len(classes)} classes but trees for {len(source.classes)}; "
            "train it with a built-in objective"
        )

    def predict(X: NDArray[np.float64]) -> NDArray[Any]:
        answers = np.asarray(booster.predict(X))
        if not classes:
            return answers
        shares = answers if answers.ndim == 2 else np.stack([1 - answers, answers], axis=1)
        return np.asarray(shares.argmax(axis=1))

    return replace(source, classes=classes, predict=predict, name=f"LightGBM {type(model).__name__}")


# ---------------------------------------------------------------- the text


def _read(body: str) -> Source:
    head, *blocks = re.split(r"\nTree=\d+\n", body)
    top = _fields(head)
    objective, *terms = top.get("objective", "").split()
    n_features, n_outputs = int(top["max_feature_idx"]) + 1, int(top["num_tree_per_iteration"])
    classes = _classes(objective, n_outputs)
    if not classes and ("sqrt" in terms or n_outputs != 1):
        raise InputError(
            "the LightGBM model answers squares or several values, but a program answers one plain sum; "
            "train it without reg_sqrt, on one target"
        )
    if "linear_tree" in head or "is_linear=1" in body:
        raise InputError("the LightGBM model has linear trees; train it without linear_tree")
    trees = [_tree(_fields(block), k % n_outputs) for k, block in enumerate(blocks)]
    if len(trees) % n_outputs:
        raise InputError(
            f"the LightGBM model has {len(trees)} trees, which is not a multiple of its {n_outputs} outputs; "
            "save it again"
        )
    if "average_output" in top:
        share = max(1, len(trees) // n_outputs)
        trees = [SourceTree(t.output, t.splits, t.children, t.leaves / share) for t in trees]
    names = top.get("feature_names", "").split(" ")
    is_plain = all(name == f"Column_{k}" for k, name in enumerate(names))
    return Source(
        name="LightGBM text model", dtype="f64", is_nullable=True,
        features=feature_names(None if is_plain else names, n_features),
        classes=classes, base=(0.0,) * n_outputs, trees=tuple(trees), link=LOGISTIC if classes else NONE,
        unit=1 / _slope(terms),
    )  # fmt: skip


def _classes(objective: str, n_outputs: int) -> tuple[int, ...]:
    if objective in TWO and n_outputs == 1:
        return 0, 1
    if objective in SEVERAL and 2 < n_outputs <= 4_096:
        return tuple(range(n_outputs))
    if objective in PLAIN:
        return ()
    raise InputError(
        f"the LightGBM model has the objective {objective[:40]!r}; "
        f"train it with one of {', '.join((*TWO, *SEVERAL, *PLAIN))}"
    )


def _slope(terms: list[str]) -> float:
    """The factor that turns a score into log odds."""
    slopes = [float(value) for key, _, value in (term.partition(":") for term in terms) if key == "sigmoid"]
    if slopes and not 1e-6 <= slopes[0] <= 1e6:
        raise InputError(f"the LightGBM model has a sigmoid of {slopes[0]}; train it with one from 1e-6 to 1e6")
    return slopes[0] if slopes else 1.0


def _fields(block: str) -> dict[str, str]:
    """The ``key=value`` lines of a block; the value of a key alone is empty."""
    pairs = (line.partition("=") for line in block.splitlines() if line)
    return {key: value for key, _, value in pairs}


def _numbers(fields: dict[str, str], key: str, count: int, parse: Callable[[str], Any]) -> list[Any]:
    numbers = [parse(word) for word in fields.get(key, "").split()]
    if len(numbers) != count:
        raise InputError(
            f"the LightGBM model is damaged: {len(numbers)} numbers of {key} where {count} are expected; save it again"
        )
    return numbers


def _tree(fields: dict[str, str], output: int) -> SourceTree:
    n_leaves, n_sets = int(fields["num_leaves"]), int(fields.get("num_cat", "0"))
    n = n_leaves - 1
    leaves = np.array(_numbers(fields, "leaf_value", n_leaves, float), dtype=np.float64)[:, None]
    if n <= 0:
        return SourceTree(output, [], [], leaves)
    sets = _sets(fields, n_sets) if n_sets else []
    nodes = zip(
        _numbers(fields, "split_feature", n, int),
        _numbers(fields, "threshold", n, float),
        _numbers(fields, "decision_type", n, int),
        strict=True,
    )
    splits = [
        _set(feature, sets[int(threshold)], decision_type >> 2)
        if decision_type & SET
        else _threshold(feature, threshold, decision_type)
        for feature, threshold, decision_type in nodes
    ]
    children = zip(_numbers(fields, "left_child", n, int), _numbers(fields, "right_child", n, int), strict=True)
    return SourceTree(output, splits, list(children), leaves)


def _sets(fields: dict[str, str], n_sets: int) -> list[list[int]]:
    """The members of each set, from runs of 32-bit words."""
    bounds = _numbers(fields, "cat_boundaries", n_sets + 1, int)
    words = [int(w) for w in fields.get("cat_threshold", "").split()]
    if (
        bounds != sorted(bounds)
        or bounds[0] != 0
        or bounds[-1] != len(words)
        or 32 * len(words) > MAX_CATEGORIES * n_sets
    ):
        raise InputError("the LightGBM model is damaged: its sets of categories do not fit their words; save it again")
    return [
        [32 * k + bit for k, word in enumerate(words[a:b]) for bit in range(32) if word >> bit & 1]
        for a, b in pairwise(bounds)
    ]


# ---------------------------------------------------------------- splits


def _threshold(feature: int, cut: float, decision_type: int) -> Split:
    missing, default_left = decision_type >> 2, bool(decision_type & DEFAULT_LEFT)
    at_zero = default_left if missing == ZERO_MISSING else cut >= 0
    missing_left = default_left if missing in (ZERO_MISSING, NAN_MISSING) else at_zero
    if math.isnan(cut):
        raise InputError("the LightGBM model is damaged: a threshold is not a number; save it again")
    cuts = sorted({BELOW_ZERO, ZERO, cut} if not (-ZERO <= cut < ZERO) else {BELOW_ZERO, ZERO})
    sides = [at_zero if BELOW_ZERO < c <= ZERO else c <= cut for c in cuts]
    return Split(feature, tuple(cuts), (*sides, math.isinf(cut) and cut > 0), missing_left)


def _set(feature: int, members: list[int], missing: int) -> Split:
    """A split on a set: a reading counts as its integer part; negative readings and other numbers go right."""
    cuts: list[float] = []
    sides: list[bool] = []
    for m in members:
        start = -1.0 if m == 0 else math.nextafter(float(m), -math.inf)
        if cuts and cuts[-1] == start:
            cuts[-1] = math.nextafter(m + 1.0, -math.inf)
        else:
            cuts += [start, math.nextafter(m + 1.0, -math.inf)]
            sides += [False, True]
    return Split(feature, tuple(cuts), (*sides, False), False)
