# SPDX-License-Identifier: Apache-2.0
"""``hardcase init --from-homeassistant``: rows of a home's history, its entities as sensors, and hostile databases."""

from __future__ import annotations

import csv
import json
import math
import sqlite3
import time
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from hardcase.home import recorder as reading
from tests.helpers.train.problems import ran, run

SCHEMA = """
CREATE TABLE schema_changes (
    change_id INTEGER NOT NULL PRIMARY KEY, schema_version INTEGER, changed DATETIME NOT NULL
);
INSERT INTO schema_changes (schema_version, changed) VALUES (53, '2026-11-04 20:00:00');
CREATE TABLE states_meta (metadata_id INTEGER NOT NULL PRIMARY KEY, entity_id VARCHAR(255));
CREATE UNIQUE INDEX ix_states_meta_entity_id ON states_meta (entity_id);
CREATE TABLE state_attributes (attributes_id INTEGER NOT NULL PRIMARY KEY, hash BIGINT, shared_attrs TEXT);
CREATE INDEX ix_state_attributes_hash ON state_attributes (hash);
CREATE TABLE states (
    state_id INTEGER NOT NULL PRIMARY KEY, entity_id CHAR(0), state VARCHAR(255), attributes CHAR(0), event_id SMALLINT,
    last_changed CHAR(0), last_changed_ts FLOAT, last_reported_ts FLOAT, last_updated CHAR(0), last_updated_ts FLOAT,
    old_state_id INTEGER REFERENCES states (state_id),
    attributes_id INTEGER REFERENCES state_attributes (attributes_id),
    context_id CHAR(0), context_user_id CHAR(0), context_parent_id CHAR(0), origin_idx SMALLINT,
    context_id_bin BLOB, context_user_id_bin BLOB, context_parent_id_bin BLOB,
    metadata_id INTEGER REFERENCES states_meta (metadata_id)
);
CREATE INDEX ix_states_metadata_id_last_updated_ts ON states (metadata_id, last_updated_ts);
CREATE INDEX ix_states_context_id_bin ON states (context_id_bin);
CREATE INDEX ix_states_last_updated_ts ON states (last_updated_ts);
CREATE INDEX ix_states_old_state_id ON states (old_state_id);
CREATE INDEX ix_states_attributes_id ON states (attributes_id);
"""  # of states in schema 53, which Home Assistant 2026.11.0 makes (components/recorder/db_schema.py)
DAY = 86_400.0
States = Iterable[tuple[float, object]]


class HomeDatabase:
    """A database that a test fills entity by entity; write-ahead logging, as Home Assistant sets it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.base = sqlite3.connect(path)
        self.base.execute("PRAGMA journal_mode = WAL")
        self.base.executescript(SCHEMA)

    def add(self, entity: object, states: States, attributes: object = None) -> None:
        """An entity with its states, (seconds of Unix time, state), and attributes as an object or as raw text."""
        text = attributes if isinstance(attributes, str | bytes) else json.dumps(attributes or {})
        shared = self.base.execute("INSERT INTO state_attributes (shared_attrs) VALUES (?)", (text,)).lastrowid
        meta = self.base.execute("INSERT INTO states_meta (entity_id) VALUES (?)", (entity,)).lastrowid
        self.base.executemany(
            "INSERT INTO states (metadata_id, attributes_id, last_updated_ts, state) VALUES (?, ?, ?, ?)",
            [(meta, shared, when, state) for when, state in states],
        )
        self.base.commit()


def make_home(path: Path, days: int = 10, *, now: float | None = None) -> HomeDatabase:
    """A home: a plug and a door on mains, a motion sensor with a battery; the helper's states follow from them."""
    end = time.time() if now is None else now
    start = end - days * DAY
    hours = [start + 3600.0 * k for k in range(24 * days)]
    of_day = [(when % DAY) / 3600 for when in hours]
    asleep = [hour < 7 for hour in of_day]
    away = [9 <= hour < 17 and k // 24 % 3 < 2 for k, hour in enumerate(of_day)]
    home = HomeDatabase(path)
    states = ["asleep" if s else "away" if a else "up" for s, a in zip(asleep, away, strict=True)]
    home.add("input_select.people", zip(hours, states, strict=True), {"options": ["asleep", "away", "up"]})
    watts = [
        round(20 + 180 * (not s and not a) + 9 * math.sin(k), 1)
        for k, (s, a) in enumerate(zip(asleep, away, strict=True))
    ]
    home.add("sensor.plug_power", zip(hours, watts, strict=True), {"unit_of_measurement": "W", "device_class": "power"})
    lux = [
        round(max(0.0, 300 * math.sin((hour - 6) / 12 * math.pi)) * (not a), 1)
        for hour, a in zip(of_day, away, strict=True)
    ]
    home.add("sensor.hall_motion_illuminance", zip(hours, lux, strict=True), {"device_class": "illuminance"})
    moved = ["on" if not s and not a else "off" for s, a in zip(asleep, away, strict=True)]
    home.add("binary_sensor.hall_motion_occupancy", zip(hours, moved, strict=True), {"device_class": "occupancy"})
    home.add("sensor.hall_motion_battery", [(start, "87"), (end - DAY, "86")], {"device_class": "battery"})
    home.add("sensor.phone", [(start, "31"), (end - DAY, "45")], {"battery_level": 63})
    home.add("sensor.washer_mode", [(start + DAY * k, ("eco", "off")[k % 2]) for k in range(days)])
    home.add("sensor.last_boot", [(start, "2026-11-20T08:00:00+00:00")], {"device_class": "timestamp"})
    home.add("light.hall", zip(hours, moved, strict=True))
    return home


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
    toml = tmp_path / "h.toml"
    toml.write_text(toml.read_text().replace("HistGradientBoostingClassifier", "LogisticRegression"))
    train = ("train", toml, "--out", tmp_path / "build", "--method", "static", "--effort", "quick")
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


def test_what_a_device_of_ours_decided_is_no_sensor_unless_it_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = make_home(tmp_path / "home.db", now=(now := 20_000 * DAY))
    hours = [now - 3600.0 * k for k in range(240, 0, -1)]
    record = {"route": "local", "confidence": 9_000, "cost": 2.0}
    home.add("sensor.hall_decision", [(t, ("low", "high")[k % 2]) for k, t in enumerate(hours)], record)
    for name in ("confidence", "temperature"):
        home.add(f"sensor.hall_{name}", [(t, k % 7) for k, t in enumerate(hours)])
    _, _, rows = init(capsys, home.path)
    assert "sensor.hall_temperature" in rows[0]
    assert not {"sensor.hall_decision", "sensor.hall_confidence"} & rows[0].keys()
    _, _, rows = init(capsys, home.path, "--entity", "sensor.hall_*", "--force")
    assert {"sensor.hall_decision", "sensor.hall_confidence"} <= rows[0].keys()


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
