# SPDX-License-Identifier: Apache-2.0
"""Records from devices, and from whoever may use a device's topics."""

from __future__ import annotations

import json
import random

import pytest

from hardcase_cloud.keep.records.incoming import MAX_RECORD_BYTES, Incoming, parse_record
from hardcase_edge.errors import WireError
from hardcase_edge.link.wire import ack_topic, audit_topic, decision_topic

TOPIC = decision_topic("pi-1")
GOOD = {"kind": "decision", "device": "pi-1", "boot": 3, "sequence": 7, "label": "k\u00fchl"}


def pack(**changes: object) -> bytes:
    return json.dumps({**GOOD, **changes}, ensure_ascii=False).encode()


def test_a_record_is_kept_as_it_came():
    payload = pack()
    assert parse_record(TOPIC, payload) == Incoming("pi-1", 3, 7, "decision", payload.decode(), label="kühl")
    assert parse_record(audit_topic("pi-1"), pack(kind="audit", readings=[1, None])).kind == "audit"


@pytest.mark.parametrize(
    ("labels", "label"),
    [(["V", 7], "V7"), (["on", "off"], "on off"), (None, ""), ([["V"]], ""), (["V"] * 100, ""), (["\n"], "")],
)
def test_the_labels_of_an_item_are_one_word(labels: object, label: str) -> None:
    record = {key: value for key, value in GOOD.items() if key != "label"}
    assert parse_record(TOPIC, json.dumps({**record, "labels": labels}).encode()).label == label


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        (TOPIC, b""), (TOPIC, b"[]"), (TOPIC, b"{}"), (TOPIC, b"\xff{}"), (TOPIC, pack()[:-1]),
        (TOPIC, b"[" * 60_000), (TOPIC, b'{"a":' * 10_000), (TOPIC, pack(device="pi-2")), (TOPIC, pack(kind="audit")),
        (TOPIC, pack(boot=0)), (TOPIC, pack(boot=True)), (TOPIC, pack(boot=1.0)), (TOPIC, pack(boot="3")),
        (TOPIC, pack(sequence=-1)), (TOPIC, pack(sequence=2**53)), (TOPIC, pack(sequence=None)),
        (TOPIC, pack().replace(b"7", b"9" * 5000)), (TOPIC, pack(cost=float("nan"))),
        (TOPIC, pack(cost=float("inf"))), (TOPIC, pack() + b"\0"), (audit_topic("pi-1"), pack()),
        (ack_topic("pi-1"), pack()), (decision_topic("+"), pack(device="+")), ("hardcase/v1/pi-1/decision/x", pack()),
        ("hardcase/v1//decision", pack(device="")), ("x/v1/pi-1/decision", pack()), ("", pack()),
    ],
)  # fmt: skip
def test_what_breaks_a_rule_is_malformed(topic, payload):
    with pytest.raises(WireError) as caught:
        parse_record(topic, payload)
    assert caught.value.reason == "malformed"


def test_a_record_that_is_too_long_is_not_parsed():
    with pytest.raises(WireError) as caught:
        parse_record(TOPIC, pack(more="x" * MAX_RECORD_BYTES))
    assert caught.value.reason == "oversized"


def test_mutated_records_are_kept_or_dropped():
    rng, good, kept = random.Random(5), pack(failed=["x"], confidence=0.5), 0
    for _ in range(2000):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            record = parse_record(TOPIC, bytes(data))
        except WireError:
            continue
        kept += 1
        assert record.device == "pi-1"
        assert isinstance(json.loads(record.text), dict)
    assert 0 < kept < 2000
