# SPDX-License-Identifier: Apache-2.0
"""What devices say of themselves, on its way into the registry: the latest of each device, within bounds."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import replace

from hardcase_edge.errors import WireError
from hardcase_edge.link.wire import device_of_topic, facts_topic, status_topic

from .registry import Seen

__all__ = ["Presence"]

MOST_DEVICES = 100_000
MAX_BYTES = 8_192  # of facts


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
