# SPDX-License-Identifier: Apache-2.0
"""The link's process: two namespaces, a tun device in each, and a relay from the farther one to the real broker.

    devices' sockets -> tun | this process: Way | tun -> relay -> broker

``link.py`` starts it, with what it shall do as JSON on the first line of standard input. It answers with a line that
has the file descriptor of the devices' namespace, takes ``[share, seconds]`` for each cut, and ends with its counters
when its input closes. All of it is one loop on one thread, which is back in its first namespace before it begins.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

from .namespaces import add_tun, all_local, here, new_namespace
from .relay import DeviceSide
from .way import BROKER, DEVICES, FLEET, Way, Weather

GATE = "10.64.0.1"  # where the relay listens
FLEET_END, FLEET_MASK = "10.64.0.2", "255.255.255.252"
MASK, DEVICES_MASK = "255.192.0.0", "255.224.0.0"  # the gate reaches 10.64.0.0/10, of which 10.96.0.0/11 is devices
PACKET_BYTES = 2_048  # more than the 1,500 of a tun device
AT_ONCE = 64  # packets of one side before the other has its turn
BACKLOG = 1_024  # connections that wait to be accepted


def address_of(device: int) -> str:
    """The address of a device by its number."""
    return socket.inet_ntoa((DEVICES + device).to_bytes(4, "big"))


class _Carrier:
    """Moves packets between the two tun files, as ``Way`` says."""

    def __init__(self, files: tuple[int, int], way: Way, loop: asyncio.AbstractEventLoop) -> None:
        self._files, self._way, self._loop = files, way, loop
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        for side in (FLEET, BROKER):
            loop.add_reader(files[side], self._read, side)

    def _read(self, side: int) -> None:
        now = self._loop.time()
        for _ in range(AT_ONCE):
            try:
                packet = os.read(self._files[side], PACKET_BYTES)
            except BlockingIOError:
                break
            self._way.take(now, side, packet)
        self._send()

    def _send(self) -> None:
        for side, packet in self._way.ready(self._loop.time()):
            try:
                os.write(self._files[BROKER if side == FLEET else FLEET], packet)
            except OSError:  # the device's queue is full: lost, as on a real link
                self._way.counters["full"] += 1
        due = self._way.due()
        if due is not None and due < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._timer_at = self._loop.call_at(due, self._ring), due

    def _ring(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        self._send()


def _namespaces() -> tuple[int, tuple[int, int], socket.socket]:
    """The devices' namespace, the tun files of both sides, and the relay's listening socket; moves this thread."""
    new_namespace()
    all_local(address_of(0), DEVICES_MASK)
    fleet = add_tun("fleet", FLEET_END, FLEET_MASK)
    devices = here()
    new_namespace()
    broker = add_tun("broker", GATE, MASK)
    listener = socket.create_server((GATE, 0), backlog=BACKLOG)
    return devices, (fleet, broker), listener


async def _serve(asked: dict[str, Any], files: tuple[int, int], listener: socket.socket) -> dict[str, int]:
    """Carry and relay until standard input closes; returns the counters."""
    loop = asyncio.get_running_loop()
    way = Way(Weather(**asked["weather"]), asked["devices"], Random(asked["seed"]))
    _Carrier(files, way, loop)
    tasks: set[asyncio.Task[None]] = set()
    broker = (asked["host"], asked["port"])
    server = await loop.create_server(lambda: DeviceSide(broker, tasks), sock=listener, backlog=BACKLOG)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        share, seconds = json.loads(line)
        way.cut(share, loop.time() + seconds)
    server.close()
    return dict(way.counters)


def main() -> None:
    """Run the process."""
    with open(0, "rb", buffering=0, closefd=False) as raw:  # not a byte more, because the loop reads on
        settings = json.loads(raw.readline())
    try:
        with ThreadPoolExecutor(1) as other:
            devices, files, listener = other.submit(_namespaces).result()
    except OSError as error:
        print(json.dumps({"error": f"{error.strerror or error}"}), flush=True)
        return
    print(json.dumps({"namespace": devices, "port": listener.getsockname()[1]}), flush=True)
    began = time.process_time()
    counters = asyncio.run(_serve(settings, files, listener))
    cpu_ms = round(1000 * (time.process_time() - began))
    print(json.dumps({**counters, "cpu_ms": cpu_ms}), flush=True)


if __name__ == "__main__":
    main()
