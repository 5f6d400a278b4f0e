# SPDX-License-Identifier: Apache-2.0
"""A device that remembers: windows by the clock, restarts, other streams, and the decisions of evaluate."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from hardcase_edge.device.device import Device, RuntimeConfig
from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.streams import walk
from hardcase_edge.sensors.items import Item
from hardcase_edge.sensors.specs import open_bank
from tests.helpers.edge.device import FakeBank
from tests.helpers.edge.streams import CLASSES, layout, loaded, make_manifest, make_program, streams

STILL = {0: [0.0, 0], 1: [0.0]}  # nothing moves


class Bank(FakeBank):
    """Equal readings in every window."""

    stream: object = None

    def read(self, sensors):
        return {s: STILL[s] for s in sensors}


class Clocks:
    def __init__(self) -> None:
        self.monotonic_s = self.wall_s = 0.0

    def wait(self, seconds: float) -> None:
        self.monotonic_s += seconds
        self.wall_s += seconds


def device(bank: Bank, clocks: Clocks, **knobs) -> Device:
    config = RuntimeConfig(**knobs)
    now, monotonic = (lambda: clocks.wall_s), (lambda: clocks.monotonic_s)
    return Device(loaded(), bank, None, config, now=now, monotonic=monotonic, wait=clocks.wait)


def buys(record: dict) -> bool:
    return "gyro" in record["sensors"]


def test_the_first_window_buys_and_a_restart_forgets() -> None:
    bank, clocks = Bank([]), Clocks()
    first = device(bank, clocks)
    assert [buys(first.decide()) for _ in range(9)] == [True, *[False] * 6, True, False]
    assert buys(device(bank, clocks).decide()), "the memory was in the process that ended"


@pytest.mark.parametrize("clock", ["monotonic_s", "wall_s"])
def test_windows_that_were_missed_have_passed(clock: str) -> None:
    clocks = Clocks()
    one = device(Bank([]), clocks, interval_s=10.0)

    def decided_after(seconds: float, wall: str = "") -> bool:
        clocks.wait(seconds)
        if wall:
            setattr(clocks, wall, getattr(clocks, wall) + 60.0)
        return buys(one.decide())

    assert decided_after(0.0)
    assert not decided_after(10.0)
    assert not decided_after(13.0), "late, but the next window"
    assert decided_after(10.0, clock), "six windows more"
    assert not decided_after(10.0)
    clocks.wall_s -= 3600.0
    assert not decided_after(10.0), "a clock that is put back takes nothing away"
    clocks.wall_s = float("inf")
    assert not decided_after(10.0)


def test_another_stream_and_an_item_that_cannot_be_used() -> None:
    bank = Bank([])
    one = device(bank, Clocks())
    assert [buys(one.decide()) for _ in range(2)] == [True, False]
    bank.item = Item(None, None, fault="its size is odd")
    assert one.decide()["failed"], "nothing was read"
    bank.item = None
    assert not buys(one.decide()), "what was held before is still held"
    bank.stream = "another"
    assert [buys(one.decide()) for _ in range(2)] == [True, False]


def test_a_replay_decides_as_evaluate_stream_by_stream(tmp_path: Path) -> None:
    program, names = make_program(), ("still", "odd", "even")
    X, sequence = streams(7, n=40)
    sequence = np.sort(sequence)
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["tilt", "step", "spin", "user"])
        for row, user in zip(X[:, :3].tolist(), sequence.tolist(), strict=True):
            tilt, step, spin = ("" if x != x else repr(x) for x in row)
            table.writerow([tilt, step and str(int(float(step))), spin, names[user]])
    manifest = make_manifest(trained={"data": {"sequence": "user"}})
    bundle = loaded(trained={"data": {"sequence": "user"}})
    bank = open_bank([f"replay:{path}"], program, manifest)
    records = list(Device(bundle, bank, None, RuntimeConfig()).run())
    outcome = walk(program, layout(), X, sequence)[1]
    assert [CLASSES.index(r["label"]) for r in records] == outcome.label.tolist()
    assert [r["cost"] for r in records] == outcome.cost.tolist()
    with pytest.raises(InputError, match="the device fills the inner sensor memory itself"):
        open_bank([f"replay:{path}", "memory=none"], program, manifest)
