# SPDX-License-Identifier: Apache-2.0
"""Attacks on a device's surroundings: a broker that sends anything, and plug-ins that return anything.

The broker is a server on loopback that mostly shakes hands as MQTT 5 wants it and then sends packets that are cut,
flipped, of absurd lengths, or well-formed with contents that nobody asked for. The device asks all the while.
"""

from __future__ import annotations

import logging
import math
import random
import socket
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest import mock

import numpy as np

from hardcase_cloud.mqtt.packets import packet
from hardcase_edge.exchange.exchange import Circuit
from hardcase_edge.link import rivals
from hardcase_edge.link.link import Link, LinkConfig
from hardcase_edge.link.wire import Reply, reply_topic
from hardcase_edge.sensors.bank import FAILURES, SensorBank, Wanted
from tests.helpers.attack.outcome import Attack, Odd, Outcome
from tests.helpers.edge.device import HPC, make_manifest, make_program, usual_reply
from tests.helpers.server import Server

DEADLINE_S = 0.02
LATE_S = 10.0  # behind the deadline: far more than a busy machine needs to wake a thread
REASONS = (0x00, 0x10, 0x80, 0x81, 0x83, 0x84, 0x87, 0x8D, 0x8E, 0x93, 0x95, 0x97, 0x99, 0x9B, 0xA2, 0xFF)
READINGS = (0.5, 1.0, 2.0, None, 4.0)


def attack(seconds: float, seed: int) -> list[Outcome]:
    """Both attacks, half the time each."""
    return [hostile_broker(seconds / 2, seed), *hostile_values(seconds / 2, seed)]


# ---------------------------------------------------------------- a hostile broker


def hostile_broker(seconds: float, seed: int) -> Outcome:
    """Inputs are packets. Wrong is a reply that no HPC of this program can give, or one that came after its time."""
    problems: list[str] = []
    slowest = 0.0
    with HostileBroker(random.Random(seed)) as broker, _linked(broker.port, problems) as link:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not link.can_ask:
                time.sleep(0.0005)
                continue
            began, cpu = time.monotonic(), time.thread_time()
            reply = link.ask(READINGS, DEADLINE_S)
            slowest = max(slowest, time.thread_time() - cpu)
            if time.monotonic() - began > DEADLINE_S + LATE_S:
                problems.append(f"an answer after {time.monotonic() - began:.3f} s")
            if reply is not None and not _is_possible(reply):
                problems.append(f"a wrong reply {reply}")
        assert link._connection._thread is not None
        died = not link._connection._thread.is_alive()
        n_replies = link.counters["replies"]
    wrong = sum(p.startswith("a") for p in problems)
    what = f"a hostile broker: {broker.n_connections} connections, {n_replies} replies accepted"
    return Outcome(what, broker.n_packets, died + len(problems) - wrong, wrong, slowest)


def _is_possible(reply: Reply) -> bool:
    return reply.hpc == HPC and (reply.status != 0 or (0 <= reply.result < 2 and 0 <= reply.confidence <= 10_000))


@contextmanager
def _linked(port: int, problems: list[str]) -> Iterator[Link]:
    """A link that tries again at once, whatever the broker says; what it logs as a bug is a problem."""

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.ERROR:
                problems.append(f"logged: {record.getMessage()}")

    knobs = {
        "retry_first_s": 0.002, "retry_most_s": 0.004, "refused_retry_s": 0.004, "connect_timeout_s": 0.1,
        "protocol": 5,
    }  # fmt: skip
    config = LinkConfig.to_broker(f"mqtt://127.0.0.1:{port}", "dev-1", **knobs)
    config = LinkConfig(connection=config.connection, stop_wait_s=0.05)
    link = Link(config, make_program(), make_manifest())
    logger, notes = logging.getLogger("hardcase_edge"), Notes()
    before = logger.propagate
    logger.addHandler(notes)
    logger.propagate = False
    no_pause = mock.patch.multiple(rivals, PAUSE_S=0.002, MOST_PAUSE_S=0.004)
    with no_pause, mock.patch.object(Circuit, "lets_through", return_value=True):
        link.start(1.0)
        try:
            yield link
        finally:
            link.stop()
            logger.removeHandler(notes)
            logger.propagate = before


class HostileBroker(Server):
    """``n_packets`` counts what it has sent after its greetings."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(self._say)
        self.n_connections = self.n_packets = 0
        self._rng = rng

    def _say(self, peer: socket.socket) -> None:
        rng = self._rng
        self.n_connections += 1
        peer.settimeout(0.001)
        seen = _wait_for(peer)
        if rng.random() < 0.1:
            self._send(peer, rng.randbytes(rng.randrange(200)))
            return
        if rng.random() < 0.1:
            self._send(peer, packet(0x20, bytes([0, rng.choice(REASONS)]) + _properties(rng)))
            return
        peer.sendall(packet(0x20, bytes([0, 0, 0])))
        subscribe = _wait_for(peer)
        reason = 1 if rng.random() < 0.9 else rng.choice(REASONS)
        peer.sendall(packet(0x90, subscribe[2:4] + bytes([0, reason])))
        for _ in range(rng.randrange(100)):
            with suppress(TimeoutError):
                seen = (seen + peer.recv(4096))[-4096:]
            self._send(peer, self._anything(seen))

    def _send(self, peer: socket.socket, data: bytes) -> None:
        peer.sendall(data)
        self.n_packets += 1

    def _anything(self, seen: bytes) -> bytes:
        """A packet as the standard has it, with contents of our own, or a damaged one, which mostly ends it all."""
        rng = self._rng
        data = self._packet(seen)
        damage = rng.randrange(100)
        if damage == 0:
            return data[: rng.randrange(len(data) + 1)]
        if damage == 1:
            return data[:1] + b"\xff\xff\xff\x7f" + data[2:]  # claims 256 MB
        if damage == 2:
            return data[:1] + b"\xff\xff\xff\xff\xff" + data[2:]  # a length that does not end
        if damage in (3, 4):
            flipped = bytearray(data)
            for _ in range(rng.randrange(1, 4)):
                flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
            return bytes(flipped)
        return data

    def _packet(self, seen: bytes) -> bytes:
        rng = self._rng
        at = seen.rfind(HPC)  # of a request: its id stands in front of the HPC
        id_ = seen[at - 16 : at] if at >= 16 and rng.random() < 0.7 else rng.randbytes(16)
        kind = rng.randrange(100)
        if kind < 90:
            topic = rng.choice([*[reply_topic("dev-1")] * 40, reply_topic("dev-2"), "", "#", "a/\x00"]).encode()
            payload = bytearray(usual_reply(mock.Mock(id=id_), result=rng.randrange(2)))
            if rng.random() < 0.8:
                payload[rng.randrange(len(payload))] = rng.randrange(256)
            head = len(topic).to_bytes(2, "big") + topic
            qos = rng.choice([0, 1, 2])
            mid = rng.randbytes(2) if qos else b""
            return packet(0x30 | qos << 1 | rng.randrange(2), head + mid + _properties(rng) + bytes(payload))
        if kind < 97:  # acknowledgements of packets that nobody sent, and of those that the device did send
            mid = rng.randrange(8).to_bytes(2, "big")
            return packet(rng.choice([0x40, 0x50, 0x62, 0x70, 0x90, 0xB0]), mid + bytes([rng.choice(REASONS), 0]))
        if kind == 97:
            return packet(0xE0, bytes([rng.choice(REASONS)]) + _properties(rng))
        if kind == 98:
            return packet(0xF0, bytes([0x18]) + _properties(rng))
        return packet(rng.randrange(256), rng.randbytes(rng.randrange(64)))


def _wait_for(peer: socket.socket) -> bytes:
    """What the device sends first, for which a busy machine may need a while."""
    for _ in range(1000):
        with suppress(TimeoutError):
            return peer.recv(4096)
    return b""


def _properties(rng: random.Random) -> bytes:
    """None, a correlation that fits nothing, random ones, or a length that reaches beyond the packet."""
    correlation = b"\x09\x00\x10" + rng.randbytes(16)
    some = rng.choice(
        [*[b""] * 30, *[correlation] * 9, rng.randbytes(rng.randrange(20)), b"\x26\x00\x01a\x00\x01b" * 3]
    )
    return bytes([len(some) if rng.random() < 0.98 else rng.randrange(256)]) + some


# ---------------------------------------------------------------- values of a plug-in


ERRORS = (None, None, ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, RecursionError)  # of odd objects


def values(rng: random.Random) -> Generator[tuple[SensorBank, list[Wanted]], None, None]:
    """Reads of a plug-in that gives anything."""
    wanted = [
        Wanted("one", ("a",), (False,)),
        Wanted("two", ("a", "b"), (False, True), categories=({"dry": 0, "1": 1}, {})),
        Wanted("five", ("m", "d", "s", "r"), (False,) * 4, window=5),
    ]
    given: dict[str, object] = {}
    with SensorBank(wanted, dict.fromkeys([w.name for w in wanted], _Source(given.get)), timeout_s=60.0) as bank:
        while True:
            given.update({w.name: _value(rng, w.count) for w in wanted})
            yield bank, wanted


def are_readings(case: tuple[SensorBank, list[Wanted]], readings: Any) -> bool:
    """Finite ints and floats, no text among them, and failures that are counted."""
    bank, wanted = case
    return all(map(_are_plain, (readings[k] for k in range(3)), wanted)) and set(bank.counters) <= set(FAILURES)


hostile_values = Attack(
    "values of a plug-in", values, lambda case: case[0].read([0, 1, 2]), are_readings, caught=BaseException
)


class _Source:
    is_instant = False

    def __init__(self, read: Callable[[str], object]) -> None:
        self.read = read

    def lacks(self, wanted: Wanted) -> str:
        return ""

    def next_item(self) -> bool:
        return True

    def close(self) -> None:
        pass


def _value(rng: random.Random, count: int) -> object:
    items = [_item(rng) for _ in range(count if rng.random() < 0.8 else rng.randrange(8))]
    return rng.choice(
        [items, tuple(items), _item(rng), Odd(rng, *ERRORS), dict(enumerate(items)), items if items else None]
    )


def _item(rng: random.Random) -> object:
    number = rng.choice([rng.gauss(0, 1), rng.randrange(-9, 9), 10**400, 1e308, math.inf, math.nan, True, None])
    odd = [
        Odd(rng, *ERRORS),
        "dry",
        "1e0",
        "\u0661",
        b"0.5",
        [1],
        1j,
        np.float32(0.5),
        np.str_("dry"),
        np.datetime64(0, "s"),
    ]
    return number if rng.random() < 0.7 else rng.choice(odd)


def _are_plain(readings: Any, wanted: Wanted) -> bool:
    if readings is None:
        return True
    pairs = zip(readings, wanted.nullable, strict=True)
    plain = [may if x is None else type(x) in (int, float) and math.isfinite(x) for x, may in pairs]
    return len(readings) == len(wanted.features) and all(plain)
