# SPDX-License-Identifier: Apache-2.0
"""A small build of values: f0 as a regressor, and drafts of trees, linear scorers and stacks on different scales."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeRegressor

from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.bundle.value import Value, steps_for
from hardcase_edge.more.batch.quality import Quality
from hardcase_edge.program import definition as d
from hardcase_edge.program.readings import request_bytes
from hardcase_export.hpc_file.hpc import export_hpc
from hardcase_export.hpc_file.layout import Values
from hardcase_export.integers.decide import decisions, figures
from tests.helpers.export.builds import as_ensemble

N = 4
FEATURES = tuple(d.Feature("f32", nullable=k == 3) for k in range(N))
SENSORS = (d.Sensor((0, 1), (10 * d.MICRO,)), d.Sensor((2, 3), (40 * d.MICRO,)))
COSTS = d.Costs(100 * d.MICRO)
UPLINK = d.Uplink(request_bytes(["f32"] * N), tuple(range(N)))
OFFSET = 300.0
STEPS = steps_for(OFFSET + 40)
R2 = Quality("r2", "R2")
MANIFEST = Manifest(
    name="a tank", unit="mJ", features=tuple(f"x{k}" for k in range(N)), sensors=("near", "far"), classes=(),
    target="level", trained={"seed": 0}, value=Value("litres", STEPS),
)  # fmt: skip


def make_rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A level of about 300 litres, which x0 and x1 mostly tell and x2 tells where x1 is large; x3 may be missing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, N)).astype(np.float32).astype(np.float64)
    y = OFFSET + 8 * X[:, 0] + np.where(X[:, 1] > 0.8, 12 * X[:, 2], 2 * X[:, 1]) + rng.normal(size=n)
    X[rng.random(n) < 0.1, 3] = np.nan
    return X, y


@cache
def f0() -> Any:
    """A regressor of all readings."""
    model = GradientBoostingRegressor(n_estimators=60, max_depth=4, random_state=0)
    return Pipeline([("impute", SimpleImputer(strategy="median")), ("model", model)]).fit(*make_rows(1000, 1))


@cache
def trees_on(features: tuple[int, ...], is_uncertain: bool = True) -> tuple[tuple[d.Column, ...], d.Trees]:
    """Columns and boosted trees of one output; with a second one for the logarithm of squared errors."""
    X, y = make_rows(800, 2)
    X = np.nan_to_num(X)[:, features]
    fitted, base = [], [float(y.mean())]
    answer = np.full(len(y), base[0])
    for k in range(20):
        fitted.append((0, DecisionTreeRegressor(max_depth=3, random_state=k).fit(X, y - answer)))
        answer = answer + 0.3 * fitted[-1][1].predict(X)
    if is_uncertain:
        target = np.log(np.square(y - answer) + 1e-3)
        base.append(float(target.mean()))
        unsure = np.full(len(y), base[1])
        for k in range(8):
            fitted.append((1, DecisionTreeRegressor(max_depth=2, random_state=k).fit(X, target - unsure)))
            unsure = unsure + 0.3 * fitted[-1][1].predict(X)
    return as_ensemble(features, tuple(base), [(output, f.tree_) for output, f in fitted])


def cascade_draft(threshold: float = 1.0) -> d.Program:
    """Buy the near sensor; where the answer is unsure, forward with both; without the cloud, answer all the same."""
    columns, trees = trees_on((0, 1))
    value, unsure = d.Slice(0, 0, 1), d.Slice(0, 1, 2)
    nodes = (
        d.Acquire((0,), 1, 1),
        d.Branch(unsure, d.THRESHOLD, (2, 3), threshold),
        d.Answer(value, "value", (290.0, 310.0), (5_000, 7_000, 6_000)),
        d.Forward((0, 1), 4),
        d.Answer(value, "value", (), (2_000,)),
    )
    return d.Program(FEATURES, SENSORS, UPLINK, columns, (trees,), nodes, 0, costs=COSTS)


@cache
def linear_on(features: tuple[int, ...], constant: int = 1024) -> tuple[tuple[d.Column, ...], d.Polynomial]:
    """Columns of codes in steps of 1/1024, and a linear scorer with the offset on its constant."""
    X, y = make_rows(800, 2)
    fitted = Ridge().fit(np.nan_to_num(X)[:, features], y)
    columns = tuple(d.Column(f, d.Affine(frac=10, mul=1, add=0, shift=0)) for f in features)
    weights = (*(float(w) / 1024 for w in fitted.coef_), 0.0)
    n = len(features)
    terms = tuple((k,) for k in range(n + 1))
    return columns, d.Polynomial(tuple(range(n)), (0,) * n, constant, terms, (weights,), (float(fitted.intercept_),))


def mixed_draft() -> d.Program:
    """Trees on the near sensor answer where they are sure; elsewhere a linear scorer of both, or a stack."""
    near, trees = trees_on((0, 1))
    linear_columns, linear = linear_on((0, 1, 2, 3))
    linear = replace(linear, columns=tuple(c + len(near) for c in linear.columns))
    first = tuple(k for k, t in enumerate(trees.trees) if t.output == 0)
    whole = d.Trees(trees.columns, (0.0,), tuple(trees.trees[k] for k in first))
    stack = d.Stack(2, tuple(range(len(first))), ((1.0,) * len(first),), (trees.base[0],))
    nodes = (
        d.Acquire((0,), 1, 1),
        d.Branch(d.Slice(0, 1, 2), d.THRESHOLD, (2, 3), 0.5),
        d.Answer(d.Slice(0, 0, 1), "value"),
        d.Acquire((1,), 4, 5),
        d.Answer(d.Slice(1, 0, 1), "value", confidences=(9_000,)),
        d.Answer(d.Slice(3, 0, 1), "value"),
    )
    scorers = (trees, linear, whole, stack)
    return d.Program(FEATURES, SENSORS, UPLINK, near + linear_columns, scorers, nodes, 0, costs=COSTS)


DRAFTS = {"cascade": cascade_draft, "mixed": mixed_draft}


def make_value_build(folder: Path) -> Path:
    """A build folder: f0, rows, two drafts and the front."""
    (folder / "policies").mkdir(parents=True)
    X, y = make_rows(300, 5)
    hpc = export_hpc(f0(), X, ["f32"] * N, Values(STEPS, float(np.ptp(y)), 6_800), folder / "hpc.onnx")
    parts = {
        name: make_rows(n, seed) for name, n, seed in (("valid", 300, 3), ("calibration", 600, 4), ("test", 300, 5))
    }
    for name, (X, y) in parts.items():
        np.savez(
            folder / f"{name}.npz", X=X, y=y, feature_names=np.array(MANIFEST.features), hpc=f0().predict(X),
            hpc_confidence=np.full(len(y), 6_800), hpc_sha256=np.array(hpc["sha256"]), index=np.arange(len(y)),
        )  # fmt: skip
    f0_figures = {
        name: {"quality": R2(y, f0().predict(X)), "cost": 150.0, "forward_rate": 1.0} for name, (X, y) in parts.items()
    }
    points = [{"method": "hpc", "params": {}, "program": None, **f0_figures}]
    for name, make in DRAFTS.items():
        place = f"policies/{name}.safetensors"
        manifest = replace(MANIFEST, hpc=hpc["sha256"]).to_json()
        (folder / place).write_bytes(pack_bundle(Bundle(manifest, make(), (), is_draft=True)))
        measured = {
            part: _plain(figures(decisions(make(), X, f0().predict(X)), y, R2).to_json())
            for part, (X, y) in parts.items()
        }
        points.append({"method": name, "params": {"n": len(points)}, "program": place, **measured})
    front = {"unit": "mJ", "quality": R2.name, "measure": R2.to_json(), "points": points}
    (folder / "front.json").write_text(json.dumps(front))
    return folder


def _plain(figure: dict[str, Any]) -> dict[str, Any]:
    return {key: figure[key] for key in ("quality", "cost", "forward_rate")}
