# SPDX-License-Identifier: Apache-2.0
"""What a device says of itself, for the dashboard: text from outside; what is not as it should be is nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hardcase_edge.base.escape import terminal

from ..records.incoming import MOST, amount_of, object_of
from .budgets import budget_of

SENSORS = 16  # that are shown
MOST_WHY = 300  # characters of a reason
MOST_WORD = 64
COUNTERS = ("waiting", "dropped", "damaged", "unwritable")  # of the outbox


def facts_of(text: str) -> dict[str, Any]:
    """The facts of a device, each of which is there, and None, 0 or empty where the device does not say it.

    >>> facts_of('{"store": {"failed": {"reason": "too slow"}}, "asked": "x"}')["failed"]["reason"]
    'too slow'
    >>> facts_of("[")["suspects"]
    []
    """
    said = object_of(text)
    store, update, drift, promise = (_part(said, key) for key in ("store", "update", "drift", "promise"))
    failed, outbox, certificate = _part(store, "failed"), _part(said, "outbox"), _part(said, "certificate")
    suspects = drift.get("suspects")
    return {
        "runtime": _text(said.get("runtime")), "why": _text(store.get("why"), MOST_WHY),
        "release": _text(store.get("release")), "slot": _text(store.get("slot")),
        "failed": _ended(failed) if failed else None, "update": _ended(update) if update else None,
        "asked": _count(said.get("asked")), "local": _count(said.get("local")),
        "is_broken": promise.get("state") == "broken", "watches": bool(drift),
        "suspects": [_text(name) for name in suspects][:SENSORS] if isinstance(suspects, dict) else [],
        "sensors": _counters(_part(said, "sensors"), tuple(_part(said, "sensors"))[:SENSORS]),
        "outbox": _counters(outbox, COUNTERS), "has_outbox": bool(outbox),
        "ends": amount_of(certificate.get("ends")), "budget": budget_of(said),
    }  # fmt: skip


def _part(fields: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = fields.get(key)
    return value if isinstance(value, dict) else {}


def _ended(fields: Mapping[str, Any]) -> dict[str, Any]:
    """An update that is under way or has failed."""
    return {
        "state": _text(fields.get("state")), "reason": _text(fields.get("reason"), MOST_WHY),
        "bundle": _text(fields.get("sha256"))[:12], "release": _text(fields.get("release")),
        "have": _count(fields.get("have")), "of": _count(fields.get("of")),
    }  # fmt: skip


def _counters(fields: Mapping[str, Any], names: tuple[str, ...]) -> list[list[Any]]:
    return [[_text(name), n] for name in names if (n := _count(fields.get(name)))]


def _count(value: Any) -> int:
    return min(value, MOST) if type(value) is int and value > 0 else 0


def _text(value: Any, most: int = MOST_WORD) -> str:
    return terminal(value[:most]) if isinstance(value, str) else ""
