# SPDX-License-Identifier: Apache-2.0
"""The component's exchange in C++ says what the devices' exchange says, over thousands of events."""

from __future__ import annotations

import random
import struct
import subprocess
from pathlib import Path

import pytest

from hardcase_edge.errors import WireError
from hardcase_edge.exchange.exchange import Exchange, Send
from hardcase_edge.link.wire import BUSY, OK, Reply, Request, pack_reply, pack_request, unpack_reply
from hardcase_export.to_esphome.folder import HERE
from tests.helpers.tools import need

HPC = bytes([7]) * 32
VALUES = struct.unpack("<2i", b"abcdefgh")


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that plays events."""
    (compiler,) = need("g++")
    out = tmp_path_factory.mktemp("exchange") / "player"
    source = Path(__file__).with_name("exchange.cpp")
    flags = ["-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined,address", f"-I{HERE / 'component'}"]
    subprocess.run([compiler, *flags, str(source), "-o", str(out)], check=True, timeout=120)
    return out


def reply_of(rng: random.Random, id_: bytes) -> bytes:
    """A reply to this request, seldom of another or damaged."""
    status = rng.choice((OK, OK, 1, BUSY, 3))
    result = rng.choice((1, 50, 2_000, 60_000, 60_001)) if status == BUSY else rng.choice((0, 2, 2, 3, -1))
    confidence = 0 if status == BUSY else rng.choice((0, 9_900, 10_001))
    hpc = HPC if rng.random() < 0.9 else bytes(32)
    data = bytearray(pack_reply(Reply(id_, hpc, status, result, confidence)))
    if rng.random() < 0.2:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data[: rng.choice((64, 64, 64, 64, 63, 0))]) + bytes(rng.random() < 0.05)


class Device:
    """The devices' exchange, with the lines that the other one is given and must say."""

    def __init__(self) -> None:
        self.exchange = Exchange(1_000, {})
        self.events: list[str] = []
        self.said: list[str] = []

    def turns(self, now: int) -> list[int]:
        """Milliseconds until something changes, and to the one before it."""
        exchange = self.exchange
        ends = [now + (exchange.due(now) or 0), exchange._until - 50, exchange._quiet_until, exchange.circuit._test_at]
        return [at - now - k for at in ends for k in (0, 1) if at - now - k > 0]

    def event(self, text: str, now: int, said: str = "") -> None:
        self.events.append(text)
        self.said.append(f"{said}|{int(self.exchange.can_ask(now))}")

    def received(self, now: int, data: bytes) -> None:
        reason = ""
        try:
            reply = unpack_reply(data, HPC, 3)
            counted = dict(self.exchange._counters)
            self.exchange.replied(now, reply.id, reply.answer, reply.result if reply.status == BUSY else 0)
            is_ours = self.exchange._counters.get("replies", 0) > counted.get("replies", 0)
            reason = "" if is_ours else "unknown"
        except WireError as error:
            reason = error.reason
        self.event(f"received {now} 0 0 {data.hex()}", now, f"{reason} ")

    def polled(self, now: int, connection: int, may: int) -> None:
        said, text = self.exchange.poll(now, connection), ""
        if isinstance(said, Send):
            if may & 2:
                self.exchange.sent()
            text = f"send {said.deadline_ms}"
            text += pack_request(Request(said.id, HPC, said.deadline_ms, VALUES), ["i32", "i32"]).hex()
        elif said is not None:
            text = "over {} {} {}".format(*((1, *said.reply) if said.reply else (0, 0, 0)))
        self.event(f"poll {now} {connection} {may}", now, text)


@pytest.mark.parametrize("seed", range(3))
def test_the_component_says_what_a_device_says(player: Path, seed: int) -> None:
    rng, device = random.Random(seed), Device()
    now, connection, may, id_ = 0, 1, 3, bytes(16)
    for _ in range(4_000):
        now += rng.choice((1, 40, 300, rng.randrange(3_000), *device.turns(now)))
        what = rng.randrange(12)
        if what < 4 and device.exchange.can_ask(now):
            id_, deadline, may = rng.randbytes(16), rng.choice((100, 2_000, 9_000)), rng.choice((3, 3, 3, 2))
            device.exchange.ask(now, id_, deadline, lambda may=may: bool(may & 1))
            device.event(f"ask {now} {deadline} 0 {id_.hex()}", now)
        elif what == 4:
            device.received(now, reply_of(rng, id_ if rng.random() < 0.9 else bytes(16)))
        elif what == 5 and rng.random() < 0.3:
            connection = connection + 1 if rng.random() < 0.7 else 0
            device.exchange.connected()
            device.event(f"connected {now} 0 0", now)
        device.polled(now, connection, may & (3 if rng.random() < 0.9 else 1))
    made = subprocess.run([player], input="\n".join(device.events) + "\n", capture_output=True, text=True, check=True)
    assert made.stdout.splitlines() == device.said
    counted = device.exchange._counters
    assert min(counted[name] for name in ("sent", "resent", "replies", "busy", "late")) >= 3
