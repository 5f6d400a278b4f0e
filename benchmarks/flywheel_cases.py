# SPDX-License-Identifier: Apache-2.0
"""The tables of ``flywheel.py``: what trains first, and what comes to devices later, which is other than before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier

from benchmarks.learning_cases import data
from benchmarks.pages import ROOT
from hardcase_edge.program.window import WINDOW_FEATURES, window_features
from tests.helpers.cloud.flywheel import Rows

RIG = ROOT / "examples" / "hydraulic"
FIRST = 1_400  # cycles of the rig that train
N_FRESH = 12  # people that come later
WISDM = """\
[data]
file = "first.csv"
target = "activity"
seed = {seed}

[cost]
default_sensor = 1.0

[cost.uplink]
per_request = 7.0

[hpc]
estimator = "ExtraTreesClassifier"

[hpc.params]
n_estimators = 300
"""


@dataclass(frozen=True)
class Table:
    """A table whose later rows are other than its first ones.

    first : (n, n_features) readings and (n,) labels that train
    later : the rows that come to devices
    device : (n_later,) the number of the device, 0 to 2, that each of these comes to
    write : writes the configuration of a seed and the first rows into a folder; returns the configuration's path
    cut : writes these of the later rows as a table
    wish : of the bundle that is shipped, as words of ``hardcase export``
    pace : seconds between two decisions while a bundle is trained and rolled out, and how often each device goes
        through its rows then; a canary's agreement with f0 may need some thousand decisions
    """

    first: tuple[NDArray[np.float64], NDArray[np.str_]]
    later: Rows
    device: NDArray[np.int64]
    write: Callable[[Path, int], Path]
    cut: Callable[[Path, NDArray[np.int64]], Path]
    wish: tuple[str, ...]
    pace: tuple[float, int]

    @property
    def readings(self) -> NDArray[np.float64]:
        """Those of the later rows, (n_later, n_features)."""
        return np.column_stack(list(self.later.features.values()))


def rig(seed: int) -> Table:
    """The accumulator of the hydraulic rig: the first 1,400 cycles train, and the last 805 come later."""
    with np.load(RIG / "hydraulic.npz") as file:
        arrays = {name: file[name] for name in file.files}
    target = arrays["target_names"].tolist().index("accumulator_bar")
    names, n_samples = arrays["sensor_names"].tolist(), arrays["X"].shape[2]
    samples, y = np.round(arrays["X"] * arrays["scale"], 3), arrays["Y"][:, target].astype(str)
    made = np.array([[window_features(window) for window in row] for row in samples.tolist()])
    features = {
        f"{n}.{f}": made[FIRST:, s, k] for s, n in enumerate(names) for k, f in enumerate(WINDOW_FEATURES)
    }  # fmt: skip
    header = ",".join(f"{name}[{k}]" for name in names for k in range(n_samples))
    lines = [",".join(f"{v:.7g}" for v in row.ravel()) for row in samples[FIRST:]]

    def cut(path: Path, rows: NDArray[np.int64]) -> Path:
        np.savez(path, **{n: a[rows] if n in ("X", "Y") else a for n, a in arrays.items()})
        return path

    def write(folder: Path, seed: int) -> Path:
        cut(folder / "first.npz", np.arange(FIRST))
        text = (RIG / "hardcase.toml").read_text().replace('"hydraulic.npz"', '"first.npz"')
        (folder / "hardcase.toml").write_text(text.replace("seed = 0", f"seed = {seed}"))
        return folder / "hardcase.toml"

    return Table(
        (made[:FIRST].reshape(FIRST, -1), y[:FIRST]), Rows(header, lines, features, y[FIRST:].tolist()),
        np.arange(len(lines)) % 3, write, lambda folder, rows: cut(folder / "held.npz", FIRST + rows),
        ("--method", "adapt-gbrt", "--max-loss", "0"), (0.25, 20),
    )  # fmt: skip


def people(seed: int) -> Table:
    """WISDM's windows of a phone's accelerometer: 24 people train, and 12 others come later, four to a device."""
    arrays = data("wisdm_transformed.npz")
    names, X, user = arrays["feature_names"].tolist(), arrays["X"].astype(np.float64), arrays["user"]
    y, fresh = arrays["class_names"][arrays["y"]], np.random.default_rng(seed).permutation(np.unique(user))[:N_FRESH]
    is_fresh = np.isin(user, fresh)
    place = {int(u): k % 3 for k, u in enumerate(fresh)}
    cells = [["" if np.isnan(v) else f"{v:.9g}" for v in row] for row in X.tolist()]
    lines = np.array([",".join(row) for row in cells])

    def cut(path: Path, which: NDArray[np.int64]) -> Path:
        rows = [f"{line},{label}" for line, label in zip(lines[which].tolist(), y[which].tolist(), strict=True)]
        path.write_text("\n".join([",".join([*names, "activity"]), *rows]) + "\n")
        return path

    def write(folder: Path, seed: int) -> Path:
        cut(folder / "first.csv", np.flatnonzero(~is_fresh))
        of = {axis: ", ".join(f'"{n}"' for n in names if n.startswith(axis)) for axis in "XYZ"}
        sensors = [f'[[sensor]]\nname = "{a}"\nfeatures = [{of[a]}]\ncost = 1.0\n' for a in of]
        (folder / "hardcase.toml").write_text("\n".join([WISDM.format(seed=seed), *sensors]))
        return folder / "hardcase.toml"

    later = np.flatnonzero(is_fresh)
    return Table(
        (X[~is_fresh], y[~is_fresh]),
        Rows(",".join(names), lines[later].tolist(), dict(zip(names, X[later].T, strict=True)), y[later].tolist()),
        np.array([place[int(u)] for u in user[later]]), write,
        lambda folder, rows: cut(folder / "held.csv", later[rows]), (), (0.02, 100),
    )  # fmt: skip


CASES: dict[str, Callable[[int], Table]] = {"rig": rig, "people": people}


def forest(X: NDArray[np.float64], y: NDArray[np.str_]) -> ExtraTreesClassifier:
    """What people fit by hand: 300 extremely randomised trees, with -1 for what is missing."""
    return ExtraTreesClassifier(n_estimators=300, random_state=0).fit(np.nan_to_num(X, nan=-1.0), y)


def survey() -> dict[str, tuple[float, float]]:
    """Candidates for the second table: a forest's share right on its own kind of rows, and on later ones."""
    d = data("occupancy_detection.npz")
    candidates = {"occupancy: the training file, then both later files": (d["X"], d["y"], d["split"] > 0)}
    d = data("room_occupancy.npz")
    candidates["rooms: the first half of the days, then the second"] = (d["X"], d["y"], np.arange(len(d["y"])) >= 5_064)
    d = data("wisdm_transformed.npz")
    fresh = np.random.default_rng(0).permutation(np.unique(d["user"]))[:N_FRESH]
    candidates["phones: 24 people, then 12 others"] = (d["X"], d["y"], np.isin(d["user"], fresh))
    return {name: _fall(np.nan_to_num(X.astype(float), nan=-1.0), y, late) for name, (X, y, late) in candidates.items()}


def whole_states(seeds: int = 3) -> list[float]:
    """A forest on all other later cycles of the rig, its share right in whole states of the rig that were held back."""
    table, shares = rig(0), []
    with np.load(RIG / "hydraulic.npz") as file:
        conditions = file["Y"][FIRST:]
    state = np.cumsum(np.r_[True, (conditions[1:] != conditions[:-1]).any(axis=1)])
    X, y = table.readings, np.array(table.later.truth)
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(np.unique(state))
        is_held = np.isin(state, order[: len(order) * 3 // 10])
        shares.append(float(forest(X[~is_held], y[~is_held]).score(X[is_held], y[is_held])))
    return shares


def _fall(X: NDArray[np.float64], y: NDArray[np.int64], late: NDArray[np.bool_]) -> tuple[float, float]:
    order = np.random.default_rng(0).permutation(np.flatnonzero(~late))
    train, test = order[: len(order) * 4 // 5], order[len(order) * 4 // 5 :]
    fitted = forest(X[train], y[train])
    return float(fitted.score(X[test], y[test])), float(fitted.score(X[late], y[late]))
