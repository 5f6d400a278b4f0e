# SPDX-License-Identifier: Apache-2.0
"""Records as they come from devices: bounded and checked, because whoever may use a device's topics may send anything.

What is checked is what the store goes by: the device is the one that the topic names, and boot and sequence are whole
numbers. The rest of the JSON is kept as it came, for its readers to judge.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hardcase_edge.errors import WireError
from hardcase_edge.link.wire import audit_topic, decision_topic, device_of_topic

MAX_RECORD_BYTES = 65_536
MOST = 2**53 - 1
MOST_NUMBER = 1e300  # of a reading, so that whoever computes with it has no infinity
MAX_WORD = 64


@dataclass(frozen=True, slots=True)
class Incoming:
    """One record of one device."""

    device: str
    boot: int
    sequence: int
    kind: str  # "decision" or "audit", as the topic says
    text: str  # JSON
    bundle: str = ""  # these four are for sums, and "" or 0.0 where the record has something else
    route: str = ""
    label: str = ""
    cost: float = 0.0


def parse_record(topic: str, payload: bytes) -> Incoming:
    """The record in a message.

    Raises
    ------
    WireError
        Drop the message; ``reason`` is ``oversized`` or ``malformed``.
    """
    if len(payload) > MAX_RECORD_BYTES:
        raise WireError("oversized", f"a record has {len(payload)} bytes, at most {MAX_RECORD_BYTES} are read")
    kind = topic.rpartition("/")[2]
    device = device_of_topic(topic, audit_topic if kind == "audit" else decision_topic)
    try:
        text = payload.decode()
        fields = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise WireError("malformed", "a record is not JSON in UTF-8") from error
    if not isinstance(fields, dict) or "\0" in text:
        raise WireError("malformed", "a record is not an object of JSON")
    if fields.get("device") != device or fields.get("kind") != kind:
        raise WireError("malformed", f"a record on {topic} names another device or kind")
    numbers = [fields.get("boot"), fields.get("sequence")]
    if not all(type(x) is int and 1 <= x <= MOST for x in numbers):
        raise WireError("malformed", f"a record's boot or sequence is not a whole number from 1 to {MOST}")
    bundle, route, label = (word(fields.get(key)) for key in ("bundle", "route", "label"))
    label = label or joined_labels(fields.get("labels"))
    numbered = (device, int(fields["boot"]), int(fields["sequence"]))
    return Incoming(*numbered, kind, text, bundle, route, label, amount_of(fields.get("cost")) or 0.0)


def amount_of(value: Any) -> float | None:
    """An amount that a device states, such as a cost; None if it is not a number from 0 to ``MOST``."""
    return float(value) if type(value) in (int, float) and 0 <= value <= MOST else None


def joined_labels(labels: Any) -> str:
    """The labels of an item of several parts as one word: letters side by side, others with spaces between."""
    if not isinstance(labels, list) or not all(isinstance(label, str | int) for label in labels):
        return ""
    texts = [str(label) for label in labels[: MAX_WORD + 1]]
    return word(("" if all(len(text) == 1 for text in texts) else " ").join(texts))


def is_request(readings: Any, width: int) -> bool:
    """Whether these are the readings of a request of this width: numbers, None for missing."""
    return (
        isinstance(readings, list)
        and len(readings) == width
        and all(x is None or (type(x) in (int, float) and abs(x) < MOST_NUMBER) for x in readings)
    )


def object_of(text: str) -> dict[str, Any]:
    """The object of JSON in a text that devices have sent; an empty one if it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def word(value: Any) -> str:
    """What a record states as a bundle, a route or a label; "" if that is not a word which a store can hold."""
    return value if isinstance(value, str) and len(value) <= MAX_WORD and value.isprintable() else ""


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")
