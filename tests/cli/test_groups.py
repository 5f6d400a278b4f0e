# SPDX-License-Identifier: Apache-2.0
"""``[data] group`` from training to a promise: what a build, a bundle and the command line say of groups."""

from __future__ import annotations

import numpy as np
import pytest

import hardcase
from hardcase.cli import main
from hardcase_edge.bundle.file import unpack_bundle
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.errors import InputError
from hardcase_export.drafts.files import read_draft_bytes
from tests.helpers.train.problems import ran, run, toml, write_csv

pytestmark = pytest.mark.usefixtures("brief_effort")

N, MACHINES = 900, 300
STATIC = "[policy]\nmethods = ['static']\n"


def columns(n_machines=MACHINES, n=N):
    """Rows of machines; "a" tells the class and is a little off on each machine."""
    rng = np.random.default_rng(0)
    machine, y = rng.integers(0, n_machines, n), rng.integers(0, 2, n)
    a = y + 0.15 * rng.normal(size=n) + 0.05 * rng.normal(size=n_machines)[machine]
    return {"a": np.round(a, 4), "b": rng.integers(0, 9, n), "machine": [f"m{k}" for k in machine], "y": y}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("machines")
    write_csv(made / "data.csv", columns())
    path = toml(made, STATIC, data='group = "machine"')
    assert main(["train", str(path), "--out", str(made / "build"), "--no-baselines", "--quiet"]) == 0
    return made


def test_a_build_says_which_column_named_its_groups_and_stores_them(folder):
    path = next((folder / "build" / "policies").iterdir())
    data = unpack_bundle(read_draft_bytes(path), allow_draft=True).manifest["trained"]["data"]
    machine, found = np.array(columns()["machine"]), {}
    for name in ("valid", "calibration", "test"):
        with np.load(folder / "build" / f"{name}.npz") as rows:
            pairs = {*zip(machine[rows["index"]].tolist(), rows["group"].tolist(), strict=True)}
        found[name] = len(pairs)
        assert len({m for m, _ in pairs}) == len({g for _, g in pairs}) == len(pairs)
    assert data["group"] == "machine"
    assert {k: n for k, n in data["groups"].items() if k != "train"} == found
    assert sum(data["groups"].values()) == len(set(machine.tolist()))
    assert sum(data["rows"].values()) == N


def test_a_promise_counts_groups_and_says_so(folder, tmp_path, capsys):
    argv = ("export", folder / "build", "--risk", 0.2, "--delta", 0.1, "--out", tmp_path / "m.hcb")
    said = ran(capsys, *argv)
    rows = said["promise"]["rows"]
    assert rows["groups"] == len(set(np.load(folder / "build" / "calibration.npz")["group"].tolist())) == 28
    assert main(["inspect", str(tmp_path / "m.hcb")]) == 0
    line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("  promise "))
    assert f"over the draw of 28 groups ({rows['n']} rows, each group alike): at most 0.2 of local answers" in line
    for risk, parts in (
        (0.001, ("needs 2302 groups", "calibration.npz has 28 groups")),
        (0.08, (f"on the 28 groups ({rows['n']} rows) of calibration.npz", "at least 28 groups with local answers")),
    ):
        status, _, err = run(capsys, *argv, "--risk", risk)
        assert (status, err.count("\n")) == (2, 1)
        assert all(part in err for part in parts)


def test_evaluate_counts_groups_in_its_intervals(folder, tmp_path, capsys):
    out = tmp_path / "m.hcb"
    assert run(capsys, "export", folder / "build", "--budget", 100, "--out", out)[0] == 0
    grouped = run(capsys, "evaluate", out, folder / "build" / "test.npz")[1]
    with np.load(folder / "build" / "test.npz") as rows:
        np.savez(tmp_path / "bare.npz", **{k: v for k, v in rows.items() if k != "group"})
        mine = {name: np.array(column)[rows["index"]] for name, column in columns().items()}
    bare = run(capsys, "evaluate", out, tmp_path / "bare.npz")[1]
    assert grouped["quality"] == bare["quality"]
    assert grouped["quality_95"] != bare["quality_95"]
    write_csv(tmp_path / "mine.csv", mine)
    assert run(capsys, "evaluate", out, tmp_path / "mine.csv")[1] == grouped


def test_a_table_to_promise_on_must_name_its_groups(folder, tmp_path, capsys):
    with np.load(folder / "build" / "calibration.npz") as rows:
        mine = {name: np.array(column)[rows["index"]] for name, column in columns().items()}
    argv = ("export", folder / "build", "--risk", 0.2, "--delta", 0.1, "--out", tmp_path / "m.hcb")
    own = run(capsys, *argv)[1]["promise"]
    write_csv(tmp_path / "mine.csv", mine)
    theirs = run(capsys, *argv, "--calibration", tmp_path / "mine.csv")[1]["promise"]
    assert (own.pop("rows")["groups"], theirs.pop("rows")["groups"]) == (28, 28)
    assert theirs == own
    del mine["machine"]
    write_csv(tmp_path / "mine.csv", mine)
    status, _, err = run(capsys, *argv, "--calibration", tmp_path / "mine.csv")
    assert (status, err.count("\n")) == (2, 1)
    assert "mine.csv has no groups, but training took 'machine' for the group of a row" in err


def test_few_groups_are_said_to_be_few(tmp_path, capsys):
    write_csv(tmp_path / "data.csv", columns(8, 200))
    path = toml(tmp_path, STATIC, data='group = "machine"')
    few = "choices are made on 5 groups, which say little about others; add groups, 10 or more"
    argv = ("train", path, "--out", tmp_path / "build", "--no-baselines")
    assert main([*map(str, argv)]) == 0
    out, err = capsys.readouterr()
    assert [line for line in err.splitlines() if "groups" in line] == [few]
    assert f"WARNING: {few}" in out.splitlines()
    assert f"WARNING: {few}" in ran(capsys, *argv)["warnings"]  # --json shows no plan
    assert few in (tmp_path / "build" / "report.html").read_text()


def test_groups_may_be_given_from_python(tmp_path):
    made = columns(12, 240)
    X = np.column_stack([made["a"], made["b"]])
    how = {"methods": ["static"], "effort": "quick", "name": "pump 2.1"}
    with pytest.warns(UserWarning, match="choices are made on 8 groups"):
        policy = hardcase.train(X, made["y"], groups=made["machine"], **how)
    manifest = load_bundle(policy.export(tmp_path / "m.hcb").path).manifest
    assert (manifest.name, manifest.trained["data"]["group"]) == ("pump 2.1", "group")
    with pytest.raises(InputError, match=r"240 rows, but group has the shape \(239,\)"):
        hardcase.train(X, made["y"], groups=made["machine"][1:])


# ---------------------------------------------------------------- streams, whose rows follow each other


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    made = tmp_path_factory.mktemp("streams")
    for file, first, n_streams in (("data.csv", 0, 20), ("new.csv", 20, 12)):
        write_csv(made / file, streams(first, n_streams))
    path = toml(made, "[policy]\nmethods = ['duty-cycle', 'static']\n", data='sequence = "user"')
    assert main(["train", str(path), "--out", str(made / "build"), "--no-baselines", "--quiet"]) == 0
    return made


def streams(first, n_streams, n=30):
    """Streams whose label mostly stays; "a" tells it."""
    rng = np.random.default_rng(first)
    y = np.concatenate([np.cumsum(rng.random(n) < 0.05) % 2 for _ in range(n_streams)])
    users = np.repeat([f"u{first + k}" for k in range(n_streams)], n)
    return {"a": np.round(y + 0.1 * rng.normal(size=len(y)), 3), "b": rng.integers(0, 9, len(y)), "user": users, "y": y}


@pytest.mark.parametrize("method", [[], ["--method", "duty-cycle"]])
def test_a_promise_walks_streams_as_evaluate_does(held, tmp_path, capsys, method):
    bundle = tmp_path / "m.hcb"
    for more, file in (([], "build/calibration.npz"), (["--calibration", held / "new.csv"], "new.csv")):
        argv = ("export", held / "build", "--risk", 0.9, "--delta", 0.5, "--out", bundle, "--force", *method, *more)
        counts = ran(capsys, *argv)["promise"]["counts"]
        measured = ran(capsys, "evaluate", bundle, held / file)
        assert counts["local"] == measured["n"]
        assert counts["errors"] == round(measured["n"] * (1 - measured["quality"])) > 0
    assert list(ran(capsys, "evaluate", bundle, held / "new.csv", "--each-dead")["dead"]) == ["a", "b"]  # no memory
