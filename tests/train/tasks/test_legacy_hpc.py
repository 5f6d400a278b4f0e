# SPDX-License-Identifier: Apache-2.0
"""A legacy system as f0, first half: what its table may say, what a build makes of it, and what a request carries."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hardcase.cli import main
from hardcase_edge.bundle.file import unpack_bundle
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import Forward
from hardcase_edge.program.readings import request_bytes
from hardcase_export.drafts.files import read_draft_bytes
from hardcase_train.data.table import read_table
from hardcase_train.hpc.legacy import Legacy, read_legacy
from tests.helpers.train.problems import legacy_columns, legacy_toml, ran, run, write_csv

pytestmark = pytest.mark.usefixtures("brief_effort")

CLASSES = ("cold", "hot")
PLACES = {"a": (0,), "b": (1,), "c": (2,), "pair": (0, 1)}
DATA = {"a": [1, 2, 3], "b": [0.5, None, 0], "c": [7, 8, 9], "y": ["hot", "cold", "hot"]}
GOOD = {"p:cold": [0.25, 0.5, 0], "p:hot": [0.75, 0.5, 1]}


def read(folder: Path, table: dict, data: dict = DATA) -> Legacy:
    known = read_table(write_csv(folder / "data.csv", data))
    return read_legacy(write_csv(folder / "legacy.csv", table), "old", known, CLASSES, PLACES)


def refused(folder: Path, table: dict, said: str) -> None:
    with pytest.raises(InputError) as found:
        read(folder, table)
    assert said in str(found.value)
    assert "\n" not in str(found.value)


# ---------------------------------------------------------------- what is read


def test_probabilities_come_in_the_order_of_the_classes_whatever_the_columns_do(tmp_path):
    found = read(tmp_path, {"p:hot": GOOD["p:hot"], "p:cold": GOOD["p:cold"]})
    assert found.p.tolist() == [[0.25, 0.75], [0.5, 0.5], [0.0, 1.0]]
    assert found.used.all()


def test_what_rounding_leaves_is_divided_out(tmp_path):
    found = read(tmp_path, {"p:cold": [0.33, 0.5, 0], "p:hot": [0.66, 0.5, 1]})
    assert found.p[0].tolist() == [0.33 / 0.99, 0.66 / 0.99]


def test_use_is_said_of_sensors_or_of_features_and_what_is_not_named_is_used(tmp_path):
    by_sensor = read(tmp_path, {**GOOD, "used:pair": [1, 0, 0]})
    assert by_sensor.used.tolist() == [[True, True, True], [False, False, True], [False, False, True]]
    by_feature = read(tmp_path, {**GOOD, "used:b": ["true", "false", "true"]})
    assert by_feature.used[:, 1].tolist() == [True, False, True]
    assert by_feature.used[:, [0, 2]].all()


def test_columns_of_the_data_may_stand_beside_and_show_that_the_rows_are_the_same(tmp_path):
    assert read(tmp_path, {**GOOD, "y": DATA["y"], "b": DATA["b"]}).p.shape == (3, 2)


def test_an_npz_says_the_same(tmp_path):
    data = read_table(write_csv(tmp_path / "data.csv", DATA))
    X = np.array([[0.25, 0.75, 1], [0.5, 0.5, 0], [0, 1, 0]])
    np.savez(tmp_path / "legacy.npz", X=X, feature_names=["p:cold", "p:hot", "used:c"])
    found = read_legacy(tmp_path / "legacy.npz", "old", data, CLASSES, PLACES)
    assert found.p.tolist() == X[:, :2].tolist()
    assert found.used[:, 2].tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"p:hot": None}, "has no column 'p:hot'", id="a-class-missing"),
        pytest.param(
            {"p:warm": [0, 0, 0]}, "has the column 'p:warm'; known columns are p:cold, p:hot", id="no-such-class"
        ),
        pytest.param({"p:Hot": [0, 0, 0]}, "has the column 'p:Hot'; did you mean 'p:hot'?", id="a-class-like-one"),
        pytest.param({"used:d": [0, 0, 0]}, "has the column 'used:d'; did you mean", id="no-such-sensor"),
        pytest.param({"zzz": [0, 0, 0]}, "known columns are p:LABEL, used:SENSOR and the columns", id="another"),
        pytest.param({"p:hot": [0.75, "x", 1]}, "'p:hot' does not hold numbers; write it as numbers", id="text"),
        pytest.param({"p:hot": [0.75, None, 1]}, "row 2: 'p:hot' is missing", id="missing"),
        pytest.param({"p:hot": [0.75, "inf", 1]}, "row 2: 'p:hot' is missing", id="infinite"),
        pytest.param({"p:hot": [0.75, 1.5, 1]}, "row 2: 'p:hot' is 1.5, a probability", id="beyond-1"),
        pytest.param({"p:hot": [0.75, 0.5, -0.5]}, "row 3: 'p:hot' is -0.5", id="below-0"),
        pytest.param({"p:hot": [0.75, 0.6, 1]}, "row 2: the probabilities add up to 1.1", id="not-1-in-sum"),
        pytest.param({"p:cold": [0, 0, 0], "p:hot": [0, 0, 0]}, "row 1: the probabilities add up to 0", id="all-0"),
        pytest.param({"used:a": [0, 0.5, 1]}, "row 2: 'used:a' is 0.5, 0 or 1", id="half-used"),
        pytest.param({"used:a": [0, 1, None]}, "row 3: 'used:a' is missing, 0 or 1", id="use-missing"),
        pytest.param(
            {"used:a": [0, 0, 1], "used:pair": [1, 1, 1]}, "name the same feature; keep one of them", id="said-twice"
        ),
        pytest.param({"y": ["hot", "hot", "hot"]}, "row 2: 'y' is 'hot', the data has 'cold'", id="another-order"),
        pytest.param({"y": ["2026-01-01"] * 3}, "'y' is '2026-01-01', the data has 'hot'", id="dates"),
        pytest.param({"b": [0.5, 0.5, 0]}, "row 2: 'b' is '0.5', the data has 'None'", id="another-reading"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_column_and_row(tmp_path, change, said):
    table = {k: v for k, v in {**GOOD, **change}.items() if v is not None}
    refused(tmp_path, table, said)


def test_another_number_of_rows_is_refused(tmp_path):
    refused(tmp_path, {k: v[:2] for k, v in GOOD.items()}, "has 2 rows, the data 3")


def test_a_column_that_stands_twice_is_refused(tmp_path):
    (tmp_path / "twice.csv").write_text("p:cold,p:hot,p:hot\n0,1,1\n0,1,1\n0,1,1\n")
    data = read_table(write_csv(tmp_path / "data.csv", DATA))
    with pytest.raises(InputError, match="'p:hot' twice"):
        read_legacy(tmp_path / "twice.csv", "old", data, CLASSES, PLACES)


WHOLE = "p:cold,p:hot,used:a\n0.25,0.75,1\n0.5,0.5,0\n0,1,1\n"


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(cut=st.integers(0, len(WHOLE)), at=st.integers(0, len(WHOLE) - 1), other=st.characters(codec="ascii"))
def test_a_cut_or_damaged_table_is_refused_or_keeps_every_promise(tmp_path, cut, at, other):
    text = (WHOLE[:at] + other + WHOLE[at + 1 :])[:cut]
    path = tmp_path / "damaged.csv"
    path.write_text(text)
    data = read_table(write_csv(tmp_path / "data.csv", DATA))
    with contextlib.suppress(InputError):
        found = read_legacy(path, "old", data, CLASSES, PLACES)
        assert found.p.shape == (3, 2)
        assert ((found.p >= 0) & (found.p <= 1)).all()
        assert np.abs(found.p.sum(axis=1) - 1).max() < 1e-12
        assert found.used.shape == (3, 3)


# ---------------------------------------------------------------- what is carried


def test_a_request_carries_what_some_training_row_used_and_rows_that_used_more_are_counted():
    used = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1]], dtype=bool)
    legacy = Legacy("old", np.full((4, 2), 0.5), used, "")
    train = np.array([True, True, False, False])
    assert legacy.carried(train) == (0, 1)
    assert legacy.beyond(np.array([2, 3]), (0, 1)) == 2
    assert legacy.beyond(np.array([0, 1]), (0, 1)) == 0


def test_a_system_that_uses_nothing_is_refused():
    legacy = Legacy("old", np.full((2, 2), 0.5), np.zeros((2, 3), dtype=bool), "")
    with pytest.raises(InputError, match="'old' used no feature for any training row"):
        legacy.carried(np.array([True, True]))


def test_what_a_system_is_known_by_is_its_name_and_a_requests_layout_alone():
    one, other = (Legacy("old", np.full((n, 2), 0.5), np.ones((n, 2), dtype=bool), str(n)) for n in (1, 2))
    layout = (["a", "b"], ["f32", "i32"], CLASSES)
    known = one.declaration(*layout)["sha256"]
    assert known == other.declaration(*layout)["sha256"]
    canonical = b'{"classes":["cold","hot"],"dtypes":["f32","i32"],"features":["a","b"],"name":"old"}'
    assert known == hashlib.sha256(canonical).hexdigest()
    changed = [(["b", "a"], *layout[1:]), (layout[0], ["f32", "f32"], CLASSES), (*layout[:2], ("hot", "cold"))]
    assert known not in {one.declaration(*c)["sha256"] for c in changed}


# ---------------------------------------------------------------- a build


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A build whose f0 is a table: sensor a in every row, b in some training rows, c in none."""
    folder = tmp_path_factory.mktemp("legacy")
    data, table = legacy_columns()
    write_csv(folder / "data.csv", data)
    write_csv(folder / "legacy.csv", table)
    return folder


@pytest.fixture
def front(built, capsys):
    """The front, trained once."""
    if not (built / "build").exists():
        ran(capsys, "train", legacy_toml(built), "--out", built / "build")
    return json.loads((built / "build" / "front.json").read_text())


def test_a_build_says_what_f0_is_and_holds_no_model_of_it(built, front):
    hpc = front["hpc"]
    assert (hpc["name"], hpc["features"], hpc["dtypes"]) == ("boiler-1", ["a", "b"], ["f32", "f32"])
    assert hpc["classes"] == ["cold", "hot"]
    assert hpc["beyond"] == {"valid": 0, "test": 0}
    assert not (built / "build" / "hpc.onnx").exists()
    draft = unpack_bundle(read_draft_bytes(built / "build" / front["points"][0]["program"]), allow_draft=True)
    assert draft.manifest["hpc"] == hpc["sha256"]
    assert draft.manifest["trained"]["hpc"]["name"] == "boiler-1"


def test_only_what_it_used_is_bought_and_sent_by_every_program(built, front):
    for point in front["points"]:
        program = unpack_bundle(read_draft_bytes(built / "build" / point["program"]), allow_draft=True).program
        assert program.uplink.features == (0, 1)
        assert program.uplink.request_bytes == request_bytes(["f32", "f32"])
        assert {n.sensors for n in program.nodes if isinstance(n, Forward)} <= {(0, 1)}
    assert any(p["valid"]["forward_rate"] > 0 for p in front["points"])


def test_f0s_answers_and_costs_are_the_tables(built, front):
    data, table = legacy_columns()
    f0 = next(p for p in front["points"] if p["method"] == "hpc")
    with np.load(built / "build" / "test.npz") as rows:
        index = rows["index"]
        said = np.array(table["p:hot"])[index] > 0.5
        assert rows["hpc"].tolist() == said.astype(int).tolist()
    assert f0["test"]["quality"] == 1 - np.mean(said != (np.array(data["y"])[index] == "hot"))
    assert f0["test"]["cost"] == 2.0 + 4.0 + 30.0  # the union, and a request
    b = np.array(table["used:b"])
    assert f0["test"]["used_cost"] == pytest.approx(32.0 + 4.0 * b[index].mean())
    with np.load(built / "build" / "calibration.npz") as rows:
        judged = np.setdiff1d(np.arange(len(b)), [*index, *rows["index"]])
    assert f0["valid"]["used_cost"] == pytest.approx(32.0 + 4.0 * b[judged].mean())


def test_the_tables_answers_are_judged_as_they_are_without_an_estimator(built, front, capsys, monkeypatch):
    monkeypatch.setattr("hardcase_train.tasks.task.fit_hpc", lambda *_: pytest.fail("f0 was fitted"))
    said = ran(capsys, "train", legacy_toml(built), "--out", built / "again", "--method", "static")
    f0 = [p["valid"] for p in said["front"]["points"] if p["method"] == "hpc"]
    assert f0 == [p["valid"] for p in front["points"] if p["method"] == "hpc"]


@pytest.fixture
def bundle(built, front, capsys):
    """The bundle that forwards every case."""
    path = built / "build" / "model.hcb"
    argv = ("export", built / "build", "--budget", 1e6, "--method", "hpc", "--out", path)
    ran(capsys, *argv)
    return path


@pytest.mark.parametrize("method", ["adapt-gbrt", "cascade"])
def test_a_policy_that_sometimes_forwards_is_exported_and_measured_as_it_was_trained(
    built, front, tmp_path, capsys, method
):
    dearest = max((p for p in front["points"] if p["method"] == method), key=lambda p: p["valid"]["forward_rate"])
    assert dearest["test"]["forward_rate"] > 0
    path = tmp_path / "model.hcb"
    only = {**front, "points": [dearest, *(p for p in front["points"] if p["method"] == "hpc")]}
    shutil.copytree(built / "build", tmp_path / "build")
    (tmp_path / "build" / "front.json").write_text(json.dumps(only))
    argv = ("export", tmp_path / "build", "--budget", 1e6, "--method", method, "--out", path, "--min-agreement", 0.9)
    exported = ran(capsys, *argv)
    said = ran(capsys, "evaluate", path, tmp_path / "build" / "test.npz")
    assert {k: said[k] for k in exported["test"]} == exported["test"]
    assert said["forward_rate"] > 0


def test_rows_that_used_more_than_requests_carry_are_said(tmp_path, capsys):
    data, table = legacy_columns()
    table["used:c"][[80, 100, 101]] = 1  # a row to judge on, and two to report on
    write_csv(tmp_path / "data.csv", data)
    write_csv(tmp_path / "legacy.csv", table)
    path = legacy_toml(tmp_path)
    path.write_text(path.read_text().replace("seed = 9\n", 'seed = 9\nsplit = "time"\n'))
    argv = ["train", str(path), "--out", str(tmp_path / "build"), "--method", "static", "--quiet"]
    assert main(argv) == 0
    said = capsys.readouterr().out
    assert "in 1 of the valid rows f0 used features" in said
    assert "in 2 of the test rows f0 used features" in said


def test_a_bundle_names_the_system_and_is_inspected(bundle, front, capsys):
    assert load_bundle(bundle).manifest.hpc == front["hpc"]["sha256"]
    status, said, _ = run(capsys, "inspect", bundle)
    assert (status, said["hpc_name"], said["request"]["features"]) == (0, "boiler-1", ["a", "b"])


def test_a_front_of_another_system_is_refused(built, bundle, front, tmp_path, capsys):
    front["hpc"]["sha256"] = "0" * 64
    before = (built / "build" / "front.json").read_bytes()
    (built / "build" / "front.json").write_text(json.dumps(front))
    status, _, err = run(
        capsys, "export", built / "build", "--budget", 1e6, "--method", "hpc", "--out", tmp_path / "m.hcb"
    )
    (built / "build" / "front.json").write_bytes(before)
    assert (status, "is not the HPC that the draft was trained with" in err) == (2, True)


def test_the_builds_own_test_rows_hold_f0s_answers_and_other_rows_need_its_function(
    built, bundle, front, capsys, monkeypatch
):
    f0 = next(p for p in front["points"] if p["method"] == "hpc")
    said = ran(capsys, "evaluate", bundle, built / "build" / "test.npz")
    assert (said["quality"], said["cost"], said["forward_rate"]) == (f0["test"]["quality"], 36.0, 1.0)
    status, _, err = run(capsys, "evaluate", bundle, built / "data.csv")
    assert (status, "legacy system 'boiler-1'" in err, "--hpc module:function" in err) == (2, True, True)
    (built / "boiler_evaluated.py").write_text(BOILER)
    monkeypatch.syspath_prepend(built)
    said = ran(capsys, "evaluate", bundle, built / "data.csv", "--hpc", "boiler_evaluated:answer")
    data, table = legacy_columns()
    assert said["quality"] == np.mean((np.array(table["p:hot"]) > 0.5) == (np.array(data["y"]) == "hot"))


def test_a_promise_asks_its_table_or_its_function_about_the_rows(built, front, tmp_path, capsys, monkeypatch):
    """The build's rows hold the table's answers; the same rows as a .csv need the function, which says the same."""
    data, _ = legacy_columns()
    with np.load(built / "build" / "calibration.npz") as file:
        index = file["index"]
    write_csv(tmp_path / "mine.csv", {name: np.array(column)[index] for name, column in data.items()})
    (built / "boiler_promised.py").write_text(BOILER)
    monkeypatch.syspath_prepend(built)
    argv = ("export", built / "build", "--risk", 0.6, "--delta", 0.5, "--min-agreement", 0.9, "--excess", "--force")

    def promised(*more):
        status, said, err = run(capsys, *argv, "--out", tmp_path / "m.hcb", *more)
        return said["promise"] if status == 0 else err

    of_the_table = promised()
    assert of_the_table["rows"]["n"] == 12
    of_the_function = promised("--calibration", tmp_path / "mine.csv", "--hpc", "boiler_promised:answer")
    assert of_the_function.pop("rows")["file"] == "mine.csv"
    assert {k: v for k, v in of_the_table.items() if k != "rows"} == of_the_function
    assert promised("--calibration", built / "build" / "test.npz")["rows"]["n"] == 24
    assert "legacy system 'boiler-1'" in promised("--calibration", tmp_path / "mine.csv")


BOILER = """
def answer(X, names):
    assert names == ("a", "b"), names
    p = 0.9 * (X[:, 0] > 0) + 0.05
    return [[1 - x, x] for x in p]
"""


def test_answers_of_another_f0_are_not_taken(built, bundle, tmp_path, capsys):
    with np.load(built / "build" / "test.npz") as file:
        arrays = {**file, "hpc_sha256": "0" * 64}
    np.savez(tmp_path / "test.npz", **arrays)
    status, _, err = run(capsys, "evaluate", bundle, tmp_path / "test.npz")
    assert (status, "whose answers to these rows are unknown" in err) == (2, True)


@pytest.mark.parametrize(
    ("hpc", "said"),
    [
        pytest.param('table = "none.csv"', "none.csv cannot be read", id="no-table"),
        pytest.param('table = "legacy.csv"\nestimator = "SVC"', "[hpc] has estimator and table", id="both"),
        pytest.param('name = "old"', "name belongs to a legacy system; add its table", id="a-name-alone"),
        pytest.param('table = "data.csv"', "has no column 'p:cold'", id="another-table"),
    ],
)
def test_a_wrong_hpc_section_is_one_line(built, tmp_path, capsys, hpc, said):
    path = legacy_toml(built, hpc, name="wrong.toml")
    status, _, err = run(capsys, "train", path, "--out", tmp_path / "build")
    assert (status, err.count("\n")) == (2, 1)
    assert said in err


def test_a_demo_of_a_legacy_system_is_refused(built, tmp_path, capsys):
    status, _, err = run(capsys, "demo", "--config", legacy_toml(built), "--out", tmp_path)
    assert (status, "f0 is a legacy system, which the demo cannot start" in err) == (2, True)


def test_a_legacy_system_of_values_has_one_column_of_them(tmp_path):
    data = read_table(write_csv(tmp_path / "data.csv", DATA))

    def values(table: dict) -> Legacy:
        return read_legacy(write_csv(tmp_path / "legacy.csv", table), "old", data, (), PLACES)

    found = values({"value": [20.5, 21.0, 30.0], "used:b": [0, 1, 0]})
    assert found.p.tolist() == [[20.5], [21.0], [30.0]]
    assert found.used.tolist() == [[True, False, True], [True, True, True], [True, False, True]]
    for odd in (None, 1e300):  # whose square is no number
        with pytest.raises(InputError, match=r"row 2: 'value' is missing or too large, a number within 1e\+12 is"):
            values({"value": [20.5, odd, 1.0], "used:b": [0, 1, 0]})
    with pytest.raises(InputError, match="has no column 'value'; add its values there"):
        values({"used:b": [0, 1, 0]})
