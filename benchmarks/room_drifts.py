# SPDX-License-Identifier: Apache-2.0
"""A room whose later rows are not as the first ones: a policy of the first 4,000 rows, and rows after them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
from sklearn.ensemble import RandomForestClassifier

import hardcase
from hardcase_edge.bundle.load import Loaded, load_bundle

__all__ = ["Forest", "room"]

BEFORE, AFTER = 4_000, 1_500  # rows that train; later ones, evenly spread
KINDS = ("Temp", "Light", "Sound", "CO2", "PIR")  # sensors, at a cost of 1, 2, ...
FORWARD = 20.0


class Forest:
    """f0: a random forest that answers as ``Hpc`` does."""

    def __init__(self, forest: RandomForestClassifier) -> None:
        self._forest = forest

    def answer(self, rows: list[list[float]]) -> list[tuple[int, float]]:
        """The number of each row's class."""
        return [(int(k), 1.0) for k in self._forest.predict(np.array(rows, dtype=float))]


def room() -> tuple[Loaded, np.ndarray, np.ndarray, Forest]:
    """The bundle, later rows in their order with their classes, and f0 (UCI Room Occupancy Estimation)."""
    with np.load(Path(os.environ["HARDCASE_DATA"]) / "room_occupancy.npz") as data:
        X, y, names = data["X"].astype(float), data["y"].astype(int), [str(n) for n in data["feature_names"]]
    groups = {kind: [k for k, n in enumerate(names) if kind in n] for kind in KINDS}
    forest = RandomForestClassifier(200, random_state=0)
    policy = hardcase.train(
        X[:BEFORE], y[:BEFORE], sensors=groups, costs={kind: 1.0 + k for k, kind in enumerate(KINDS)},
        forward_cost=FORWARD, unit="mJ", hpc=forest, methods=["cascade"], effort="quick", max_loss=0.0, jobs=1,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        policy.export(Path(folder) / "room.hcb", method="cascade", max_loss=0.0, monitors=True)
        loaded = load_bundle(Path(folder) / "room.hcb")
    later = np.linspace(BEFORE, len(y) - 1, AFTER).astype(int)
    return loaded, X[later], y[later], Forest(forest.fit(X[:BEFORE], y[:BEFORE]))
