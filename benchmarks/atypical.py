# SPDX-License-Identifier: Apache-2.0
"""Drift that no range shows: how many of the answers that become wrong the score of atypical cases sends to the cloud.

    HARDCASE_DATA=FOLDER python -m benchmarks run atypical [--tables NAME ...]

Each table is trained on once (a cascade, quick effort) and exported at a loss of 0.01 twice, without and with
``--atypical 0.05``. Drift is that of the table itself, later rows or another series of the same room, or is made: on
test rows some features have an offset of standard deviations, or are stretched about zero, at random sensors, thrice.
A row counts that the program alone answers right before the drift and wrong after it; of a table's own drift, wrong.
"""

from __future__ import annotations

import argparse
import csv
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.pages import RefusedError, command, markdown
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.session.session import CLOUD, Decision
from hardcase_export.drafts.rows import read_rows
from hardcase_export.integers.decide import decisions

SHARE, MAX_LOSS, DRAWS, SEED = 0.05, 0.01, 3, 0
TITLES = ("table", "drift", "accuracy alone before, after", "become wrong", "readings out of range",
          "of these to the cloud without the score", "with it", "of those answered alone, flagged")  # fmt: skip
MADE = (("offset of 0.5", 0.5, 3), ("offset of 1", 1.0, 2), ("offset of 1, a third of the features", 1.0, 0))
GAINS = (("30 % gain", 0.3, 3),)
TOML = """[data]
file = "rows.csv"
target = "class"
split = "random"
seed = 0

[cost]
unit = "units"
default_sensor = 1.0

[cost.uplink]
per_request = {request}.0

[hpc]
estimator = "ExtraTreesClassifier"

[hpc.params]
n_estimators = 100

[policy]
methods = ["cascade"]
effort = "quick"
"""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """Rows for training and, where the table drifts by itself, the later ones (None: drift is made)."""

    name: str
    X: Array
    y: NDArray[Any]
    later: tuple[str, Array, NDArray[Any]] | None = None


def tables(folder: Path) -> Iterator[Table]:
    """The tables, one after the other."""
    rng = np.random.default_rng(SEED)
    shapes = (
        ("Letters", "letter", 5_000, 16),
        ("Satimage", "satimage", 4_000, 36),
        ("Covertype", "covertype_sample", 5_000, 10),
    )
    for name, file, n, columns in shapes:
        data = np.load(folder / f"{file}.npz")
        rows = np.sort(rng.permutation(len(data["y"]))[:n])
        yield Table(name, data["X"][rows, :columns].astype(float), data["y"][rows])
    data = np.load(folder / "hydraulic_1hz.npz")
    X = np.concatenate([data["X"].mean(axis=2), data["X"].std(axis=2)], axis=1).astype(float)
    for k in (1, 3):
        y, target = data["Y"][:, k], str(data["target_names"][k])
        yield Table(f"Rig: {target}", X[:1_400], y[:1_400], ("the last 805 cycles", X[1_400:], y[1_400:]))
    data = np.load(folder / "occupancy_detection.npz")
    X, y, split = data["X"].astype(float), data["y"], data["split"]
    for k, series in ((1, "first"), (2, "second")):
        own, later = split == 0, split == k
        yield Table(f"Office ({series})", X[own], y[own], (f"{series} test series", X[later], y[later]))
    data = np.load(folder / "room_occupancy.npz")
    X, y = data["X"].astype(float), data["y"]
    yield Table("Room", X[:4_000], y[:4_000], ("the last 6,129 rows", X[4_000:], y[4_000:]))
    data = np.load(folder / "wisdm_transformed.npz")
    X, y, known = np.nan_to_num(data["X"].astype(float)), data["y"], data["user"] <= 24
    yield Table("Activities", X[known], y[known], ("other people", X[~known], y[~known]))


def measure(folder: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """The figures of each table."""
    found = []
    for table in tables(folder):
        if not names or table.name in names:
            with tempfile.TemporaryDirectory() as scratch:
                try:
                    found.append(measured(table, Path(scratch)))
                except RefusedError as refused:  # a pick that reads nothing has nothing to score
                    found.append({"table": table.name, "refused": str(refused)})
                print(found[-1], flush=True)
    return found


def measured(table: Table, scratch: Path) -> dict[str, Any]:
    """Train, export twice, and compare."""
    n_features = table.X.shape[1]
    with open(scratch / "rows.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{k}" for k in range(n_features)), "class"])
        writer.writerows([*row, f"c{label}"] for row, label in zip(table.X.tolist(), table.y.tolist(), strict=True))
    (scratch / "hardcase.toml").write_text(TOML.format(request=n_features))
    command("train", scratch / "hardcase.toml", "--out", scratch / "build", "--quiet", "--no-baselines")
    paths = [scratch / "plain.hcb", scratch / "scored.hcb"]
    for path, more in zip(paths, ((), ("--atypical", SHARE)), strict=True):
        command("export", scratch / "build", "--max-loss", MAX_LOSS, "--out", path, *more)
    plain, scored = (load_bundle(path) for path in paths)
    rows = read_rows(scratch / "build" / "test.npz", plain.manifest)
    places = {str(label): k for k, label in enumerate(plain.manifest.classes)}
    programs = [plain.bundle.program, scored.bundle.program]
    branches = {k: scored.bundle.program.nodes[k].targets[0] for k in scored.manifest.atypical}
    before = [decisions(program, rows.X, rows.hpc, rows.confidence) for program in programs]
    alone = answers(programs[0], rows.X)
    figures: dict[str, Any] = {
        "table": table.name, "rows": len(rows.y), "bytes": [path.stat().st_size for path in paths],
        "forwarded": [share([d.route == CLOUD for d in made]) for made in before],
        "atypical": scored.manifest.claims["atypical"],
        "cost": [float(np.mean([d.cost for d in made]) / 1e6) for made in before],
        "same_sensors": same_sensors(before), "drifts": [],
    }  # fmt: skip
    if table.later is not None:
        what, X, y = table.later
        truth = np.array([places[f"c{label}"] for label in y.tolist()])
        figures["drifts"].append(
            after_drift(what, programs, branches, plain.manifest.ranges, X, truth, None, share(alone == rows.y))
        )
        return figures
    for kinds, moved in ((MADE, offset), (GAINS, stretched)):
        for what, size, count in kinds:
            k = count or n_features // 3
            draws = [moved(rows.X, size, k, np.random.default_rng(seed)) for seed in range(DRAWS)]
            each = [
                after_drift(
                    f"{what}, {k} features",
                    programs,
                    branches,
                    plain.manifest.ranges,
                    X,
                    rows.y,
                    alone == rows.y,
                    share(alone == rows.y),
                )
                for X in draws
            ]
            figures["drifts"].append(pooled(each))
    return figures


def after_drift(
    what: str, programs: Sequence[Any], branches: dict[int, int], ranges: Sequence[Any], X: Array,
    truth: NDArray[Any], was_right: NDArray[np.bool_] | None, before: float,
) -> dict[str, Any]:  # fmt: skip
    """Rows that become wrong, and what becomes of them."""
    now = answers(programs[0], X)
    wrong = (now != truth) & (True if was_right is None else was_right)
    made = [decisions(program, X[wrong], truth[wrong]) for program in programs]
    flagged = np.array([is_flagged(d, branches) for d in made[1]], dtype=bool)
    local = np.array([d.route != CLOUD for d in made[0]], dtype=bool)
    out = [any(r and not r[0] <= x <= r[1] for r, x in zip(ranges, row, strict=True)) for row in X[wrong].tolist()]
    return {
        "what": what, "before": before, "after": share(now == truth), "wrong": int(wrong.sum()),
        "out_of_range": int(sum(out)), "plain": int((~local).sum()), "scored": int(flagged.sum()),
        "local": int(local.sum()), "local_flagged": int((flagged & local).sum()),
    }  # fmt: skip


def pooled(each: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts of several draws together, and means of shares."""
    counts = {key: sum(one[key] for one in each) for key in each[0] if isinstance(each[0][key], int)}
    return {**each[0], **counts, "after": float(np.mean([one["after"] for one in each]))}


def is_flagged(decision: Decision, branches: dict[int, int]) -> bool:
    """Whether the decision went to the cloud, or past a threshold of the score."""
    steps = zip(decision.trace, decision.trace[1:], strict=False)
    return decision.route == CLOUD or any(k in branches and after != branches[k] for k, after in steps)


def answers(program: Any, X: Array) -> NDArray[Any]:
    """What the program answers without a cloud."""
    return np.array([d.result for d in decisions(program, X, None, cloud=False)])


def same_sensors(before: Sequence[Sequence[Decision]]) -> bool:
    """Whether each row that both answer alone has bought the same sensors."""
    return all(a.sensors == b.sensors for a, b in zip(*before, strict=True) if a.route == b.route != CLOUD)


def offset(X: Array, size: float, count: int, rng: np.random.Generator) -> Array:
    """Some features with an offset of so many standard deviations, up or down."""
    moved, which = X.copy(), rng.choice(X.shape[1], count, replace=False)
    moved[:, which] += rng.choice([-1, 1], count) * size * X[:, which].std(axis=0)
    return as_read(moved, X)


def stretched(X: Array, size: float, count: int, rng: np.random.Generator) -> Array:
    """Some features with a gain that is so much too high or too low."""
    moved, which = X.copy(), rng.choice(X.shape[1], count, replace=False)
    moved[:, which] *= 1 + rng.choice([-1, 1], count) * size
    return as_read(moved, X)


def as_read(moved: Array, X: Array) -> Array:
    """These readings, whole where all readings of a feature are whole: a sensor of whole numbers gives no others."""
    return np.where((np.round(X) == X).all(axis=0), np.round(moved), moved)


def share(flags: Any) -> float:
    """The share that is true."""
    return float(np.mean(flags))


def page(everything: Sequence[dict[str, Any]]) -> str:
    """The page."""
    found = [one for one in everything if "refused" not in one]
    refused = "".join(f"\n{one['table']} was not measured: {one['refused']}." for one in everything if "refused" in one)
    rows = [row(one, drift) for one in found for drift in one["drifts"]]
    reached = [d["scored"] >= d["wrong"] / 2 for one in found for d in one["drifts"] if d["wrong"] >= 30]
    alone = sum(d["plain"] >= d["wrong"] / 2 for one in found for d in one["drifts"] if d["wrong"] >= 30)
    half = [d["local_flagged"] >= d["local"] / 2 for one in found for d in one["drifts"] if d["local"] >= 30]
    costs = markdown(
        ("table", "forwarded without, with", "mean cost without, with", "kB without, with"),
        [
            (
                one["table"], percents(one["forwarded"]), ", ".join(f"{c:.2f}" for c in one["cost"]),
                ", ".join(f"{b / 1000:.0f}" for b in one["bytes"]),
            )
            for one in found
        ],
    )  # fmt: skip
    about = " ".join((__doc__ or "").split("\n\n")[2].split()).replace(". ", ".\n")
    return f"""# Atypical cases

How many of the answers that drift makes wrong go to the cloud, with the score of
[atypical cases](../atypical.md) and without.

    HARDCASE_DATA=FOLDER python -m benchmarks run atypical

{about}

{markdown(TITLES, rows)}

The goal is half of the answers that become wrong, at 5 % more forwards before the drift.
With the score, {sum(reached)} of {len(reached)} drifts that make at least 30 answers wrong reach it; without, {alone}.
The last column is stricter, because it leaves out what the policy forwards by itself:
of the wrong answers that it would have given alone, at least half are flagged in {sum(half)} of {len(half)} drifts.
What the score cannot see: a policy that reads one or two sensors gives it nothing to compare, and other people's
readings go together as those of training do.

Before the drift, on test rows:

{costs}

Each answer that both programs give alone has bought the same sensors.
Measured here: {", ".join(one["table"] for one in found)}; without `--tables` the command measures more tables.{refused}
"""


def row(one: dict[str, Any], drift: dict[str, Any]) -> tuple[str, ...]:
    """A row of the page's table."""
    wrong = max(drift["wrong"], 1)
    shares = [drift[key] / wrong for key in ("out_of_range", "plain", "scored")]
    local = f"{drift['local_flagged'] / max(drift['local'], 1):.0%} of {drift['local']}"
    accuracies = f"{drift['before']:.3f}, {drift['after']:.3f}"
    return one["table"], drift["what"], accuracies, str(drift["wrong"]), *(f"{s:.0%}" for s in shares), local


def percents(values: Sequence[float]) -> str:
    """Shares as percents."""
    return ", ".join(f"{v:.1%}" for v in values)


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--tables", nargs="*", default=[], metavar="NAME", help="only these")


def run(args: Any) -> Any:
    """Measure."""
    return measure(Path(os.environ["HARDCASE_DATA"]), args.tables)
