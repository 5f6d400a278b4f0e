"""A source model: one that was trained elsewhere, as plain numbers. What readers make and everything else here takes.

A split parts a feature's numbers at its ``cuts``: part k holds those above cut k-1 and at most cut k. Every part goes
left or right, so a threshold, a zero that counts as missing and a set of categories are all one thing.
Nothing of a source is believed: ``check_source`` looks at every index and number once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.manifest import MAX_NAME, Label
from hardcase_edge.errors import InputError

__all__ = ["MAX_MODEL_BYTES", "Linear", "Source", "SourceTree", "Split", "check_source", "feature_names", "read_bytes"]

MAX_MODEL_BYTES = 256 * 1024**2  # of a file, checked before it is parsed; a bundle holds 8 MiB
MAX_FEATURES = 8_192
MAX_CLASSES = 4_096
MAX_TREES = 60_000  # so many leaves of 16 bits stay within a sum of 32
MAX_NODES = 2_000_000  # of all trees
MAX_VALUES = 8_000_000  # of all leaves

CLASS, VALUE = "class", "value"
MEAN, LOGISTIC, NONE = "mean", "logistic", "none"  # how scores become probabilities

Predict = Callable[[NDArray[np.float64]], NDArray[Any]]


class Split(NamedTuple):
    """A question to one feature. ``sides``: whether each part goes left, one more than ``cuts``, which increase."""

    feature: int
    cuts: tuple[float, ...]
    sides: tuple[bool, ...]
    missing_left: bool


@dataclass(frozen=True, slots=True)
class SourceTree:
    """A tree, its root node 0. ``children``: (left, right) per split, a node or -1-k for leaf k.

    ``leaves``: (n_leaves, width) float64, added to the scores from ``output`` on.
    """

    output: int
    splits: list[Split]
    children: list[tuple[int, int]]
    leaves: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Linear:
    """``score = bias + weights @ x``: weights (n_outputs, n_features), bias (n_outputs,)."""

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Source:
    """A model as plain numbers.

    Parameters
    ----------
    name : where it comes from, such as "scikit-learn RandomForestClassifier"
    dtype : "f32" or "f64": what the source holds a reading in when it compares
    sums : "f32" or "f64": what it adds leaves in
    is_nullable : it says what it does where a reading is missing
    features : one name per reading; empty strings where the source has none
    classes : the label of each class; empty for a model of values
    base : (n_outputs,) float64; one output decides between two classes by its sign
    trees : in the order in which the source adds them; or ``linear``
    link : "mean": scores are sums of shares; "logistic": log odds, of one class or of each; "none"
    unit : what a share or a log odd of 1 is in scores
    ties_up : a score of exactly 0 is class 1
    predict : (n, n_features) float64 to (n,) class indices or values, by the source itself; None for a file alone
    """

    name: str
    dtype: str
    sums: str = "f64"
    is_nullable: bool = False
    features: tuple[str, ...]
    classes: tuple[Label, ...] = ()
    base: tuple[float, ...] = (0.0,)
    trees: tuple[SourceTree, ...] = ()
    linear: Linear | None = None
    link: str = NONE
    unit: float = 1.0
    ties_up: bool = False
    predict: Predict | None = None

    @property
    def kind(self) -> str:
        """The kind of answer it gives."""
        return CLASS if self.classes else VALUE


def check_source(source: Source) -> Source:
    """The source, if all its numbers can be used.

    Raises
    ------
    InputError
        An index leads nowhere or in a circle, a number is not finite, or there is too much of something.
    """
    n_features, n_classes, n_outputs = len(source.features), len(source.classes), len(source.base)
    _at_most(n_features, MAX_FEATURES, "features", source.name)
    _at_most(n_classes, MAX_CLASSES, "classes", source.name)
    _at_most(len(source.trees), MAX_TREES, "trees", source.name)
    _at_most(sum(len(t.splits) for t in source.trees), MAX_NODES, "splits", source.name)
    _at_most(sum(t.leaves.size for t in source.trees), MAX_VALUES, "leaf values", source.name)
    if n_features == 0:
        raise InputError(f"{source.name} reads no feature; a model of at least one is expected")
    if n_classes == 1:
        raise InputError(f"{source.name} knows the one class {source.classes[0]!r}; at least two are expected")
    if len(set(source.classes)) != n_classes:
        raise InputError(f"{source.name} has a class twice; different labels are expected")
    if n_outputs != (1 if n_classes in (0, 2) else n_classes):
        raise InputError(f"{source.name} gives {n_outputs} scores for {n_classes} classes")
    if not np.isfinite(source.base).all():
        raise InputError(f"{source.name} starts from a score that is not finite; train it again on finite data")
    for k, tree in enumerate(source.trees):
        _check_tree(tree, n_features, n_outputs, f"{source.name}, tree {k}")
    if source.linear is not None:
        _check_linear(source.linear, n_features, n_outputs, source.name)
    return source


def _at_most(found: int, most: int, what: str, name: str) -> None:
    if found > most:
        raise InputError(f"{name} has {found} {what}, at most {most} are read")


def _check_tree(tree: SourceTree, n_features: int, n_outputs: int, where: str) -> None:
    leaves = tree.leaves
    if leaves.ndim != 2 or not 0 <= tree.output <= n_outputs - leaves.shape[1] or leaves.size == 0:
        raise InputError(f"{where}: leaves of shape {leaves.shape} do not fit {n_outputs} scores")
    if not np.isfinite(leaves).all():
        raise InputError(f"{where} has a leaf that is not finite; train it again on finite data")
    n, n_leaves = len(tree.splits), len(leaves)
    if len(tree.children) != n:
        raise InputError(f"{where}: {len(tree.children)} pairs of children for {n} splits")
    for k, (feature, cuts, sides, _) in enumerate(tree.splits):
        if not 0 <= feature < n_features:
            raise InputError(f"{where}: split {k} asks feature {feature}, there are {n_features}")
        if len(sides) != len(cuts) + 1 or any(map(math.isnan, cuts)) or list(cuts) != sorted(set(cuts)):
            raise InputError(f"{where}: split {k} has thresholds that do not increase, or are not a number")
    seen = [False] * n
    ahead = [0 if n else -1]
    while ahead:
        node = ahead.pop()
        if not -n_leaves <= node < n:
            raise InputError(f"{where}: a child {node} of {n} splits and {n_leaves} leaves does not exist")
        if node >= 0:
            if seen[node]:
                raise InputError(f"{where}: split {node} is reached twice; each has one parent in a tree")
            seen[node] = True
            ahead += tree.children[node]


def _check_linear(linear: Linear, n_features: int, n_outputs: int, name: str) -> None:
    if linear.weights.shape != (n_outputs, n_features) or linear.bias.shape != (n_outputs,):
        shapes = f"{linear.weights.shape} and {linear.bias.shape}"
        raise InputError(f"{name} has weights and biases of shapes {shapes} for {n_outputs} scores")
    if not (np.isfinite(linear.weights).all() and np.isfinite(linear.bias).all()):
        raise InputError(f"{name} has a weight that is not finite; train it again on finite data")


def feature_names(names: object, count: int) -> tuple[str, ...]:
    """These names if they can stand in a manifest, else one empty string per feature."""
    found = tuple(map(str, names)) if isinstance(names, list | tuple | np.ndarray) else ()
    is_good = len(found) == len(set(found)) == count and all(0 < len(f) <= MAX_NAME for f in found)
    return found if is_good else ("",) * min(count, MAX_FEATURES + 1)


def read_bytes(path: str, most: int = MAX_MODEL_BYTES) -> bytes:
    """A model's file, if it is not too large.

    Raises
    ------
    InputError
        It cannot be read, or is larger.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise InputError(f"model {path} cannot be read: {error.strerror}") from error
    if len(data) > most:
        raise InputError(f"model {path} is larger than {most} bytes; a bundle holds 8 MiB, train a smaller one")
    return data
