# SPDX-License-Identifier: Apache-2.0
"""The policies of ``servo.py`` and their rows: room occupancy, and made readings of a drifting gas array."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["Case", "cases"]

MEAN_COST = 10.0  # mJ, of the policy that is picked
GAS, BOARDS, CLASSES = 12, 4, 5  # sensors of the made array, groups bought together, and gases


@dataclass
class Case:
    """A policy, and rows for streams."""

    name: str
    text: str
    rows: list[list[float]]
    y: list[int]
    hpc: list[int]
    bundle: Path


def room() -> tuple[str, np.ndarray, np.ndarray, dict[str, list[int]], dict[str, float], float]:
    """Room occupancy: 10,129 rows, 4 classes; a node per group of sensors."""
    with np.load(Path(os.environ["HARDCASE_DATA"]) / "room_occupancy.npz") as data:
        X, y, names = data["X"].astype(float), data["y"], [str(n) for n in data["feature_names"]]
    groups = {kind: [k for k, n in enumerate(names) if kind in n] for kind in ("Temp", "Light", "Sound", "CO2", "PIR")}
    costs = {"Temp": 2.0, "Light": 40.0, "Sound": 2.0, "CO2": 10.0, "PIR": 1.0}
    text = "10,129 readings of a room's sensors (UCI Room Occupancy Estimation, CC BY 4.0), 0 to 3 people"
    return text, X, y, groups, costs, 20.0


def gas() -> tuple[str, np.ndarray, np.ndarray, dict[str, list[int]], dict[str, float], float]:
    """Made readings: each gas has a pattern over the array, scaled by the log of its concentration; gains drift."""
    rng = np.random.default_rng(21)
    n = 12_000
    y = rng.integers(0, CLASSES, n)
    patterns = rng.normal(1.0, 0.55, (CLASSES, GAS))
    strength = np.log1p(rng.lognormal(1.2, 0.8, n))[:, None]
    month = np.arange(n) / n * 36
    gain = 1 + month[:, None] * rng.normal(0.0, 0.004, GAS) + 0.03 * np.sin(month[:, None] / 6 + rng.random(GAS) * 6)
    noise = rng.normal(0, 1, (n, GAS)) * np.linspace(0.8, 0.4, GAS)
    X = (patterns[y] * strength * gain + noise).astype(np.float32).astype(float)
    groups = {f"board {b}": list(range(b * GAS // BOARDS, (b + 1) * GAS // BOARDS)) for b in range(BOARDS)}
    costs = {f"board {b}": cost for b, cost in enumerate((1.0, 2.0, 10.0, 30.0))}
    text = (
        f"12,000 made readings of {GAS} gas sensors on {BOARDS} boards, {CLASSES} gases: each gas has a pattern, "
        "scaled by the logarithm of its concentration, and each sensor's gain drifts over 36 months"
    )
    return text, X, y, groups, costs, 20.0


def cases(folder: Path) -> list[Case]:
    """Train what the folder does not have yet."""
    from sklearn.ensemble import RandomForestClassifier

    import hardcase

    made = []
    for name, make in {"room occupancy": room, "gas drift": gas}.items():
        text, X, y, groups, costs, forward = make()
        order = np.random.default_rng(5).permutation(len(y))
        ours, theirs = order[: len(y) // 2], order[len(y) // 2 :]
        bundle, answers = folder / f"{name}.hcb", folder / f"{name}.npy"
        forest = RandomForestClassifier(200, random_state=0)
        if not bundle.is_file():
            policy = hardcase.train(
                X[ours], y[ours], sensors=groups, costs=costs, forward_cost=forward, unit="mJ", hpc=forest,
                methods=["cascade"], effort="quick", budget=MEAN_COST, jobs=1,
            )  # fmt: skip
            policy.export(bundle, method="cascade", budget=MEAN_COST, prices=True, min_agreement=0.99)
            np.save(answers, forest.fit(X[ours], y[ours]).predict(X[theirs]))
        made.append(Case(name, text, X[theirs].tolist(), y[theirs].tolist(), np.load(answers).tolist(), bundle))
    return made
