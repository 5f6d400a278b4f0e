# SPDX-License-Identifier: Apache-2.0
"""Small problems for the tests of training, and short searches."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardcase.cli import main
from hardcase_edge.more.fronts.front import Judged
from hardcase_edge.program.definition import MICRO, Costs, Feature, Sensor, Uplink
from hardcase_edge.program.readings import request_bytes
from hardcase_train.checks import BRIEF
from hardcase_train.data.problem import Problem, Rows
from hardcase_train.policy.front import Point
from hardcase_train.settings.effort import NORMAL, Effort

LEAST = replace(  # for behaviour that no number of settings changes
    BRIEF, forest_trees=2, max_stages=2, max_probes=2, levels=(0.8,), n_prices=1, n_gate_prices=2, n_graph_prices=1,
    forward_rates=(0.0, 0.3), gate_trees=3, lp_rows=4, n_linear_gammas=1,
)  # fmt: skip


def make_problem(
    n_classes: int = 3, n: int = 150, seed: int = 0, missing: float = 0.1, effort: Effort = NORMAL
) -> Problem:
    """Three sensors of two features each; feature 5 may be missing, and so may feature 3 though it is not declared so.

    f0 is right in nine rows of ten.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, 3 * n)
    centres = np.random.default_rng(seed + 1).normal(size=(n_classes, 6)) * 1.5
    X = centres[y] + rng.normal(size=(3 * n, 6))
    X[:, 4] = np.round(X[:, 4] * 3)
    X = X.astype(np.float32).astype(np.float64)
    X[rng.random(3 * n) < missing, 5] = np.nan
    X[n:][rng.random(2 * n) < missing, 3] = np.nan  # never so in training
    said = np.where(rng.random(3 * n) < 0.9, y, rng.integers(0, n_classes, 3 * n))
    p = np.full((3 * n, n_classes), 0.1 / max(n_classes - 1, 1))
    p[np.arange(3 * n), said] = 0.9
    features = tuple(Feature("i32" if f == 4 else "f32", nullable=f == 5) for f in range(6))
    parts = [Rows(X[k : k + n], y[k : k + n], p[k : k + n], np.arange(k, k + n)) for k in (0, n, 2 * n)]
    return Problem(
        features=features,
        sensors=tuple(Sensor((2 * s, 2 * s + 1), (cost * MICRO,)) for s, cost in enumerate((1, 5, 20))),
        uplink=Uplink(request_bytes([f.dtype for f in features]), tuple(range(6))),
        costs=Costs(30 * MICRO, MICRO // 50, MICRO), n_classes=n_classes, train=parts[0], valid=parts[1],
        test=parts[2], seed=seed, effort=effort,
    )  # fmt: skip


def is_front(figures: list[Judged]) -> bool:
    """Whether each policy costs no less than the one before it, and is better than all before it, or surer."""
    costs = [f.cost for f in figures]
    good = [(f.quality, f.quality - f.loss_se) for f in figures]
    most = [tuple(map(max, zip(*good[:k], strict=True))) for k in range(1, len(good))]
    rises = [a > b or c > d for (a, c), (b, d) in zip(good[1:], most, strict=True)]
    return costs == sorted(costs) and all(rises)


def plain(points: list[Point] | None) -> list[tuple[Any, ...]] | None:
    """Points as values that can be compared, their programs compiled."""
    return None if points is None else [(p.method, p.params, p.valid, p.test, p.program) for p in points]


def weighted(problem: Problem, weight: np.ndarray) -> Problem:
    """The problem, its training rows of these weights."""
    return replace(problem, train=replace(problem.train, weight=weight))


def write_csv(path: Path, columns: dict[str, Any]) -> Path:
    """A table of these columns; None and NaN are empty cells."""
    rows = zip(*columns.values(), strict=True)
    cells = (",".join("" if v is None or v != v else str(v) for v in row) for row in rows)
    path.write_text("\n".join([",".join(columns), *cells]) + "\n")
    return path


def toml(folder: Path, text: str = "", *, file: str = "data.csv", target: str = "y", data: str = "") -> Path:
    """A hardcase.toml with f0 a logistic regression and little effort, unless ``text`` says otherwise."""
    if "[policy]" not in text:
        text += "\n[policy]\n"
    if "effort" not in text:
        text = text.replace("[policy]\n", '[policy]\neffort = "quick"\n')
    hpc = "" if "[hpc]" in text else '[hpc]\nestimator = "LogisticRegression"\n'
    path = folder / "hardcase.toml"
    path.write_text(f'[data]\nfile = "{file}"\ntarget = "{target}"\n{data}\n{hpc}{text}')
    return path


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, dict[str, Any], str]:
    """Exit status, the JSON on stdout and the text on stderr of ``hardcase ARGV --json``."""
    status = main([*map(str, argv), "--json"])
    out, err = capsys.readouterr()
    return status, json.loads(out) if out.strip() else {}, err


def ran(capsys: pytest.CaptureFixture[str], *argv: object) -> dict[str, Any]:
    """The JSON of such a command, which must end well."""
    status, said, err = run(capsys, *argv)
    assert status == 0, err
    return said


def legacy_columns(n: int = 120) -> tuple[dict[str, Any], dict[str, Any]]:
    """Data of three features, and the table of a system that says "hot" where a > 0, and looked at b only near 0."""
    rng = np.random.default_rng(3)
    hot = rng.random(n) < 0.5
    a, b = (np.round(hot * 2 - 1 + rng.normal(size=n) * s, 3) for s in (0.7, 1.0))
    p = np.where(a > 0, 0.95, 0.05)
    data = {"a": a, "b": b, "c": rng.integers(0, 9, n), "y": np.where(hot, "hot", "cold")}
    used = {"used:b": (np.abs(a) < 0.5).astype(int), "used:c": np.zeros(n, dtype=int)}
    return data, {"y": data["y"], "p:cold": np.round(1 - p, 2), "p:hot": p, **used}


def legacy_toml(
    folder: Path, hpc: str = 'table = "legacy.csv"\nname = "boiler-1"', name: str = "hardcase.toml"
) -> Path:
    """A hardcase.toml whose f0 is such a table; sensors cost 2, 4 and 8, a request 30.

    With this seed each method that may forward has a policy that forwards some test rows and not all.
    """
    costs = "".join(f'[[sensor]]\nname = "{s}"\ncost = {c}\n' for s, c in (("a", 2), ("b", 4), ("c", 8)))
    path = folder / name
    data = '[data]\nfile = "data.csv"\ntarget = "y"\nseed = 9\n'
    path.write_text(f'{data}[policy]\neffort = "quick"\n[cost.uplink]\nper_request = 30\n[hpc]\n{hpc}\n{costs}')
    return path


def in_streams(n: int = 240, n_streams: int = 8) -> Problem:
    """The usual problem, whose class stays for ten rows, in streams of which none is in two parts."""
    problem = make_problem(n=n, missing=0.0, effort=BRIEF)

    def ordered(rows: Rows, first: int) -> Rows:
        y = np.repeat(np.random.default_rng(first).integers(0, 3, n // 10 + 1), 10)[:n]
        order, by_class = np.empty(n, dtype=np.int64), [list(np.flatnonzero(rows.y == c)) for c in range(3)]
        order[:] = [by_class[c][k % len(by_class[c])] for k, c in enumerate(y)]
        taken = rows.take(order)
        stream = np.arange(n) * n_streams // n + first
        return replace(taken, index=np.arange(n) + first * n, group=stream, sequence=stream)

    parts = (ordered(problem.train, 0), ordered(problem.valid, 10), ordered(problem.test, 20))
    return replace(problem, train=parts[0], valid=parts[1], test=parts[2])
