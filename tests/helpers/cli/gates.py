# SPDX-License-Identifier: Apache-2.0
"""A small log of answers of three models, whose gate takes seconds to train, and that gate."""

from __future__ import annotations

import csv
import json
import random
import tempfile
from collections.abc import Callable
from contextlib import chdir, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from hardcase.cli import main
from hardcase_train.checks import BRIEF
from hardcase_train.settings.effort import EFFORTS

NAMES = ("small", "large", "old")
PRICES = dict(zip(NAMES, (1, 10, 4), strict=True))
CLASSES = ("cat", "dog")
N = 160
TRAINING = ("--effort", "quick", "--method", "dag", "--jobs", "1", "--json")


@cache
def requests(n: int = N, seed: int = 1) -> tuple[dict[str, Any], ...]:
    """Of each request the truth, and what each model answers: the small one knows how sure it is."""
    rng, rows = random.Random(seed), []
    for _ in range(n):
        truth, sure = rng.choice(CLASSES), round(rng.random(), 3)
        right = {"small": 0.35 + 0.65 * sure, "large": 0.96, "old": 0.6}
        row: dict[str, Any] = {"truth": truth}
        for name in NAMES:
            wrong = rng.random() > right[name]
            row[f"{name}_label"] = CLASSES[(CLASSES.index(truth) + wrong) % 2]
            row[f"{name}_price"] = PRICES[name]
        rows.append(row | {"small_confidence": sure, "large_confidence": round(rng.uniform(0.6, 1), 3)})
    return tuple(rows)


@cache
def contrasts(n: int, seed: int) -> tuple[dict[str, Any], ...]:
    """As ``requests``, but a difference of confidences that rise and fall together is the truth: a gate asks all."""
    rng, rows = random.Random(seed), []
    for _ in range(n):
        common, own = rng.gauss(0.5, 0.15), [rng.gauss(0, 0.05) for _ in NAMES]
        row: dict[str, Any] = {"truth": CLASSES[own[0] + own[1] > 2 * own[2]]}
        for name, part in zip(NAMES, own, strict=True):
            row |= {
                f"{name}_label": rng.choice(CLASSES),
                f"{name}_confidence": min(max(common + part, 0), 1),
                f"{name}_price": 1,
            }
        rows.append(row)
    return tuple(rows)


def said(row: dict[str, Any], name: str) -> tuple[str, float | None]:
    """What a model answers to a request."""
    return row[f"{name}_label"], row.get(f"{name}_confidence")


@cache
def made_gate(
    n: int = N, *wish: str, draw: Callable[[int, int], tuple[dict[str, Any], ...]] = requests
) -> tuple[Path, dict[str, Any]]:
    """The folder of the gate, trained once in this process, which nobody may change, and what the command printed."""
    folder, rows = Path(tempfile.mkdtemp(prefix="hardcase-gate-")), draw(n, 1)
    with open(folder / "calls.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as printed, chdir(folder):
        if "--risk" not in wish:  # for which a brief search finds nothing between the smallest model and the largest
            patch.setitem(EFFORTS, "quick", BRIEF)
        assert main(["gate", "calls.csv", *(wish or ("--budget", "4")), *TRAINING]) == 0
    return folder / "gate", json.loads(printed.getvalue())
