# SPDX-License-Identifier: Apache-2.0
"""Messages are exactly the bytes of docs/SPEC-wire-v1.md, or they are counted and dropped: never worse."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_edge.errors import InputError, WireError
from hardcase_edge.link import wire
from hardcase_edge.program.readings import MAX_REQUEST_BYTES, request_bytes

HPC, OTHER, ID = bytes(range(32)), bytes(32), bytes(range(100, 116))
DTYPES = ("i32", "f32", "f64")
REQUEST = wire.pack_request(wire.Request(ID, HPC, 1500, (7, 0.5, -2.25)), DTYPES)
REPLY = wire.pack_reply(wire.Reply(ID, HPC, wire.OK, 3, 9000))

many = settings(max_examples=120)
readings = {
    "i32": st.none() | st.integers(-(2**31) + 1, 2**31 - 1),
    "f32": st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False),
    "f64": st.none() | st.floats(allow_nan=False, allow_infinity=False),
}
lists_of_readings = st.lists(st.sampled_from(DTYPES), max_size=20).flatmap(
    lambda dtypes: st.tuples(st.just(tuple(dtypes)), st.tuples(*[readings[d] for d in dtypes]))
)


def reason(call: Any, *args: Any) -> str:
    with pytest.raises(WireError) as caught:
        call(*args)
    assert "\n" not in str(caught.value)
    return caught.value.reason


# ---------------------------------------------------------------- requests


@given(lists_of_readings, st.binary(min_size=16, max_size=16), st.integers(1, wire.MAX_DEADLINE_MS), st.booleans())
@many
def test_a_request_survives_the_wire(typed: tuple[Any, Any], id_: bytes, deadline_ms: int, is_audit: bool) -> None:
    dtypes, values = typed
    request = wire.Request(id_, HPC, deadline_ms, values, is_audit)
    payload = wire.pack_request(request, dtypes)
    assert (len(payload), payload[1]) == (request_bytes(dtypes), 6 if is_audit else 1)
    assert wire.unpack_request(payload, dtypes, HPC) == request


def test_a_request_has_the_layout_of_the_specification() -> None:
    head = struct.pack("<BBHI", 1, 1, 3, 1500) + ID + HPC
    assert head + struct.pack("<ifd", 7, 0.5, -2.25) == REQUEST


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_missing(value: float) -> None:
    payload = REQUEST[:56] + struct.pack("<ifd", -(2**31), value, value)
    assert wire.unpack_request(payload, DTYPES, HPC).readings == (None, None, None)


def test_a_request_cut_or_lengthened_is_dropped() -> None:
    for cut in range(len(REQUEST)):
        assert reason(wire.unpack_request, REQUEST[:cut], DTYPES, HPC) == "malformed"
    assert reason(wire.unpack_request, REQUEST + b"\0", DTYPES, HPC) == "malformed"


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        pytest.param(bytes(MAX_REQUEST_BYTES + 1), "oversized", id="oversized"),
        pytest.param(b"\x02" + REQUEST[1:], "malformed", id="newer"),
        pytest.param(b"\x00" + REQUEST[1:], "malformed", id="older"),
        pytest.param(REQUEST[:1] + b"\x02" + REQUEST[2:], "malformed", id="a-replys-kind"),
        pytest.param(REQUEST[:2] + b"\x02\x00" + REQUEST[4:], "malformed", id="fewer-values-than-bytes"),
        pytest.param(REQUEST[:2] + b"\xff\xff" + REQUEST[4:], "malformed", id="more-values-than-bytes"),
        pytest.param(REQUEST[:4] + bytes(4) + REQUEST[8:], "malformed", id="no-time"),
        pytest.param(REQUEST[:4] + b"\xff" * 4 + REQUEST[8:], "malformed", id="all-the-time"),
        pytest.param(REQUEST[:24] + OTHER + REQUEST[56:], "other_hpc", id="other-hpc"),
        pytest.param(REPLY, "malformed", id="a-reply"),
    ],
)
def test_a_request_that_is_not_ours_is_counted_by_its_reason(payload: bytes, expected: str) -> None:
    assert reason(wire.unpack_request, payload, DTYPES, HPC) == expected


def test_flipped_bytes_of_a_request_change_readings_or_are_dropped() -> None:
    for at in range(len(REQUEST)):
        for bit in range(8):
            bad = bytearray(REQUEST)
            bad[at] ^= 1 << bit
            try:
                request = wire.unpack_request(bytes(bad), DTYPES, HPC)
            except WireError as error:
                assert error.reason in ("malformed", "other_hpc")  # noqa: PT017
                assert at < 8 or 24 <= at < 56
            else:
                assert 4 <= at < 24 or at >= 56
                assert len(request.readings) == 3


@given(st.binary(max_size=200), st.lists(st.sampled_from(DTYPES), max_size=5))
@many
def test_any_bytes_are_a_request_or_dropped(payload: bytes, dtypes: list[str]) -> None:
    for candidate in (payload, REQUEST[:24] + HPC + payload):
        try:
            request = wire.unpack_request(candidate, dtypes, HPC)
        except WireError as error:
            assert error.reason in ("malformed", "oversized", "other_hpc")  # noqa: PT017
        else:
            assert len(request.readings) == len(dtypes)


# ---------------------------------------------------------------- replies


@given(
    st.binary(min_size=16, max_size=16), st.sampled_from([wire.OK, wire.REFUSED]), st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 10_000),
)  # fmt: skip
@many
def test_a_reply_survives_the_wire(id_: bytes, status: int, result: int, confidence: int) -> None:
    reply = wire.Reply(id_, HPC, status, result, confidence)
    assert len(wire.pack_reply(reply)) == 64
    assert wire.unpack_reply(wire.pack_reply(reply), HPC, 0) == reply


def test_a_reply_has_the_layout_of_the_specification() -> None:
    assert struct.pack("<BBBBHHq", 1, 2, 0, 0, 9000, 0, 3) + ID + HPC == REPLY


def test_a_reply_cut_is_malformed_and_one_too_long_is_oversized() -> None:
    for cut in range(len(REPLY)):
        assert reason(wire.unpack_reply, REPLY[:cut], HPC, 4) == "malformed"
    assert reason(wire.unpack_reply, REPLY + b"\0", HPC, 4) == "oversized"


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        pytest.param(b"\x02" + REPLY[1:], "malformed", id="newer"),
        pytest.param(REPLY[:1] + b"\x01" + REPLY[2:], "malformed", id="a-requests-kind"),
        pytest.param(REPLY[:2] + b"\x03" + REPLY[3:], "malformed", id="unknown-status"),
        pytest.param(wire.pack_reply(wire.Reply(ID, HPC, wire.BUSY, 0, 0)), "malformed", id="busy-for-no-time"),
        pytest.param(
            wire.pack_reply(wire.Reply(ID, HPC, wire.BUSY, 60_001, 0)), "malformed", id="busy-for-longer-than-a-minute"
        ),
        pytest.param(wire.pack_reply(wire.Reply(ID, HPC, wire.BUSY, 5, 1)), "malformed", id="busy-and-sure"),
        pytest.param(REPLY[:3] + b"\x01" + REPLY[4:], "malformed", id="reserved"),
        pytest.param(REPLY[:6] + b"\x00\x01" + REPLY[8:], "malformed", id="reserved-too"),
        pytest.param(wire.pack_reply(wire.Reply(ID, HPC, wire.OK, 3, 10_001)), "malformed", id="more-than-sure"),
        pytest.param(wire.pack_reply(wire.Reply(ID, HPC, wire.OK, 4, 0)), "malformed", id="class-beyond"),
        pytest.param(wire.pack_reply(wire.Reply(ID, HPC, wire.OK, -1, 0)), "malformed", id="class-below"),
        pytest.param(wire.pack_reply(wire.Reply(ID, OTHER, wire.OK, 3, 0)), "other_hpc", id="other-hpc"),
        pytest.param(REQUEST[:64], "malformed", id="a-request"),
        pytest.param(bytes(10**6), "oversized", id="oversized"),
    ],
)
def test_a_reply_that_is_not_ours_is_counted_by_its_reason(payload: bytes, expected: str) -> None:
    assert reason(wire.unpack_reply, payload, HPC, 4) == expected


@pytest.mark.parametrize("reply", [wire.Reply(ID, HPC, wire.REFUSED, -1, 0), wire.Reply(ID, HPC, wire.BUSY, 60_000, 0)])
def test_a_refusal_carries_no_class(reply: wire.Reply) -> None:
    assert wire.unpack_reply(wire.pack_reply(reply), HPC, 4) == reply


def test_random_replies_are_classes_of_ours_or_dropped() -> None:
    rng = random.Random(0)
    for _ in range(3000):
        bad = bytearray(REPLY)
        bad[rng.randrange(64)] = rng.randrange(256)
        try:
            reply = wire.unpack_reply(bytes(bad), HPC, 4)
        except WireError:
            continue
        assert reply.status == wire.REFUSED or 0 <= reply.result < 4
        assert 0 <= reply.confidence <= 10_000


# ---------------------------------------------------------------- topics

GOOD_NAMES = ["pi-1", "acme/pi-1", "a", "A.b_c-9", "0", "x" * 64]
BAD_NAMES = [
    "", "+", "#", "a/b/c", "a/", "/a", "/", "a+", "$SYS", "-a", ".a", "..", "_a", "a b", "a\n", "a\0", "x" * 65, "é",
    "ａ", "١", "pi-1/+", "a\u200b", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("device", GOOD_NAMES)
def test_a_devices_topics_name_it(device: str) -> None:
    assert wire.check_device_id(device) == device
    assert wire.request_topic(device) == f"hardcase/v1/{device}/request"
    assert wire.reply_topic(device) == f"hardcase/v1/{device}/reply"
    assert wire.status_topic(device) == f"hardcase/v1/{device}/status"
    assert wire.device_of_topic(wire.request_topic(device)) == device


@pytest.mark.parametrize("device", BAD_NAMES, ids=ascii)
def test_a_name_that_could_reach_beyond_its_topic_is_refused(device: str) -> None:
    with pytest.raises(InputError, match="choose another"):
        wire.check_device_id(device)
    assert reason(wire.device_of_topic, f"hardcase/v1/{device}/request") == "malformed"


@pytest.mark.parametrize(
    "topic",
    ["", "hardcase/v1/pi-1", "hardcase/v1/pi-1/reply", "hardcase/v2/pi-1/request", "/hardcase/v1/pi-1/request",
     "hardcase/v1/pi-1/request/", "hardcase/v1/a/b/c/request", "hardcase/v1/pi-1/request/x",
     "x/hardcase/v1/pi-1/request", "HARDCASE/v1/pi-1/request",
     "/".join("x" * 999)],
)  # fmt: skip
def test_another_topic_is_dropped(topic: str) -> None:
    assert reason(wire.device_of_topic, topic) == "malformed"
