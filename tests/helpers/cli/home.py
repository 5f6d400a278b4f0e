# SPDX-License-Identifier: Apache-2.0
"""A recorder's database of Home Assistant as tests want it: a home of ten days whose helper says where people are."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path

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
