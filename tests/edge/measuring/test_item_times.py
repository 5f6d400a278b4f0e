# SPDX-License-Identifier: Apache-2.0
"""measure --out: every sensor on items of every size, and the decision's own time, a line of JSON each."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hardcase_edge.cli import main
from hardcase_edge.more.measuring.item_times import stand_in
from hardcase_edge.sensors.bank import Wanted
from hardcase_edge.verifier.verify import verify
from tests.helpers.edge.device import make_bundle_bytes

CAMERA = """
SENSORS = {"mean": ["m"], "ends": ["first", "last"], "broken": ["b"]}
def items():
    for k in range(100):
        yield [k] * (1 + k % 4), 1 + k % 4, None
def read(sensor, item):
    if sensor == "broken":
        raise OSError("no contact")
    return sum(item) / len(item) if sensor == "mean" else [item[0], item[-1]]
"""


@pytest.fixture
def camera(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of its own in the current folder."""
    name = f"camera_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(CAMERA)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def times(path: str = "times.jsonl") -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_a_module_is_measured_at_every_size_as_often_as_told(camera: str, edge: Any) -> None:
    status, _, err = edge("measure", camera, "--repeat", 3, "--out", "times.jsonl")
    assert status == 0
    lines = times()
    counts = Counter((line.get("sensor"), line["size"]) for line in lines)
    assert counts == {(name, size): 3 for name in ("mean", "ends", None) for size in (1, 2, 3, 4)}
    assert all(0 < line["ms"] < 10_000 for line in lines)  # type: ignore[operator]
    assert {line["readings"] for line in lines if "sensor" not in line} == {3}, "failed ones too"
    assert "sensor broken failed 12 times" in err
    assert "hardcase costs times.jsonl" in err


def test_times_replace_times_and_no_other_file(camera: str, edge: Any) -> None:
    words = ("measure", camera, "--repeat", 1, "--out")
    assert [edge(*words, "times.jsonl").status for _ in range(2)] == [0, 0]
    for text in ("a,b\n1,2\n", '{"sensor": "mean", "cost": 3}\n', "[" * 600):
        Path("mine.csv").write_text(text)
        status, _, err = edge(*words, "mine.csv")
        assert (status, "mine.csv exists and is not a file of times; name another --out" in err) == (2, True)
        assert Path("mine.csv").read_text() == text


def test_a_toml_and_a_bundle_are_measured_with_items_too(tmp_path: Path, camera: str) -> None:
    Path("hardcase.toml").write_text('[[sensor]]\nname = "mean"\ncost = 1\n')
    words = ["--sensors", f"{camera}:read", "--items", f"{camera}:items", "--repeat", "2", "--out", "t.jsonl"]
    assert main(["measure", "hardcase.toml", *words]) == 0
    assert {line.get("sensor") for line in times("t.jsonl")} == {"mean", None}
    Path("model.hcb").write_bytes(make_bundle_bytes())
    with_one = [*words[:-1], "b.jsonl", "--sensors", "vib=none"]
    assert main(["measure", "model.hcb", *with_one]) == 2, "its reads of x fail, because this camera has no x"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "t.jsonl", "--repeat", "0"], "--repeat is 0; use 1 to 10000"),
        ([], "the times of items go to a file; name one with --out times.jsonl"),
        (["--out", "no/such/folder/t.jsonl", "--repeat", "1"], "cannot be written"),
    ],
)
def test_wrong_words_end_in_one_line(camera: str, words: list[str], message: str, edge: Any) -> None:
    status, _, err = edge("measure", camera, *words)
    assert (status, message in err.splitlines()[-1]) == (2, True)


@pytest.mark.parametrize(
    "stated",
    ["", "SENSORS = {}", "SENSORS = [1]", "SENSORS = {1: ['a']}", "SENSORS = {'a': []}", "SENSORS = {'a': 'ab'}"],
)
def test_a_module_must_state_its_sensors(
    stated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edge: Any
) -> None:
    name = f"stated_{abs(hash((stated, str(tmp_path))))}"
    (tmp_path / f"{name}.py").write_text(f"def read(s, i): return 1\ndef items(): return []\n{stated}\n")
    monkeypatch.syspath_prepend(tmp_path)
    status, _, err = edge("measure", name, "--out", tmp_path / "t.jsonl")
    assert (status, "SENSORS" in err) == (2, True)
    sys.modules.pop(name, None)


def test_without_items_measure_asks_for_sensors(tmp_path: Path, edge: Any) -> None:
    (tmp_path / "hardcase.toml").write_text('[[sensor]]\nname = "a"\ncost = 1\n')
    status, _, err = edge("measure", tmp_path / "hardcase.toml")
    assert (status, "no sensor has a source; name one with --sensors" in err) == (2, True)


def test_the_program_that_stands_in_is_one_that_a_device_would_run() -> None:
    verify(stand_in([Wanted("a", ("x", "y"), (False, False)), Wanted("b", ("z",), (False,))]))
