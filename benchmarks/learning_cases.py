# SPDX-License-Identifier: Apache-2.0
"""Letters and Covertype as the methods' benchmark has them: rows, splits, f0, and what is to be reached."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.ensemble import ExtraTreesClassifier

from hardcase_edge.program.cost import to_micro
from hardcase_edge.program.definition import Feature, Sensor, Uplink
from hardcase_edge.program.readings import request_bytes
from hardcase_train.data.problem import Problem, Rows
from hardcase_train.hpc.fit import fit_hpc, out_of_fold, probabilities

BASELINES = ("static", "cascade")


@dataclass(frozen=True)
class Case:
    """One data set and its protocol; every sensor costs 1, the radio nothing."""

    title: str
    rows: Callable[[], tuple[np.ndarray, np.ndarray]]
    sizes: tuple[int, int, int]  # train, valid, test
    sensors: tuple[tuple[int, ...], ...]
    methods: tuple[str, ...]
    cut: float  # to reach, within a point of f0
    f0: float  # that f0 must have
    n_trees: int = 300  # of f0
    max_features: str | float = "sqrt"  # what each of their splits chooses from
    ahead: float | None = None  # cut, to reach over the best baseline at equal accuracy
    graph_cut: float | None = None  # to reach by "dag", within a point of f0
    best_cuts: tuple[tuple[float, float], ...] = ()  # to reach by the best method: points lost, and the cut there
    every_budget: bool = False  # "dag" is to be under both baselines at
    in_order: bool = False  # one split, in the file's order: the authors' own


def data(name: str) -> Any:
    """An array file of the data folder."""
    folder = os.environ.get("HARDCASE_DATA")
    if not folder:
        raise SystemExit("HARDCASE_DATA is not set; name the folder that holds letter.npz and covertype_sample.npz")
    return np.load(Path(folder) / name)


def letters() -> tuple[np.ndarray, np.ndarray]:
    """Letters N to Z against A to M."""
    d = data("letter.npz")
    return d["X"].astype(float), d["y_binary"].astype(np.int64)


def covertype() -> tuple[np.ndarray, np.ndarray]:
    """Seven types of forest cover."""
    d = data("covertype_sample.npz")
    return d["X"].astype(float), d["y"].astype(np.int64)


def covertype_2() -> tuple[np.ndarray, np.ndarray]:
    """Types 1 to 3 against 4 to 7."""
    X, y = covertype()
    return X, (y > 2).astype(np.int64)


TREES = ("static", "cascade", "adapt-gbrt", "greedy-miser")
LETTERS = Case(
    "Letters, N-Z against A-M, 16 features of cost 1",
    letters,
    (12_000, 4_000, 4_000),
    tuple((f,) for f in range(16)),
    (*TREES, "budget-prune", "l1", "adapt-lin", "adapt-lstsq", "dag", "route"),
    0.62,
    0.97,
    ahead=0.02,
    graph_cut=0.64,
    best_cuts=((0.005, 0.665), (0.01, 0.68)),
)
CASES = {
    "letters": LETTERS,
    "letters-authors": replace(LETTERS, title="Letters, the authors' split", in_order=True, best_cuts=()),
    "covertype-7": Case(
        "Covertype, 7 classes, 12 sensors of cost 1 (ten numbers, wilderness, soil)",
        covertype,
        (36_603, 15_688, 58_101),
        (*((f,) for f in range(10)), tuple(range(10, 14)), tuple(range(14, 54))),
        (*TREES[:3], "dag"),
        0.62,
        0.885,
        n_trees=100,
        max_features=0.35,
        every_budget=True,
    ),
    "covertype-2": Case(
        "Covertype, classes 1-3 against 4-7, 54 features of cost 1",
        covertype_2,
        (36_603, 15_688, 58_101),
        tuple((f,) for f in range(54)),
        TREES[:3],
        0.93,
        0.967,
        n_trees=100,
        max_features=0.5,
    ),
}


def split_of(case: Case, n: int, seed: int) -> list[np.ndarray]:
    """Row numbers of train, valid and test."""
    order = np.arange(n) if case.in_order else np.random.default_rng(seed).permutation(n)
    ends = np.cumsum(case.sizes)
    return [np.sort(order[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def f0_of(case: Case) -> ClassifierMixin:
    """f0, not fitted."""
    return ExtraTreesClassifier(case.n_trees, max_features=case.max_features, n_jobs=-1, random_state=0)


def problem_of(case: Case, seed: int) -> Problem:
    """Rows drawn, f0 fitted."""
    X, y = case.rows()
    n_classes = int(y.max()) + 1
    train, valid, test = split_of(case, len(y), seed)
    model = f0_of(case)
    fitted = fit_hpc(model, X[train], y[train])
    rows = [Rows(X[train], y[train], out_of_fold(model, X[train], y[train], n_classes, seed), train)]
    rows += [Rows(X[part], y[part], probabilities(fitted, X[part], n_classes), part) for part in (valid, test)]
    features = tuple(Feature("i32") for _ in range(X.shape[1]))
    uplink = Uplink(request_bytes=request_bytes(["i32"] * len(features)), features=tuple(range(len(features))))
    sensors = tuple(Sensor(s, (to_micro(1.0),)) for s in case.sensors)
    return Problem(features, sensors, uplink, n_classes, rows[0], rows[1], rows[2], seed)
