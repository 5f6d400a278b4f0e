# SPDX-License-Identifier: Apache-2.0
"""What devices say of themselves: on its way into the store within bounds, and there by device, start and group."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace

from hardcase_edge.errors import WireError
from hardcase_edge.link.wire import device_of_topic, facts_topic, status_topic

from .database import Database
from .dialects import Row
from .incoming import MOST, object_of

MOST_DEVICES = 100_000
MAX_BYTES = 8_192  # of facts
MOST_ENDS = 16  # starts of a device that have told their seed
ENDS = (
    "INSERT INTO starts VALUES (?, ?, ?, ?) ON CONFLICT (device, boot) DO UPDATE SET facts = excluded.facts "
    "WHERE starts.facts <> ''"
)
FEWER_ENDS = (
    "DELETE FROM starts WHERE device = ? AND boot NOT IN (SELECT boot FROM starts WHERE device = ? "
    "ORDER BY told DESC, boot DESC LIMIT ?)"
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a device; None where a message did not say it."""

    device: str
    is_online: bool | None = None
    bundle: str | None = None
    state: str | None = None  # of its store: good or trial
    facts: str | None = None  # JSON
    ended: str | None = None  # facts of a start before, which told the seed of its audits


class Devices:
    """Devices of one store and their groups; each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._it = database.dialect

    def saw(self, devices: Iterable[Seen], now: float) -> None:
        """Note what devices say of themselves."""
        devices = sorted(devices, key=lambda d: d.device)
        rows = [
            (d.device, int(d.is_online or 0), d.bundle or "", d.state or "", d.facts or "{}", now,
             None if d.is_online is None else int(d.is_online), d.bundle, d.state, d.facts)
            for d in devices
        ]  # fmt: skip
        sql = (
            "INSERT INTO devices VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (device) DO UPDATE SET "
            "is_online = COALESCE(?, devices.is_online), bundle = COALESCE(?, devices.bundle), "
            "state = COALESCE(?, devices.state), facts = COALESCE(?, devices.facts), seen = excluded.seen"
        )
        ends = [
            (d.device, end[0], now, end[1])
            for d in devices
            for text in (d.ended, d.facts)
            if (end := _end_of(text)) is not None
        ]

        def act() -> None:
            self._it.many(sql, rows)
            self._it.many(ENDS, ends)
            self._it.many(FEWER_ENDS, [(device, device, MOST_ENDS) for device in sorted({end[0] for end in ends})])

        self._it.run(act)

    def ends(self, device: str) -> list[Row]:
        """The last starts of a device that have told the seed of their audits, the newest first: boot and facts.

        The facts are "" where records of the start were removed for their age.
        """
        return self.database.read(
            "SELECT boot, facts FROM starts WHERE device = ? ORDER BY told DESC, boot DESC", (device,)
        )

    def set_group(self, name: str, devices: Iterable[str]) -> int:
        """Make a group of exactly these devices; returns their number. No device: the group is gone."""
        rows = [(name, device) for device in sorted(set(devices))]

        def act() -> None:
            self._it.execute("DELETE FROM members WHERE name = ?", (name,))
            self._it.load("members", rows)

        self._it.run(act)
        return len(rows)

    def group(self, name: str) -> list[str]:
        """The devices of a group; none if nobody has made it."""
        return [row[0] for row in self.database.read("SELECT device FROM members WHERE name = ? ORDER BY 1", (name,))]


def _end_of(facts: str | None) -> tuple[int, str] | None:
    """The number of a start and its facts, if these are its last ones and tell the seed of its audits."""
    if facts is None or '"seed"' not in facts:
        return None
    fields = object_of(facts)
    draws, boot = fields.get("draws"), fields.get("boot")
    if not isinstance(draws, dict) or "seed" not in draws or type(boot) is not int or not 0 < boot <= MOST:
        return None
    audits = fields.get("audits")
    share = audits.get("share") if isinstance(audits, dict) else None
    kept = {key: fields.get(key) for key in ("local", "boot", "draws", "outbox")}
    return boot, json.dumps({**kept, "audits": {"share": share}} if isinstance(share, int | float) else kept)


class Presence:
    """Filled on the connection's thread, drained on another.

    Attributes
    ----------
    dropped : int
        Messages that were not a state or facts, were too long, or found no room.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._lock = threading.Lock()
        self._latest: dict[str, Seen] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to drain."""
        return bool(self._latest)

    def take(self, topic: str, payload: bytes) -> bool:
        """Whether this message is about a device's presence; then it is noted."""
        what = topic.rpartition("/")[2]
        if what not in ("status", "facts"):
            return False
        try:
            seen = _read(topic, what, payload)
        except (WireError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
            self.dropped += 1
            return True
        with self._lock:
            latest = self._latest.get(seen.device)
            if latest is None and len(self._latest) >= MOST_DEVICES:
                self.dropped += 1
                return True
            self._latest[seen.device] = _joined(latest, seen)
        return True

    def drain(self) -> list[Seen]:
        """All that has been noted since the last call."""
        with self._lock:
            latest, self._latest = self._latest, {}
        return list(latest.values())

    def put_back(self, devices: Iterable[Seen]) -> None:
        """These could not be kept; what has come meanwhile is newer."""
        with self._lock:
            for seen in devices:
                newer = self._latest.get(seen.device)
                self._latest[seen.device] = seen if newer is None else _joined(seen, newer)


def _read(topic: str, what: str, payload: bytes) -> Seen:
    if len(payload) > MAX_BYTES:
        raise ValueError("too long")
    text = payload.decode()
    fields = json.loads(text)
    if what == "status":
        device = device_of_topic(topic, status_topic)
        return Seen(device, is_online=fields["state"] == "online")
    device = device_of_topic(topic, facts_topic)
    if not isinstance(fields, dict) or "\0" in text:
        raise ValueError("no facts")
    store = fields.get("store") or {}
    bundle, state = fields.get("bundle", ""), store.get("state", "good")
    if not all(isinstance(word, str) and word.isprintable() for word in (bundle, state)):
        raise ValueError("no facts")
    return Seen(device, bundle=bundle[:64], state=state[:32], facts=text)


def _joined(older: Seen | None, newer: Seen) -> Seen:
    if older is None:
        return newer
    names = ("is_online", "bundle", "state", "facts", "ended")
    changes = {key: value for key in names if (value := getattr(newer, key)) is not None}
    if newer.facts is not None and older.facts is not None and '"seed"' in older.facts:
        changes.setdefault("ended", older.facts)  # of a start that is over, unless the newer facts are of the same one
    return replace(older, **changes)
