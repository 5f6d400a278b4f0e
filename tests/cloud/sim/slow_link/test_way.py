# SPDX-License-Identifier: Apache-2.0
"""Packets on a poor link: what is lost, late, doubled, overtaken and cut off, by seeded chance."""

from __future__ import annotations

from random import Random

import pytest

from hardcase_cloud.sim.slow_link import way as way_module
from hardcase_cloud.sim.slow_link.way import BROKER, DEVICES, FLEET, Way, Weather

N = 4_000


def packet(device: int, side: int = FLEET, number: int = 0) -> bytes:
    """An IPv4 packet of a device to the gate, or back."""
    ends = [(DEVICES + device).to_bytes(4, "big"), bytes([10, 64, 0, 1])]
    return bytes([0x45, *bytes(11)]) + b"".join(ends if side == FLEET else ends[::-1]) + number.to_bytes(4, "big")


def carried(weather: Weather, n: int = N) -> tuple[Way, list[tuple[int, bytes]]]:
    """What arrives of so many packets, one each millisecond, at the ends of milliseconds."""
    way, arrived = Way(weather, 1, Random(1)), []
    for k in range(n):
        arrived += way.ready(k / 1000)
        way.take(k / 1000, FLEET, packet(0, number=k))
    while (due := way.due()) is not None:
        arrived += way.ready(due)
    return way, arrived


def test_in_good_weather_all_arrive_at_once_and_in_order():
    way = Way(Weather(), 2, Random(1))
    sent = [(side, packet(k % 2, side, k)) for k, side in enumerate([FLEET, BROKER, BROKER, FLEET])]
    for side, data in sent:
        way.take(7.0, side, data)
    assert way.due() == 7.0
    assert way.ready(7.0) == sent
    assert (way.ready(8.0), way.due()) == ([], None)
    assert way.counters == {"packets": 4, "bytes": 96}


@pytest.mark.parametrize("what", ["loss", "duplicate"])
def test_a_share_of_the_packets_is_lost_or_comes_twice(what):
    way, arrived = carried(Weather(**{what: 0.1}, least_s=0.01, most_s=0.02))
    n = way.counters["lost" if what == "loss" else "twice"]
    assert 0.08 * N < n < 0.12 * N
    assert len(arrived) == (N - n if what == "loss" else N + n)
    assert len({data for _, data in arrived}) == (N - n if what == "loss" else N)


def test_packets_take_their_time_and_those_that_others_overtake_five_times_as_long():
    way = Way(Weather(reorder=0.1, least_s=0.01, most_s=0.02), 1, Random(2))
    times = []
    for _ in range(N):
        way.take(0.0, FLEET, packet(0))
        times.append(way.due())
        way.ready(1.0)
    late = [t for t in times if t > 0.02]
    assert len(late) == way.counters["overtaken"]
    assert 0.08 * N < len(late) < 0.12 * N
    assert min(times) >= 0.01
    assert min(late) >= 0.05
    assert max(late) <= 0.1


def test_those_that_are_cut_off_get_and_send_nothing_until_then_and_the_others_all():
    way = Way(Weather(), 10, Random(3))
    way.cut(0.3, 5.0)
    way.cut(0.3, 4.0)  # a shorter cut does not end the longer one
    for now in (4.9, 5.1):
        for device in range(10):
            for side in (FLEET, BROKER):
                way.take(now, side, packet(device, side))
        arrived = way.ready(now)
        gone = {k for k in range(10) if (FLEET, packet(k, FLEET)) not in arrived}
        assert gone == {k for k in range(10) if (BROKER, packet(k, BROKER)) not in arrived}
        assert len(gone) == (3 if now < 5 else 0)
    assert way.counters["cut"] == 6


def test_what_is_not_ipv4_and_what_finds_too_many_on_their_way_goes_nowhere(monkeypatch):
    monkeypatch.setattr(way_module, "MAX_WAITING", 3)
    way = Way(Weather(least_s=1.0, most_s=1.0), 1, Random(4))
    for data in (b"", bytes([0x60]) + bytes(47), packet(0)[:19], *[packet(0)] * 5):
        way.take(0.0, FLEET, data)
    assert len(way.ready(1.0)) == 3
    assert way.counters == {"packets": 5, "bytes": 120, "full": 2}
