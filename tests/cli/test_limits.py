# SPDX-License-Identifier: Apache-2.0
"""Limits of [policy] through the command: train within them, export by a hard budget, and what the pages say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hardcase.cli import main
from hardcase_train.methods.baselines.cascade import ConfidenceCascade
from tests.helpers.train.problems import BRIEF, make_problem, run, toml, write_csv

TEXT = """[cost.uplink]
per_request = 30
[policy]
methods = ["static", "cascade"]
budget = 3
max_bytes = 16384
[[sensor]]
name = "a"
cost = 1
[[sensor]]
name = "b"
cost = 2
[[sensor]]
name = "c"
cost = 4
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory, brief_effort: None) -> Path:
    folder = tmp_path_factory.mktemp("limits")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 240)
    columns = {name: np.round(y + rng.normal(size=240) * s, 3) for name, s in (("a", 1.0), ("b", 0.6), ("c", 0.2))}
    write_csv(folder / "data.csv", {**columns, "y": np.where(y, "wet", "dry")})
    assert main(["train", str(toml(folder, TEXT)), "--out", str(folder / "build"), "--quiet"]) == 0
    return folder / "build"


def test_no_policy_costs_more_and_f0_is_shown_and_never_picked(build: Path) -> None:
    front = json.loads((build / "front.json").read_text())
    assert front["limits"] == {"budget": 3, "max_bytes": 16384}
    f0, *others = front["points"]
    assert f0["method"] == "hpc"
    assert f0["worst_cost"] > 30
    assert others
    assert all(p["worst_cost"] <= 3 and p["valid"]["forward_rate"] == 0 for p in others)


@pytest.mark.parametrize(("wish", "most"), [([], 3), (["--hard-budget", "2"], 2), (["--hard-budget", "1"], 1)])
def test_the_best_policy_within_the_budget_is_exported_and_keeps_it(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], wish: list[str], most: float
) -> None:
    bundle = tmp_path / "model.hcb"
    assert run(capsys, "export", build, *wish, "--out", bundle, "--force")[0] == 0
    status, said, err = run(capsys, "evaluate", bundle, build / "test.npz", "--budget", most)
    assert (status, err) == (0, "")
    assert said == run(capsys, "evaluate", bundle, build / "test.npz")[1], "the device's budget changes nothing"
    front = json.loads((build / "front.json").read_text())["points"][1:]
    fitting = [p for p in front if p["worst_cost"] <= most]
    best = max(fitting, key=lambda p: (p["valid"]["quality"], -p["valid"]["cost"]))
    assert said["cost"] == pytest.approx(best["test"]["cost"])
    assert said["cost"] <= most


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--hard-budget", "-1"], "--hard-budget is -1.0; give a cost of at least 0"),
        (["--hard-budget", "nan"], "--hard-budget is nan"),
    ],
)
def test_a_hard_budget_that_cannot_be_is_one_line(build: Path, tmp_path: Path, capsys, flags, said) -> None:
    assert run(capsys, "export", build, *flags, "--out", tmp_path / "model.hcb")[::2] != (0, "")
    assert main(["export", str(build), *flags, "--out", str(tmp_path / "model.hcb")]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_pages_have_both_budgets_and_the_limits(build: Path) -> None:
    front, page = (build / "front.md").read_text(), (build / "report.html").read_text()
    assert "## Hard budgets" in front
    assert "The best within the limits of [policy]" in front
    assert "hard budgets" in page
    assert "All policies were trained within limits: budget 3" in page
    assert "max_bytes 16,384" in page


def test_limits_that_nothing_keeps_are_one_line_and_nothing_is_written(build: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "build"
    args = ["train", str(build.parent / "hardcase.toml"), "--out", str(out), "--quiet", "--max-bytes", "10300"]
    assert main(args) == 2
    assert "no policy keeps [policy] max_bytes = 10300" in capsys.readouterr().err
    assert not out.exists()


def test_an_estimator_keeps_its_limits() -> None:
    rows = make_problem(n_classes=2, missing=0.0).train
    how = {"sensors": [[0, 1], [2, 3], [4, 5]], "costs": [1.0, 5.0, 20.0], "forward_cost": 30.0, "effort": BRIEF}
    model = ConfidenceCascade(**how, limits={"budget": 6}, random_state=0).fit(rows.X, rows.y)
    assert model.figures_.forward_rate == 0
    assert model.decide(rows.X).cost.max() <= 6
    for limits, said in (
        ({"bugdet": 6}, "unknown limit 'bugdet'"),
        (6, "give a dict of limits"),
        ({"budget": -1}, "a cost from 0"),
    ):
        with pytest.raises(ValueError, match=said):
            ConfidenceCascade(**how, limits=limits).fit(rows.X, rows.y)  # type: ignore[arg-type]
