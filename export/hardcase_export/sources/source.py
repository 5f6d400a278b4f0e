# SPDX-License-Identifier: Apache-2.0
"""A source model: a model trained elsewhere, as plain numbers that ``check_source`` has validated.

Readers make a ``Source``, and every other module here takes one. A split divides a feature's values at its ``cuts``:
interval k holds the values above cut k-1 and at most cut k. Every interval goes left or right, so one form covers a
threshold, a zero that counts as missing, and a set of categories. No number or index of a source is trusted before
``check_source`` has looked at it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.base.files import read_bounded
from hardcase_edge.bundle.manifest import Label
from hardcase_edge.errors import InputError
from hardcase_edge.program.kinds import Kind, kind_of
from hardcase_edge.program.limits import MAX_NAME

from .int8 import Int8Network

MAX_MODEL_BYTES = 256 * 1024**2  # of a file, checked before it is parsed; a bundle holds 8 MiB
MAX_FEATURES = 8_192
MAX_CLASSES = 4_096
MAX_TREES = 60_000  # the sum of this many 16-bit leaves fits 32 bits
MAX_NODES = 2_000_000  # in all trees
MAX_VALUES = 8_000_000  # in all leaves

MAX_WEIGHTS = 700_000  # of a network, which becomes a TFLite file of at most 3 MB
ACTIVATIONS = ("identity", "relu", "tanh", "logistic")

MEAN, LOGISTIC, NONE = "mean", "logistic", "none"  # how scores become probabilities

Predict = Callable[[NDArray[np.float64]], NDArray[Any]]


class Split(NamedTuple):
    """A test of one feature. ``cuts`` increase; ``sides``: which of the len(cuts) + 1 intervals go left."""

    feature: int
    cuts: tuple[float, ...]
    sides: tuple[bool, ...]
    missing_left: bool


@dataclass(frozen=True, slots=True)
class SourceTree:
    """A tree; node 0 is the root. ``children``: (left, right) per split, each a node or -1-k for leaf k.

    ``leaves``: (n_leaves, width) float64, added to the scores ``output`` to ``output`` + width - 1.
    """

    output: int
    splits: list[Split]
    children: list[tuple[int, int]]
    leaves: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LinearModel:
    """``score = bias + weights @ x``: weights (n_outputs, n_features), bias (n_outputs,).

    ``fill``: (n_features,) what a missing reading counts as; None if the source does not say.
    """

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    fill: NDArray[np.float64] | None = None

    def filled(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """The rows (n, n_features) without missing readings, if the source says what they count as."""
        return X if self.fill is None else np.where(np.isnan(X), self.fill, X)


@dataclass(frozen=True, slots=True)
class Layer:
    """``activation(weights @ x + bias)``: weights (n_out, n_in), bias (n_out,), one of ``ACTIVATIONS``."""

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    activation: str


@dataclass(frozen=True, slots=True)
class Network:
    """Dense layers over ``(x - centre) * factor``; both (n_features,), and so is ``fill``, as of a ``LinearModel``."""

    centre: NDArray[np.float64]
    factor: NDArray[np.float64]
    layers: tuple[Layer, ...]
    fill: NDArray[np.float64] | None = None


@dataclass(frozen=True, kw_only=True)
class Source:
    """A model as plain numbers.

    Parameters
    ----------
    name : library and kind of model, such as "scikit-learn RandomForestClassifier"
    dtype : "f32" or "f64": type in which the source compares readings
    sums : "f32" or "f64": type in which the source adds leaves
    is_nullable : whether the source defines an answer for rows with missing readings
    features : one name per reading; empty strings if the source has no names
    classes : the label of each class; empty for a model of values
    base : (n_outputs,) float64; one output decides between two classes by its sign
    trees : in the order in which the source adds them; empty if ``linear``, ``network`` or ``int8`` is given
    link : "mean": scores are sums of shares; "logistic": scores are log odds, of one class or of each; "none"
    unit : the score of a share, or of log odds, of 1
    ties_up : a score of exactly 0 is class 1
    predict : the source's own answer, (n, n_features) float64 to (n,) class indices or values; None if it cannot run
    """

    name: str
    dtype: str
    sums: str = "f64"
    is_nullable: bool = False
    features: tuple[str, ...]
    classes: tuple[Label, ...] = ()
    base: tuple[float, ...] = (0.0,)
    trees: tuple[SourceTree, ...] = ()
    linear: LinearModel | None = None
    network: Network | None = None
    int8: Int8Network | None = None
    link: str = NONE
    unit: float = 1.0
    ties_up: bool = False
    predict: Predict | None = None

    @property
    def kind(self) -> Kind:
        """What it predicts: classes or values."""
        return kind_of(len(self.classes))


def check_source(source: Source) -> Source:
    """The source as it is, if all its numbers can be used.

    Raises
    ------
    InputError
        An index is out of range or makes a cycle, a number is not finite, or a count is above its limit.
    """
    n_features, n_classes, n_outputs = len(source.features), len(source.classes), len(source.base)
    _at_most(n_features, MAX_FEATURES, "features", source.name)
    _at_most(n_classes, MAX_CLASSES, "classes", source.name)
    _at_most(len(source.trees), MAX_TREES, "trees", source.name)
    _at_most(sum(len(t.splits) for t in source.trees), MAX_NODES, "splits", source.name)
    _at_most(sum(t.leaves.size for t in source.trees), MAX_VALUES, "leaf values", source.name)
    if n_features == 0:
        raise InputError(f"{source.name} reads no feature; give a model of at least one")
    if n_classes == 1:
        raise InputError(f"{source.name} has the single class {source.classes[0]!r}; train it on at least two")
    if len(set(source.classes)) != n_classes:
        raise InputError(f"{source.name} has the same class twice; give its classes different labels")
    if n_outputs != (1 if n_classes in (0, 2) else n_classes) and not (source.int8 and n_outputs == n_classes):
        raise InputError(f"{source.name} gives {n_outputs} scores for {n_classes} classes; write the model again")
    if not np.isfinite(source.base).all():
        raise InputError(f"{source.name} starts from a score that is not finite; train it again on finite data")
    for k, tree in enumerate(source.trees):
        _check_tree(tree, n_features, n_outputs, f"{source.name}, tree {k}")
    if source.linear is not None:
        _check_linear(source.linear, n_features, n_outputs, source.name)
    if source.network is not None:
        _check_network(source.network, n_features, n_outputs, source.name)
    return source


def _at_most(count: int, limit: int, what: str, name: str) -> None:
    if count > limit:
        raise InputError(f"{name} has more than the {limit} {what} that are read; train a smaller model")


def _check_tree(tree: SourceTree, n_features: int, n_outputs: int, where: str) -> None:
    leaves = tree.leaves
    if leaves.ndim != 2 or not 0 <= tree.output <= n_outputs - leaves.shape[1] or leaves.size == 0:
        raise InputError(
            f"{where}: leaves of shape {leaves.shape} do not fit {n_outputs} scores; write the model again"
        )
    if not np.isfinite(leaves).all():
        raise InputError(f"{where} has a leaf that is not finite; train it again on finite data")
    n, n_leaves = len(tree.splits), len(leaves)
    if len(tree.children) != n:
        raise InputError(f"{where}: {len(tree.children)} pairs of children for {n} splits; write the model again")
    for k, (feature, cuts, sides, _) in enumerate(tree.splits):
        if not 0 <= feature < n_features:
            raise InputError(
                f"{where}: split {k} tests feature {feature}, out of range 0..{n_features - 1}; write the model again"
            )
        if len(sides) != len(cuts) + 1 or any(map(math.isnan, cuts)) or list(cuts) != sorted(set(cuts)):
            raise InputError(
                f"{where}: split {k} has thresholds that do not increase or are not numbers; write the model again"
            )
    seen = [False] * n
    pending = [0 if n else -1]
    while pending:
        node = pending.pop()
        if not -n_leaves <= node < n:
            raise InputError(
                f"{where}: child {node} is out of range for {n} splits and {n_leaves} leaves; write the model again"
            )
        if node >= 0:
            if seen[node]:
                raise InputError(f"{where}: split {node} has two parents; write the model again")
            seen[node] = True
            pending += tree.children[node]


def _check_linear(linear: LinearModel, n_features: int, n_outputs: int, name: str) -> None:
    if linear.weights.shape != (n_outputs, n_features) or linear.bias.shape != (n_outputs,):
        shapes = f"{linear.weights.shape} and {linear.bias.shape}"
        raise InputError(
            f"{name} has weights and biases of shapes {shapes} for {n_outputs} scores; write the model again"
        )
    if not all(np.isfinite(v).all() for v in (linear.weights, linear.bias, linear.fill) if v is not None):
        raise InputError(f"{name} has a weight that is not finite; train it again on finite data")


def _check_network(network: Network, n_features: int, n_outputs: int, name: str) -> None:
    width, n_numbers = n_features, 0
    for k, layer in enumerate(network.layers):
        if layer.weights.shape != (len(layer.bias), width) or layer.activation not in ACTIVATIONS:
            raise InputError(
                f"{name}: layer {k} has weights of shape {layer.weights.shape} for {width} numbers; write it again"
            )
        width, n_numbers = len(layer.bias), n_numbers + layer.weights.size
    if width != n_outputs:
        raise InputError(f"{name} gives {width} scores for {n_outputs}; train it on one target")
    _at_most(n_numbers, MAX_WEIGHTS, "weights", name)
    numbers = [network.centre, network.factor, *(v for layer in network.layers for v in (layer.weights, layer.bias))]
    if not all(np.isfinite(v).all() for v in (*numbers, network.fill) if v is not None):
        raise InputError(f"{name} has a weight that is not finite; train it again on finite data")


def int8_source(name: str, network: Int8Network, end: str) -> Source:
    """The source of an int8 network; ``end``: what stands behind its scores, one of ``int8.ENDS`` or nothing.

    Raises
    ------
    InputError
        As ``check_source``, or this end does not fit the number of scores.
    """
    n_scores = min(math.prod(network.layers[-1].shape), MAX_CLASSES + 1)
    if end and (end == "LOGISTIC") != (n_scores == 1):
        raise InputError(f"{name} has a {end} of {n_scores} scores; end it with a LOGISTIC of one or a SOFTMAX of more")
    source = Source(
        name=name, dtype="f32", features=("",) * min(math.prod(network.shape), MAX_FEATURES + 1),
        classes=tuple(range(max(2, n_scores))) if end or n_scores > 1 else (), base=(0.0,) * n_scores,
        int8=network, link=LOGISTIC if end else NONE, unit=1 / network.layers[-1].grid.scale,
    )  # fmt: skip
    return check_source(source)


def two_as_one(trees: list[SourceTree]) -> list[SourceTree]:
    """Trees of the score of the second of two classes less that of the first."""
    return [
        SourceTree(0, t.splits, t.children, t.leaves[:, 1:] - t.leaves[:, :1])
        if t.leaves.shape[1] == 2
        else SourceTree(0, t.splits, t.children, t.leaves if t.output == 1 else -t.leaves)
        for t in trees
    ]


def feature_names(names: object, count: int) -> tuple[str, ...]:
    """The names if a manifest can hold them, otherwise one empty string per feature."""
    texts = tuple(map(str, names)) if isinstance(names, list | tuple | np.ndarray) else ()
    fits_manifest = len(texts) == len(set(texts)) == count and all(0 < len(f) <= MAX_NAME for f in texts)
    return texts if fits_manifest else ("",) * min(count, MAX_FEATURES + 1)


def labels_of(estimator: Any) -> tuple[Label, ...]:
    """The estimator's classes, as a manifest can name them; empty for a regressor."""
    classes = getattr(estimator, "classes_", ())
    return tuple(int(c) if isinstance(c, bool) else c for c in np.asarray(classes).tolist())


def source_fields(estimator: Any) -> dict[str, Any]:
    """Fields of a ``Source`` that every estimator of scikit-learn gives: name, features, classes, predict."""
    return {
        "name": f"scikit-learn {type(estimator).__name__}",
        "features": feature_names(getattr(estimator, "feature_names_in_", None), int(estimator.n_features_in_)),
        "classes": labels_of(estimator),
        "predict": predict_of(estimator),
    }


def predict_of(estimator: Any) -> Predict:
    """The estimator's own answer, without its warning about rows that have no feature names."""
    import warnings

    classes = getattr(estimator, "classes_", None)

    def predict(X: NDArray[np.float64]) -> NDArray[Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # X has no feature names
            labels = np.asarray(estimator.predict(X)).ravel()
        return labels if classes is None else np.asarray(np.searchsorted(classes, labels))

    return predict


def read_bytes(path: str, limit: int = MAX_MODEL_BYTES) -> bytes:
    """The bytes of a model's file.

    Raises
    ------
    InputError
        The file cannot be read, or it is larger than ``limit``.
    """
    return read_bounded(path, limit, "model", remedy="name a model's file that fits a bundle of 8 MiB")
