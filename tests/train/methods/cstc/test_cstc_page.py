# SPDX-License-Identifier: Apache-2.0
"""The page of trees of classifiers: goals within a standard error are said to be, and figures name what can run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.cstc import OF_RANKINGS, ONLY_CLASSES
from benchmarks.cstc_goals import CORE, against, goals
from benchmarks.cstc_page import FIGURES
from benchmarks.pages import read


def results(data: str, gains: dict[str, list[float]]) -> dict[str, Any]:
    """One point a method and split; ``gains``: quality beyond 0.6, the same 0 for the methods of CORE not named."""
    made = {}
    for name in (*CORE, *gains):
        for split, gain in enumerate(gains.get(name, [0.0, 0.0, 0.0])):
            made[f"{data}/{split}/{name}"] = {"seconds": 1.0, "points": [[100.0, 0.6 + gain, 100.0, 0.6 + gain]]}
    return made


@pytest.mark.parametrize(("spread", "word"), [(0.02, "within"), (0.0001, "beyond")])
def test_a_goal_is_reached_within_or_beyond_a_standard_error_of_the_paired_difference(spread: float, word: str) -> None:
    gains = [0.006 - spread, 0.006, 0.006 + spread]
    error = np.std(gains, ddof=1) / np.sqrt(3)
    lines = goals(results("mq2008", {"cstc-2": gains}), "mq2008")
    assert f"0.6060 @ 100: reached by 0.0010, {word} a standard error ({error:.4f})." in lines[1]
    assert f"± {error:.4f} |" in against(results("mq2008", {"cstc-2": gains}), "mq2008")[-2]


def test_splits_of_the_digits_share_the_variance_of_their_test_rows() -> None:
    gain = {name: [0.394, 0.394, 0.394] for name in CORE}
    made = {
        k: {**run, "points": [[10.0, *run["points"][0][1:2], 10.0, 0.994]]}
        for k, run in results("digits", gain).items()
    }
    error = np.sqrt(0.006 * 0.994 / 1984)
    assert f"reached by 0.0025, beyond a standard error ({error:.4f})" in goals(made, "digits")[2]


def test_figures_name_only_methods_that_run_on_their_data() -> None:
    for data, names in FIGURES.values():
        assert not set(names) & (OF_RANKINGS if data == "digits" else ONLY_CLASSES)
    assert all(f"digits/{split}/{name}" in read("cstc") for name in ONLY_CLASSES for split in range(5))
