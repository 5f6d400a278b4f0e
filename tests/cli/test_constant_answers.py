# SPDX-License-Identifier: Apache-2.0
"""A policy that gives one answer to every case is good by accuracy where faults are rare; every verb says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hardcase
from benchmarks import users
from hardcase.cli import main
from hardcase.measuring.picked import constant_warning, f0_warning, measure_pick
from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.quality import ACCURACY, Quality
from hardcase_export.bundle import export_bundle
from hardcase_export.integers.point import Build
from tests.helpers.train.problems import run, toml, write_csv

pytestmark = pytest.mark.usefixtures("brief_effort")

WARNING = "WARNING: THIS POLICY ANSWERS 'ok' TO EVERY CASE AND MISSES ALL"


def rare_faults(folder: Path, more: str = "") -> Path:
    """A table with a reading that is high at most of its 3 % faults, and the TOML."""
    rng = np.random.default_rng(0)
    fault = np.arange(400) % 33 == 0
    level = rng.normal(size=400) + 2.5 * fault
    rows = [f"{x:.3f},{y:.3f},{'fault' if f else 'ok'}" for x, y, f in zip(level, rng.random(400), fault, strict=True)]
    (folder / "t.csv").write_text("\n".join(["level,noise,state", *rows]) + "\n")
    toml = folder / "hardcase.toml"
    toml.write_text(
        '[data]\nfile = "t.csv"\ntarget = "state"\n[cost]\ndefault_sensor = 0.05\n[cost.uplink]\nper_request = 5\n'
        '[hpc]\nestimator = "LogisticRegression"\n[policy]\nmethods = ["static"]\nsize = "small"\neffort = "quick"\n'
        + more
    )
    return toml


def test_a_constant_answer_is_named_by_train_export_evaluate_and_the_report(tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    build, bundle = str(tmp_path / "build"), str(tmp_path / "m.hcb")
    for words in (
        ["train", str(rare_faults(tmp_path)), "--out", build, "--no-baselines", "--quiet", "--jobs", "1"],
        ["export", build, "--max-loss", "0.1", "--out", bundle, "--force"],
        ["export", build, "--budget", "0", "--out", bundle, "--force"],
        ["evaluate", bundle, f"{build}/test.npz"],
    ):
        assert main(words) == 0
        assert WARNING in capsys.readouterr().out, words
    assert "THIS POLICY ANSWERS" in (tmp_path / "build" / "report.html").read_text()


def test_a_constant_that_reads_nothing_is_written_by_force_alone(tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    build, bundle = tmp_path / "build", tmp_path / "m.hcb"
    words = ["train", str(rare_faults(tmp_path)), "--out", str(build), "--no-baselines", "--quiet", "--jobs", "1"]
    assert main(words) == 0
    refused = ("this policy reads nothing and answers 'ok' to every case", "with --force")
    capsys.readouterr()
    for more in ((), ("--monitors",)):
        status, _, err = run(capsys, "export", build, "--budget", "0", "--out", bundle, *more)
        assert (status, err.count("\n"), bundle.exists()) == (2, 1, False)
        assert all(part in err for part in refused)
    with pytest.raises(InputError, match=refused[0]):
        export_bundle(build, bundle, budget=0.0)
    assert export_bundle(build, bundle, budget=0.0, allow_constant=True).path == bundle
    assert refused[0] in measure_pick(Build(build), {"budget": 0.0}).refusal
    with pytest.raises(InputError, match=refused[0]):
        hardcase.Policy(build, budget=0.0).export(tmp_path / "n.hcb")


def test_where_errors_have_costs_the_picked_policy_finds_faults(tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    """The whole cost is below that of f0 for every case and of the best constant answer."""
    toml = rare_faults(tmp_path, "[cost.errors]\nmiss = { fault = 100 }\nother = 2\n")
    build, bundle = str(tmp_path / "build"), str(tmp_path / "m.hcb")
    assert main(["train", str(toml), "--out", build, "--no-baselines", "--quiet", "--jobs", "1"]) == 0
    assert main(["export", build, "--out", bundle, "--json"]) == 0
    said = capsys.readouterr().out
    assert WARNING not in said
    assert main(["evaluate", bundle, f"{build}/test.npz"]) == 0
    lines = capsys.readouterr().out
    assert "errors cost" in lines
    told = json.loads(said.splitlines()[-1])
    faults = next(c for c in told["classes"] if c["class"] == "fault")
    assert faults["recall"] > 0
    whole = told["test"]["cost"] + told["test"]["errors"]
    assert whole < told["f0"]["cost"] + (1 - told["f0"]["quality"]) * 3
    assert whole < min(100 * faults["n"], 2 * (told["test"]["n"] - faults["n"])) / told["test"]["n"]


@pytest.mark.parametrize(
    ("measure", "constant"),
    [
        (ACCURACY, 0.8), (Quality("balanced", "balanced accuracy"), 0.5), (Quality("macro-f1", "macro F1"), 4 / 9),
        (Quality("f1", "F1 of fault"), 1 / 3), (Quality("recall", "recall", precision=0.5), 0.4),
        (Quality("errors", "costs", costs=((0.0, 5.0), (1.0, 0.0)), scale=0.8), 0.0),
        (Quality("log-loss", "log loss skill"), 0.0), (Quality("r2", "R2"), 0.0),
    ],
    ids=lambda value: getattr(value, "kind", None),
)  # fmt: skip
def test_an_f0_that_is_no_better_than_one_answer_is_said(measure: Quality, constant: float) -> None:
    counts = () if measure.is_of_values else (1, 4)  # of fault and ok
    line = f0_warning(constant - 0.001, measure, counts)
    assert line is not None
    assert line.startswith("WARNING: f0 IS NO BETTER THAN ONE ANSWER TO EVERY CASE (")
    assert f0_warning(constant + 0.001, measure, counts) is None
    assert f0_warning(-1.0, Quality("ndcg", "NDCG@5"), ()) is None


def test_several_answers_and_no_errors_are_no_warning() -> None:
    def count(n: int, answered: int, right: int) -> dict[str, object]:
        return {"class": "ok", "n": n, "answered": answered, "right": right}

    assert constant_warning({"classes": [count(9, 10, 9), count(1, 0, 0)]}) is not None
    assert constant_warning({"classes": [count(9, 9, 9), count(1, 1, 1)]}) is None
    assert constant_warning({"classes": [count(9, 9, 9), count(0, 0, 0)]}) is None
    assert constant_warning({"classes": []}) is None
    assert constant_warning({"classes": [], "only_answer": None, "target_unit": "bar"}) is None


@pytest.mark.parametrize("data", ['task = "value"\ntarget_unit = "bar"', 'task = "rank"\ngroup = "q"'])
def test_one_value_for_every_case_is_named_too(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, n = np.random.default_rng(3).normal(size=240).round(4), np.arange(240)
    write_csv(tmp_path / "data.csv", {"a": a, "q": n // 12, "y": np.clip(np.round(2 * a + 2), 0, 4)})
    build, bundle, hpc = tmp_path / "build", tmp_path / "m.hcb", '\n[hpc]\nestimator = ["StandardScaler", "Ridge"]\n'
    flags = ("--effort", "quick", "--quiet", "--jobs", "1", "--method", "static", "--no-baselines")
    assert main(["train", str(toml(tmp_path, hpc, data=data)), "--out", str(build), *flags]) == 0
    for wish, is_warned in ((("--budget", "0"), True), ((), False)):
        wish = (*wish, *["--force"] * is_warned)
        assert main(["export", str(build), "--out", str(bundle), *wish]) == 0
        assert main(["evaluate", str(bundle), str(build / "test.npz")]) == 0
        said = capsys.readouterr().out
        assert said.count("WARNING: THIS POLICY ANSWERS") == 2 * is_warned
        assert (" bar TO EVERY CASE" in said) == (is_warned and "bar" in data)
        for words in (["export", build, "--out", bundle, *wish], ["evaluate", bundle, build / "test.npz"]):
            assert len(run(capsys, *words)[1]["warnings"]) == is_warned


@pytest.mark.parametrize("kind", ["classes", "values"])
def test_the_benchmark_of_users_fails_on_a_constant_without_a_warning(kind: str) -> None:
    classes = [{"answered": 9, "n": 8}, {"answered": 0, "n": 1}] if kind == "classes" else []
    test = {"quality": 0.5, "cost": 0.0, "forward_rate": 0.0}
    seen: dict[str, Any] = {**test, "classes": classes, "sensors": {"a": {"rows": 0}}, "warnings": []}
    line = "WARNING: THIS POLICY ANSWERS 3 TO EVERY CASE"
    warned = {**seen, "warnings": [line]}
    users._check({"test": test, "warnings": [line]}, warned, line, "report.html")
    for verb, exported, evaluated in (("export", seen, warned), ("evaluate", warned, seen)):
        with pytest.raises(users.FailedError, match=f"{verb} does not warn"):
            users._check({"test": test, "warnings": exported["warnings"]}, evaluated, line, "report.html")


@pytest.mark.parametrize("name", ["ok\x1b[31m", "x" * 300])
def test_a_label_from_outside_is_printed_plainly(name: str) -> None:
    named = {"class": name, "n": 9, "answered": 10, "right": 9}
    other = {"class": "b", "n": 1, "answered": 0, "right": 0}
    line = constant_warning({"classes": [named, other]})
    assert line is not None
    assert line.isprintable()
    assert len(line) < 200
