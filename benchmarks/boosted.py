# SPDX-License-Identifier: Apache-2.0
"""Binary boosted trees on digits (odd or even), and the same model as a program: what the peers are compared on."""

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np
from sklearn.datasets import load_digits

from hardcase_edge.program.definition import (
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

CASES = {"100x4": (100, 4), "300x5": (300, 5)}  # trees, depth
N_FEATURES = 64


class Flat:
    """One tree as arrays: split feature, threshold and children by node; -1-k is leaf k."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.feature: list[int] = []
        self.threshold: list[float] = []
        self.children: list[list[int]] = []
        self.leaves: list[float] = []
        todo = [(root, -1, 0)]
        while todo:
            node, parent, side = todo.pop()
            if "leaf_value" in node:
                number = -1 - len(self.leaves)
                self.leaves.append(float(node["leaf_value"]))
            else:
                number = len(self.feature)
                self.feature.append(int(node["split_feature"]))
                self.threshold.append(float(node["threshold"]))
                self.children.append([0, 0])
                todo += [(node["right_child"], number, 1), (node["left_child"], number, 0)]
            if parent >= 0:
                self.children[parent][side] = number


def fit(n_trees: int, depth: int) -> tuple[Any, np.ndarray]:
    """A LightGBM booster of full-grown trees of this depth, and its rows (n, 64), whole numbers 0 to 16."""
    X, y = load_digits(return_X_y=True)
    model = lightgbm.LGBMClassifier(
        n_estimators=n_trees,
        max_depth=depth,
        num_leaves=2**depth,
        min_child_samples=2,
        learning_rate=0.05,
        random_state=0,
        n_jobs=1,
        verbose=-1,
    )
    return model.fit(X, y % 2), X


def flat_trees(model: Any) -> list[Flat]:
    """The booster's trees; a row's raw score is the sum of the leaves it reaches, class 1 where that is above 0."""
    return [Flat(t["tree_structure"]) for t in model.booster_.dump_model()["tree_info"]]


def to_program(trees: list[Flat]) -> Program:
    """The trees over whole-numbered readings, int16 leaves at the largest scale that fits."""
    cuts: list[set[int]] = [set() for _ in range(N_FEATURES)]
    for t in trees:
        for f, x in zip(t.feature, t.threshold, strict=True):
            cuts[f].add(int(np.floor(x)))
    used = [f for f in range(N_FEATURES) if cuts[f]]
    ranks = {f: sorted(cuts[f]) for f in used}
    scale = CODE_MAX / max(abs(v) for t in trees for v in t.leaves)
    ensemble = Trees(tuple(range(len(used))), (0,), tuple(_tree(t, used, ranks, scale) for t in trees))
    return Program(
        features=(Feature("i32"),) * N_FEATURES,
        sensors=(Sensor(tuple(range(N_FEATURES)), (0,)),),
        uplink=Uplink(),
        columns=tuple(Column(f, Rank(tuple(ranks[f]))) for f in used),
        scorers=(ensemble,),
        nodes=(Acquire((0,), 1, 1), Answer(Slice(0, 0, 1))),
        n_classes=2,
    )


def _tree(t: Flat, used: list[int], ranks: dict[int, list[int]], scale: float) -> Tree:
    return Tree(
        output=0,
        width=1,
        splits=tuple(used.index(f) for f in t.feature),
        thresholds=tuple(
            ranks[f].index(int(np.floor(x))) - CODE_MAX for f, x in zip(t.feature, t.threshold, strict=True)
        ),
        missing_left=(True,) * len(t.feature),
        children=tuple((a, b) for a, b in t.children),
        leaves=tuple(round(v * scale) for v in t.leaves),
    )


def probe_rows(trees: list[Flat], X: np.ndarray, n: int) -> np.ndarray:
    """Rows (n, 64) of whole numbers, half random, half of the data; half of it on thresholds or next to them."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 17, size=(n, N_FEATURES)).astype(np.float64)
    rows[: n // 2] = X[rng.integers(0, len(X), n // 2)]
    cuts: list[list[float]] = [[] for _ in range(N_FEATURES)]
    for t in trees:
        for f, x in zip(t.feature, t.threshold, strict=True):
            cuts[f].append(float(np.floor(x)))
    for f, values in enumerate(cuts):
        if values:
            put = rng.random(n) < 0.5
            rows[put, f] = rng.choice(values, put.sum()) + rng.integers(0, 2, put.sum())
    return rows
