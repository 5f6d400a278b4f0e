"""Letters and Covertype: how much of f0's cost each method cuts, at what loss of accuracy, over ten random splits.

    HARDCASE_DATA=FOLDER python benchmarks/learning.py [--cases letters ...] [--seeds 10]
    python benchmarks/learning.py --render       # only write docs/benchmarks/learning.md again from the JSON

For each case and seed: rows are drawn, f0 is fitted, every method trained, and for each loss of a list the policy is
picked on the judged rows as ``hardcase export --max-loss`` does; its figures on test rows are what is reported. A run
that was stopped goes on where it was: finished seeds are in the JSON. Rows of every split: results/splits.npz.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.ensemble import ExtraTreesClassifier

from hardcase_edge.errors import InputError
from hardcase_edge.meter import to_micro
from hardcase_edge.program import Feature, Sensor, Uplink
from hardcase_edge.wire import request_bytes
from hardcase_export.front import Front, Measured, Point, pick
from hardcase_train.hpc import fit_hpc, out_of_fold, probabilities
from hardcase_train.learn import learn
from hardcase_train.problem import Problem, Rows

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks" / "learning.md"
BASELINES = ("static", "cascade")
MAX_LOSSES = (0.0025, 0.005, 0.0075, 0.01, 0.0125, 0.015, 0.02, 0.025)
WITHIN = 0.01


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
CASES = {
    "letters": Case(
        "Letters, N-Z against A-M, 16 features of cost 1",
        letters,
        (12_000, 4_000, 4_000),
        tuple((f,) for f in range(16)),
        (*TREES, "budget-prune", "l1", "adapt-lin", "adapt-lstsq"),
        0.62,
        0.97,
    ),
    "covertype-7": Case(
        "Covertype, 7 classes, 12 sensors of cost 1 (ten numbers, wilderness, soil)",
        covertype,
        (36_603, 15_688, 58_101),
        (*((f,) for f in range(10)), tuple(range(10, 14)), tuple(range(14, 54))),
        (*TREES, "budget-prune"),
        0.62,
        0.885,
    ),
    "covertype-2": Case(
        "Covertype, classes 1-3 against 4-7, 54 features of cost 1",
        covertype_2,
        (36_603, 15_688, 58_101),
        tuple((f,) for f in range(54)),
        (*TREES, "budget-prune"),
        0.93,
        0.967,
    ),
}


def split_of(case: Case, n: int, seed: int) -> list[np.ndarray]:
    """Row numbers of train, valid and test."""
    order = np.random.default_rng(seed).permutation(n)
    ends = np.cumsum(case.sizes)
    return [np.sort(order[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def f0_of() -> ClassifierMixin:
    """f0 of every case."""
    return ExtraTreesClassifier(300, n_jobs=-1, random_state=0)


def problem_of(case: Case, seed: int) -> Problem:
    """Rows drawn, f0 fitted."""
    X, y = case.rows()
    n_classes = int(y.max()) + 1
    train, valid, test = split_of(case, len(y), seed)
    model = f0_of()
    fitted = fit_hpc(model, X[train], y[train])
    rows = [Rows(X[train], y[train], out_of_fold(model, X[train], y[train], n_classes, seed), train)]
    rows += [Rows(X[part], y[part], probabilities(fitted, X[part], n_classes), part) for part in (valid, test)]
    features = tuple(Feature("i32") for _ in range(X.shape[1]))
    uplink = Uplink(request_bytes=request_bytes(["i32"] * len(features)), features=tuple(range(len(features))))
    sensors = tuple(Sensor(s, (to_micro(1.0),)) for s in case.sensors)
    return Problem(features, sensors, uplink, n_classes, rows[0], rows[1], rows[2], seed)


def run_seed(case: Case, seed: int) -> dict[str, Any]:
    """Test figures of the policy picked for each loss, by method; "hardcase" is picked among all."""
    began = time.monotonic()
    problem = problem_of(case, seed)
    points = learn(problem, case.methods, quiet=True)
    front = Front("unit", tuple(Point(p.method, p.params, _measured(p.valid), _measured(p.test), "") for p in points))
    f0 = front.points[0]
    out: dict[str, Any] = {"f0": f0.test.accuracy, "seconds": 0.0, "picks": {}}
    for name in (*case.methods, "hardcase"):
        mine = front if name == "hardcase" else replace(front, points=(f0, *_of(front, name)))
        out["picks"][name] = {str(loss): _picked(mine, f0, loss, len(case.sensors)) for loss in MAX_LOSSES}
    out["seconds"] = round(time.monotonic() - began, 1)
    return out


def _measured(figures: dict[str, float]) -> Measured:
    keys = ("accuracy", "cost", "forward_rate", "loss_se")
    return Measured(**{k: figures[k] for k in keys if k in figures})


def _of(front: Front, method: str) -> list[Point]:
    return [p for p in front.points if p.method == method]


def _picked(front: Front, f0: Point, loss: float, total: int) -> dict[str, Any]:
    """Cut and loss on test rows of what is picked; f0 itself where nothing is near enough."""
    try:
        point = pick(front, max_loss=loss)
    except InputError:
        point = f0
    return {
        "method": point.method,
        "cut": 1 - point.test.cost / total,
        "loss": f0.test.accuracy - point.test.accuracy,
        "forward_rate": point.test.forward_rate,
    }
