# SPDX-License-Identifier: Apache-2.0
"""Source models of interpret's explainable boosting machines, read from their JSON or from a live estimator.

interpret itself never opens a file here. Such a model adds one table of scores per term, which the bins of one feature
or of several index: bin 0 is for a missing reading, then come the intervals between cuts or the categories, and the
last bin is for a category that the model has not seen. A reading lies above a cut that it equals. Each table becomes a
tree that searches among the cuts of one feature after the other; neighbours with equal scores are joined.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError, one_line
from hardcase_edge.program.limits import MAX_TREE_NODES

from .source import (
    LOGISTIC,
    MAX_FEATURES,
    MAX_NODES,
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
MAX_TERM_FEATURES = 8
LINKS = {"logit": LOGISTIC, "mlogit": LOGISTIC, "identity": NONE}
SAVE_AGAIN = "write it again with to_json('model.json', detail='minimal')"


class _Axis(NamedTuple):
    """A feature of a term: interval k of its readings, at most ``cuts[k]``, has the bin ``bins[k]``."""

    feature: int
    cuts: tuple[float, ...]
    bins: tuple[int, ...]
    n_bins: int


def read_interpret(data: bytes) -> Source:
    """The source model of the JSON that ``to_json`` writes.

    Raises
    ------
    InputError
        The text is not such JSON, is damaged, or the model does what a program cannot express.
    """
    if len(data) > MAX_JSON_BYTES:
        raise InputError(f"the EBM has {len(data)} bytes, but at most {MAX_JSON_BYTES} are read; {SAVE_AGAIN}")
    try:
        tree = json.loads(data, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the EBM is not JSON, or it is cut ({one_line(error)}); {SAVE_AGAIN}") from error
    try:
        return check_source(_read(tree["ebm"]))
    except (AttributeError, KeyError, ValueError, IndexError, TypeError, OverflowError) as error:
        raise InputError(f"the EBM is damaged ({one_line(error)}); {SAVE_AGAIN}") from error


def from_interpret(model: Any) -> Source:
    """The source model of a live ExplainableBoostingClassifier or -Regressor.

    Raises
    ------
    InputError
        As ``read_interpret``, or the model is not fitted.
    """
    from dataclasses import replace

    kind = type(model).__name__
    if not hasattr(model, "term_scores_"):
        raise InputError(f"the {kind} is not a fitted EBM; fit it first")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the format is in beta
        source = read_interpret(json.dumps(model.to_jsonable(detail="minimal")).encode())
    classes = labels_of(model)

    def predict(X: NDArray[np.float64]) -> NDArray[Any]:
        answers = np.asarray(model.predict(X))
        return answers if not classes else np.searchsorted(np.asarray(model.classes_), answers)

    return replace(source, classes=classes, predict=predict, name=f"interpret {kind}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands twice")
    return made


# ---------------------------------------------------------------- the file


def _read(ebm: dict[str, Any]) -> Source:
    (output,) = ebm["outputs"]
    link = str(output["link"])
    if link not in LINKS:
        raise InputError(f"the EBM has the link {link[:20]!r}; train it with one of {', '.join(LINKS)}")
    classes = _labels(output["classes"]) if LINKS[link] == LOGISTIC else ()
    base = _numbers(ebm["intercept"], 1, "intercept")
    features, width = ebm["features"], len(base)
    if len(features) > MAX_FEATURES:
        raise InputError(f"the EBM has {len(features)} features, but at most {MAX_FEATURES} are read; train on fewer")
    place = {str(feature["name"]): k for k, feature in enumerate(features)}
    if len(place) != len(features):
        raise InputError("the EBM has two features of one name; rename one and train again")
    trees = []
    n_nodes = 0
    for k, term in enumerate(ebm["terms"]):
        names = [place[name] for name in term["term_features"]]
        if len(set(names)) != len(names) or not 1 <= len(names) <= MAX_TERM_FEATURES:
            raise InputError(f"the EBM's term {k} reads {len(names)} features, maybe one twice; {SAVE_AGAIN}")
        trees.append(_term(k, [_axis(features[f], f, len(names)) for f in names], term["scores"], width))
        n_nodes += len(trees[-1].splits)
        if n_nodes > MAX_NODES:
            raise InputError(f"the EBM has more than {MAX_NODES} cells of scores; train it with fewer max_bins")
    if len(classes) == 2 and width == 2:
        trees, base = two_as_one(trees), base[1:] - base[:1]
    texts = [str(feature["name"]) for feature in features]
    is_plain = all(name == f"feature_{k:04}" for k, name in enumerate(texts))
    return Source(
        name="interpret EBM", dtype="f64", is_nullable=True,
        features=feature_names(None if is_plain else texts, len(texts)), classes=classes, base=tuple(base.tolist()),
        trees=tuple(trees), link=LINKS[link],
    )  # fmt: skip


def _labels(labels: list[Any]) -> tuple[str | int | float, ...]:
    if not all(isinstance(label, str | int | float) for label in labels):
        raise InputError(f"the EBM has a class that is neither text nor a number; {SAVE_AGAIN}")
    return tuple(int(label) if isinstance(label, bool) else label for label in labels)


def _numbers(values: Any, n_dimensions: int, what: str) -> NDArray[np.float64]:
    """The array of these nested lists of numbers."""
    array = np.array(values)
    if array.dtype.kind not in "if" or array.ndim != n_dimensions or array.size == 0 or not np.isfinite(array).all():
        raise InputError(f"the EBM has {what} that are not finite numbers of {n_dimensions} dimensions; {SAVE_AGAIN}")
    return array.astype(np.float64)


# ---------------------------------------------------------------- bins


def _axis(feature: dict[str, Any], number: int, n_term_features: int) -> _Axis:
    """The bins of a feature in a term of so many features; terms of several have coarser bins of their own."""
    kind, name = feature["type"], str(feature["name"])[:40]
    levels = feature["cuts" if kind == "continuous" else "categories"]
    level = levels[min(len(levels), n_term_features) - 1]
    if kind == "continuous":
        cuts = _numbers(level, 1, "cuts") if level else np.zeros(0)
        if (np.diff(cuts) <= 0).any():
            raise InputError(f"the EBM has cuts of {name!r} that do not increase; {SAVE_AGAIN}")
        below = np.nextafter(cuts, -np.inf).tolist()
        return _Axis(number, tuple(below), tuple(range(1, len(below) + 2)), len(below) + 3)
    values: dict[float, int] = {}
    for k, group in enumerate(level, 1):
        for text in group if isinstance(group, list) else [group]:
            value = _category(text, name)
            if value in values:
                raise InputError(f"the EBM has the category {text!r:.40} of {name!r} twice; {SAVE_AGAIN}")
            values[value] = k
    unseen = len(level) + 1
    ends: list[float] = []
    bins: list[int] = []
    for value in sorted(values):
        start = math.nextafter(value, -math.inf)
        if not ends or ends[-1] != start:
            ends.append(start)
            bins.append(unseen)
        ends.append(value)
        bins.append(values[value])
    return _Axis(number, tuple(ends), (*bins, unseen), unseen + 1)


def _category(text: Any, name: str) -> float:
    """The reading that interpret takes for this category: it writes numbers as Python does, whole ones without .0."""
    try:
        value = float(text) + 0.0 if isinstance(text, str) else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or repr(value).removesuffix(".0") != text:
        raise InputError(
            f"the EBM has the category {text!r:.40} of {name!r}, which is no number; code categories as numbers and "
            "train again"
        )
    return value


# ---------------------------------------------------------------- terms


def _term(k: int, axes: Sequence[_Axis], values: Any, width: int) -> SourceTree:
    """The table of scores as a tree."""
    scores = _numbers(values, len(axes) + (width > 1), f"scores of term {k}")
    shape = tuple(axis.n_bins for axis in axes)
    if scores.shape != (*shape, width)[: scores.ndim]:
        raise InputError(f"the EBM's term {k} has scores of shape {scores.shape} for bins {shape}; {SAVE_AGAIN}")
    n_cells = math.prod(len(axis.bins) for axis in axes)
    if n_cells > MAX_TREE_NODES:
        raise InputError(
            f"the EBM's term {k} has {n_cells} cells, but a tree holds {MAX_TREE_NODES}; train it with a smaller "
            f"{'max_bins' if len(axes) == 1 else 'max_interaction_bins'}"
        )
    return _Grower().tree(axes, scores.reshape(*shape, width))


class _Grower:
    """Makes a tree of a table; cells of equal scores share a leaf."""

    def __init__(self) -> None:
        self._splits: list[Split] = []
        self._children: list[tuple[int, int]] = []
        self._leaves: dict[tuple[float, ...], int] = {}

    def tree(self, axes: Sequence[_Axis], scores: NDArray[np.float64]) -> SourceTree:
        self._grow(axes, scores)
        return SourceTree(0, self._splits, self._children, np.array(list(self._leaves), dtype=np.float64))

    def _grow(self, axes: Sequence[_Axis], scores: NDArray[np.float64]) -> int:
        """The node, or -1-k for leaf k, of these axes' cells."""
        if not axes:
            return -1 - self._leaves.setdefault(tuple(scores.tolist()), len(self._leaves))
        axis, missing = axes[0], scores[0]
        parts = scores[list(axis.bins)].reshape(len(axis.bins), -1)
        first = np.flatnonzero(np.append(True, (parts[1:] != parts[:-1]).any(axis=1)))  # of each run of equal intervals
        cells = scores[np.array(axis.bins)[first]]
        cuts = [axis.cuts[k - 1] for k in first[1:].tolist()]
        alike = np.flatnonzero((parts[first] == missing.reshape(-1)).all(axis=1))
        if len(alike):
            return self._search(axes, cells, cuts, 0, len(cuts), int(alike[0]))
        node = self._add(Split(axis.feature, (), (True,), False))  # all readings go left, a missing one goes right
        left = self._search(axes, cells, cuts, 0, len(cuts), 0)
        self._children[node] = left, self._grow(axes[1:], missing)
        return node

    def _search(
        self, axes: Sequence[_Axis], cells: NDArray[np.float64], cuts: list[float], low: int, high: int, missing: int
    ) -> int:
        """The node that finds one of the cells low to high; ``missing``: the cell of a missing reading."""
        if low == high:
            return self._grow(axes[1:], cells[low])
        middle = (low + high) // 2
        node = self._add(Split(axes[0].feature, (cuts[middle],), (True, False), missing <= middle))
        left = self._search(axes, cells, cuts, low, middle, missing)
        self._children[node] = left, self._search(axes, cells, cuts, middle + 1, high, missing)
        return node

    def _add(self, split: Split) -> int:
        self._splits.append(split)
        self._children.append((0, 0))
        return len(self._splits) - 1
