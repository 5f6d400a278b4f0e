# SPDX-License-Identifier: Apache-2.0
"""``hardcase train --time-limit``: a build in any case, and what cannot be asked for together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hardcase.cli import main
from hardcase.training import build as building
from hardcase_train.sweep import timed
from tests.helpers.train.problems import BRIEF, legacy_columns, run, toml, write_csv


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(timed, "QUICK", BRIEF)
    write_csv(tmp_path / "data.csv", legacy_columns()[0])
    return toml(tmp_path)


def test_a_first_front_is_written_as_a_whole_build_before_the_last(
    table: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    write = building.write_build
    monkeypatch.setattr(building, "write_build", lambda *a: (written.append(len(a[2])), write(*a))[1])
    out = table.parent / "build"
    status, result, err = run(
        capsys, "train", table, "--out", out, "--no-baselines", "--method", "static", "--time-limit", "1s"
    )
    assert (status, err) == (0, "")
    assert len(written) == 2
    assert json.loads((out / "front.json").read_text())["points"] == result["front"]["points"]
    assert "--time-limit 1s" in (out / "report.html").read_text()
    assert not list(table.parent.glob(".build*"))
    assert (out / "hpc.onnx").exists()


def test_after_ctrl_c_the_first_front_is_named(
    table: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fronts: list[bool] = []
    write = building.write_build

    def interrupted(*args: Any) -> dict[str, Any]:
        fronts.append(True)
        if len(fronts) == 2:
            raise KeyboardInterrupt
        return write(*args)

    monkeypatch.setattr(building, "write_build", interrupted)
    words = ["--no-baselines", "--method", "static", "--time-limit", "1s"]
    out = table.parent / "build"
    assert main(["train", str(table), "--out", str(out), *words]) == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"interrupted; {out} holds the first front, which hardcase export takes")
    assert main(["export", str(out), "--out", str(table.parent / "m.hcb")]) == 0


@pytest.mark.parametrize("flags", [("--seeds", "2"), ("--dask", "127.0.0.1:1")])
def test_a_time_limit_is_for_one_seed_and_this_machine(
    table: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, str]
) -> None:
    out = table.parent / "build"
    status, _, err = run(capsys, "train", table, "--out", out, "--time-limit", "1m", *flags)
    assert status == 2
    assert "--time-limit is for one seed and this machine; leave out --seeds and --dask" in err
    assert not out.exists()
