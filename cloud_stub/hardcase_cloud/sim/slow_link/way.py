# SPDX-License-Identifier: Apache-2.0
"""Packets on their way over a poor link: lost, late, twice, overtaken or cut off; without I/O or a clock.

    way = Way(Weather(loss=0.02, least_s=0.01, most_s=0.03), n_devices=100, chance=Random())
    way.take(now, side, packet)        an IPv4 packet has come from this side
    way.ready(now)                     the packets that arrive now, each with the side that it came from
    way.due()                          when the next one does

A device is known by its address, which is the first device's plus its number.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass
from random import Random

DEVICES = 0x0A60_0001  # 10.96.0.1, the address of device 0
MAX_WAITING = 100_000  # packets on their way; the queue of a real link is bounded, too
SLOW = 5  # times as long takes a packet that others overtake, as in virtual time
IPV4, HEADER_BYTES = 4, 20
FLEET, BROKER = 0, 1  # the sides


@dataclass(frozen=True)
class Weather:
    """What happens to packets, each by itself, in both directions; shares are 0 to 1."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    least_s: float = 0.0  # how long a packet takes at least ...
    most_s: float = 0.0  # ... and at most, unless others overtake it


class Way:
    """Both directions of the link.

    Parameters
    ----------
    weather : Weather
    n_devices : of the fleet
    chance : for all that is random

    Attributes
    ----------
    counters : Counter
        ``packets`` and ``bytes`` that came, and of these packets: ``lost``, ``cut`` off, ``twice``, ``overtaken``, and
        ``full`` for those that found too many on their way.
    """

    def __init__(self, weather: Weather, n_devices: int, chance: Random) -> None:
        self.counters: Counter[str] = Counter()
        self._weather, self._n_devices, self._chance = weather, n_devices, chance
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._n = 0
        self._cut_until: dict[int, float] = {}  # of the devices that are cut off

    def cut(self, share: float, until: float) -> None:
        """No packet of this share of the devices, chosen at random, arrives before this time."""
        for device in self._chance.sample(range(self._n_devices), round(share * self._n_devices)):
            self._cut_until[device] = max(until, self._cut_until.get(device, until))

    def take(self, now: float, side: int, packet: bytes) -> None:
        """Take a packet; what is not IPv4 goes nowhere."""
        if len(packet) < HEADER_BYTES or packet[0] >> 4 != IPV4:
            return
        counters, draw, weather = self.counters, self._chance.random, self._weather
        counters["packets"] += 1
        counters["bytes"] += len(packet)
        if self._cut_until and self._is_cut(now, side, packet):
            counters["cut"] += 1
        elif draw() < weather.loss:
            counters["lost"] += 1
        elif len(self._waiting) >= MAX_WAITING:
            counters["full"] += 1
        else:
            after_s = self._delay_s()
            if draw() < weather.reorder:
                counters["overtaken"] += 1
                after_s *= SLOW
            self._put(now + after_s, side, packet)
            if draw() < weather.duplicate:
                counters["twice"] += 1
                self._put(now + after_s + self._delay_s() - weather.least_s, side, packet)

    def due(self) -> float | None:
        """When the next packet arrives; None if none is on its way."""
        return self._waiting[0][0] if self._waiting else None

    def ready(self, now: float) -> list[tuple[int, bytes]]:
        """The packets that have arrived by now, in order, each with the side that it came from."""
        arrived = []
        while self._waiting and self._waiting[0][0] <= now:
            _, _, side, packet = heapq.heappop(self._waiting)
            arrived.append((side, packet))
        return arrived

    def _delay_s(self) -> float:
        return self._weather.least_s + self._chance.random() * (self._weather.most_s - self._weather.least_s)

    def _put(self, at: float, side: int, packet: bytes) -> None:
        self._n += 1  # packets of one time arrive in the order in which they came
        heapq.heappush(self._waiting, (at, self._n, side, packet))

    def _is_cut(self, now: float, side: int, packet: bytes) -> bool:
        address = packet[12:16] if side == FLEET else packet[16:20]
        device = int.from_bytes(address, "big") - DEVICES
        until = self._cut_until.get(device)
        if until is None:
            return False
        if until <= now:
            del self._cut_until[device]
        return until > now
