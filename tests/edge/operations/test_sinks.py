# SPDX-License-Identifier: Apache-2.0
"""Sinks of other packages get each decision of a run; whatever they do, the run goes on and says what went wrong."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import tomllib
from collections import Counter
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from hardcase_edge.more.sinks import companion
from tests.helpers.edge.device import make_bundle_bytes
from tests.helpers.hooks import install
from tests.helpers.places import ROOT

PLUGIN = ROOT / "examples" / "plugin"
HEAD = """
import threading
from hardcase_edge.more.sinks.companion import Sink
told = []
gate = threading.Event()
class Writer:
    def __init__(self, argument):
        if argument == "shut": raise OSError("no room")
        if argument == "mute": raise ValueError
        if argument == "exit": raise SystemExit("no more")
        self.is_slow = argument == "slow"
        told.append(f"open {argument}")
    def write(self, decision):
        told.append(decision["route"])
        decision["sensors"].clear()
        decision.clear()
        if self.is_slow: gate.wait(60)
        if BROKEN: raise BROKEN("two\\nlines")
    def close(self):
        told.append("close")
        if BROKEN: raise BROKEN("never")
X = Sink(open=Writer)
"""


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    (tmp_path / "b.hcb").write_bytes(make_bundle_bytes())
    (tmp_path / "sinks_read.py").write_text("def read(sensor):\n    return [1.0] * (1 if sensor == 'x' else 5)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(companion, "STOP_S", 60.0)
    return ["run", "b.hcb", "--sensors", "sinks_read:read", "--count", "5"]


def stranger(site: Path, monkeypatch: pytest.MonkeyPatch, *, broken: str = "None") -> list[str]:
    """A sink ``strange``, and what it is told; ``broken``: what it raises, as Python has it."""
    source = f"BROKEN = {broken}\n{HEAD}"
    install(site, monkeypatch, "stranger_s", "sinks", {"strange": "stranger_s:X"}, source)
    told: list[str] = import_module("stranger_s").told
    return told


def test_the_example_keeps_each_decision_in_a_table(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edge: Any
) -> None:
    points = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]["entry-points"]["hardcase.sinks"]
    source = (PLUGIN / "hardcase_sqlite.py").read_text()
    install(tmp_path / "site", monkeypatch, "hardcase_sqlite", "sinks", points, source)
    lines = edge(*words, "--sink", "sqlite=d.db").records
    rows = sqlite3.connect(tmp_path / "d.db").execute("SELECT t, route, line FROM decisions").fetchall()
    assert [(d["t"], d["route"], d) for d in lines] == [(t, route, json.loads(line)) for t, route, line in rows]
    assert len(rows) == 5


def test_what_a_sink_does_to_its_decision_changes_no_line(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edge: Any
) -> None:
    told = stranger(tmp_path / "site", monkeypatch)
    routes = [line["route"] for line in edge(*words, "--sink", "strange=one", "--sink", "strange=two").records]
    assert Counter(told) == Counter(["open one", "open two", *routes * 2, "close", "close"])


@pytest.mark.parametrize("broken", ["ValueError", "SystemExit"])
def test_a_sink_that_fails_is_left_out_after_three_failures_and_every_line_is_printed(
    broken: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edge: Any
) -> None:
    told = stranger(tmp_path / "site", monkeypatch, broken=broken)
    status, lines, err = edge(*words, "--sink", "strange")
    assert (status, len(lines)) == (0, 5)
    assert told == ["open ", *[lines[0]["route"]] * 3, "close"]
    assert "sink strange: two lines; it gets no more decisions" in err
    assert "sink strange cannot be closed: never" in err


def test_a_sink_that_blocks_holds_up_no_decision_and_what_it_did_not_get_is_said(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edge: Any
) -> None:
    monkeypatch.setattr(companion, "MOST_WAITING", 2)
    monkeypatch.setattr(companion, "STOP_S", 0.05)
    told = stranger(tmp_path / "site", monkeypatch)
    words[words.index("--count") + 1] = "20"
    began = monotonic()
    status, lines, err = edge(*words, "--sink", "strange=slow")
    assert monotonic() - began < 40
    assert (status, len(lines)) == (0, 20)
    assert told in (["open slow"], ["open slow", lines[0]["route"]])
    assert "sink strange=slow is slower than the decisions" in err
    lost = int(re.search(r"sink strange=slow did not get (\d+) decisions", err)[1])  # type: ignore[index]
    assert lost == 20 - (len(told) - 1)
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "hardcase-sink"]
    import_module("stranger_s").gate.set()
    thread.join(30)
    assert told[-1] == "close", "it is closed when it comes back"


@pytest.mark.parametrize(
    ("sinks", "said"),
    [
        (("stange",), "--sink 'stange' is not installed; did you mean 'strange'?"),
        (("=x",), "--sink '=x' has no name; give NAME or NAME=ARGUMENT"),
        (("strange", "strange"), "--sink names the same sink twice; leave one out"),
        (("strange", "strange=shut"), "--sink 'strange=shut' cannot be opened: no room"),
        (("strange", "strange=mute"), "--sink 'strange=mute' cannot be opened: ValueError"),
        (("strange", "strange=exit"), "--sink 'strange=exit' cannot be opened: no more"),
    ],
)
def test_a_sink_that_cannot_be_had_is_one_line_before_the_first_decision(
    sinks: tuple[str, ...], said: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edge: Any
) -> None:
    told = stranger(tmp_path / "site", monkeypatch)
    flags = [word for sink in sinks for word in ("--sink", sink)]
    assert edge(*words, *flags) == (2, [], f"hardcase-edge: {said}\n")
    assert told in ([], ["open ", "close"]), "what is open is closed"
