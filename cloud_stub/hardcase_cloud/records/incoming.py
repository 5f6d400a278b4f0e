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

__all__ = ["MAX_RECORD_BYTES", "Incoming", "parse_record"]

MAX_RECORD_BYTES = 65_536
MOST = 2**53 - 1


@dataclass(frozen=True, slots=True)
class Incoming:
    """One record of one device."""

    device: str
    boot: int
    sequence: int
    kind: str  # "decision" or "audit", as the topic says
    text: str  # JSON


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
    return Incoming(device, int(fields["boot"]), int(fields["sequence"]), kind, text)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")
