# SPDX-License-Identifier: Apache-2.0
"""CPU seconds of training beside what a person would run instead: one fit of LightGBM, and the cascade by hand."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.budgeted import ours, peers
from benchmarks.budgeted.problem import Problem, Sensor, Wish


def made(rows: int, columns: int, informative: int, classes: int, seed: int) -> Problem:
    """Rows of scikit-learn's generator."""
    from sklearn.datasets import make_classification

    X, y = make_classification(
        rows, columns, n_informative=informative, n_classes=classes, flip_y=0.05, random_state=seed
    )
    sensors = tuple(Sensor(f"x{k}", (k,)) for k in range(columns))
    return Problem(f"{rows} x {columns}", X.round(4), y, sensors, (Wish(columns / 3),), seed)


def beside(problem: Problem, effort: str, peer: Callable[[Problem], Any]) -> dict[str, Any]:
    """CPU seconds of ``hardcase train`` as a user types it on one thread, with its usual split, and of the peer."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        toml = ours.task(folder, problem, effort, is_split=False)
        words = ["train", str(toml), "--out", str(folder / "build"), "--jobs", "1", "--quiet"]
        spent = ours.command(words)
    began = time.process_time()
    peer(problem)
    own = time.process_time() - began
    return {"seconds": round(spent, 2), "peer_seconds": round(own, 2), "ratio": round(spent / own, 2), "effort": effort}


def lightgbm(problem: Problem) -> None:
    """One fit with its defaults, on one thread."""
    from lightgbm import LGBMClassifier

    LGBMClassifier(n_jobs=1, verbose=-1, random_state=problem.seed).fit(problem.X, problem.y)


def by_hand(problem: Problem) -> None:
    """The cascade, for one budget."""
    peers.CascadeByHand().fit(problem)


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "speed-large": lambda: beside(made(60_000, 30, 12, 4, 4), "normal", lightgbm),
    "speed-magic": lambda: beside(made(15_000, 10, 6, 2, 5), "quick", by_hand),
    "speed-small": lambda: beside(made(600, 8, 4, 3, 6), "quick", by_hand),
}
TITLES = {
    "speed-large": "60,000 x 30, four classes, `normal`, no limit; one LightGBM fit",
    "speed-magic": "15,000 x 10, two classes, `quick`; the cascade by hand",
    "speed-small": "600 x 8, three classes, `quick`; the cascade by hand",
}
