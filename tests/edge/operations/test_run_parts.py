# SPDX-License-Identifier: Apache-2.0
"""The parts of a run: one table names them, and each is imported when a setting asks for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import hardcase_edge
from hardcase_edge.cli import main, run_config
from hardcase_edge.errors import InputError
from hardcase_edge.running.checks import ON_TRIAL, PARTS, check_one_part
from hardcase_edge.settings.config import RunConfig
from hardcase_edge.settings.table import DEFAULTS
from tests.helpers.edge.device import make_bundle_bytes
from tests.helpers.places import ROOT

IMPORTED_BY = {".more.drift.companion": {".more.audits.companion"}}  # what a part builds on
NUMBERS = ("outbox_days", "outbox_rate", "budget_per_hour", "battery")
VALUES = {"sink": ("x",), **dict.fromkeys(NUMBERS, 1.0)}  # the others are texts
STRANGER = """
from hardcase_edge.device.surroundings import Part
from hardcase_edge.errors import InputError

told = []

def check(config):
    told.append("check")
    if config.coin_seed == 7:
        raise InputError("seven is mine")

class Stranger(Part):
    def begins(self): told.append("begins")
    def begin(self, case): told.append("begin")
    def end(self, case): told.append("end")
    def decided(self, decision): told.append("decided " + decision["route"])
    def facts(self): return {"drift": {"moved": {"a feature": 0.5}, "suspects": {}, "without": []}}
    def ended(self): told.append("ended")
    def stop(self): told.append("stop")

def make(run):
    assert run.link is None and run.part(Stranger) is None and not run.is_trial
    told.append("make")
    return Stranger()
"""


def test_each_part_is_a_module_with_settings_that_exist() -> None:
    assert set(PARTS) >= ON_TRIAL
    for name, keys in PARTS.items():
        module = import_module(name, "hardcase_edge")
        assert hasattr(module, "check") or hasattr(module, "make"), name
        assert keys, name
        assert {*keys, *getattr(module, "ONE_PART", {})} <= set(RunConfig.__annotations__), name


def loaded_by(code: str, *words: str) -> set[str]:
    """The parts that a new process has imported when it ends."""
    tail = "; import sys; print(*[name.removeprefix('hardcase_edge') for name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code + tail, *words], capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ, "PYTHONPATH": str(Path(hardcase_edge.__file__).parent.parent)},
    )  # fmt: skip
    return set(PARTS) & set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("key", sorted({key for keys in PARTS.values() for key in keys}))
def test_a_setting_imports_the_parts_that_it_asks_for_and_no_other(key: str) -> None:
    value = VALUES.get(key, "1%")
    assert value != getattr(DEFAULTS, key)
    code = "from hardcase_edge.settings.config import RunConfig; from hardcase_edge.running.checks import asked"
    asked = {name for name, keys in PARTS.items() if key in keys}
    wanted = asked.union(*(IMPORTED_BY.get(name, set()) for name in asked))
    assert loaded_by(f"{code}; list(asked(RunConfig({key}={value!r})))") == wanted


@pytest.fixture
def run_words(tmp_path: Path) -> list[str]:
    (tmp_path / "b.hcb").write_bytes(make_bundle_bytes())
    (tmp_path / "one_value.py").write_text("def read(sensor):\n    return [1.0] * (1 if sensor == 'x' else 5)\n")
    return ["run", str(tmp_path / "b.hcb"), "--sensors", "one_value:read", "--count", "2"]


@pytest.mark.parametrize("broker", [[], ["--broker", "mqtt://127.0.0.1:1"]], ids=["alone", "broker"])
def test_a_plain_run_needs_none_of_the_companions(broker: list[str], tmp_path: Path) -> None:
    package = tmp_path / "hardcase_edge"
    package.mkdir()
    for path in Path(hardcase_edge.__file__).parent.iterdir():
        if path.name not in ("fleet", "more"):
            (package / path.name).symlink_to(path)
    (tmp_path / "rows.csv").write_text("feature 0,feature 1,feature 2,feature 3\n1,1,1,1\n4,4,4,4\n")
    done = subprocess.run(
        [sys.executable, "-m", "hardcase_edge.cli", "run", str(ROOT / "tests/golden/v1.hcb"),
         "--sensors", f"replay:{tmp_path / 'rows.csv'}", *broker],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len([json.loads(line)["route"] for line in done.stdout.splitlines()]) == 2


def test_a_part_of_a_stranger_needs_the_table_alone(
    run_words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("stranger_a", "stranger_b"):
        (tmp_path / f"{name}.py").write_text(STRANGER)
        monkeypatch.setitem(PARTS, name, ("coin_seed",))
    monkeypatch.syspath_prepend(tmp_path)
    assert main([*run_words, "--metrics-file", str(tmp_path / "m.prom")]) == 0
    assert not {"stranger_a", "stranger_b"} & set(sys.modules)

    import stranger_a
    import stranger_b

    stranger_b.told = stranger_a.told
    assert main([*run_words, "--coin-seed", "3", "--metrics-file", str(tmp_path / "m.prom")]) == 0
    case = ["begin", "begin", "end", "end", "decided local", "decided local"]
    ends = ["ended", "ended", "stop", "stop"]
    assert stranger_a.told == ["check", "check", "make", "make", "begins", "begins", *case, *case, *ends]
    assert "a feature" in (tmp_path / "m.prom").read_text(), "its facts are the device's"
    capfd.readouterr()
    assert main([*run_words, "--coin-seed", "7"]) == 2
    assert capfd.readouterr() == ("", "hardcase-edge: seven is mine\n")


def test_a_hangup_while_a_run_ends_keeps_no_part_from_its_end(
    run_words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "newer.hcb").write_bytes(make_bundle_bytes(program="newer"))
    ended = "os.replace('newer.hcb', 'b.hcb'); os.kill(os.getpid(), signal.SIGHUP); told.append('ended')"
    begins = "threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()"
    text = STRANGER.replace('told.append("ended")', ended).replace('told.append("begins")', begins)
    (tmp_path / "hung_up.py").write_text(f"import os, signal, threading\n{text}")
    monkeypatch.setitem(PARTS, "hung_up", ("coin_seed",))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main([*run_words, "--coin-seed", "3", "--interval", "60"]) == 0

    import hung_up

    assert hung_up.told[-2:] == ["ended", "stop"]


PACE = "a running budget paces decisions of one part"


@pytest.mark.parametrize(
    ("words", "flag", "why"),
    [
        ("--audit 1% --drift watch", "--audit", "an audit holds the readings of one part"),
        ("--record senml", "--record senml", "a pack of SenML has one answer"),
        ("--home-assistant", "--home-assistant", "Home Assistant shows one answer"),
        ("--drift act", "--drift", "its monitors and its promise are about decisions of one part"),
        ("--budget-per-hour 1", "--budget-per-hour", PACE),
        ("--battery 1", "--battery", PACE),
        ("--max-forward-rate 1%", "--max-forward-rate", PACE),
    ],
)
def test_what_items_of_several_parts_do_without_is_said_word_for_word(words: str, flag: str, why: str) -> None:
    with pytest.raises(InputError) as refused:
        check_one_part(run_config(["run", "b.hcb", "--sensors", "a:b", *words.split()]))
    assert str(refused.value) == f"this bundle decides items of several parts: leave out {flag}, because {why}"
    check_one_part(run_config(["run", "b.hcb", "--sensors", "a:b", "--metrics", "x", "--publish", "all"]))
