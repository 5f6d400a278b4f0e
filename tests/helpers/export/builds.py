# SPDX-License-Identifier: Apache-2.0
"""A small problem, its policies as drafts, and a build folder as ``hardcase train`` leaves it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeRegressor

from hardcase_cloud.answer.onnx_model import Hpc
from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.program import definition as d
from hardcase_edge.program.readings import request_bytes
from hardcase_edge.session.session import CLOUD, Decision
from hardcase_export.hpc_file.hpc import export_hpc
from hardcase_export.hpc_file.layout import Classes
from hardcase_export.integers.decide import decisions, figures

N_FEATURES, N_CLASSES = 6, 3
FEATURES = tuple(d.Feature("f32", nullable=k == 5) for k in range(N_FEATURES))
SENSORS = (d.Sensor((0, 1), (10 * d.MICRO,)), d.Sensor((2, 3), (20 * d.MICRO,)), d.Sensor((4, 5), (40 * d.MICRO,)))
COSTS = d.Costs(100 * d.MICRO, d.MICRO // 50)
UPLINK = d.Uplink(request_bytes(["f32"] * N_FEATURES), tuple(range(N_FEATURES)))
MANIFEST = Manifest(
    name="three blobs", unit="mJ", features=tuple(f"x{k}" for k in range(N_FEATURES)),
    sensors=("near", "middle", "far"), classes=("calm", "busy", "broken"), trained={"seed": 0},
)  # fmt: skip


@dataclass(frozen=True)
class Rows:
    X: np.ndarray
    y: np.ndarray
    hpc: np.ndarray
    confidence: np.ndarray


def make_rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three overlapping blobs; x5 is missing in one row of twenty."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, N_CLASSES, n)
    centres = np.random.default_rng(0).normal(size=(N_CLASSES, N_FEATURES)) * np.array([1, 1, 1, 1, 3, 3])
    X = (centres[y] + rng.normal(size=(n, N_FEATURES))).astype(np.float32).astype(np.float64)
    X[rng.random(n) < 0.05, 5] = np.nan
    return X, y


@cache
def problem() -> tuple[Any, np.ndarray, np.ndarray]:
    """f0 and its training rows."""
    X, y = make_rows(400, 1)
    forest = RandomForestClassifier(20, max_depth=6, random_state=0)
    return Pipeline([("impute", SimpleImputer(strategy="median")), ("model", forest)]).fit(X, y), X, y


@cache
def trees_over(features: tuple[int, ...], n_trees: int = 12) -> tuple[tuple[d.Column, ...], d.Trees]:
    """Columns and an ensemble of float vector leaves, by scikit-learn's trees boosted by hand."""
    _, X, y = problem()
    wanted = np.eye(N_CLASSES)[y]
    said = np.full_like(wanted, 1 / N_CLASSES)
    X = np.nan_to_num(X)[:, features]
    fitted = []
    for k in range(n_trees):
        tree = DecisionTreeRegressor(max_depth=3, random_state=k).fit(X, wanted - said)
        said = said + 0.3 * tree.predict(X)
        fitted.append(tree.tree_)
    base = (1 / N_CLASSES,) * N_CLASSES
    return as_ensemble(features, base, [(0, tree) for tree in fitted])


def as_ensemble(
    features: tuple[int, ...], base: tuple[float, ...], fitted: list[tuple[int, Any]]
) -> tuple[tuple[d.Column, ...], d.Trees]:
    """Columns and an ensemble of scikit-learn's trees, each with the first output that it adds to."""
    ranks: list[list[float]] = [
        sorted({float(np.float32(t)) for _, f in fitted for t in f.threshold[f.feature == j]})
        for j in range(len(features))
    ]
    columns = tuple(d.Column(f, d.Rank(tuple(r))) for f, r in zip(features, ranks, strict=True))
    trees = tuple(_tree(output, f, ranks) for output, f in fitted)
    return columns, d.Trees(tuple(range(len(features))), base, trees)


def _tree(output: int, fitted: Any, ranks: list[list[float]]) -> d.Tree:
    inner = [i for i in range(fitted.node_count) if fitted.children_left[i] >= 0]
    leaves = [i for i in range(fitted.node_count) if fitted.children_left[i] < 0]
    place = {i: k for k, i in enumerate(inner)} | {i: -1 - k for k, i in enumerate(leaves)}
    return d.Tree(
        output=output,
        width=fitted.value.shape[1],
        splits=tuple(int(fitted.feature[i]) for i in inner),
        thresholds=tuple(
            ranks[fitted.feature[i]].index(float(np.float32(fitted.threshold[i]))) - d.CODE_MAX for i in inner
        ),
        missing_left=(True,) * len(inner),
        children=tuple((place[fitted.children_left[i]], place[fitted.children_right[i]]) for i in inner),
        leaves=tuple(float(0.3 * v) for i in leaves for v in fitted.value[i, :, 0]),
    )


def cascade_draft(threshold: float = 0.35) -> d.Program:
    """Buy two sensors; answer if sure, else forward with the third."""
    columns, trees = trees_over((0, 1, 2, 3))
    part = d.Slice(0, 0, N_CLASSES)
    nodes = (
        d.Acquire((0,), 1, 1),
        d.Acquire((1,), 2, 2),
        d.Branch(part, d.MARGIN, (3, 4), threshold),
        d.Forward((0, 1, 2), 4),
        d.Answer(part, margins=(0.1, 0.2, 0.4), confidences=(5000, 7000, 8000, 9500)),
    )
    return d.Program(FEATURES, SENSORS, UPLINK, columns, (trees,), nodes, N_CLASSES, costs=COSTS)


def static_draft(sensors: tuple[int, ...] = (2,)) -> d.Program:
    """Buy a set and answer."""
    features = tuple(f for s in sensors for f in SENSORS[s].features)
    columns, trees = trees_over(features, 8)
    nodes = (d.Acquire(sensors, 1, 1), d.Answer(d.Slice(0, 0, N_CLASSES)))
    return d.Program(FEATURES, SENSORS, UPLINK, columns, (trees,), nodes, N_CLASSES, costs=COSTS)


def linear_draft(weight_bits: int = 16) -> d.Program:
    """Two sensors, a linear scorer of random weights over affine columns."""
    columns = tuple(d.Column(k, d.Affine(frac=10, mul=1, add=0, shift=0)) for k in range(4))
    rng = np.random.default_rng(5)
    weights = tuple(tuple(float(w) for w in row) for row in rng.normal(size=(N_CLASSES, 5)) * 1e-3)
    scorer = d.Polynomial(
        columns=(0, 1, 2, 3), substitutes=(0,) * 4, constant=1024, terms=tuple((k,) for k in range(5)),
        weights=weights, bias=tuple(float(b) for b in rng.normal(size=N_CLASSES)), weight_bits=weight_bits,
    )  # fmt: skip
    nodes = (d.Acquire((0, 1), 1, 1), d.Answer(d.Slice(0, 0, N_CLASSES)))
    return d.Program(FEATURES, SENSORS, UPLINK, columns, (scorer,), nodes, N_CLASSES, costs=COSTS)


def square_draft() -> d.Program:
    """Two sensors, a polynomial of degree 2 of weights at random over columns of a byte."""
    columns = tuple(d.Column(k, d.Affine(frac=5, mul=1, add=0, shift=0, low=-127, high=127)) for k in range(4))
    terms = tuple((a, b) for a in range(5) for b in range(a, 5))
    rng = np.random.default_rng(6)
    weights = tuple(tuple(row) for row in rng.normal(size=(N_CLASSES, len(terms))).tolist())
    scorer = d.Polynomial((0, 1, 2, 3), (0,) * 4, 32, terms, weights, (0.0,) * N_CLASSES)
    nodes = (d.Acquire((0, 1), 1, 1), d.Answer(d.Slice(0, 0, N_CLASSES)))
    return d.Program(FEATURES, SENSORS, UPLINK, columns, (scorer,), nodes, N_CLASSES, costs=COSTS)


def make_build(folder: Path) -> Path:
    """A build folder: f0, rows, three drafts and the front."""
    estimator = problem()[0]
    (folder / "policies").mkdir(parents=True)
    path = folder / "hpc.onnx"
    export_hpc(estimator, make_rows(300, 3)[0], ["f32"] * N_FEATURES, Classes(N_CLASSES), path)
    splits = {name: save_rows(folder / f"{name}.npz", path, 300, seed) for name, seed in (("valid", 2), ("test", 3))}
    save_rows(folder / "train.npz", path, 100, 1)
    points = [
        {
            "method": "hpc",
            "params": {},
            "program": None,
            **{
                name: {
                    "quality": float(np.mean(r.hpc == r.y)),
                    "cost": 170 + 0.02 * UPLINK.request_bytes,
                    "forward_rate": 1.0,
                }
                for name, r in splits.items()
            },
        }
    ]
    drafts = {"cascade": cascade_draft(), "static": static_draft(), "near": static_draft((0,))}
    for name, draft in drafts.items():
        points.append({"method": name, "params": {"n": len(points)}, **save_draft(folder, name, draft, splits)})
    (folder / "front.json").write_text(json.dumps({"unit": "mJ", "quality": "accuracy", "points": points}))
    return folder


def save_rows(path: Path, hpc: Path, n: int, seed: int) -> Rows:
    """Rows with what f0 answers to them, as training saves them."""
    X, y = make_rows(n, seed)
    answers = np.array(Hpc(hpc).answer([[None if x != x else x for x in row] for row in X.tolist()]))
    rows = Rows(X, y, answers[:, 0], answers[:, 1])
    np.savez(
        path, X=X, y=y, feature_names=np.array(MANIFEST.features), hpc=rows.hpc, hpc_confidence=rows.confidence,
        index=np.arange(n),
    )  # fmt: skip
    return rows


def local_figures(made: list[Decision], rows: Rows) -> dict[str, float]:
    """What training says of the rows that are answered locally."""
    local = np.array([one.route != CLOUD for one in made])
    right, f0 = (np.array([one.result for one in made]) == rows.y)[local], (rows.hpc == rows.y)[local]
    shares = {"local_error": ~right, "local_worse": f0 & ~right, "local_better": right & ~f0}
    return {name: float(which.mean()) for name, which in shares.items()}


def save_draft(folder: Path, name: str, draft: d.Program, splits: dict[str, Rows]) -> dict[str, Any]:
    """Write one draft; its part of a front's point."""
    place = f"policies/{name}.safetensors"
    (folder / place).write_bytes(pack_bundle(Bundle(MANIFEST.to_json(), draft, (), is_draft=True)))
    made = {k: decisions(draft, r.X, r.hpc, r.confidence) for k, r in splits.items()}
    measured = {k: figures(made[k], r.y).to_json() for k, r in splits.items()}
    for figure in measured.values():
        del figure["n"]
    measured["valid"] |= local_figures(made["valid"], splits["valid"])
    return {"program": place, **measured}
