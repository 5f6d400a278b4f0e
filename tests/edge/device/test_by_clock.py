# SPDX-License-Identifier: Apache-2.0
"""A device by the clock: real threads, real time, and a plug-in that hangs; and items with sizes and budgets."""

from __future__ import annotations

import sys
import threading
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.load import Loaded, load_bytes
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.device.by_clock import RoundTrips
from hardcase_edge.device.device import Device, RuntimeConfig
from hardcase_edge.errors import BundleError, InputError
from hardcase_edge.link.wire import OK, Reply
from hardcase_edge.more.audits.bank import AuditedBank
from hardcase_edge.program.definition import MICRO, Program
from hardcase_edge.program.readings import request_bytes
from hardcase_edge.sensors.bank import SensorBank, Wanted, wanted_of
from hardcase_edge.sensors.items import Item, item_of
from hardcase_edge.sensors.specs import open_bank
from tests.helpers.cloud.brokers import until
from tests.helpers.edge.device import HARD, FakeBank, FakeLink, make_bundle_bytes, make_loaded
from tests.helpers.edge.hybrid import hybrid

MS = MICRO  # micro-units of a bundle by the clock


def make_hybrid(seed: int = 1, **more: Any) -> tuple[Program, bytes]:
    """Three extractors of 1 to 20 ms, and the bundle of all their any-time states."""
    program = hybrid(seed, n=3, max_item_size=1, dearest=20 * MS)
    names = tuple("abc")
    manifest = Manifest("made", "ms", names, names, ("low", "high"), **{"clock": True, **more})
    return program, pack_bundle(Bundle(manifest.to_json(), program, ()))


class Extractors:
    """A source whose reads take as long as told, or hang until they are let go."""

    is_instant = False

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self.seconds = seconds or {}
        self.calls: list[str] = []
        self.at_once = self.most_at_once = 0
        self.let_go = threading.Event()

    def lacks(self, wanted: Wanted) -> str:
        return ""

    def next_item(self) -> bool:
        return True

    def read(self, sensor: str) -> object:
        self.at_once += 1
        self.calls.append(sensor)
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.let_go.wait(self.seconds.get(sensor, 0.0))
        self.at_once -= 1
        return 1.0

    def close(self) -> None:
        self.let_go.set()


def device_of(loaded: Loaded, source: Extractors, timeout_s: float = 60.0, **config: Any) -> Device:
    program = loaded.machine.program
    wanted = wanted_of(program, loaded.manifest)
    bank = SensorBank(wanted, {w.name: source for w in wanted}, timeout_s=timeout_s)
    return Device(loaded, bank, None, RuntimeConfig(**config))


def test_extractors_are_read_one_after_the_other_and_what_they_took_is_spent() -> None:
    loaded = load_bytes(make_hybrid()[1])
    source = Extractors(dict.fromkeys("abc", 0.002))
    (record,) = device_of(loaded, source, budget=60_000.0, count=1).run()
    assert source.calls == ["a", "b", "c"] == record["sensors"]
    assert source.most_at_once == 1
    assert 6 <= record["cost"] <= record["latency_ms"]
    assert (record["budget"], record["item_size"], record["late"], record["route"]) == (60_000.0, 1, False, "local")


def test_a_reading_that_passes_the_deadline_is_given_up_and_the_next_item_is_not_harmed() -> None:
    hangs = "b"
    loaded = load_bytes(make_hybrid()[1])
    source = Extractors({hangs: 60.0})
    device = device_of(loaded, source, timeout_s=2.1, budget=2_000.0, count=4)
    records = list(device.run())
    assert len(records) == 4, "there is always an answer"
    assert (records[0]["sensors"], records[0]["failed"], records[0]["route"]) == (["a", "b"], ["b"], "degraded")
    for record in records[1:]:
        assert record["latency_ms"] < 2_000, "nobody waits for a read that was given up"
        assert hangs not in record["sensors"]
    assert source.calls.count(hangs) == 1, "a read that is under way is not asked again"
    source.let_go.set()


def test_a_read_that_was_given_up_but_comes_back_before_the_next_item_is_forgiven() -> None:
    loaded = load_bytes(make_hybrid()[1])
    source = Extractors({"a": 60.0})
    device = device_of(loaded, source, budget=1_000.0, count=2)
    records = []
    for record in device.run():
        records.append(record)
        source.let_go.set()
        until(lambda: source.calls.count("a") == len(records) and source.at_once == 0)
        source.let_go.clear()
    assert [r["failed"] for r in records] == [["a"], ["a"]]
    assert source.calls.count("a") == 2
    assert device.facts()["sensors"] == {"late": 2}
    assert all(r["latency_ms"] >= 1_000 for r in records)


def test_without_the_clock_the_same_bundle_reads_as_ever_and_its_record_has_no_new_key() -> None:
    loaded = load_bytes(make_hybrid(clock=False)[1])
    (record,) = device_of(loaded, Extractors(), budget=1000.0, count=1).run()
    assert not {"late", "budget", "item_size"} & set(record)
    declared = sum(s.cost[0] for s in loaded.machine.program.sensors) / MICRO
    assert record["cost"] == pytest.approx(declared)


class Late:
    """Time that passes with each reply, and no other way."""

    def __init__(self, link: FakeLink, reply_s: float) -> None:
        self.at, self._link, self._reply_s = 1000.0, link, reply_s
        self._ask, link.ask = link.ask, self.ask  # type: ignore[method-assign]
        self.waits: list[float] = []

    def now(self) -> float:
        return self.at

    def ask(self, readings: Any, deadline_s: float, may_resend: Callable[[], bool]) -> Any:
        self.waits.append(deadline_s)
        self.at += min(self._reply_s, deadline_s)
        reply = self._ask(readings, deadline_s, may_resend)
        return reply if self._reply_s <= deadline_s else None


def ask_in(budget: float, reply_s: float, n: int = 1) -> tuple[list[dict[str, Any]], Late]:
    link = FakeLink([Reply(bytes(16), bytes(range(32)), OK, 0, 9_000)] * n)
    clock = Late(link, reply_s)
    loaded = load_bytes(make_bundle_bytes(unit="ms", clock=True))
    device = Device(
        loaded, FakeBank([HARD] * n), link, RuntimeConfig(budget=budget), now=clock.now, monotonic=clock.now,
        wait=lambda s: None,
    )  # fmt: skip
    return list(device.run()), clock


def test_the_cloud_gets_what_is_left_of_the_budget_and_costs_what_it_took() -> None:
    (record,), clock = ask_in(budget=500.0, reply_s=0.2)
    assert clock.waits == pytest.approx([0.5])
    assert (record["route"], record["cost"], record["late"]) == ("cloud", 200.0, False)


def test_a_reply_that_would_come_too_late_is_not_waited_for() -> None:
    (record,), clock = ask_in(budget=500.0, reply_s=5.0)
    assert clock.waits == pytest.approx([0.5])
    assert (record["route"], record["cost"], record["late"]) == ("degraded", 500.0, False)


def test_a_cloud_that_was_too_slow_each_time_is_not_asked_until_that_is_forgotten() -> None:
    records, clock = ask_in(budget=500.0, reply_s=0.6, n=6)
    assert [r["route"] for r in records] == ["degraded"] * 6
    assert len(clock.waits) == 6, "waits are no longer than what is left, so nothing longer is ever expected"
    trips = RoundTrips()
    for seconds in (0.3, 0.3, 0.3, 0.9):
        trips.add(seconds)
    assert trips.expected_s == 0.9
    trips.forget_one()
    trips.forget_one()
    assert trips.expected_s == 0.0


def test_a_cloud_that_takes_longer_than_an_item_has_buys_it_no_sensor_until_that_is_forgotten() -> None:
    link = FakeLink([Reply(bytes(16), bytes(range(32)), OK, 0, 9_000)] * 12)
    clock = Late(link, 0.2)
    bank = FakeBank([HARD] * 12)
    budgets = iter([500.0] * 4 + [190.0] * 2 + [500.0])
    device = Device(
        load_bytes(make_bundle_bytes(unit="ms", clock=True)), bank, link, RuntimeConfig(),
        now=clock.now, monotonic=clock.now, wait=lambda s: None,
    )  # fmt: skip
    records = []
    for budget in budgets:
        bank.item = Item(None, round(budget * MS))
        assert bank.next_item()
        records.append(device.decide())
    assert [r["route"] for r in records] == ["cloud"] * 4 + ["degraded"] * 2 + ["cloud"]
    assert len(clock.waits) == 5
    assert records[4]["sensors"] == records[0]["sensors"][:1], "what only the cloud wanted is not read"


def test_a_manifest_by_the_clock_counts_in_milliseconds() -> None:
    assert make_loaded(unit="ms", clock=True).manifest.clock
    assert "clock" not in make_loaded().manifest.to_json()
    with pytest.raises(BundleError, match="the manifest's clock is not true with the unit ms"):
        make_loaded(unit="mJ", clock=True)


@pytest.mark.parametrize("value", [False, 1, "true", None])
def test_a_clock_that_is_not_true_is_refused(value: Any) -> None:
    program, data = make_hybrid()
    manifest = load_bytes(data).manifest.to_json() | {"clock": value}
    with pytest.raises(BundleError, match="the manifest's clock"):
        Manifest.from_json(manifest, program)


# ---------------------------------------------------------------- items


@pytest.mark.parametrize(
    ("size", "budget", "expected"),
    [
        (1, None, Item(1, None)),
        (128.0, 0, Item(128, 0)),
        (np.int64(7), np.float32(0.5), Item(7, 500_000)),
        (None, "", None), (None, None, Item(None, None)),
        (0, None, None), (-3, None, None), (129, None, None), (2.5, None, None), (True, None, None), ("16", None, None),
        (float("nan"), None, None), (float("inf"), None, None), ([16], None, None), (10**400, None, None),
        (16, -1, None), (16, float("nan"), None), (16, 1e13, None), (16, "2", None), (16, 10**400, None),
        (16, [], None),
    ],
)  # fmt: skip
def test_a_size_and_a_budget_are_looked_at_before_they_are_used(size: Any, budget: Any, expected: Item | None) -> None:
    item = item_of(size, budget, largest=128)
    if expected is not None:
        assert item == expected
    else:
        assert item.fault
        assert "\n" not in item.fault
        assert item.budget is None


def write_module(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (folder / f"{name}.py").write_text(text)
    monkeypatch.chdir(folder)


def sized() -> tuple[Program, bytes]:
    program = hybrid(3, n=2, max_item_size=9, dearest=MS // 100)
    return program, pack_bundle(
        Bundle(Manifest("made", "ms", ("a", "b"), ("a", "b"), (0, 1), clock=True).to_json(), program, ())
    )


ITEMS = """
def items():
    yield "one", 1, None
    yield "nine", 9, 5_000.0
    yield "ten", 10, 5_000.0
    yield "half", 2.5, 5_000.0
    yield "none", 0, 5_000.0
    yield "poor", 9, 0.000001
    yield "unlimited", 5

def read(sensor, item):
    seen.append((sensor, item))
    return 1.0
seen = []
"""


def test_items_give_their_sizes_and_budgets_and_the_plug_in_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edge: Callable[..., Any]
) -> None:
    write_module(tmp_path, ITEMS, monkeypatch, "sized_items")
    (tmp_path / "model.hcb").write_bytes(sized()[1])
    _, lines, err = edge(
        "run", "model.hcb", "--sensors", "sized_items:read", "--items", "sized_items:items", "--budget", 4_000
    )
    import sized_items  # type: ignore[import-not-found]

    assert [(r["item_size"], r["budget"]) for r in lines] == [
        (1, 4e3), (9, 5e3), (None, 4e3), (None, 4e3), (None, 4e3), (9, 0.000001), (None, 4e3)
    ]  # fmt: skip
    assert sized_items.seen == [("a", "one"), ("b", "one"), ("a", "nine"), ("b", "nine")]
    assert [r["sensors"] for r in lines[2:]] == [[]] * 5
    assert [bool(r["failed"]) for r in lines[2:]] == [True, True, True, False, True]
    assert lines[5]["late"], "a thousandth of a microsecond is over before the answer"
    for part in (
        "size 10 of an item is not a whole number from 1 to 9",
        "size 2.5",
        "size 0 of",
        "(item, size, budget)",
    ):
        assert part in err
    assert "a budget of 1e-06 is less than any sensor costs; the answer is a guess" in err


def test_a_run_by_the_clock_has_plug_ins_give_python_s_lock_back_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edge: Callable[..., Any]
) -> None:
    told: list[float] = []
    monkeypatch.setattr(sys, "setswitchinterval", told.append)
    (tmp_path / "data.csv").write_text("a,b,x\n1,1,1\n")
    (tmp_path / "vib.csv").write_text("x,vib[0],vib[1],vib[2],vib[3],vib[4]\n3,1,2,3,4,5\n")
    (tmp_path / "clock.hcb").write_bytes(sized()[1])
    (tmp_path / "plain.hcb").write_bytes(make_bundle_bytes())
    edge("run", str(tmp_path / "plain.hcb"), "--sensors", f"replay:{tmp_path / 'vib.csv'}")
    assert told == []
    edge("run", str(tmp_path / "clock.hcb"), "--sensors", f"replay:{tmp_path / 'data.csv'}")
    assert told == [0.0005, sys.getswitchinterval()], "and as it was once the run is over"


def test_the_columns_of_a_replay_give_sizes_and_budgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edge: Callable[..., Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.hcb").write_bytes(sized()[1])
    Path("data.csv").write_text("a,b,item_size,budget\n1,1,9,50\n1,1,,\n1,1,12,50\n1,1,x,50\n")
    _, lines, err = edge("run", "model.hcb", "--sensors", "replay:data.csv", "--budget", "40", "--item-size", "3")
    assert [(r["item_size"], r["budget"]) for r in lines] == [(9, 50.0), (3, 40.0), (None, 40.0), (None, 40.0)]
    assert "size 12.0 of an item" in err
    assert "size 'x' of an item" in err


def test_a_column_of_that_name_means_nothing_to_a_bundle_without_sizes_or_clock(
    tmp_path: Path, edge: Callable[..., Any]
) -> None:
    (tmp_path / "model.hcb").write_bytes(make_bundle_bytes())
    (tmp_path / "data.csv").write_text("x,vib[0],vib[1],vib[2],vib[3],vib[4],budget\n3,1,2,3,4,5,0\n")
    _, lines, _ = edge("run", str(tmp_path / "model.hcb"), "--sensors", f"replay:{tmp_path / 'data.csv'}")
    assert lines[0]["sensors"] == ["x"]


def open_items(program: Program, manifest: Manifest, text: str, **more: Any) -> SensorBank:
    name = f"items_{zlib.crc32(text.encode())}"
    Path(f"{name}.py").write_text(text)
    sys.path.insert(0, str(Path.cwd()))
    try:
        return open_bank([f"{name}:read"], program, manifest, items=f"{name}:items", **more)
    finally:
        sys.path.remove(str(Path.cwd()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def items(): return 3\ndef read(s, i): return 1", "items failed: TypeError"),
        ("def read(s, i): return 1", "has no function items"),
        (
            "def items():\n  yield 1 / 0\ndef read(s, i): return 1",
            "failed: ZeroDivisionError: division by zero; mend it",
        ),
    ],
)
def test_an_item_function_that_fails_ends_the_run_in_one_line(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = load_bytes(sized()[1])
    with pytest.raises(InputError, match=message):
        open_items(loaded.machine.program, loaded.manifest, text).next_item()


def test_an_audit_costs_what_its_own_item_costs() -> None:
    program, data = sized()
    loaded = load_bytes(data)

    asking = replace(program, uplink=replace(program.uplink, features=(0,), request_bytes=request_bytes(["f32"])))
    bank = FakeBank([3.0], item=Item(9, None))
    bank.next_item()
    audited = AuditedBank(bank, asking, 1)
    cost = sum(c * 9**k for k, c in enumerate(program.sensors[0].cost)) / MICRO
    assert audited.request_readings() == ([3.0], cost)
    assert loaded.manifest.clock
