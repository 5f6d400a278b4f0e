# SPDX-License-Identifier: Apache-2.0
"""``run --config run.toml``: every flag is a key of the file, and a flag on the command line overrides its key."""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardcase_edge.base.toml import parse_toml, toml_text
from hardcase_edge.cli import main, make_parser, run_config
from hardcase_edge.settings.config import RunConfig
from hardcase_edge.settings.run_toml import text_of
from hardcase_edge.settings.table import GROUPS, OWN, SETTINGS, Setting, flag_of
from tests.helpers.edge.device import make_bundle_bytes

SENSORS = 'sensors = ["a:b"]\n'


def run_with(text: str, tmp_path: Path, *words: str) -> RunConfig:
    (tmp_path / "run.toml").write_text(text)
    return run_config(["run", "--config", str(tmp_path / "run.toml"), *words])


def words_for(setting: Setting) -> list[str]:
    """A command line with another value than the default."""
    flag = [] if setting.key == "bundle" else [flag_of(setting.key)]
    if setting.type is bool:
        return flag
    if setting.words:
        return [*flag, next(word for word in setting.words if word != getattr(RunConfig(), setting.key))]
    return [*flag, {int: "7", float: "0.5"}.get(setting.type, 'a b "c" \\ é')]


def test_every_setting_is_in_the_table_once_and_is_a_flag_of_run() -> None:
    assert set(SETTINGS) == set(RunConfig.__annotations__)
    assert len(SETTINGS) == len(OWN) + sum(map(len, GROUPS.values()))
    parser = make_parser()
    (verbs,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    assert {a.dest for a in verbs.choices["run"]._actions} == {*SETTINGS, "help", "config"}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda setting: setting.key)
def test_every_flag_is_a_key_and_the_file_gives_what_the_flag_gives(setting: Setting, tmp_path: Path) -> None:
    sensors = [] if setting.key == "sensors" else ["--sensors", "a:b"]
    by_flag = run_config(["run", *sensors, *words_for(setting)])
    assert type(getattr(by_flag, setting.key)) is {list: tuple}.get(setting.type, setting.type)
    text = text_of(by_flag)
    assert set(tomllib.loads(text)) == {"sensors", setting.key}
    assert run_with(text, tmp_path) == by_flag


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda setting: setting.key)
def test_the_help_of_a_flag_says_its_default(setting: Setting) -> None:
    default = getattr(RunConfig(), setting.key)
    is_told = type(default) in (int, float) and default
    assert not is_told or f"{default:g}" in setting.help.replace("{default}", str(default))


def test_a_flag_overrides_its_key_and_a_list_replaces_a_list(tmp_path: Path) -> None:
    text = 'sensors = ["a:b", "c:d"]\ninterval = 60\nrecord = "senml"\nhome_assistant = true\n'
    args = run_with(text, tmp_path)
    assert (args.sensors, args.interval, args.record) == (("a:b", "c:d"), 60.0, "senml")
    assert args.home_assistant == "homeassistant"
    args = run_with(text, tmp_path, "--sensors", "x:y", "--interval", "0", "--record", "json")
    assert (args.sensors, args.interval, args.record) == (("x:y",), 0.0, "json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('sensor = "a:b"', "there is no key 'sensor'; did you mean 'sensors'?"),
        ('device-id = "x"', "there is no key 'device-id'; did you mean 'device_id'?"),
        ("zzz = 1", "there is no key 'zzz'; each key is a flag of hardcase-edge run"),
        ('config = "x"', "there is no key 'config'"),
        ('interval = "60"', "interval is text; give a number"),
        ("interval = true", "interval is true or false; give a number"),
        ("count = 1.5", "count is a number; give a whole number"),
        ("isolate = 1", "isolate is a whole number; give true or false"),
        ("broker = 5", "broker is a whole number; give text"),
        ("broker = {}", "broker is a table or a date; give text"),
        ("sensors = [1]", "sensors is a list; give text, or a list of texts"),
        ("sensors = []", "sensors is a list; give text, or a list of texts"),
        ('drift = "look"', "drift is 'look'; use watch or act"),
        ("interval = ", "is not TOML"),
        ("count = 99999999999999999999", "more than 64 bits"),
    ],
)
def test_a_wrong_file_is_one_line_with_file_and_key(text: str, message: str, tmp_path: Path, edge: Any) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text + "\n" + (SENSORS if "sensors" not in text else ""))
    status, records, line = edge("run", "--config", path)
    told = (status, records, line.count("\n"), str(path) in line, message in line)
    assert told == (2, [], 1, True, True), line


def test_a_missing_file_and_missing_sensors_are_one_line(tmp_path: Path, edge: Any) -> None:
    assert "cannot be read" in edge("run", "--config", tmp_path / "none.toml").errors
    (tmp_path / "run.toml").write_text('store = "x"\n')
    for words in (["run", "b.hcb"], ["run", "--config", str(tmp_path / "run.toml")]):
        status, records, line = edge(*words)
        assert (status, records, "required: --sensors" in line, line.count("\n")) == (2, [], True, 1)
    (tmp_path / "run.toml").write_text("sensors = 'a:b'\n" + "#" * 65_536)
    assert "65536" in edge("run", "--config", tmp_path / "run.toml").errors


def test_a_device_runs_by_a_file_alone_and_doctor_and_service_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes())
    (tmp_path / "run.toml").write_text('bundle = "toy.hcb"\nsensors = ["x=none", "vib=none"]\ncount = 3\n')
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--config", "run.toml"]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 3
    assert main(["run", "--config", "run.toml", "--count", "1"]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 1
    main(["doctor", "--json", "run", "--config", "run.toml"])
    assert json.loads(capfd.readouterr().out)["faults"] == []
    assert main(["service", "--program", "/usr/bin/hardcase-edge", "run", "--config", "run.toml"]) == 0
    assert "ExecStart=/usr/bin/hardcase-edge run --config run.toml\n" in capfd.readouterr().out


def test_service_writes_the_arguments_into_a_file_that_the_unit_names(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = ["run", "--store", "/run/user/7/store", "--sensors", "xy:z", "--interval", "60"]
    words = ["service", "--program", "/usr/bin/hardcase-edge", "--config", str(tmp_path / "run.toml")]
    assert main([*words, *run]) == 0
    unit = capfd.readouterr().out
    assert "ExecStart=/usr/bin/hardcase-edge run --config /etc/hardcase/run.toml\n" in unit
    assert "ProtectHome=read-only" in unit, "the file names a place in somebody's home"
    settings = tomllib.loads((tmp_path / "run.toml").read_text())
    assert settings == {"store": "/run/user/7/store", "sensors": ["xy:z"], "interval": 60.0}
    before = (tmp_path / "run.toml").read_bytes()
    assert main([*words, *run, "--interval", "-1"]) == 2
    assert (tmp_path / "run.toml").read_bytes() == before


VALUES = st.one_of(st.text(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))


@given(
    st.dictionaries(st.from_regex("[a-z_]{1,9}", fullmatch=True), st.one_of(VALUES, st.lists(st.text(), max_size=3)))
)
def test_what_is_written_reads_back(values: dict[str, object]) -> None:
    assert parse_toml("run.toml", toml_text(values).encode()) == values
