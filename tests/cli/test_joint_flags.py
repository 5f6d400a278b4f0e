# SPDX-License-Identifier: Apache-2.0
"""The flags of ``hardcase train`` for items of several parts: each does what it does for single decisions."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hardcase.cli import main
from hardcase_edge.bundle.load import load_bundle
from hardcase_train.settings.effort import EFFORTS
from hardcase_train.stages.deadline import Deadline
from tests.helpers.cli.letters import write

WITHOUT_SHARES = ('shares = [0.3]\nreleases = ["one-shot"]\nask = 0.1\n', "")
N = 60


def front_of(build: Path) -> dict[str, Any]:
    return json.loads((build / "front.json").read_text())


def settings(build: Path, method: str = "structured") -> list[tuple[str, float]]:
    return [(p["params"]["release"], p["params"]["share"]) for p in front_of(build)["points"] if p["method"] == method]


def bundles(build: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (build / "policies").iterdir()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with its TOML, and the build of it without flags."""
    folder = tmp_path_factory.mktemp("letters")
    write(folder, n=N)
    assert main(["train", str(folder / "hardcase.toml"), "--out", str(folder / "plain"), "--quiet"]) == 0
    return folder


@pytest.fixture(scope="module")
def free(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The builds of a table whose TOML leaves shares and releases to the effort."""
    folder = tmp_path_factory.mktemp("free")
    write(folder, edit=WITHOUT_SHARES, n=N)
    return cache(lambda effort: train(folder, folder / effort, "--effort", effort, "--quiet"))


@pytest.fixture(scope="module")
def quick(folder: Path) -> Path:
    return train(folder, folder / "quick", "--effort", "quick", "--quiet")


def train(folder: Path, out: Path, *flags: str) -> Path:
    assert main(["train", str(folder / "hardcase.toml"), "--out", str(out), *flags]) == 0
    return out


@pytest.mark.parametrize("effort", EFFORTS)
def test_effort_says_which_shares_and_releases_are_tried_unless_the_toml_does(
    folder: Path, free: Callable[[str], Path], tmp_path: Path, effort: str
) -> None:
    tried = settings(free(effort))
    known = EFFORTS[effort]
    assert sorted(tried) == sorted((r, s) for r in known.part_releases for s in known.part_shares)
    named = settings(train(folder, tmp_path / "named", "--effort", effort, "--quiet"))
    assert set(named) == {(r, 0.3) for r in (["one-shot"])}


def test_a_front_over_seeds_is_a_table_and_the_bundles_are_those_of_the_first(folder: Path, tmp_path: Path) -> None:
    build = train(folder, tmp_path / "build", "--seeds", "2", "--quiet")
    seeds = front_of(build)["seeds"]
    assert seeds["seeds"] == [0, 1]
    rows = seeds["max_loss"]["0.01"]
    assert {"f0", "gap", "static", "hardcase"} <= set(rows)
    assert all(row["quality_pm"] is not None for row in rows.values())
    assert "2 seeds; ± is 95 % over them" in (build / "front.md").read_text()
    assert "Means over 2 seeds" in (build / "report.html").read_text()
    assert bundles(build) == bundles(folder / "plain")
    other = train(folder, tmp_path / "other", "--seed", "1", "--quiet")
    of_one, of_other = (front_of(b)["seeds"]["max_loss"]["0.01"]["static"] for b in (folder / "plain", other))
    for key in ("quality", "cost", "forward_rate"):
        assert rows["static"][key] == pytest.approx((of_one[key] + of_other[key]) / 2)


def test_a_row_of_a_table_is_what_an_export_of_that_method_picks(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    front = front_of(folder / "plain")
    for name, row in front["seeds"]["max_loss"]["0.01"].items():
        if name == "f0":
            continue
        wish = ["--max-loss", "0.01"] + ["--method", name] * (name != "hardcase")
        capsys.readouterr()
        out = ["--out", str(tmp_path / "x.hcb"), "--json", "--min-agreement", "0"]
        status = main(["export", str(folder / "plain"), *wish, *out])
        said = capsys.readouterr()
        if status == 0:
            assert json.loads(said.out)["test"]["quality"] == row["quality"]
        else:  # the row shows the point that comes nearest
            assert "the best point's parts right" in said.err


@pytest.mark.parametrize(
    ("flags", "methods"),
    [
        pytest.param(["--method", "gap"], {"gap", "static"}, id="a method has the baselines beside it"),
        pytest.param(["--method", "gap", "--no-baselines"], {"gap"}, id="unless they are left out"),
        pytest.param(["--no-baselines"], {"structured"}, id="auto is the learned policy"),
        pytest.param(["--method", "static", "--no-baselines"], {"static"}, id="cheap only and dear only"),
    ],
)
def test_methods_are_chosen_by_name(folder: Path, tmp_path: Path, flags: list[str], methods: set[str]) -> None:
    build = train(folder, tmp_path / "build", *flags, "--quiet")
    assert {p["method"] for p in front_of(build)["points"]} == methods | {"hpc"}
    plain = bundles(folder / "plain")
    assert all(plain[name] == data for name, data in bundles(build).items()), "other methods change no policy"


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_jobs_change_no_byte(folder: Path, tmp_path: Path, jobs: str) -> None:
    assert bundles(train(folder, tmp_path / "build", "--jobs", jobs, "--quiet")) == bundles(folder / "plain")


def test_the_toml_says_all_of_it_too(folder: Path, tmp_path: Path) -> None:
    write(tmp_path, edit=("[joint]", '[policy]\nmethods = ["gap"]\neffort = "quick"\nbudget = 1000\n[joint]'), n=N)
    front = front_of(train(tmp_path, tmp_path / "build", "--quiet"))
    assert {p["method"] for p in front["points"]} == {"hpc", "gap", "static"}
    assert front["limits"] == {"budget": 1000}
    assert list(front["seeds"]["max_loss"]) == ["best within the limits"]


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize("flag", ["--hard-budget", "--max-bytes", "--max-forward"])
def test_a_limit_leaves_out_what_breaks_it_and_says_what_is_possible(
    folder: Path, tmp_path: Path, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    points = front_of(folder / "plain")["points"][1:]
    needs = {
        "--hard-budget": [p["worst_cost"] for p in points],
        "--max-bytes": [p["params"]["bytes"] for p in points],
        "--max-forward": [p["valid"]["forward_rate"] for p in points],
    }[flag]
    limit = min(needs) if flag == "--max-forward" else sorted(needs)[len(needs) // 2]
    capsys.readouterr()
    build = train(folder, tmp_path / "build", flag, str(limit))
    said = capsys.readouterr().err
    front = front_of(build)
    kept = [p for p, need in zip(points, needs, strict=True) if need <= limit]
    assert [p["params"] for p in front["points"][1:]] == [p["params"] for p in kept]
    n = len(points) - len(kept)
    assert (f"left out {n} policies over" in said) == (n > 0)
    best = max(kept, key=lambda p: (p["valid"]["quality"], -p["valid"]["cost"]))
    assert main(["export", str(build), "--out", str(tmp_path / "x.hcb"), "--json", "--min-agreement", "0"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["params"] == best["params"]


@pytest.mark.parametrize(("flag", "limit"), [("--hard-budget", "1"), ("--max-bytes", "100")])
def test_a_limit_that_no_policy_keeps_is_one_line(
    folder: Path, tmp_path: Path, flag: str, limit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "build"), "--quiet"]
    assert main(["train", str(folder / "hardcase.toml"), *out, flag, limit]) == 2
    err = capsys.readouterr().err
    assert "no policy keeps [policy]" in err
    assert "the smallest possible is" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "build").exists()


# ---------------------------------------------------------------- the time limit


def test_with_time_enough_the_front_is_the_whole_one(folder: Path, tmp_path: Path) -> None:
    assert bundles(train(folder, tmp_path / "build", "--time-limit", "1h", "--quiet")) == bundles(folder / "plain")


@pytest.mark.parametrize(
    ("moments", "said"),
    [
        pytest.param([-1.0], "the front is that of quick effort", id="no time for more than a first front"),
        pytest.param([1e6, 1.0, 1.0, -1.0], "time is over after 2 of 7 policies", id="not even its settings"),
        pytest.param([1e6, *[1.0] * 7, -1.0], "", id="just enough"),
    ],
)
def test_a_front_in_time_is_whole_or_the_first_one(
    folder: Path, quick: Path, tmp_path: Path, moments: list[float], said: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    clock = iter(moments)
    monkeypatch.setattr(Deadline, "left", lambda _: next(clock))
    capsys.readouterr()
    build = train(folder, tmp_path / "build", "--time-limit", "10s")
    err = capsys.readouterr().err
    assert said in err
    assert bundles(build) == bundles(quick if said else folder / "plain")


def test_settings_beyond_the_first_ones_are_left_out_when_time_is_over(
    free: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, first = bundles(free("normal")), settings(free("quick"))
    write(tmp_path, edit=WITHOUT_SHARES, n=N)
    clock = iter([1e6, *[1.0] * 7, -1.0])
    monkeypatch.setattr(Deadline, "left", lambda _: next(clock))
    build = train(tmp_path, tmp_path / "build", "--time-limit", "10s")
    assert "time is over after 7 of 14 policies" in capsys.readouterr().err
    assert set(first) < set(settings(build))
    assert set(bundles(build).values()) < set(whole.values())


def test_groups_of_items_are_never_divided(tmp_path: Path) -> None:
    write(tmp_path, edit=('item = "label"', 'item = "label"\ngroup = "writer"'), n=N)
    head, *rows = (tmp_path / "letters.csv").read_text().splitlines()
    items = [row.split(",")[0] for row in rows]
    number = {name: k for k, name in enumerate(dict.fromkeys(items))}
    lines = [f"{row},w{number[name] // 3}" for row, name in zip(rows, items, strict=True)]
    (tmp_path / "letters.csv").write_text("\n".join([f"{head},writer", *lines]))
    build = train(tmp_path, tmp_path / "build", "--quiet")
    point = front_of(build)["points"][1]
    data = load_bundle(build / point["program"], allow_joint=True).manifest.trained["data"]
    assert data["group"] == "writer"
    assert sum(data["groups"].values()) == len({n // 3 for n in number.values()})


def test_the_command_in_the_report_has_the_flags(folder: Path, tmp_path: Path) -> None:
    build = train(folder, tmp_path / "build", "--method", "gap", "--hard-budget", "1000", "--quiet")
    assert "--hard-budget 1000.0 --method gap" in (build / "report.html").read_text()
