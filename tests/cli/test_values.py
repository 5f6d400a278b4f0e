# SPDX-License-Identifier: Apache-2.0
"""``[data] task``: values and ranks from a table through train, export and evaluate, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsClassifier

import hardcase
from hardcase.cli import main
from hardcase.training.build import _save_rows
from hardcase_edge.bundle.value import steps_for
from hardcase_edge.errors import InputError
from hardcase_train.settings.toml import read_config
from hardcase_train.tasks.target import MAX_RELEVANCE
from hardcase_train.tasks.task import make_task
from tests.helpers.cli.pages import read_page
from tests.helpers.train.problems import run, toml, write_csv

pytestmark = pytest.mark.usefixtures("brief_effort")

DATA = 'task = "value"\ntarget_unit = "litres"'
PICKED = "The picked policy"
HPC = '\n[hpc]\nestimator = ["StandardScaler", "Ridge"]\n'
FLAGS = ("--effort", "quick", "--quiet", "--method", "static", "--no-baselines")


def levels(n: int = 420) -> dict[str, np.ndarray]:
    """About 300 litres: a and b tell most of it, c tells the rest where b is large."""
    rng = np.random.default_rng(5)
    a, b, c = rng.normal(size=(3, n)).round(4)
    return {"a": a, "b": b, "c": c, "y": (300 + 8 * a + np.where(b > 0.5, 12 * c, 2 * b)).round(3)}


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("values")
    write_csv(folder / "data.csv", levels())
    path = toml(folder, HPC, data=DATA)
    assert main(["train", str(path), "--out", str(folder / "build"), *FLAGS]) == 0
    assert main(["export", str(folder / "build"), "--out", str(folder / "m.hcb")]) == 0
    return folder / "build"


def test_figures_are_in_the_targets_unit_and_the_same_everywhere(
    build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, exported, _ = run(capsys, "export", build, "--out", build.parent / "m.hcb")
    _, evaluated, _ = run(capsys, "evaluate", build.parent / "m.hcb", build / "test.npz")
    assert exported["test"]["quality"] == evaluated["quality"]
    assert exported["test"]["rmse"] == evaluated["rmse"]
    assert exported["intervals"] > 0
    assert (evaluated["measure"], evaluated["target_unit"], evaluated["classes"]) == ("R2", "litres", [])
    y = np.load(build / "test.npz")["y"]
    assert evaluated["quality"] == pytest.approx(1 - evaluated["rmse"] ** 2 / y.var())
    assert 0.5 < evaluated["quality"] < 1
    page = read_page((build / "report.html").read_text())
    assert "y, a number in litres" in page.text
    assert "--budget, --hard-budget, --method." in page.text  # --risk is for classes
    rows = {r.texts[0]: r.values for r in page.rows["The picked policy"]}
    assert rows["R2"] == [evaluated["quality"]]
    assert rows["root mean square error litres"] == [evaluated["rmse"]]


@pytest.mark.parametrize("odd", ["inf", "1e40", "high"])
def test_a_truth_that_is_no_number_is_refused(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], odd: str
) -> None:
    table = levels(20)
    write_csv(tmp_path / "data.csv", {**table, "y": [odd, *table["y"][1:]]})
    f0 = ("--hpc", build / "hpc.onnx")
    status, _, err = run(capsys, "evaluate", build.parent / "m.hcb", tmp_path / "data.csv", *f0)
    assert (status, err.count("\n")) == (2, 1)
    assert "data.csv: 'y' contains " in err
    X, y = np.column_stack([table[k] for k in "abc"]), [np.inf, *table["y"][1:]]
    with pytest.raises(InputError, match="y contains inf, which is not a number within"):
        hardcase.evaluate(build.parent / "m.hcb", X, y)


def test_a_device_answers_in_the_unit_with_an_interval(build: Path) -> None:
    """The truth of nine cases in ten lies within the interval, as the calibration rows promise."""
    loaded = hardcase.load(build.parent / "m.hcb")
    value = loaded._loaded.manifest.value
    assert value is not None
    assert (value.unit, value.steps) == ("litres", steps_for(350))
    assert value.interval
    assert all(low < 0 < high for pair in value.interval.values() for low, high in [pair[0]] if pair[0])


def test_values_with_a_score_of_atypical_cases_have_an_interval_at_each_answer(build: Path, tmp_path: Path) -> None:
    assert main(["export", str(build), "--atypical", "0.2", "--out", str(tmp_path / "m.hcb")]) == 0
    device = hardcase.load(tmp_path / "m.hcb")
    with np.load(build / "test.npz") as rows:
        names, X, y = (rows[key].tolist() for key in ("feature_names", "X", "y"))
    made = [device.decide(dict(zip(names, x, strict=True))) for x in X]
    ends = [(d.interval or (np.nan, np.nan), truth) for d, truth in zip(made, y, strict=True)]
    inside = [low <= truth <= high for (low, high), truth in ends]
    value = device._loaded.manifest.value
    assert value is not None
    assert len(value.interval) == 2, "of typical and atypical cases"
    assert np.mean(inside) > 0.8


def test_f0_is_a_regressor_whose_values_come_back_on_the_programs_scale(build: Path) -> None:
    front = json.loads((build / "front.json").read_text())
    assert front["hpc"]["gap"] < 1e-5
    with np.load(build / "test.npz") as rows:
        assert np.corrcoef(rows["hpc"], rows["y"])[0, 1] > 0.6
        assert abs(rows["hpc"].mean() - 300) < 5
        assert 5000 < rows["hpc_confidence"][0] < 9000


def test_rows_hold_the_target_as_it_was_read(tmp_path: Path) -> None:
    """And not what standard units make of it, such as 2.9999999999999996 for 3."""
    y = np.arange(80) * 0.37 - 9
    path = write_csv(tmp_path / "data.csv", {"a": np.arange(80) % 9, "b": np.arange(80) % 4, "y": y})
    task = make_task(read_config(toml(path.parent, HPC, data=DATA)))
    rows = task.problem.train
    assert task.problem.in_unit(rows.y).tolist() != y[rows.index].tolist(), "this target shows it"
    _save_rows(tmp_path / "train.npz", task, rows, "", {})
    with np.load(tmp_path / "train.npz") as saved:
        assert saved["y"].tolist() == y[rows.index].tolist()


def test_a_confidence_is_the_share_of_answers_within_f0s_own_error(build: Path) -> None:
    """Each of the policy's answers states the chance, as judged rows have it; test rows agree within sampling."""
    loaded = hardcase.load(build.parent / "m.hcb")
    with np.load(build / "test.npz") as rows:
        X, y = rows["X"], rows["y"]
    with np.load(build / "valid.npz") as rows:
        rmse = float(np.sqrt(np.mean(np.square(rows["hpc"] - rows["y"]))))
    made = [loaded.decide(dict(zip("abc", row.tolist(), strict=True))) for row in X]
    within = np.array([abs(d.value - t) <= rmse for d, t in zip(made, y, strict=True)])
    stated = np.array([d.confidence for d in made])
    assert within.mean() == pytest.approx(stated.mean(), abs=3 * np.sqrt(0.25 / len(y)))


def test_the_picture_shows_the_error_in_the_unit(build: Path, tmp_path: Path) -> None:
    svg = tmp_path / "p.svg"
    assert main(["inspect", str(build.parent / "m.hcb"), "--svg", str(svg), "--rows", str(build / "test.npz")]) == 0
    assert "RMSE" in svg.read_text()
    assert "litres" in svg.read_text()


def test_arrays_of_values_give_a_policy_of_values() -> None:
    table = levels(200)
    X, y = np.column_stack([table[k] for k in "abc"]), table["y"]
    policy = hardcase.train(X, y, task="value", hpc=Ridge(), methods=["static"], effort="quick")
    assert policy.front.quality == "R2"
    with pytest.raises(InputError, match="hpc is KNeighborsClassifier, not a scikit-learn regressor"):
        hardcase.train(X, y, task="value", hpc=KNeighborsClassifier())
    with pytest.raises(InputError, match="a value beyond 1e"):
        hardcase.train(X, [10**400, *y.tolist()[1:]], task="value")


def ranked(n: int = 240) -> dict[str, np.ndarray]:
    """Twenty queries of rows whose relevance column a mostly tells."""
    rng = np.random.default_rng(6)
    a, b = rng.normal(size=(2, n)).round(4)
    return {"a": a, "b": b, "q": np.arange(n) // 12, "y": np.clip(np.round(a + rng.normal(size=n) / 3), 0, 2)}


def test_ranks_are_measured_by_ndcg_within_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_csv(tmp_path / "data.csv", ranked())
    path = toml(tmp_path, HPC, data='task = "rank"\ngroup = "q"')
    assert main(["train", str(path), "--out", str(tmp_path / "build"), *FLAGS]) == 0
    assert main(["export", str(tmp_path / "build"), "--out", str(tmp_path / "m.hcb")]) == 0
    assert "\n  interval   none: it takes 30 calibration rows, of 19 groups" in capsys.readouterr().out
    _, found, _ = run(capsys, "evaluate", tmp_path / "m.hcb", tmp_path / "build" / "test.npz")
    assert found["measure"] == "NDCG@5"
    assert 0.7 < found["quality"] <= 1
    assert found["ranking"]["at"] == 5
    page = {r.texts[0]: r.values for r in read_page((tmp_path / "build" / "report.html").read_text()).rows[PICKED]}
    assert page["Precision@5"] == [found["ranking"]["precision"]]
    assert page["AP@5"] == [found["ranking"]["average_precision"]]
    assert main(["evaluate", str(tmp_path / "m.hcb"), str(tmp_path / "build" / "test.npz")]) == 0
    assert f"Precision@5 {found['ranking']['precision']:.4f}, AP@5 " in capsys.readouterr().out
    with np.load(tmp_path / "build" / "test.npz") as rows:
        X, y, group, hpc = (rows[key] for key in ("X", "y", "group", "hpc"))
    assert hardcase.evaluate(tmp_path / "m.hcb", X, y, hpc=hpc, groups=group)["quality"] == found["quality"]
    with pytest.raises(InputError, match="NDCG@5 orders rows within groups, which these rows lack"):
        hardcase.evaluate(tmp_path / "m.hcb", X, y)
    with pytest.raises(InputError, match="groups has 1 rows, y has"):
        hardcase.evaluate(tmp_path / "m.hcb", X, y, groups=[3])
    for odd in (-1.0, 1.5, 32.0):
        with pytest.raises(InputError, match=rf"from 0 \(irrelevant\) to 31, but row 1 has {odd:g}; correct it"):
            hardcase.evaluate(tmp_path / "m.hcb", X, np.append(odd, y[1:]), groups=group)
    write_csv(tmp_path / "build" / "other.csv", {key: values for key, values in ranked().items() if key != "q"})
    status, _, err = run(capsys, "evaluate", tmp_path / "m.hcb", tmp_path / "build" / "other.csv")
    assert (status, err.count("\n")) == (2, 1)
    assert "orders rows within groups" in err


@pytest.mark.parametrize(
    ("data", "column", "said"),
    [
        pytest.param('task = "rank"', "y", 'name the column of groups: group = "..."', id="no-group"),
        pytest.param(
            'task = "rank"\ngroup = "q"', "minus", "is -1 in row 1; ranking takes whole numbers", id="negative"
        ),
        pytest.param('task = "rank"\ngroup = "q"', "half", "is 0.5 in row 1; ranking takes", id="fraction"),
        pytest.param('task = "rank"\ngroup = "q"', "large", f"to {MAX_RELEVANCE}; use task", id="too-relevant"),
        pytest.param('task = "value"', "one", "the same value 3 in all training rows", id="one-value"),
        pytest.param('task = "value"', "text", "contains 'high', not a number; use task = \"class\"", id="text"),
        pytest.param('task = "value"', "huge", "a value beyond 1e+12; state it in a larger unit", id="huge"),
        pytest.param('task = "valeu"', "y", "task is 'valeu'; use one of class, value, rank", id="no-such-task"),
    ],
)
def test_a_target_that_does_not_fit_the_task_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: str, column: str, said: str
) -> None:
    n = 40
    table = {
        "a": np.arange(n) % 7, "q": np.arange(n) // 5, "y": np.arange(n) % 3, "minus": np.arange(n) % 3 - 1.0,
        "half": np.arange(n) % 3 + 0.5, "large": np.full(n, 32), "one": np.full(n, 3), "text": ["high", "low"] * 20,
        "huge": np.arange(n) * 1e12,
    }  # fmt: skip
    write_csv(tmp_path / "data.csv", table)
    path = toml(tmp_path, HPC, data=data, target=column)
    status, _, err = run(capsys, "train", path, "--out", tmp_path / "build", "--quiet")
    assert (status, err.count("\n")) == (2, 1)
    assert said in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data.csv", "hardcase.toml"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n[cost.errors]\nother = 2\n", 'is for classes, not for task = "value"'),
        ('\n[policy]\nclass_weight = "balanced"\n', 'class_weight is for classes, not for task = "value"; remove it'),
        ('\n[policy]\nquality = "balanced"\n', 'task = "value" is measured by "r2"'),
        ('\n[policy]\nmethods = ["budget-prune"]\n', "the method budget-prune predicts classes, not values"),
        ('\n[hpc]\nestimator = "LogisticRegression"\n', "is not a regressor of scikit-learn"),
    ],
)
def test_what_only_classes_have_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    write_csv(tmp_path / "data.csv", levels(60))
    path = toml(tmp_path, text if "[hpc]" in text else HPC + text, data=DATA)
    status, _, err = run(capsys, "train", path, "--out", tmp_path / "build", "--quiet", "--no-baselines")
    assert (status, err.count("\n")) == (2, 1)
    assert said in err
