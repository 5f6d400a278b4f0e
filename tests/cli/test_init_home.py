# SPDX-License-Identifier: Apache-2.0
"""``hardcase init --from-homeassistant``: rows of a home's history, its entities as sensors, and hostile databases."""

from __future__ import annotations

import csv
import json
import sqlite3
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hardcase.home import recorder as reading
from tests.helpers.cli.home import DAY, HomeDatabase, make_home
from tests.helpers.train.problems import ran, run

pytestmark = pytest.mark.usefixtures("brief_effort")


def init(
    capsys: pytest.CaptureFixture[str], base: Path, *flags: object
) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, str]]]:
    """What is reported, the configuration and the rows that are written."""
    out = base.parent / "h.toml"
    said = ran(capsys, "init", "--from-homeassistant", base, "--out", out, *flags)
    config = tomllib.loads(out.read_text())
    with open(base.parent / config["data"]["file"], newline="") as file:
        return said, config, list(csv.DictReader(file))


def refusal(capsys: pytest.CaptureFixture[str], base: Path, *flags: object) -> str:
    """The one line of an error; nothing is written."""
    status, _, err = run(capsys, "init", "--from-homeassistant", base, "--out", base.parent / "h.toml", *flags)
    assert (status, err.count("\n"), err[:-1].isprintable()) == (2, 1, True), err
    assert not (base.parent / "h.toml").exists()
    assert not (base.parent / "h.csv").exists()
    return err


@pytest.fixture
def home(tmp_path: Path) -> HomeDatabase:
    """An empty database, open for writing as Home Assistant's is."""
    return HomeDatabase(tmp_path / "home.db")


def test_a_homes_history_becomes_rows_and_train_takes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_home(tmp_path / "home.db")
    said, config, rows = init(capsys, tmp_path / "home.db")
    assert (said["target"], said["classes"]) == ("input_select.people", ["asleep", "away", "up"])
    assert said["sensors"] == {
        "hall_motion": ["binary_sensor.hall_motion_occupancy", "sensor.hall_motion_illuminance"],
        "sensor.phone": ["sensor.phone"],
        "sensor.plug_power": ["sensor.plug_power"],
        "sensor.washer_mode": ["sensor.washer_mode"],
    }
    assert {s["name"]: s["cost"] for s in config["sensor"]} == {
        "hall_motion": 20, "sensor.phone": 20, "sensor.plug_power": 1, "sensor.washer_mode": 1,
    }  # fmt: skip
    assert {s["cost_origin"] for s in config["sensor"]} == {"placeholder"}
    assert said["left_out"] == {
        "sensor.hall_motion_battery": "says how full a battery is", "sensor.last_boot": "is a time",
    }  # fmt: skip
    assert config["data"]["group"] == said["group"] == "day"
    assert 2_800 < len(rows) <= 2_881
    assert len({row["day"] for row in rows}) >= 10
    train = ("train", tmp_path / "h.toml", "--out", tmp_path / "build", "--method", "static", "--effort", "quick")
    trained = ran(capsys, *train, "--no-baselines")
    assert "placeholder" in json.dumps(trained)


def test_a_row_has_what_every_entity_said_then_and_a_gap_while_it_was_unknown(
    home: HomeDatabase, capsys: pytest.CaptureFixture[str]
) -> None:
    home.add("input_boolean.on_call", [(600, "off"), (1250, "on"), (1800, "unavailable"), (2100, "off")])
    home.add("sensor.a", [(0, "1.5"), (900, "unavailable"), (1199, "nan"), (1201, "-2e1"), (2400, "inf")])
    home.add("binary_sensor.b", [(1300, "on"), (1550, None), (2000, "off")])
    *_, rows = init(capsys, home.path)
    assert [(r["sensor.a"], r["binary_sensor.b"], r["input_boolean.on_call"]) for r in rows] == [
        ("1.5", "", "off"), ("", "", "off"), ("", "", "off"), ("-20", "true", "on"),
        ("-20", "false", "off"), ("", "false", "off"),
    ]  # fmt: skip
    said, config, rows = init(capsys, home.path, "--every", "change", "--force")
    assert [r["time"] for r in rows] == ["1970-01-01 00:10:00", "1970-01-01 00:20:50", "1970-01-01 00:35:00"]
    assert "group" not in config["data"]
    assert said["group"] is None


def test_names_and_flags_say_what_is_a_sensor_what_is_dear_and_what_is_the_label(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = make_home(tmp_path / "home.db")
    home.add("input_text.mood", [(0, "good"), (3 * DAY, "bad")])
    assert "name one: --label input_select.people or input_text.mood" in refusal(capsys, home.path)
    said, config, _ = init(
        capsys, home.path, "--label", "input_select.people", "--entity", "light.*", "--entity", "sensor.[hp]*",
        "--battery", "sensor.plug*", "--mains", "sensor.phone", "--table", tmp_path / "rows.csv", "--every", "60",
    )  # fmt: skip
    assert {s["name"]: s["cost"] for s in config["sensor"]} == {
        "light.hall": 1, "hall_motion": 20, "sensor.phone": 1, "sensor.plug_power": 20,
    }  # fmt: skip
    assert said["sensors"]["hall_motion"] == ["sensor.hall_motion_battery", "sensor.hall_motion_illuminance"]
    assert config["data"]["file"] == "rows.csv"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--label", "input_select.peopel"], "did you mean 'input_select.people'?"),
        (["--label", "sensor.last_boot"], "fewer than two known states"),
        (["--entity", "sensor.plugpower"], "did you mean 'sensor.plug_power'?"),
        (["--entity", "sensor.last*"], "no numeric or binary entity beside input_select.people"),
        (["--every", "0"], "--every '0' is neither"),
        (["--every", "1e9"], "--every '1e9' is neither"),
        (["--table", "rows.txt"], "neither .csv nor .parquet"),
        (["--target", "y"], "its target with --label"),
    ],
)
def test_a_wrong_flag_is_told_in_one_line(
    flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_home(tmp_path / "home.db", days=2)
    assert message in refusal(capsys, tmp_path / "home.db", *flags)


def test_the_flags_of_a_home_need_its_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "init", tmp_path / "data.csv", "--entity", "sensor.a")
    assert status == 2
    assert "--entity is for --from-homeassistant" in err
    status, _, err = run(capsys, "init")
    assert status == 2
    assert "name a table" in err


def test_a_home_is_read_while_it_is_written_and_nothing_of_it_changes(
    home: HomeDatabase, capsys: pytest.CaptureFixture[str]
) -> None:
    home.add("input_boolean.on_call", [(0, "off"), (3_600, "on")])
    home.add("sensor.a", [(k * 300.0, k % 7) for k in range(24)])
    home.base.execute("BEGIN IMMEDIATE")
    home.base.execute("DELETE FROM states")
    before = home.path.read_bytes()
    *_, rows = init(capsys, home.path)
    assert len(rows) == 24
    assert home.path.read_bytes() == before
    assert sorted(p.name for p in home.path.parent.iterdir()) == [
        "h.csv",
        "h.toml",
        "home.db",
        "home.db-shm",
        "home.db-wal",
    ]


def old_schema(path: Path) -> None:
    base = sqlite3.connect(path)
    base.execute(
        "CREATE TABLE states (state_id INTEGER PRIMARY KEY, entity_id TEXT, state TEXT, last_updated DATETIME)"
    )


def other_database(path: Path) -> None:
    sqlite3.connect(path).execute("CREATE TABLE people (name TEXT)")


def lacks_a_column(path: Path) -> None:
    HomeDatabase(path).base.executescript("ALTER TABLE states RENAME COLUMN attributes_id TO other")


def a_view_that_never_ends(path: Path) -> None:
    HomeDatabase(path).base.executescript(
        "DROP TABLE states; CREATE VIEW states AS WITH RECURSIVE n(metadata_id) AS "
        "(SELECT 1 UNION ALL SELECT 1 FROM n) "
        "SELECT metadata_id, 1 AS state, 1 AS last_updated_ts, 1 AS attributes_id FROM n"
    )


def damaged(path: Path) -> None:
    home = make_home(path, days=3)
    home.base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    home.base.close()
    data = bytearray(path.read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(200)), "damaged or not a database"),
        (lambda path: path.write_bytes(b"time,label\n1,2\n" * 40), "damaged or not a database"),
        (lambda path: path.write_bytes(b""), "it has no table states"),
        (lambda path: path.mkdir(), "is not a file"),
        (old_schema, "the schema of Home Assistant before 2023.4"),
        (other_database, "it has no table states"),
        (lacks_a_column, "table states lacks attributes_id"),
        (a_view_that_never_ends, "it has no table states"),
        (damaged, "damaged or not a database"),
        (HomeDatabase, "has no helper of at least two states"),
    ],
    ids=[
        "header alone",
        "csv",
        "empty file",
        "folder",
        "old schema",
        "other",
        "lacking",
        "view",
        "damaged",
        "no states",
    ],
)
def test_what_is_no_recorders_database_is_refused_in_one_line(
    make: Callable[[Path], object], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = make(tmp_path / "home.db")
    assert message in refusal(capsys, tmp_path / "home.db")
    del kept


def test_hostile_rows_are_left_out_and_do_not_end_the_command(
    home: HomeDatabase, capsys: pytest.CaptureFixture[str]
) -> None:
    home.add("input_text.who", [(0, 'a\x1b[31m\n,"b"\x00'), (1_500, "=cmd"), (1_800, b"\xff\xfe"), (2_000, "a")])
    home.add("sensor.good", [(k * 100.0, k % 7) for k in range(40)], "[" * 16_000)
    home.add("sensor.huge", [(k * 100.0, k % 5) for k in range(40)], '{"a": "' + "x" * 100_000 + '"}')
    home.add("sensor.raw", [(0, "1"), (500, b"2"), (float("inf"), "3"), ("later", "4"), (1_000, "9" * 500)], b"\xff{")
    home.add("sensor.kind", [(k * 100.0, k % 4) for k in range(40)], {"device_class": ["battery"]})
    home.add("sensor.\x1b]0;title\x07", [(0, "1")])
    home.add("sensor.UPPER", [(0, "1")])
    home.add(b"\x00\xff", [(0, "1")])
    home.add(None, [(0, "1")])
    said, _config, rows = init(capsys, home.path)
    assert said["left_out"]["(no name)"].startswith("4 entities have names")
    assert set(said["sensors"]) == {"sensor.good", "sensor.huge", "sensor.kind"}
    assert {row["input_text.who"] for row in rows} == {'a?[31m?,"b"?', "=cmd", "a"}


def test_a_cell_beyond_the_bound_and_a_long_reading_are_refused(
    home: HomeDatabase, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home.add("input_boolean.on_call", [(0, "off"), (3_600, "on")])
    home.add("sensor.a", [(k * 300.0, k % 7) for k in range(24)])
    monkeypatch.setattr(reading, "MAX_STATES", 20)
    assert "more than 20 states to read" in refusal(capsys, home.path)
    monkeypatch.undo()
    monkeypatch.setattr(reading, "MAX_ENTITIES", 1)
    assert "more than 1 entities" in refusal(capsys, home.path)
    monkeypatch.undo()
    monkeypatch.setattr(reading, "MAX_SECONDS", -1.0)
    monkeypatch.setattr(reading, "STEPS", 1)
    assert "name the sensors by --entity" in refusal(capsys, home.path)
    monkeypatch.undo()
    home.add("sensor.huge", [(0, "x" * (2 << 20))])
    assert "cannot be read" in refusal(capsys, home.path)
