"""Boosted trees of scikit-learn as a program of one ensemble, for measuring: the same model that the peers get."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import GradientBoostingClassifier

from hardcase_edge.program import (
    CODE_MAX,
    Acquire,
    Answer,
    Column,
    Feature,
    Program,
    Rank,
    Sensor,
    Slice,
    Tree,
    Trees,
    Uplink,
)

__all__ = ["CASES", "fit", "probe_rows", "to_program"]

CASES = {"100x4": (100, 4), "300x5": (300, 5)}


def fit(n_trees: int, depth: int) -> tuple[Any, np.ndarray]:
    """Digits, odd or even: a binary booster and its rows, (n, 64) integers 0 to 16."""
    X, y = load_digits(return_X_y=True)
    model = GradientBoostingClassifier(n_estimators=n_trees, max_depth=depth, random_state=0)
    return model.fit(X, y % 2), X


def to_program(model: Any, dtype: str = "i32") -> Program:
    """The model's trees with int16 leaves, the largest scale that fits; thresholds are exact."""
    sources = [t.tree_ for t in model.estimators_[:, 0]]
    n_features = model.n_features_in_
    cuts: list[set[float]] = [set() for _ in range(n_features)]
    for t in sources:
        for f, x in zip(t.feature, t.threshold, strict=True):
            if f >= 0:
                cuts[f].add(_cut(x, dtype))
    used = [f for f in range(n_features) if cuts[f]]
    ranks = {f: sorted(cuts[f]) for f in used}
    base = float(model._raw_predict_init(np.zeros((1, n_features)))[0, 0])
    top = max(float(np.abs(t.value[t.feature < 0]).max()) for t in sources) * model.learning_rate
    scale = CODE_MAX / top
    trees = tuple(_tree(t, used, ranks, model.learning_rate * scale, dtype) for t in sources)
    columns = tuple(Column(f, Rank(tuple(ranks[f]))) for f in used)
    ensemble = Trees(tuple(range(len(used))), (round(base * scale),), trees)
    return Program(
        features=tuple(Feature(dtype) for _ in range(n_features)),
        sensors=(Sensor(tuple(range(n_features)), (0,)),),
        uplink=Uplink(),
        columns=columns,
        scorers=(ensemble,),
        nodes=(Acquire((0,), 1, 1), Answer(Slice(0, 0, 1))),
        n_classes=2,
    )


def _cut(threshold: float, dtype: str) -> float:
    """The largest number of this type at most the threshold; scikit-learn compares float32 readings with it."""
    if dtype == "i32":
        return int(np.floor(threshold))
    near = np.float32(threshold)
    return float(near if near <= threshold else np.nextafter(near, np.float32(-np.inf)))


def _tree(t: Any, used: list[int], ranks: dict[int, list[float]], scale: float, dtype: str) -> Tree:
    inner = [i for i in range(t.node_count) if t.feature[i] >= 0]
    leaves = [i for i in range(t.node_count) if t.feature[i] < 0]
    number = {i: k for k, i in enumerate(inner)} | {i: -1 - k for k, i in enumerate(leaves)}
    return Tree(
        output=0,
        width=1,
        splits=tuple(used.index(int(t.feature[i])) for i in inner),
        thresholds=tuple(ranks[int(t.feature[i])].index(_cut(t.threshold[i], dtype)) - CODE_MAX for i in inner),
        missing_left=(True,) * len(inner),
        children=tuple((number[int(t.children_left[i])], number[int(t.children_right[i])]) for i in inner),
        leaves=tuple(round(float(t.value[i, 0, 0]) * scale) for i in leaves),
    )


def probe_rows(model: Any, X: np.ndarray, n: int) -> np.ndarray:
    """Whole-numbered rows (n, n_features): random ones within the data's range, half of each row on a threshold's
    floor or one above."""
    rng = np.random.default_rng(0)
    rows = rng.integers(X.min(axis=0), X.max(axis=0) + 1, size=(n, X.shape[1])).astype(np.float64)
    cuts: list[list[float]] = [[] for _ in range(X.shape[1])]
    for t in (e.tree_ for e in model.estimators_[:, 0]):
        for f, x in zip(t.feature, t.threshold, strict=True):
            if f >= 0:
                cuts[f].append(float(np.floor(x)))
    for f, values in enumerate(cuts):
        if values:
            put = rng.random(n) < 0.5
            rows[put, f] = rng.choice(values, put.sum()) + rng.integers(0, 2, put.sum())
    return rows
