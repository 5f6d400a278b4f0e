# SPDX-License-Identifier: Apache-2.0
"""Item sizes: a column that is no feature, polynomial costs, and every row priced at its own size."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hardcase.cli import main
from hardcase_edge.program.cost import Meter, to_unit
from hardcase_edge.program.definition import MICRO, Sensor
from hardcase_train.data.problem import Problem, Rows
from hardcase_train.policy.answers import answer_point
from hardcase_train.policy.front import with_test
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.nested_sets import Chains
from hardcase_train.stages.subset_search import SubsetSearch
from tests.helpers.train.problems import BRIEF, make_problem, run, toml, write_csv

COSTS = ((MICRO,), (MICRO, MICRO // 2), (0, 0, MICRO // 10))


def sized(problem: Problem, largest: int = 8) -> Problem:
    """The problem with items of sizes 1 to ``largest``, and costs that depend on them."""

    def with_sizes(rows: Rows) -> Rows:
        return replace(rows, sizes=np.random.default_rng(len(rows.y)).integers(1, largest + 1, len(rows.y)))

    sensors = tuple(Sensor(s.features, cost) for s, cost in zip(problem.sensors, COSTS, strict=True))
    parts = {name: with_sizes(getattr(problem, name)) for name in ("train", "valid", "test")}
    return replace(problem, sensors=sensors, max_item_size=largest, **parts)


def table(folder: Path, sizes: list[object], name: str = "data.csv") -> Path:
    """A table of two sensors and a column of sizes."""
    rng = np.random.default_rng(0)
    y = np.arange(len(sizes)) % 2
    columns = {"a": y + rng.normal(size=len(y)) / 2, "b": y + rng.normal(size=len(y)) / 4, "side": sizes, "y": y}
    return write_csv(folder / name, columns)


def test_figures_price_each_row_at_its_own_size() -> None:
    problem = sized(make_problem(effort=BRIEF))
    search = SubsetSearch(judge := Judge(problem), 1)
    (point,) = with_test(problem, [answer_point(judge, "static", {}, (1, 2), search.models([(1, 2)])[0])])
    assert point.program is not None
    assert point.program.max_item_size == 8
    judged = np.concatenate([problem.train.sizes, problem.valid.sizes])  # type: ignore[list-item]
    for figures, sizes in ((point.valid, judged), (point.test, problem.test.sizes)):
        assert sizes is not None
        expected = [to_unit(Meter(problem, size).buy((1, 2))) for size in sizes.tolist()]
        assert figures.cost == pytest.approx(np.mean(expected), abs=1e-12)
    assert point.test.cost != pytest.approx(to_unit(Meter(problem, 1).buy((1, 2))))


def test_learners_weigh_sensors_by_their_mean_cost() -> None:
    problem = sized(make_problem(effort=BRIEF))
    s = problem.train.sizes.astype(float)  # type: ignore[union-attr]
    assert problem.sensor_costs() == pytest.approx([1.0, 1 + s.mean() / 2, np.mean(s**2) / 10], abs=1e-6)
    assert problem.sensor_costs(2) == pytest.approx([1.0, 2.0, 0.4])
    assert problem.forward_cost == pytest.approx(make_problem().forward_cost - 26 + problem.sensor_costs().sum())


def test_chains_meet_each_row_at_its_own_cost() -> None:
    chains = Chains(SubsetSearch(Judge(sized(make_problem(effort=BRIEF)), is_alone=True), 1))
    choices = chains._choices((2, 0, 1))
    sizes = chains.search.judge.sizes[chains.search.probed]  # type: ignore[index]
    assert choices.stages[0].cost == pytest.approx(sizes**2 / 10)


@pytest.mark.parametrize(
    ("cell", "data", "words"),
    [
        (1, 'item_size = "edge"', "which is not a column of the data"),
        (0, 'item_size = "side"', "row 3 holds 0"),
        (2.5, 'item_size = "side"', "row 3 holds 2.5"),
        ("", 'item_size = "side"', "row 3 holds"),
        (1, 'item_size = "y"', "which has another use"),
        (1, "", "depends on the item's size, but no column gives sizes"),
    ],
)
def test_bad_sizes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cell: object, data: str, words: str
) -> None:
    table(tmp_path, [1, 4, cell, *[2] * 57])
    config = toml(tmp_path, '[[sensor]]\nname = "a"\ncost = [0.5, 1.0]\n', data=data)
    status, _, err = run(capsys, "train", config, "--out", tmp_path / "build")
    assert status == 2
    assert words in err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        ("[1.0, -0.5]", "the cost of sensor 'a' is [1.0, -0.5], a cost from 0"),
        (str([0.5] * 9), "or an array of up to 8 costs is expected"),
        ("[]", "is [], a cost"),
        ('["a"]', "is ['a'], a cost"),
        ("[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1e9]", "too large to add safely"),
    ],
)
def test_bad_polynomials_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cost: str, words: str
) -> None:
    table(tmp_path, [1, 4, 2_000_000, *[2] * 57])
    config = toml(tmp_path, f'[[sensor]]\nname = "a"\ncost = {cost}\n', data='item_size = "side"')
    status, _, err = run(capsys, "train", config, "--out", tmp_path / "build")
    assert status == 2
    assert words in err.strip().splitlines()[-1]


def test_a_build_is_trained_exported_and_evaluated_with_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = np.random.default_rng(1).integers(1, 9, 200)
    data = table(tmp_path, sizes.tolist())
    sensors = '[[sensor]]\nname = "a"\ncost = [0.5, 1.0]\n[[sensor]]\nname = "b"\ncost = [1, 0, 0.5]\n'
    config = toml(tmp_path, sensors, data='item_size = "side"')
    build, bundle = tmp_path / "build", tmp_path / "m.hcb"
    assert run(capsys, "train", config, "--out", build, "--method", "static")[0] == 0
    with np.load(build / "test.npz") as rows:
        tested, names = rows["item_size"], rows["feature_names"].tolist()
        assert tested.tolist() == sizes[rows["index"]].tolist()
        assert names == ["a", "b"]
    point = next(p for p in json.loads((build / "front.json").read_text())["points"] if p["params"] == {
        "sensors": ["b"], "classifier": "trees"})  # fmt: skip
    assert point["test"]["cost"] == pytest.approx(np.mean(1 + tested**2 / 2))
    assert run(capsys, "export", build, "--out", bundle, "--method", "static", "--budget", "1e6")[0] == 0
    assert main(["inspect", str(bundle)]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["b", "1.5", "to", "33", "b"] in shown, "for the smallest item and the largest"
    of_rows, of_table = (run(capsys, "evaluate", bundle, rows)[1] for rows in (build / "test.npz", data))
    bought = {name for name, s in of_table["sensors"].items() if s["rows"]}
    for figures, seen in ((of_rows, tested), (of_table, sizes)):
        prices = ("a" in bought) * (0.5 + seen) + ("b" in bought) * (1 + seen**2 / 2)
        assert bought
        assert figures["cost"] == pytest.approx(np.mean(prices))
    table(tmp_path, [9] * 20, "larger.csv")
    status, _, err = run(capsys, "evaluate", bundle, tmp_path / "larger.csv")
    assert status == 2
    assert "has the size 9; this program supports 1 to 8" in err


def test_a_build_says_what_each_method_reaches_within_each_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table(tmp_path, np.random.default_rng(1).integers(1, 9, 200).tolist())
    sensors = '[[sensor]]\nname = "a"\ncost = [0.5, 1.0]\n[[sensor]]\nname = "b"\ncost = [1, 0, 0.5]\n'
    config = toml(tmp_path, f"{sensors}[index]\nmax_models = 2\ntolerance = 0\n", data='item_size = "side"')
    build = tmp_path / "build"
    methods = ("poly-dom", "poly-dom-anytime", "greedy", "greedy-acc", "greedy-cost")
    flags = [word for name in methods for word in ("--method", name)]
    assert run(capsys, "train", config, "--out", build, "--no-baselines", *flags)[0] == 0
    figures = json.loads((build / "budgets.json").read_text())
    assert set(figures["accuracy"]) == {"hpc", *methods}
    assert figures["budgets"][0] == 41.5  # 0.5 + 8, and 1 + 32, for the largest item
    assert figures["sizes"][0][0] == 1
    assert figures["sizes"][-1][1] == 8
    lines = np.array(figures["accuracy"]["poly-dom"])
    assert lines.shape == (len(figures["sizes"]), 10)
    assert (lines[:, 0] > 0.75).all()
    assert (lines[:, -1] < 0.75).all()
    assert (build / "budgets.svg").read_text().count("<path") > 4
    bundle = tmp_path / "m.hcb"
    assert run(capsys, "export", build, "--out", bundle, "--method", "poly-dom-anytime", "--budget", "1e6")[0] == 0
    cheap, dear = (run(capsys, "evaluate", bundle, build / "test.npz", "--budget", budget)[1] for budget in ("2", "99"))
    assert cheap["cost"] <= 2 < dear["cost"]
    assert cheap["quality"] < dear["quality"]


def test_bad_settings_of_the_index_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(tmp_path, [1] * 60)
    for line, words in (("alpha = 0.5", "[index] alpha is 0.5"), ("max_models = 0", "[index] max_models is 0")):
        status, _, err = run(capsys, "train", toml(tmp_path, f"[index]\n{line}\n"), "--out", tmp_path / "build")
        assert status == 2
        assert words in err.strip().splitlines()[-1]
