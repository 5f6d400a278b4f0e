# SPDX-License-Identifier: Apache-2.0
"""``hardcase train`` on tables of every kind, and what ``init``, ``export`` and ``evaluate`` make of its build."""

from __future__ import annotations

import json
import os
import pickletools
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hardcase.cli import main
from hardcase.training.folders import BUILD, list_files
from hardcase_edge.bundle.file import unpack_bundle
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.more.fronts.front import Judged
from hardcase_export.drafts.files import read_draft_bytes
from hardcase_export.drafts.front import read_front
from hardcase_train.data.split import CALIBRATION, random_split
from hardcase_train.data.table import read_table
from hardcase_train.hpc.fit import out_of_fold
from hardcase_train.settings.effort import EFFORTS
from tests.helpers.places import ROOT
from tests.helpers.train.problems import BRIEF, is_front, ran, run, toml, write_csv

pytestmark = pytest.mark.usefixtures("brief_effort")

N = 60


def columns(n=N, n_classes=2, seed=0, **more):
    """Two columns that tell the class, one that does not."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    rng.shuffle(y)
    return {
        "a": np.round(y + rng.normal(size=n) * 0.4, 3),
        "b": np.round(y % 2 + rng.normal(size=n) * 0.6, 3),
        "c": rng.integers(0, 9, n),
        **more,
        "y": y,
    }


def train(folder, capsys, table, text="", **more):
    write_csv(folder / "data.csv", table)
    said = ran(capsys, "train", toml(folder, text, **more), "--out", folder / "build")
    return said["front"]


FOREST = '[hpc]\nestimator = "RandomForestClassifier"\n[hpc.params]\nn_estimators = 5\n'
STATIC = "[policy]\nmethods = ['static']\n"


@pytest.fixture(scope="module")
def static(tmp_path_factory, brief_effort):
    """The usual table, its TOML and its build, to be copied."""
    folder = tmp_path_factory.mktemp("static")
    write_csv(folder / "data.csv", columns())
    assert main(["train", str(toml(folder, STATIC)), "--out", str(folder / "build"), "--quiet"]) == 0
    return folder


@pytest.fixture
def trained(static, tmp_path):
    """What training makes of the usual table."""
    shutil.copytree(static, tmp_path, dirs_exist_ok=True)


@pytest.fixture(scope="module")
def forwarding(tmp_path_factory, brief_effort):
    """A build of every method, to be read, some of whose policies forward."""
    folder = tmp_path_factory.mktemp("forwarding")
    write_csv(folder / "data.csv", hot_or_cold())
    path = toml(folder, "[cost.uplink]\nper_request = 2\n" + FOREST)
    assert main(["train", str(path), "--out", str(folder / "build"), "--quiet"]) == 0
    return folder / "build"


def hot_or_cold():
    table = columns(n=100, b=punched(columns(n=100)["b"]))
    return {**table, "y": np.where(table["y"] == 1, "hot", "cold")}


def refused(folder, capsys, said, *, text="", table=None, **more):
    """Exit status 2, one line on stderr, and the folder as it was."""
    if table is not None:
        write_csv(folder / "data.csv", table)
    path = toml(folder, text, **more)
    before = sorted(folder.rglob("*"))
    status, out, err = run(capsys, "train", path, "--out", folder / "build")
    assert status == 2
    assert out == {}
    assert err.count("\n") == 1
    assert said in err
    assert sorted(folder.rglob("*")) == before


def punched(values, share=0.3, seed=1):
    out = np.array(values, dtype=float)
    out[np.random.default_rng(seed).random(len(out)) < share] = np.nan
    return out


# ---------------------------------------------------------------- tables of every kind


def one_feature():
    t = columns()
    return {"a": t["a"], "y": t["y"]}


def rare():
    """Classes of one, two and three rows beside two common ones."""
    t = columns(n=66)
    t["y"] = np.where(np.arange(66) < 60, t["y"], [2, 3, 3, 4, 4, 4] * 11)
    return t


TABLES = {
    "two-classes": (columns, ""),
    "thirty-classes": (lambda: columns(n=240, n_classes=30), ""),
    "text-labels": (lambda: {**columns(), "y": [f"state {k}" for k in columns()["y"]]}, ""),
    "fractional-labels": (lambda: {**columns(), "y": columns()["y"] + 0.5}, ""),
    "missing-values": (lambda: {**columns(), "a": punched(columns()["a"]), "b": punched(columns()["b"])}, ""),
    "a-column-all-missing": (lambda: columns(c=[None] * N), ""),
    "a-constant-column": (lambda: columns(c=[0.1] * N), ""),
    "all-constant": (lambda: {"a": [1] * N, "b": [0.1] * N, "y": columns()["y"]}, ""),
    "true-and-false": (lambda: columns(c=["true", "false"] * (N // 2)), ""),
    "one-feature": (one_feature, ""),
    "rare-classes": (rare, ""),
    "large-values": (lambda: columns(b=columns()["a"] * 1e30, c=columns()["c"] + 2**53), FOREST),
    "values-too-fine-for-f32": (lambda: columns(c=1.7e9 + np.arange(N) / 8), FOREST),
    "free-sensors": (columns, "[cost]\ndefault_sensor = 0\n"),
    "free-uplink": (columns, "[cost]\ndefault_sensor = 3\n[cost.uplink]\nper_request = 0\n"),
    "one-sensor-of-all": (columns, '[[sensor]]\nname = "s"\nfeatures = ["*"]\ncost = 5\n'),
    "dearest": (columns, "[cost]\ndefault_sensor = 1e9\n[cost.uplink]\nper_request = 1e9\nper_byte = 1\n"),
}


@pytest.mark.parametrize("name", TABLES)
def test_any_table_of_numbers_with_a_target_trains_exports_and_evaluates(tmp_path, capsys, monkeypatch, name):
    fewest = replace(BRIEF, n_graph_prices=1, n_gate_prices=2, n_prices=3)  # every method on every table, but briefly
    monkeypatch.setitem(EFFORTS, "quick", fewest)
    make, text = TABLES[name]
    table = make()
    front = train(tmp_path, capsys, table, text)
    methods = [p["method"] for p in front["points"]]
    assert methods.count("hpc") == 1
    assert {"static", "cascade", "adapt-gbrt"} <= set(methods)
    assert len(read_front(tmp_path / "build" / "front.json").points) == len(methods)

    bundle = tmp_path / "model.hcb"
    said = ran(
        capsys, "export", tmp_path / "build", "--max-loss", 1, "--out", bundle, "--min-agreement", 0.9, "--force"
    )
    picked = said["test"]
    said = ran(capsys, "evaluate", bundle, tmp_path / "build" / "test.npz")
    assert {k: said[k] for k in picked} == picked
    seen = "WARNING: THIS POLICY WAS TRAINED ON data.csv, SO THESE FIGURES ARE TOO GOOD"
    assert not any(line.startswith(seen) for line in said["warnings"])
    said = ran(capsys, "evaluate", bundle, tmp_path / "data.csv", "--hpc", tmp_path / "build" / "hpc.onnx")
    assert said["n"] == len(table["y"])
    assert said["warnings"][-1].startswith(seen)


@pytest.mark.parametrize("method", ["hpc", "adapt-gbrt", "cascade"])
def test_a_policy_that_forwards_is_judged_on_a_users_table_as_on_test_rows(forwarding, tmp_path, capsys, method):
    """Rows of the source, one by one, give the figures of test.npz: names, labels and types are found again."""
    table, build = hot_or_cold(), Path(shutil.copytree(forwarding, tmp_path / "build"))
    bundle = build / "model.hcb"
    ran(capsys, "export", build, "--budget", 1e6, "--method", method, "--out", bundle, "--min-agreement", 0.9)
    with np.load(build / "test.npz") as test:
        rows = test["index"]
    shuffled = {k: np.asarray(table[k])[rows] for k in ["y", "c", "b", "a"]}
    write_csv(tmp_path / "more.csv", {**shuffled, "note": ["x"] * len(rows)})
    wanted = run(capsys, "evaluate", bundle, build / "test.npz")
    assert run(capsys, "evaluate", bundle, tmp_path / "more.csv") == wanted
    assert wanted[1]["forward_rate"] > 0


def test_windows_are_trained_on_exported_and_evaluated(tmp_path, capsys):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 80)
    X = rng.normal(size=(80, 2, 12)) + y[:, None, None] * np.linspace(0, 2, 12)
    np.savez(tmp_path / "data.npz", X=X, sensor_names=["p", "q"], Y=np.c_[y, y], target_names=["u", "v"])
    text = (
        '[[sensor]]\nname = "p"\nfeatures = ["p.*"]\ncost = 3\n[[sensor]]\nname = "q"\nfeatures = ["q.*"]\ncost = 1\n'
    )
    ran(capsys, "train", toml(tmp_path, text, file="data.npz", target="v"), "--out", tmp_path / "build")
    bundle = tmp_path / "build" / "m.hcb"
    ran(capsys, "export", tmp_path / "build", "--max-loss", 1, "--out", bundle, "--min-agreement", 0.9, "--force")
    assert set(load_bundle(bundle).manifest.windows.values()) == {12}
    said = ran(capsys, "evaluate", bundle, tmp_path / "data.npz")
    assert said["n"] == 80
    said["warnings"].pop()  # of rows that were trained on
    samples = {f"{name}[{t}]": X[:, k, t] for k, name in enumerate("pq") for t in range(12)}
    path = write_csv(tmp_path / "samples.csv", samples | {"v": y})  # what run --sensors replay: reads
    assert run(capsys, "evaluate", bundle, path)[:2] == (0, said)
    del samples["p[11]"], samples["q[11]"]
    status, _, err = run(capsys, "evaluate", bundle, write_csv(tmp_path / "short.csv", samples | {"v": y}))
    assert status == 2
    assert "add the columns, or the 12 samples " in err
    assert main(["inspect", str(bundle)]) == 0
    shown = capsys.readouterr().out
    assert ".roughness (a read gives 12 samples, oldest first)" in shown
    assert "monitors    none, so --drift watches no readings; hardcase export --monitors adds them" in shown
    assert "promise     none about the truth; hardcase export --risk makes one" in shown
    assert "claims      integers (share of rows that the program's integers decide as its floats did): " in shown
    assert "claims      agreement" not in shown
    sensors = run(capsys, "inspect", bundle)[1]["sensors"]
    assert {sensor["window"] for sensor in sensors} == {12}


# ---------------------------------------------------------------- splits


def rows_of(folder, name):
    with np.load(folder / "build" / f"{name}.npz", allow_pickle=False) as file:
        return {k: file[k] for k in file.files}


def test_a_random_split_is_stratified_and_takes_every_row_once(tmp_path, capsys):
    table = columns(n=200, n_classes=4)
    train(tmp_path, capsys, table, STATIC)
    valid, calibration, test = (rows_of(tmp_path, name) for name in ("valid", "calibration", "test"))
    assert (len(valid["y"]), len(calibration["y"]), len(test["y"])) == (20, 20, 40)
    assert len({*valid["index"], *calibration["index"], *test["index"]}) == 80
    left = 50 - np.bincount(calibration["y"], minlength=4)
    for part, share in ((valid, 1 / 9), (test, 2 / 9)):
        assert np.abs(np.bincount(part["y"]) - share * left).max() < 1
    assert valid["X"][:, 2].tolist() == table["c"][valid["index"]].tolist()
    seen = np.setdiff1d(np.arange(200), [*calibration["index"], *test["index"]])
    assert valid["limits"][2].tolist() == [min(table["c"][seen]), max(table["c"][seen])]
    assert valid["weight"].tolist() == [1.0] * 20
    assert "limits" not in test


def test_a_time_split_keeps_row_order_and_classes_that_training_has_not_seen(tmp_path, capsys):
    table = columns(n=100)
    table["y"] = np.where(np.arange(100) < 70, table["y"], 2)
    table["y"][95:] = 0
    front = train(
        tmp_path, capsys, table, data='split = "time"', text="[policy]\nmethods = ['adapt-gbrt', 'cascade']\n"
    )
    assert rows_of(tmp_path, "valid")["index"].tolist() == list(range(60, 70))
    assert rows_of(tmp_path, "calibration")["index"].tolist() == list(range(70, 80))
    assert rows_of(tmp_path, "test")["index"].tolist() == list(range(80, 100))
    assert max(p["test"]["quality"] for p in front["points"]) <= 0.25  # nothing can know class 2
    bundle = tmp_path / "build" / "m.hcb"
    argv = ("export", tmp_path / "build", "--budget", 1e6, "--method", "hpc", "--out", bundle)
    assert run(capsys, *argv, "--min-agreement", 0)[0] == 0
    said = ran(capsys, "evaluate", bundle, tmp_path / "data.csv")  # f0's ONNX has three probabilities
    assert said["forward_rate"] == 1.0


@pytest.mark.parametrize("words", [("train", "valid", "test"), (" Train", "VALID", "test "), (0, 1, 2)])
def test_a_column_may_say_the_split(tmp_path, capsys, words):
    part = np.arange(N) % 6 // 4 + (np.arange(N) % 6 == 5)
    table = columns(part=[words[k] for k in part])
    train(tmp_path, capsys, table, STATIC, data='split = "part"')
    assert rows_of(tmp_path, "valid")["index"].tolist() == np.flatnonzero(part == 1).tolist()
    assert rows_of(tmp_path, "test")["feature_names"].tolist() == ["a", "b", "c"]
    assert not (tmp_path / "build" / "calibration.npz").exists()


@pytest.mark.parametrize("word", ["calibration", 3])
def test_a_column_may_name_calibration_rows(tmp_path, capsys, word):
    part = [("train", "valid", "test", word)[k % 4] if word != 3 else k % 4 for k in range(N)]
    train(tmp_path, capsys, columns(part=part), STATIC, data='split = "part"')
    assert rows_of(tmp_path, "calibration")["index"].tolist() == list(range(3, N, 4))
    provenance = load_manifest_of(tmp_path / "build")
    assert provenance["data"]["rows"] == {"train": 15, "valid": 15, "calibration": 15, "test": 15}


@pytest.mark.parametrize("kept", [15, 5, 0])
def test_calibration_rows_of_weight_0_are_nowhere(tmp_path, capsys, kept):
    """Those of weight 2 stand once; where all weigh nothing there are none."""
    table = columns(part=np.arange(N) % 4)
    table["w"] = np.where((table["part"] == 3) & (np.arange(N) >= 4 * kept), 0, 1 + np.arange(N) % 2)
    train(tmp_path, capsys, table, STATIC, data='split = "part"\nweight = "w"')
    path = tmp_path / "build" / "calibration.npz"
    found = rows_of(tmp_path, "calibration")["index"].tolist() if path.exists() else []
    assert found == list(range(3, 4 * kept, 4))
    assert load_manifest_of(tmp_path / "build")["data"]["rows"]["calibration"] == kept
    assert path.exists() == (kept > 0)


def load_manifest_of(build):
    path = next((build / "policies").iterdir())
    return unpack_bundle(read_draft_bytes(path), allow_draft=True).manifest["trained"]


def test_calibration_rows_are_drawn_from_all_rows_alike_rare_classes_too():
    """Over many seeds each row is drawn one time in ten, the only row of its class no less."""
    y = np.array([0] * 60 + [1] * 39 + [2])
    drawn = np.array([random_split(y, seed) == CALIBRATION for seed in range(2000)])
    assert set(drawn.sum(axis=1).tolist()) == {10}
    assert np.abs(drawn.mean(axis=0) - 0.1).max() < 5 * np.sqrt(0.1 * 0.9 / 2000)


def test_a_trained_policy_is_promised_on_its_calibration_rows(tmp_path, capsys):
    train(tmp_path, capsys, columns(n=400), "[policy]\nmethods = ['static', 'cascade']\n")
    argv = ("export", tmp_path / "build", "--min-agreement", 0.9, "--out", tmp_path / "m.hcb")
    said = ran(capsys, *argv, "--risk", 0.4, "--delta", 0.1)
    assert said["promise"]["rows"]["n"] == 40
    status, _, err = run(capsys, *argv, "--risk", 0.001)
    assert status == 2
    assert "needs 2995 rows that are answered locally without an error" in err
    assert err.count("\n") == 1


def test_a_column_named_as_a_kind_of_split_is_a_column(tmp_path, capsys):
    train(tmp_path, capsys, columns(time=np.arange(N)), STATIC, data='split = "time"')
    assert rows_of(tmp_path, "test")["feature_names"].tolist() == ["a", "b", "c", "time"]


@pytest.mark.parametrize(
    ("table", "data", "said"),
    [
        pytest.param(columns, 'split = "part"', "which is not random, time or a column", id="no-such-column"),
        pytest.param(lambda: columns(part=["train", "test"] * 30), 'split = "part"', "has no valid row", id="no-valid"),
        pytest.param(lambda: columns(part=["train", "dev"] * 30), 'split = "part"', "holds 'dev'", id="another-word"),
        pytest.param(
            lambda: {**columns(), "y": np.arange(N) > 50},
            'split = "time"',
            "the training rows have only one class",
            id="one-class-in-training",
        ),
        pytest.param(lambda: columns(n=9), "", "has 9 rows, at least 10", id="too-few-rows"),
        pytest.param(
            lambda: {**columns(), "y": np.arange(N)},
            "",
            "too few rows per class: no valid row is left",
            id="a-class-a-row",
        ),
    ],
)
def test_a_split_that_leaves_something_out_is_refused(tmp_path, capsys, table, data, said):
    refused(tmp_path, capsys, said, table=table(), data=data)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("[polcy]\n", "did you mean 'policy'", id="unknown-key"),
        pytest.param(
            '[[sensor]]\nname = "s"\nfeatures = ["d"]\ncost = 1\n',
            "sensor 's' names 'd', which is no",
            id="no-such-column",
        ),
        pytest.param('[[sensor]]\nname = "s"\nfeatures = ["zz*"]\ncost = 1\n', "names 'zz*'", id="no-column-begins-so"),
        pytest.param(
            '[[sensor]]\nname = "s"\nfeatures = ["y"]\ncost = 1\n', "names 'y', which is no", id="the-target-as-feature"
        ),
        pytest.param(
            '[[sensor]]\nname = "s"\nfeatures = ["a"]\ncost = 1\n[[sensor]]\nname = "t"\nfeatures = ["a"]\ncost = 1\n',
            "feature 'a' belongs to the sensors 's' and 't'",
            id="a-feature-in-two-sensors",
        ),
        pytest.param(
            '[[sensor]]\nname = "a"\nfeatures = ["b"]\ncost = 1\n',
            "a sensor has its name",
            id="a-feature-named-as-a-sensor",
        ),
        pytest.param("[cost]\ndefault_sensor = -3\n", "is -3, a cost from 0", id="negative-cost"),
        pytest.param(
            '[hpc]\nestimator = "RandomForest"\n', "did you mean 'RandomForestClassifier'", id="unknown-estimator"
        ),
        pytest.param('[hpc]\nestimator = "zzz"\n', "name a classifier of scikit-learn", id="no-estimator-near"),
        pytest.param('[hpc]\nestimator = "RidgeClassifier"\n', "gives no probabilities", id="no-probabilities"),
        pytest.param(
            '[hpc]\nestimator = "LogisticRegression"\n[hpc.params]\nD = 1\n',
            "does not take these params",
            id="no-such-param",
        ),
        pytest.param(
            '[hpc]\nestimator = "LogisticRegression"\n[hpc.params]\nC = -1\n',
            "cannot be fitted",
            id="param-out-of-range",
        ),
        pytest.param(
            '[hpc]\nestimator = "KNeighborsClassifier"\n[hpc.params]\nn_neighbors = 500\n',
            "cannot predict",
            id="more-neighbours-than-rows",
        ),
        pytest.param(
            '[hpc]\nestimator = "VotingClassifier"\n', "does not take these params", id="an-estimator-of-estimators"
        ),
        pytest.param(
            '[policy]\nmethods = ["static", "adapt-gbr"]\n',
            "[policy] names the method 'adapt-gbr'; did you mean 'adapt-gbrt'",
            id="unknown-method",
        ),
        pytest.param('[policy]\nmethods = ["zzzz"]\n', "methods are auto, cascade, adapt-lin", id="no-method-near"),
    ],
)
def test_a_bad_toml_is_one_line_and_nothing_is_written(tmp_path, capsys, text, said):
    refused(tmp_path, capsys, said, text=text, table=columns())


@pytest.mark.parametrize(
    ("table", "said"),
    [
        pytest.param({**columns(), "y": [1] * N}, "has 1 classes", id="one-class"),
        pytest.param({**columns(), "y": punched(columns()["y"])}, "the target 'y' is missing in", id="nan-targets"),
        pytest.param({"y": columns()["y"]}, "no column besides the target that a model could read", id="only-a-target"),
    ],
)
def test_a_bad_table_is_one_line_and_nothing_is_written(tmp_path, capsys, table, said):
    refused(tmp_path, capsys, said, table=table)


@pytest.mark.parametrize(
    ("name", "said"),
    [("LogisticRegression", "probabilities that are not numbers"), ("RandomForestClassifier", "too large for dtype")],
)
def test_values_that_f0_cannot_hold_are_one_line_and_nothing_is_written(tmp_path, capsys, name, said):
    refused(tmp_path, capsys, said, text=f'[hpc]\nestimator = "{name}"\n', table=columns(big=columns()["a"] * 1e300))


def test_an_empty_or_absent_table_is_one_line_and_nothing_is_written(tmp_path, capsys):
    refused(tmp_path, capsys, "cannot be read: No such file")
    (tmp_path / "data.csv").write_bytes(b"")
    refused(tmp_path, capsys, "is empty")


def test_more_sensors_than_a_program_can_have_are_refused_before_training(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("hardcase_train.tasks.task.fit_hpc", lambda *_: pytest.fail("f0 was fitted"))
    table = {f"x{k}": np.zeros(12, dtype=int) for k in range(8_200)}
    refused(
        tmp_path,
        capsys,
        "no device could run what is trained on this data: the program has 8200 sensors",
        table={**table, "y": np.arange(12) % 2},
    )


def test_wrong_flags_are_one_line(tmp_path, capsys):
    write_csv(tmp_path / "data.csv", columns())
    path = toml(tmp_path)
    for flags, said in (
        (("--seed", -1), "seed is -1, a whole number from 0 to"),
        (("--method", "adopt-gbrt"), "--method names the method 'adopt-gbrt'; did you mean 'adapt-gbrt'"),
        (("--effort", "quik"), "--effort names the effort 'quik'; use one of quick, normal, thorough"),
    ):
        status, _, err = run(capsys, "train", path, "--out", tmp_path / "build", *flags)
        assert (status, err.count("\n")) == (2, 1)
        assert said in err
    assert not (tmp_path / "build").exists()


# ---------------------------------------------------------------- f0 of several kinds


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("LogisticRegression", ""),
        ("RandomForestClassifier", "n_estimators = 7\n"),
        ("HistGradientBoostingClassifier", "max_iter = 5\n"),
        ("KNeighborsClassifier", "n_neighbors = 3\n"),
        ("GaussianNB", ""),
        ("DecisionTreeClassifier", "max_depth = 3\n"),
    ],
)
def test_f0_may_be_of_any_kind_and_meet_missing_values(tmp_path, capsys, name, params):
    table = columns(n=300, n_classes=3, a=punched(columns(n=300, n_classes=3)["a"]))
    text = f'[policy]\nmethods = ["static"]\n[hpc]\nestimator = "{name}"\n[hpc.params]\n{params}'
    front = train(tmp_path, capsys, table, text)
    assert (front["hpc"]["apart"], front["hpc"]["apart_missing"]) == (0, 0)
    f0 = next(p for p in front["points"] if p["method"] == "hpc")
    test = rows_of(tmp_path, "test")
    assert f0["test"]["quality"] == pytest.approx(np.mean(test["hpc"] == test["y"]))
    assert f0["test"]["quality"] > 0.5
    assert f0["test"]["forward_rate"] == 1.0


def test_a_forest_that_stops_early_by_itself_takes_a_class_of_one_row(tmp_path, capsys):
    """From 10,000 rows on this booster sets rows of every class apart, which a single row cannot give."""
    n = 17_000
    table = {"a": np.arange(n) % 7, "y": np.where(np.arange(n) == 5, 2, np.arange(n) % 7 > 3)}
    text = '[policy]\nmethods = ["static"]\n[hpc]\nestimator = "HistGradientBoostingClassifier"\n'
    text += "[hpc.params]\nmax_iter = 2\n"
    assert train(tmp_path, capsys, table, text)["points"]


def test_out_of_fold_probabilities_come_from_copies_that_have_not_seen_the_row():
    """A nearest-neighbour f0 knows every row it has seen, and no row of noise that it has not."""
    from sklearn.neighbors import KNeighborsClassifier

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 3)), rng.integers(0, 2, 400)
    model = KNeighborsClassifier(1)
    assert (model.fit(X, y).predict(X) == y).all()
    p = out_of_fold(model, X, y, 2, seed=0)
    assert 0.4 < np.mean(p.argmax(axis=1) == y) < 0.6
    assert p.sum(axis=1).tolist() == [1.0] * 400


# ---------------------------------------------------------------- the build folder


def test_the_front_is_what_the_issue_says_and_every_program_can_be_read(tmp_path, capsys):
    said = train(tmp_path, capsys, columns(), '[cost]\nunit = "mJ"\n')
    front = json.loads((tmp_path / "build" / "front.json").read_text())
    assert front == said
    assert (front["unit"], front["quality"]) == ("mJ", "accuracy")
    for point in front["points"]:
        for rows in ("valid", "test"):
            assert {"quality", "cost", "forward_rate"} <= set(point[rows])
            assert 0 <= point[rows]["quality"] <= 1
        draft = unpack_bundle(read_draft_bytes(tmp_path / "build" / point["program"]), allow_draft=True)
        assert draft.manifest["trained"]["method"] == point["method"]
        assert draft.manifest["hpc"] == front["hpc"]["sha256"]
    assert [p["method"] for p in front["points"]].count("hpc") == 1
    for method in ("static", "cascade", "adapt-gbrt"):  # a front: dearer is better or surer, all sensors apart
        mine = [p["valid"] for p in front["points"] if p["method"] == method]
        mine = mine[:-1] if method == "static" and mine[-1]["quality"] <= mine[-2]["quality"] else mine
        assert is_front([Judged(f["quality"], f["cost"], f["forward_rate"], f["loss_se"]) for f in mine])
    assert next(p for p in front["points"] if p["method"] == "static")["params"]["sensors"] == []
    assert any("a" in p["params"]["sensors"] for p in front["points"] if p["method"] == "static")


def test_a_build_holds_no_pickle(forwarding):
    files = [p for p in forwarding.rglob("*") if p.is_file()]
    assert len(files) > 8
    for path in files:
        parts = [path.read_bytes()]
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                parts = [archive.read(name) for name in archive.namelist()]
        for data in parts:
            assert not is_pickle(data), path
            assert b"'O'" not in data[:256], path  # an array of objects


def is_pickle(data):
    try:
        return any(op.name == "STOP" for op, _, _ in pickletools.genops(data)) and data[:1] == b"\x80"
    except ValueError:
        return False


BRIEFLY = """
import sys
from hardcase.cli import main
from hardcase_train.settings.effort import EFFORTS
from tests.helpers.train.problems import BRIEF
EFFORTS["quick"] = BRIEF
sys.exit(main(sys.argv[1:]))
"""


def process(*argv, **more):
    command = [sys.executable, "-c", BRIEFLY, *map(str, argv)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, **more)


def test_the_same_seed_gives_the_same_bytes_in_another_process(forwarding, tmp_path, capsys):
    other = tmp_path / "other"
    env = {**os.environ, "PYTHONHASHSEED": "1234"}
    argv = ("train", forwarding.parent / "hardcase.toml", "--out", other, "--quiet")
    with process(*argv, env=env, stdout=subprocess.DEVNULL) as child:
        _, err = child.communicate(timeout=120)
        assert (child.returncode, err) == (0, b"")
    one, two = ({p.relative_to(d): p.read_bytes() for p in d.rglob("*") if p.is_file()} for d in (forwarding, other))
    assert one.keys() == two.keys()
    assert [str(p) for p in one if one[p] != two[p]] == []
    bundles = []
    for folder in (forwarding, other):
        bundle = tmp_path / f"{folder.name}.hcb"
        run(capsys, "export", folder, "--max-loss", 1, "--out", bundle, "--min-agreement", 0.9, "--force")
        bundles.append(bundle.read_bytes())
    assert bundles[0] == bundles[1]


def test_another_seed_splits_other_rows(trained, tmp_path, capsys):
    before = rows_of(tmp_path, "test")["index"].tolist()
    assert run(capsys, "train", tmp_path / "hardcase.toml", "--seed", 1, "--out", tmp_path / "build")[0] == 0
    assert rows_of(tmp_path, "test")["index"].tolist() != before


# ---------------------------------------------------------------- --out


def test_a_build_is_replaced_whole_and_nothing_else_is(tmp_path, capsys):
    write_csv(tmp_path / "data.csv", columns())
    path = toml(tmp_path, STATIC)
    build = tmp_path / "build"
    build.mkdir()  # empty: taken
    assert run(capsys, "train", path, "--out", build)[0] == 0
    (build / "notes").mkdir()
    (build / "notes" / "mine.txt").write_text("kept")
    old = build / "policies" / "old.safetensors"
    list_files(build, BUILD, [*json.loads((build / ".hardcase.json").read_text())["files"], "policies/old.safetensors"])
    old.touch()
    assert run(capsys, "train", path, "--out", build)[0] == 0  # a build: its own files are replaced, others stay
    assert not old.exists()
    assert (build / "notes" / "mine.txt").read_text() == "kept"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["build", "data.csv", "hardcase.toml"]

    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("all of it")
    (tmp_path / "link").symlink_to(build)
    for out, said in (
        (mine, "is not a build that hardcase wrote, and holds thesis.txt; name another folder, or write into it with"),
        (tmp_path / "data.csv", "is not a folder"),
        (tmp_path / "link", "is not a folder"),
        (tmp_path / "none" / "build", "does not exist; create it first"),
    ):
        status, _, err = run(capsys, "train", path, "--out", out)
        assert (status, err.count("\n")) == (2, 1)
        assert said in err
    assert (mine / "thesis.txt").read_text() == "all of it"
    assert run(capsys, "train", path, "--out", mine, "--force")[0] == 0
    assert (mine / "front.json").exists()
    assert (mine / "thesis.txt").read_text() == "all of it"


def test_a_file_of_others_in_the_place_of_a_builds_file_stays(trained, tmp_path, capsys):
    build = tmp_path / "build"
    files = json.loads((build / ".hardcase.json").read_text())["files"]
    list_files(build, BUILD, [name for name in files if name != "front.md"])
    (build / "front.md").write_text("mine")
    status, _, err = run(capsys, "train", tmp_path / "hardcase.toml", "--out", build)
    assert (status, err.count("\n")) == (2, 1)
    assert "holds front.md, which hardcase did not write; move it elsewhere" in err
    assert (build / "front.md").read_text() == "mine"


def test_the_folder_one_stands_in_may_be_the_build(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path / "build")
    assert run(capsys, "train", tmp_path / "hardcase.toml", "--out", ".")[0] == 0
    assert (tmp_path / "build" / "front.json").exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device"), ValueError("a bug")])
def test_a_run_that_fails_leaves_the_old_build_and_only_finished_jobs_of_its_own(
    trained, tmp_path, capsys, monkeypatch, error
):
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    def fail(*_):
        raise error

    monkeypatch.setattr("hardcase.training.build._save_rows", fail)
    argv = ["train", str(tmp_path / "hardcase.toml"), "--out", str(tmp_path / "build"), "--json"]
    if isinstance(error, ValueError):
        with pytest.raises(ValueError, match="a bug"):
            main(argv)
    else:
        assert main(argv) == (130 if isinstance(error, KeyboardInterrupt) else 2)
        err = capsys.readouterr().err
        assert isinstance(error, KeyboardInterrupt) or ("No space left on device" in err and err.count("\n") == 1)
    kept = tmp_path / ".build.sweep"
    assert {p.suffix for p in kept.iterdir()} == {".json", ".safetensors"}
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p.parent != kept} == before


def test_a_build_that_cannot_take_its_place_leaves_the_old_one(trained, tmp_path, capsys, monkeypatch):
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    rename = Path.rename

    def fail(self, target):
        if self.name == ".build.hardcase-next":
            raise OSError(16, "Device or resource busy")
        return rename(self, target)

    monkeypatch.setattr("hardcase.training.folders._exchange", lambda *_: False)  # as where two renames are needed
    monkeypatch.setattr(Path, "rename", fail)
    status, _, err = run(capsys, "train", tmp_path / "hardcase.toml", "--out", tmp_path / "build")
    assert status == 2
    assert "Device or resource busy" in err
    kept = tmp_path / ".build.sweep"
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p.parent != kept} == before


def test_a_run_that_is_terminated_leaves_nothing(tmp_path):
    n = 900
    noise = {f"x{k}": np.random.default_rng(k).normal(size=n) for k in range(9)}
    write_csv(tmp_path / "data.csv", {**noise, **columns(n=n, n_classes=9)})
    path = toml(tmp_path)
    with process("train", path, "--out", tmp_path / "build", "--quiet") as child:
        until = time.monotonic() + 60
        while not list(tmp_path.glob(".build.*/hpc.onnx")) and child.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        assert child.poll() is None, "it was done before it could be stopped"
        child.send_signal(signal.SIGTERM)
        _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert b"Traceback" not in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data.csv", "hardcase.toml"]


# ---------------------------------------------------------------- evaluate


def test_evaluate_tells_what_a_table_lacks(tmp_path, capsys):
    table = {**columns(), "y": [["cold", "hot"][k] for k in columns()["y"]]}
    train(tmp_path, capsys, table, STATIC)
    bundle = tmp_path / "build" / "m.hcb"
    run(capsys, "export", tmp_path / "build", "--max-loss", 1, "--out", bundle, "--min-agreement", 0.9, "--force")
    for change, said in (
        ({"b": None}, "lacks 1 of the bundle's features, such as 'b'"),
        ({"y": None}, "the target 'y' is not a column"),
        ({"y": ["cold", "tepid"] * 30}, "'y' contains 'tepid', which is not a class of the bundle"),
        ({"y": ["cold", None] * 30}, "'y' is missing in 30 rows"),
    ):
        write_csv(tmp_path / "more.csv", {k: v for k, v in {**table, **change}.items() if v is not None})
        status, _, err = run(capsys, "evaluate", bundle, tmp_path / "more.csv")
        assert (status, err.count("\n")) == (2, 1)
        assert said in err
    write_csv(tmp_path / "more.csv", {**table, "y": ["hot"] * N})  # one class only is no fault here
    assert run(capsys, "evaluate", bundle, tmp_path / "more.csv")[1]["n"] == N


def test_the_shipped_example_is_a_table_of_windows():
    table = read_table(ROOT / "examples" / "hydraulic" / "hydraulic.npz")
    assert len(table.windows) == 17
    assert len(table.names) == 68
    assert "accumulator_bar" in table.labels
