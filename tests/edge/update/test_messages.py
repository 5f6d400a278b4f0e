# SPDX-License-Identifier: Apache-2.0
"""Messages of an update: the examples of the page, and whatever else may arrive."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace

import pytest

from hardcase_edge.base.sha256 import sha256
from hardcase_edge.errors import WireError
from hardcase_edge.fleet.update import messages
from hardcase_edge.fleet.update.messages import (
    MAX_CHUNK_BYTES,
    MAX_MESSAGE_BYTES,
    Chunk,
    Offer,
    digests_of,
    pack_chunk,
    pack_fetch,
    pack_offer,
    unpack_chunk,
    unpack_fetch,
    unpack_offer,
)

DATA = random.Random(1).randbytes(10_000)
OFFER = Offer(
    size=len(DATA), sha256=sha256(DATA), chunk_bytes=4_096, digests=digests_of(DATA, 4_096), roots=(b"two", b"three"),
    timestamp=b"t", snapshot=b"s", targets=b"g", signature=bytes(64),
)  # fmt: skip


def test_a_message_is_read_as_it_was_written() -> None:
    assert unpack_offer(pack_offer(OFFER)) == OFFER
    chunk = Chunk(bytes(range(16)), 2, b"some bytes")
    assert unpack_chunk(pack_chunk(chunk)) == chunk
    assert unpack_fetch(pack_fetch(chunk.bundle, [5, 1])) == messages.Fetch(chunk.bundle, (5, 1))


def test_only_a_chunks_own_bytes_are_right() -> None:
    assert [OFFER.is_right(k, DATA[k * 4_096 : (k + 1) * 4_096]) for k in range(3)] == [True] * 3
    assert not OFFER.is_right(2, DATA[8_192:] + b"x")
    assert not OFFER.is_right(0, DATA[4_096:8_192])


@pytest.mark.parametrize("cut", [1, 3, 20, 44, 60])
def test_a_message_that_is_cut_or_too_long_by_a_byte_is_dropped(cut: int) -> None:
    for pack, unpack in ((pack_offer(OFFER), unpack_offer), (pack_fetch(bytes(16), [1, 2]), unpack_fetch)):
        for payload in (pack[:-cut], pack + bytes(cut)):
            with pytest.raises(WireError):
                unpack(payload)


def test_an_offer_says_whether_it_may_replace_another_program() -> None:
    flags = [pack_offer(replace(OFFER, replaces=replaces))[42:44] for replaces in (False, True)]
    assert flags == [b"\0\0", b"\1\0"]
    assert unpack_offer(pack_offer(replace(OFFER, replaces=True))).replaces


def changed(**changes: int) -> bytes:
    """An offer with other fields in its head."""
    head = {"chunk": 4_096, "size": len(DATA), "roots": 2, "flags": 0, **changes}
    pack = messages._OFFER.pack(1, 3, head["chunk"], head["size"], OFFER.sha256, head["roots"], head["flags"])
    return pack + pack_offer(OFFER)[messages._OFFER.size :]


@pytest.mark.parametrize(
    "changes",
    [{"chunk": 4_095}, {"chunk": 32_769}, {"size": 0}, {"size": 2**32 - 1}, {"roots": 65}, {"roots": 3}, {"flags": 2}],
)
def test_an_offer_out_of_bounds_is_dropped(changes: dict[str, int]) -> None:
    with pytest.raises(WireError) as caught:
        unpack_offer(changed(**changes))
    assert caught.value.reason == "malformed"


def test_a_message_that_is_too_large_is_dropped_before_it_is_looked_at() -> None:
    with pytest.raises(WireError) as caught:
        unpack_offer(pack_offer(OFFER) + bytes(MAX_MESSAGE_BYTES))
    assert caught.value.reason == "oversized"
    with pytest.raises(WireError) as caught:
        unpack_chunk(pack_chunk(Chunk(bytes(16), 0, bytes(MAX_CHUNK_BYTES + 1))))
    assert caught.value.reason == "oversized"


def test_random_bytes_are_dropped_and_nothing_else_happens() -> None:
    rng = random.Random(3)
    whole = [pack_offer(OFFER), pack_fetch(bytes(16), [1]), pack_chunk(Chunk(bytes(16), 1, b"x" * 40))]
    for _ in range(2_000):
        data = bytearray(rng.choice(whole))
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(min(len(data), 90))] = rng.randrange(256)
        for unpack in (unpack_offer, unpack_chunk, unpack_fetch):
            with contextlib.suppress(WireError):
                unpack(bytes(data))
