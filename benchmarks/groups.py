# SPDX-License-Identifier: Apache-2.0
"""What a split by rows claims, what a split by groups claims, and what is true of people that no model has seen.

    HARDCASE_DATA=FOLDER python -m benchmarks run groups [--seeds 6]

The data are windows of 10 s of a phone's accelerometer, carried by 36 people (WISDM, ``wisdm_transformed.npz``). Each
seed first sets 12 people aside. The rows of the other 24 are split into train, valid and test twice, by rows and by
people, and a policy is trained and picked on each split. Both policies are then measured on the 12 people.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.learning_cases import data
from benchmarks.pages import markdown
from hardcase_export.drafts.front import Front
from hardcase_export.drafts.front import Point as Read
from hardcase_export.picking.pick import pick
from hardcase_train.data.problem import Rows
from hardcase_train.data.split import CALIBRATION, random_split
from hardcase_train.data.table import Labels, Table
from hardcase_train.policy.batch import Batch
from hardcase_train.policy.front import Point
from hardcase_train.settings.config import Config, SensorConfig
from hardcase_train.sweep.train import learn
from hardcase_train.tasks.task import make_task

FILE = "wisdm_transformed.npz"
N_FRESH = 12  # people set aside
MAX_LOSS = 0.01
METHODS = ("cascade",)
SPLITS = {"rows": "by rows", "people": "by people (`[data] group`)"}
HEAD = """# A split by rows, and a split by groups

`python -m benchmarks run groups` writes this page.
The data are WISDM's: {n} windows of 10 s of a phone's accelerometer, of 36 people and six activities \
(Kwapisz, Weiss and Moore, 2010).
For each of {seeds} seeds, {fresh} people are set aside before anything else.
The windows of the others are split 70/10/20, by rows or by whole people, f0 (100 extremely randomised trees) and \
cascades are trained at quick effort, and a policy is picked as `hardcase export --max-loss 0.01` picks it.
"Claimed" is the accuracy on that split's own test rows; "fresh" is the accuracy on the people set aside.
Intervals are 95 % (Student's t), over seeds; "its own 95 %" is the mean interval of a single claim, which counts \
people in the split by people and rows in the split by rows.
"Within" counts the seeds in which the two figures differ by less than their own intervals together (the root of the \
sum of squares).

The split by rows has every person on both sides: it claims what no other person gets, and its interval does not say so.
The split by people claims what other people get.
Its policies learn from fewer people, for some of them validate and test; that is the price of a claim that holds.
"""


def people() -> tuple[Table, np.ndarray]:
    """The windows as a table, and the person of each."""
    d = data(FILE)
    labels = {"activity": d["class_names"][d["y"]].tolist, "person": d["user"].tolist}
    names = tuple(str(name) for name in d["feature_names"])
    return Table(names, d["X"].astype(np.float64), Labels(labels), ""), d["user"]


def configuration(names: tuple[str, ...], is_grouped: bool, seed: int) -> Config:
    """A sensor for each axis, one for the resultant; a request costs as much as seven of them."""
    axes = [SensorConfig(name=axis, features=tuple(n for n in names if n.startswith(axis)), cost=1.0) for axis in "XYZ"]
    return Config(
        file=Path(FILE),
        target="activity",
        split="part",
        group="person" if is_grouped else None,
        seed=seed,
        sensors=tuple(axes),
        per_request=7.0,
        estimator="ExtraTreesClassifier",
        params={"n_estimators": 100},
        effort="quick",
    )


def run_seed(seed: int) -> dict[str, Any]:
    """For each split what its policy claims, and what it does on the people set aside; f0 likewise."""
    whole, person = people()
    is_fresh = np.isin(person, np.random.default_rng(seed).permutation(np.unique(person))[:N_FRESH])
    seen, y = np.flatnonzero(~is_fresh), np.unique(whole.labels["activity"].astype(str), return_inverse=True)[1]
    out = {}
    for split in SPLITS:
        part = np.full(len(y), CALIBRATION)  # which nothing sees: the people set aside
        dealt = random_split(y[seen], seed, person[seen] if split == "people" else None)
        part[seen] = np.where(dealt == CALIBRATION, 0, dealt)
        table = replace(
            whole, labels=Labels({**{k: whole.labels[k].tolist for k in whole.labels}, "part": part.tolist})
        )
        problem = make_task(configuration(whole.names, split == "people", seed), table=table).problem
        points = {"policy": chosen(learn(problem, METHODS, quiet=True)), "f0": None}
        assert problem.calibration is not None
        claimed_by = person if split == "people" else None
        out[split] = {
            name: {
                "claimed": measured(point, problem.test, claimed_by),
                "fresh": measured(point, problem.calibration, person),
            }
            for name, point in points.items()
        }
    return out


def chosen(points: list[Point]) -> Point:
    """The point that ``hardcase export --max-loss`` takes."""
    front = Front("unit", tuple(Read(p.method, {}, p.valid, p.test, str(k)) for k, p in enumerate(points)))
    program = pick(front, max_loss=MAX_LOSS).program
    assert program is not None
    return points[int(program)]


def measured(point: Point | None, rows: Rows, group: np.ndarray | None) -> dict[str, float]:
    """Accuracy of a policy, or of f0, half its 95 % interval, and the mean cost; ``group``: of each row of the table.

    The interval is Student's t over groups, or over rows if there is no ``group``.
    """
    label, cost = rows.hpc_label, np.full(len(rows.y), np.nan)
    if point is not None:
        assert point.program is not None
        outcome = Batch(point.program, rows.X).run(rows.hpc_label)
        label, cost = outcome.label, outcome.cost
    right = (label == rows.y).astype(float)
    names = np.arange(len(right)) if group is None else np.unique(group[rows.index], return_inverse=True)[1]
    sums = np.bincount(names, weights=right - right.mean())
    se = np.sqrt(np.square(sums).sum() * len(sums) / (len(sums) - 1)) / len(right)
    pm = stats.t.ppf(0.975, len(sums) - 1) * se
    return {"accuracy": float(right.mean()), "pm": float(pm), "cost": float(cost.mean())}


# ---------------------------------------------------------------- the page


def interval(values: list[float]) -> str:
    """Mean and half-width of the 95 % interval over seeds."""
    pm = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.3f} ± {pm:.3f}"


def row(split: str, name: str, runs: list[dict[str, Any]]) -> list[str]:
    """The cells of one line of the table."""
    pairs = [(r[split][name]["claimed"], r[split][name]["fresh"]) for r in runs]
    claimed, fresh = ([p[k]["accuracy"] for p in pairs] for k in (0, 1))
    within = sum(abs(a["accuracy"] - b["accuracy"]) < np.hypot(a["pm"], b["pm"]) for a, b in pairs)
    cells = [SPLITS[split], name, interval(claimed), f"± {np.mean([a['pm'] for a, _ in pairs]):.3f}"]
    gap = interval([a - b for a, b in zip(claimed, fresh, strict=True)])
    return [*cells, interval(fresh), gap, f"{within} of {len(runs)}"]


def page(measured: dict[str, Any]) -> str:
    """The Markdown page."""
    titles = ("split", "of", "claimed", "its own 95 %", "fresh", "claimed - fresh", "within")
    rows = [row(split, name, measured["runs"]) for split in SPLITS for name in ("f0", "policy")]
    head = HEAD.format(n=measured["n"], seeds=len(measured["runs"]), fresh=N_FRESH)
    return f"{head}\n{markdown(titles, rows)}\n"


def measure(n_seeds: int) -> dict[str, Any]:
    """Run each seed, and print it as it is done."""
    runs = []
    for seed in range(n_seeds):
        runs.append(run_seed(seed))
        shown = {s: {k: round(v["accuracy"], 3) for k, v in r["policy"].items()} for s, r in runs[-1].items()}
        print(seed, shown, flush=True)
    return {"n": len(people()[1]), "runs": runs}


SEEDS = 6


def run(args: Any) -> Any:
    """Measure."""
    return measure(args.seeds)
