# SPDX-License-Identifier: Apache-2.0
"""``hardcase init`` on tables of other people's making: what it reports, what it writes, and that training takes it."""

from __future__ import annotations

import re
import tomllib
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from hardcase.cli import main
from hardcase.training.doubled import doubled_warning
from hardcase.training.survey import divided_groups, given_away, guess_target, survey
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.device.device import Device
from hardcase_edge.sensors.specs import open_bank
from hardcase_train.data.table import read_table
from hardcase_train.hpc.fit import imputed
from hardcase_train.settings.config import Config
from hardcase_train.settings.toml import STATED, read_config
from hardcase_train.tasks.task import make_task
from tests.helpers.train.problems import ran, run, write_csv

pytestmark = pytest.mark.usefixtures("brief_effort")
EMPTY = "if it stands for a missing value, leave such cells empty"


def test_all_keys_are_printed_with_what_is_stated_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--keys"]) == 0
    lines = capsys.readouterr().out.splitlines()
    wanted = [f"  {key:<16}{one.sentence}" for known in STATED.values() for key, (_, one) in known.items()]
    assert [line for line in wanted if not any(other.startswith(line) for other in lines)] == []
    assert "[cost.uplink]" in lines
    assert "  task            what the target is: a class, a value, or a rank within its group (class)" in lines


def init(capsys: pytest.CaptureFixture[str], data: Path, *flags: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is reported, and the configuration that is written."""
    said = ran(capsys, "init", data, "--out", data.parent / "h.toml", *flags)
    return said, tomllib.loads((data.parent / "h.toml").read_text())


def runs(n: int = 60) -> dict[str, Any]:
    """A table as people have it: names of rows and of machines, text, booleans, dates, gaps and nothing."""
    rng = np.random.default_rng(0)
    heat = rng.normal(size=(n, 3)).round(2)
    mode = [("auto", "manual", "off")[k] for k in rng.integers(0, 3, n)]
    return {
        "": range(n),
        "serial": [f"S-{k * 7:04d}" for k in range(n)],
        "machine": [f"M{k // 6}" for k in range(n)],
        "day": [date(2024, 1, 1) + timedelta(days=k) for k in range(n)],
        "heat.0": heat[:, 0],
        "heat.1": [None if k % 9 == 0 else x for k, x in enumerate(heat[:, 1])],
        "heat.2": heat[:, 2],
        "mode": mode,
        "alarm": ["TRUE" if x > 0 else "FALSE" for x in rng.normal(size=n)],
        "firmware": ["v1"] * n,
        "nothing": [None] * n,
        "state": ["bad" if h > 0 and m != "off" else "good" for h, m in zip(heat[:, 0], mode, strict=True)],
    }


def test_every_column_is_reported_at_once_and_sorted_into_its_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said, toml = init(capsys, write_csv(tmp_path / "data.csv", runs()))
    assert (said["target"], said["classes"]) == ("state", ["bad", "good"])
    assert said["left_out"] == {
        "column 1": "counts the rows",
        "serial": "names rows: every text is different",
        "firmware": "is the same in every row",
        "nothing": "is empty",
    }
    assert (said["categories"], said["booleans"], said["dates"]) == ({"machine": 10, "mode": 3}, ["alarm"], ["day"])
    assert said["suspected"] == {
        "machine": "may say which rows belong together: it has 10 values, each in consecutive rows"
    }
    assert toml["data"]["drop"] == ["column 1", "serial", "firmware", "nothing"]
    assert {s["name"]: s["features"] for s in toml["sensor"]} == said["sensors"] == {
        "heat": ["heat.*"], "mode": ["mode"], "alarm": ["alarm"],
    }  # fmt: skip
    text = (tmp_path / "h.toml").read_text()
    assert '\ngroup = "machine"  # no split divides its rows, as it may say which rows belong together' in text
    assert said["group"] == "machine"
    assert (
        make_task(read_config(tmp_path / "h.toml"), model=imputed(LogisticRegression())).problem.train.group is not None
    )
    main(["init", str(tmp_path / "data.csv"), "--out", str(tmp_path / "again.toml")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("predicts 'state' (the last column; --target names another), 2 classes")
    assert [line.split()[0] for line in lines[1:-1]] == [
        "numbers", "categories", "booleans", "dates", *["left"] * 4, "suspected", "group", "sensors",
    ]  # fmt: skip


def test_every_key_that_is_written_has_a_comment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init(capsys, write_csv(tmp_path / "data.csv", runs()))
    text = (tmp_path / "h.toml").read_text()
    sensors = text.index("\n[[sensor]]")
    before = text[:sensors].splitlines()
    keys = [k for k, line in enumerate(before) if re.match(r"\w+ = |\[hpc.params", line)]
    assert len(keys) == 20
    assert [before[k] for k in keys if "#" not in before[k] and not before[k - 1].startswith("#")] == []
    assert all(
        any(line.startswith(f"# {key}: ") for line in before[-6:])
        for key in ("name", "features", "cost", "cost_origin")
    )


def test_a_table_as_it_comes_trains_exports_evaluates_and_replays_without_a_hand_on_the_toml(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Semicolons, decimal commas and a name in Latin-1."""
    data = write_csv(tmp_path / "data.csv", {**runs(90), "Türe": [0, 1, 1] * 30} | {"state": runs(90)["state"]})
    text = data.read_text().replace(",", ";")
    data.write_bytes(re.sub(r"(\d)\.(\d)", r"\1,\2", text).encode("latin-1"))
    init(capsys, data, "--target", "state")
    folder, bundle = tmp_path / "build", tmp_path / "m.hcb"
    train = ("train", tmp_path / "h.toml", "--out", folder, "--method", "static", "--no-baselines", "--effort", "quick")
    ran(capsys, *train)
    ran(capsys, "export", folder, "--budget", 3, "--no-mix", "--method", "static", "--out", bundle, "--force")
    loaded = load_bundle(bundle)
    assert loaded.manifest.categories["mode"] == ("auto", "manual", "off")
    figures = ran(capsys, "evaluate", bundle, data)
    with open_bank([f"replay:{data}"], loaded.machine.program, loaded.manifest) as bank:
        labels = [record["label"] for record in Device(loaded, bank).run()]
    assert np.mean([a == b for a, b in zip(labels, runs(90)["state"], strict=True)]) == pytest.approx(
        figures["quality"]
    )


def test_a_toml_names_any_column_so_that_train_finds_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["plain", 'quo"ted', "back\\slash", "süß", "😀", "star*", "star", "del\x7f"]
    rng = np.random.default_rng(0)
    columns = {n.replace('"', '""').join(['"', '"']): rng.normal(size=40) for n in names}
    data = write_csv(tmp_path / "data.csv", {**columns, "label": ["u", "v"] * 20})
    said, toml = init(capsys, data)
    assert (said["target"], said["classes"]) == ("label", ["u", "v"])
    assert [s["name"] for s in toml["sensor"]] == names
    assert toml["data"]["file"] == "data.csv"
    made = make_task(read_config(tmp_path / "h.toml"), model=imputed(LogisticRegression()))
    assert made.sensors == made.features == tuple(names)


def test_windows_are_taken_by_their_sensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2, 6))
    np.savez(tmp_path / "w.npz", X=X, sensor_names=["p", "q"], y=[0, 1] * 20)
    _, toml = init(capsys, tmp_path / "w.npz")
    assert [s["features"] for s in toml["sensor"]] == [["p.*"], ["q.*"]]
    made = make_task(read_config(tmp_path / "h.toml"), model=imputed(LogisticRegression()))
    assert (made.sensors, made.windows, len(made.features)) == (("p", "q"), {"p": 6, "q": 6}, 8)


def test_arrays_that_say_something_of_each_row_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X, group, size = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) // 6, np.arange(60) % 3 + 1
    more = {"group": group, "weight": np.ones(60), "item_size": size}
    np.savez(tmp_path / "d.npz", X=X, y=np.arange(60) % 2, **more)
    said, toml = init(capsys, tmp_path / "d.npz")
    assert {key: toml["data"].get(key) for key in more} == {key: key for key in more}
    assert (said["group"], toml["data"]["split"]) == ("group", "random")
    assert "group" not in init(capsys, tmp_path / "d.npz", "--no-group", "--force")[1]["data"]
    part = np.where(group < 6, "train", np.where(group < 8, "valid", "test"))
    np.savez(tmp_path / "d.npz", X=X, Y=np.stack([group, size], 1), target_names=["weight", "kind"], split=part)
    data = init(capsys, tmp_path / "d.npz", "--target", "kind", "--force")[1]["data"]
    assert data["split"] == "split"
    assert "weight" not in data, "it is another target"


@pytest.mark.parametrize(
    ("names", "sensors"),
    [
        pytest.param(["t1", "t2", "v"], {"t": ["t*"], "v": ["v"]}, id="numbers"),
        pytest.param(["t_0", "t_1", "u 1", "u 2"], {"t": ["t_*"], "u": ["u *"]}, id="separators"),
        pytest.param(["t[0]", "t[1]", "v"], {"t": ["t*"], "v": ["v"]}, id="brackets"),
        pytest.param(["t1", "t2", "top"], {"t": ["t1", "t2"], "top": ["top"]}, id="a-longer-name"),
        pytest.param(["t", "t1", "t2"], {"t": ["t"], "t1 to t2": ["t1", "t2"]}, id="the-name-is-taken"),
        pytest.param(["t1", "t2", "t3"], {"t1": ["t1"], "t2": ["t2"], "t3": ["t3"]}, id="nothing-else"),
        pytest.param(["t1", "u2"], {"t1": ["t1"], "u2": ["u2"]}, id="one-of-each"),
    ],
)
def test_numbered_columns_of_one_name_are_one_sensor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], names: list[str], sensors: dict[str, list[str]]
) -> None:
    rng = np.random.default_rng(0)
    data = write_csv(tmp_path / "data.csv", {**{n: rng.normal(size=12) for n in names}, "y": ["a", "b"] * 6})
    _, toml = init(capsys, data)
    assert {s["name"]: s["features"] for s in toml["sensor"]} == sensors


Z = np.random.default_rng(0).normal(size=20).round(3)
KIND, DAYS = ["a", "b"] * 10, ["2024-01-01"] * 20


@pytest.mark.parametrize(
    ("columns", "target", "why"),
    [
        pytest.param({"Class": [1, 2] * 10, "kind": KIND}, "Class", "a usual name of a target", id="by-its-name"),
        pytest.param({"z": Z, "kind": KIND}, "kind", "the last column", id="the-last"),
        pytest.param({"z": Z, "kind": KIND, "day": DAYS}, "kind", "the last column", id="the-last-but-dates"),
        pytest.param({"kind": KIND, "z": Z}, "kind", "the first column", id="the-first"),
        pytest.param({"w": Z, "z": Z}, "z", "the last column", id="neither-looks-like-classes"),
        pytest.param({"w": Z, "z": ["inf", "-inf", "5", "nan"] * 5}, "z", "the last column", id="infinities"),
    ],
)
def test_the_target_is_guessed_and_the_guess_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], columns: dict[str, Any], target: str, why: str
) -> None:
    table = read_table(write_csv(tmp_path / "data.csv", columns))
    assert guess_target(table) == (target, why)


def test_many_different_numbers_are_values_to_predict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_csv(tmp_path / "data.csv", {"b": KIND * 15, "x": np.arange(300) % 7, "price": np.arange(300) / 7})
    flags = ("--out", tmp_path / "h.toml", "--target", "price")
    status, out, _ = run(capsys, "init", tmp_path / "data.csv", *flags)
    assert status == 0
    assert (out["task"], out["classes"]) == ("value", [])
    config = read_config(tmp_path / "h.toml")
    assert (config.task, config.estimator) == ("value", "HistGradientBoostingRegressor")
    made = make_task(config, model=imputed(Ridge()))
    assert not made.problem.kind.has_classes
    assert made.problem.in_unit(made.problem.train.y).max() <= 300 / 7


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        pytest.param(range(20), "counts the rows", id="a-counter"),
        pytest.param(Z[0] + np.arange(20) * 0.25, "counts the rows", id="even-steps"),
        pytest.param(np.cumsum(np.arange(1, 21)), "rises from row to row", id="times"),
        pytest.param(np.random.default_rng(1).permutation(20), "names rows: every number is different", id="shuffled"),
        pytest.param([f"{t} {k}" for k, t in enumerate(KIND)], "names rows: every text is different", id="texts"),
        pytest.param([None] * 19 + [3], "is the same in every row", id="one-value"),
        pytest.param(Z, "", id="readings"),
        pytest.param((Z * 1000).round(), "", id="whole-readings"),
        pytest.param([3, *range(19)], "", id="one-twice"),
        pytest.param(KIND, "", id="a-category"),
    ],
)
def test_a_column_that_names_rows_or_says_nothing_is_left_out_with_the_reason(
    tmp_path: Path, values: Any, reason: str
) -> None:
    table = read_table(write_csv(tmp_path / "data.csv", {"x": values, "y": ["u", "v", "v", "u"] * 5}))
    assert survey(table, "y").left_out == ({"x": reason} if reason else {})


def test_long_text_is_left_out_and_almost_numbers_are_told_from_it(tmp_path: Path) -> None:
    n = 420
    columns = {
        "note": [f"note {k // 2}" for k in range(n)],
        "level": ["-" if k < 2 else k // 2 for k in range(n)],
        "y": ["u", "v"] * (n // 2),
    }
    found = survey(read_table(write_csv(tmp_path / "data.csv", columns)), "y").left_out
    text = "text with 210 different values, at most 200 can be coded"
    assert found == {"note": text, "level": f"{text}; most are numbers, and '-' is not: {EMPTY}"}


def test_numbers_that_are_not_written_as_numbers_are_suspected(tmp_path: Path) -> None:
    columns = {
        "load": [f'"{k % 7},5"' for k in range(60)],
        "price": [f"{k + 1} 000.0 EUR" for k in range(60)],
        "y": ["u", "v"] * 30,
    }
    found = survey(read_table(write_csv(tmp_path / "data.csv", columns)), "y")
    assert found.suspected == {
        "load": "is a category of texts, but they look like numbers, and '0,5' is not written as one"
    }
    assert found.left_out == {
        "price": "names rows: every text is different; they look like numbers, and '1 000.0 EUR' is not written as one"
    }


def test_what_gives_the_answer_away_or_names_groups_is_said(tmp_path: Path) -> None:
    y = ["u", "v", "v", "u"] * 5
    columns = {"code": [{"u": 1, "v": 2}[k] for k in y], "user": [3, 5, 7, 5] * 5, "z": Z, "y": y}
    found = survey(read_table(write_csv(tmp_path / "data.csv", columns)), "y")
    assert found.suspected == {
        "code": "may give the answer away: it has one value for each class",
        "user": "may say which rows belong together: its name suggests it, and it has 3 values",
    }
    assert (found.group, found.left_out) == ("user", {})


def test_a_number_that_stands_for_a_missing_value_and_an_answer_with_gaps_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    n = np.arange(60)
    columns = {
        "oil": np.where(n % 9 == 0, -999, 20 + np.sin(n)),
        "day": n % 7,  # numbers of the same size, and none that stands for a gap
        "code": [None if k % 5 == 0 else 7 + k % 2 for k in n],
        "y": n % 2,
    }
    data = write_csv(tmp_path / "data.csv", columns)
    far = f"has -999 in 7 rows, far from all other numbers: {EMPTY}"
    gives = "may give the answer away: it has one value for each class"
    assert survey(read_table(data), "y").suspected == {"oil": far, "code": gives}
    (line,) = given_away(make_task(Config(file=data, target="y"), model=imputed(LogisticRegression())))
    assert line.startswith("WARNING: 'code' MAY GIVE THE ANSWER AWAY")
    assert init(capsys, data, "--target", "oil", "--task", "value", "--force")[0]["suspected"] == {"oil": far}
    config = Config(file=data, target="oil", task="value")
    assert given_away(make_task(config, model=imputed(Ridge()))) == [f"WARNING: THE TARGET 'oil' {far}"]


def test_classes_that_differ_in_case_alone_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_csv(tmp_path / "data.csv", {"z": Z, "y": ["ok", "OK", "ok ", "fault"] * 5})
    said = init(capsys, data)[0]
    assert said["classes"] == ["OK", "fault", "ok"]
    assert said["suspected"]["y"].startswith(
        "has the classes 'OK' and 'ok', which differ in upper and lower case alone"
    )


def test_a_column_that_says_the_parts_becomes_the_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = {"z": Z, "fold": ["train", "valid", "test", "train"] * 5, "y": ["u", "v", "v", "u"] * 5}
    said, toml = init(capsys, write_csv(tmp_path / "data.csv", columns))
    assert toml["data"]["split"] == "fold"
    assert list(said["sensors"]) == ["z"]


def columns(**more: Any) -> dict[str, Any]:
    return {"a": Z, **more, "y": [0, 1] * 10}


@pytest.mark.parametrize(
    ("table", "flags", "said"),
    [
        pytest.param(columns(), ("--target", "z"), "is not a column of the data", id="no-such-target"),
        pytest.param({"a": [1] * 9, "b": [1] * 9}, (), "has 1 classes", id="one-class"),
        pytest.param(
            {"id": range(20), "y": [0, 1] * 10}, (), "that a model could read: 'id' counts the rows", id="no-features"
        ),
    ],
)  # fmt: skip
def test_init_refuses_what_cannot_be_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], table: dict[str, Any], flags: tuple[str, ...], said: str
) -> None:
    write_csv(tmp_path / "data.csv", table)
    status, _, err = run(capsys, "init", tmp_path / "data.csv", "--out", tmp_path / "h.toml", *flags)
    assert (status, err.count("\n")) == (2, 1)
    assert said in err
    assert not (tmp_path / "h.toml").exists()


def test_init_writes_over_a_file_only_by_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_csv(tmp_path / "data.csv", columns())
    (tmp_path / "h.toml").write_text("mine")
    status, _, err = run(capsys, "init", data, "--out", tmp_path / "h.toml")
    assert status == 2
    assert "h.toml exists; name another file, or replace it with --force" in err
    assert (tmp_path / "h.toml").read_text() == "mine"
    init(capsys, data, "--force")


def test_splits_go_by_a_suspected_group_unless_that_is_turned_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_csv(tmp_path / "data.csv", runs())
    said, toml = init(capsys, data)
    assert (said["group"], toml["data"]["group"]) == ("machine", "machine")
    assert "machine" not in said["sensors"]
    main(["init", str(data), "--out", str(tmp_path / "again.toml")])
    assert "  group       no split divides one machine; --no-group splits by rows" in capsys.readouterr().out
    said, toml = init(capsys, data, "--no-group", "--force")
    assert (said["group"], "group" in toml["data"]) == (None, False)
    assert '\n# group = "machine"' in (tmp_path / "h.toml").read_text()
    said, toml = init(capsys, data, "--group", "serial", "--force")
    assert (said["group"], toml["data"]["group"], "serial" in toml["data"]["drop"]) == ("serial", "serial", False)


def test_too_few_groups_or_a_column_of_parts_leave_the_split_as_it_is(tmp_path: Path) -> None:
    parts, n = ["train", "valid", "test", "train"] * 15, np.arange(60)
    for more, group in (({}, n % 5), ({"fold": parts}, n // 5)):
        columns = {"user": group, "z": np.sin(n), **more, "y": n % 2}
        table = read_table(write_csv(tmp_path / "data.csv", columns))
        found = survey(table, "y")
        assert (found.group, found.is_grouped) == ("user", False)


def test_the_task_that_is_named_is_written_and_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    n = np.arange(60)
    data = write_csv(tmp_path / "data.csv", {"a": np.sin(n).round(3), "query": n // 5, "kind": KIND * 3, "y": n % 5})
    for task, estimator in (("class", "Classifier"), ("value", "Regressor"), ("rank", "Regressor")):
        said, toml = init(capsys, data, "--task", task, "--force")
        assert (said["task"], toml["data"]["task"], said["group"]) == (task, task, "query")
        assert toml["hpc"]["estimator"].endswith(estimator)
        config = read_config(tmp_path / "h.toml")
        assert make_task(config, model=imputed(LogisticRegression() if task == "class" else Ridge())) is not None
    for flags, line in (
        (("--task", "classes"), "--task is 'classes'; use one of class, value, rank"),
        (("--task", "rank", "--no-group"), "orders the rows of a group, such as a query; name its column with --group"),
        (("--task", "rank", "--target", "a"), "ranking takes whole numbers from 0"),
        (("--task", "value", "--target", "kind"), "not a number"),
        (("--group", "querry"), "did you mean 'query'?"),
        (("--group", "kind"), "the 6 groups that a split needs"),
    ):
        status, _, err = run(capsys, "init", data, "--out", tmp_path / "x.toml", *flags)
        assert (status, line in err) == (2, True), err


def test_training_says_that_the_split_divides_what_may_be_a_group(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    n = np.arange(60)
    table = read_table(write_csv(tmp_path / "data.csv", {"user": n // 5, "z": np.sin(n), "y": n % 2}))
    config = Config(file=tmp_path / "data.csv", target="y")
    (line,) = divided_groups(table, config)
    assert line.startswith("WARNING: THE SPLIT DIVIDES ROWS OF ONE 'user', WHICH MAY BELONG TOGETHER")
    for more in ({"group": "user"}, {"drop": ("user",)}, {"weight": "user"}):
        assert divided_groups(table, config.but(**more)) == []


def test_rows_that_a_table_has_twice_are_said_with_their_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    n = np.arange(60)
    once = {"a": np.sin(n).round(6), "kind": KIND * 3, "y": n % 2}
    twice = {name: [*values, *values[:12]] for name, values in once.items()}
    twice["a"][3] = twice["a"][63] = None  # gaps are alike
    assert init(capsys, write_csv(tmp_path / "once.csv", once))[0]["doubled"] == ""
    said, _ = init(capsys, write_csv(tmp_path / "twice.csv", twice), "--force")
    assert said["doubled"].startswith("12 of 72 rows equal an earlier one")
    main(["init", str(tmp_path / "twice.csv"), "--out", str(tmp_path / "h.toml"), "--force"])
    assert "\n  doubled     12 of 72 rows" in capsys.readouterr().out
    other = twice | {"y": [*once["y"], *(1 - once["y"][:12])]}  # the same readings with another answer are no copies
    assert init(capsys, write_csv(tmp_path / "other.csv", other), "--force")[0]["doubled"] == ""


def test_training_says_how_many_test_rows_are_copies_of_rows_of_training(tmp_path: Path) -> None:
    n = np.arange(120)
    columns = {"a": np.sin(n), "b": np.cos(3 * n), "y": n % 2}
    for how, part in (("once", slice(0)), ("twice", slice(120))):
        table = {name: np.concatenate([values, values[part]]) for name, values in columns.items()}
        config = Config(file=write_csv(tmp_path / f"{how}.csv", table), target="y")
        problem = make_task(config, model=imputed(LogisticRegression())).problem
        seen = {k % 120 for k in (*problem.train.index, *problem.valid.index)}
        n_copies = sum(k % 120 in seen for k in problem.test.index)
        assert [int(line.split()[1]) for line in doubled_warning(problem)] == [n_copies] * (how == "twice")
