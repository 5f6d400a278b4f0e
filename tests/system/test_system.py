# SPDX-License-Identifier: Apache-2.0
"""Everything together on a real mosquitto: a fleet decides while its worker dies and its broker goes away."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

from hardcase_cloud.answer.onnx_model import Hpc
from hardcase_cloud.sim.fleet.journal import Outcome
from hardcase_cloud.sim.fleet.sockets import Fleet
from hardcase_edge.device.device import Device, RuntimeConfig
from hardcase_edge.errors import InputError
from hardcase_edge.link.link import Link, LinkConfig
from hardcase_edge.program.readings import request_bytes

from ..helpers.cloud.brokers import free_port, running_mosquitto, until
from ..helpers.cloud.requests import DTYPES, PATIENT_MS, command, half_forwarding, write_model
from ..helpers.edge.device import HARD, Cloud, FakeBank, make_loaded

N_DEVICES, N_ITEMS, N_BETWEEN = 20, 6000, 200
DEADLINE_MS = 5000
PACE = RuntimeConfig(deadline_ms=DEADLINE_MS, interval_s=0.13)


@dataclass
class Outage:
    """When the cloud was away, in seconds of time.monotonic()."""

    began: float
    ended: float = float("inf")

    def touches(self, o: Outcome) -> bool:
        return o.began < self.ended and o.began + o.latency_ms / 1000 > self.began


@pytest.fixture(scope="module")
def hpc(tmp_path_factory):
    return Hpc(write_model(tmp_path_factory.mktemp("hpc")))


def rows_of(n: int) -> np.ndarray:
    """Rows of two readings; about half are above 0 in the first and so are forwarded."""
    return np.random.default_rng(7).normal(size=(n, 2)).astype(np.float32)


def hard(rows: np.ndarray) -> int:
    """How many rows the bundle forwards: those whose first reading has a code above 0."""
    return int((np.floor(rows[:, 0] * 256) > 0).sum())


def all_ask(fleet: Fleet) -> bool:
    """Whether no device's circuit is open."""
    return not fleet.open_circuits()


def is_served(url: str, loaded) -> bool:
    """Whether a request is answered now."""
    link = Link(LinkConfig.to_broker(url, "probe"), loaded.machine.program, loaded.manifest)
    try:
        return link.start(1.0) and link.ask((1.0, 0.0), 0.3) is not None
    finally:
        link.stop()


def test_every_decision_is_answered_once_and_degraded_only_where_the_cloud_was_away(tmp_path, hpc):
    loaded, rows = half_forwarding(hpc.sha256), rows_of(N_ITEMS)
    flags = ("cloud", "worker", "--hpc", str(hpc.path), "--json", "--broker")
    with running_mosquitto(tmp_path) as broker, command(*flags, broker.url) as worker:
        worker.wait_for("ready")
        fleet = Fleet(loaded, rows, broker.url, n_devices=N_DEVICES, config=PACE, resend_every_s=0.25)
        fleet.start()

        until(lambda: len(fleet.journal) > N_BETWEEN)
        killed = Outage(time.monotonic())
        os.kill(worker.process.pid, signal.SIGKILL)
        time.sleep(1.5 * DEADLINE_MS / 1000)  # longer than a device waits
        with command(*flags, broker.url) as successor:
            successor.wait_for("ready")
            until(lambda: all_ask(fleet))
            killed.ended = time.monotonic()

            n = len(fleet.journal)
            until(lambda: len(fleet.journal) > n + N_BETWEEN)
            restarted = Outage(time.monotonic())
            broker.restart(down_s=0.5)
            until(lambda: is_served(broker.url, loaded))
            until(lambda: fleet.connected() == N_DEVICES and all_ask(fleet))
            restarted.ended = time.monotonic()

            n = len(fleet.journal)
            until(lambda: len(fleet.journal) > n + N_BETWEEN)
            fleet._shared.interval_s = 0.02  # the rest, of which a slow machine has none
            outcomes = fleet.join(120)
            assert successor.finish() == 0
            counted = successor.wait_for("stopped")

    assert fleet.reconcile() == []
    assert len(outcomes) == N_ITEMS
    routes = Counter(o.route for o in outcomes)
    assert routes["cloud"] + routes["degraded"] == hard(rows)

    degraded = [o for o in outcomes if o.route == "degraded"]
    outside = [o for o in degraded if not killed.touches(o) and not restarted.touches(o)]
    assert outside == []
    assert any(killed.touches(o) for o in degraded)
    cloud = [o.began for o in outcomes if o.route == "cloud"]
    assert min(cloud) < killed.began
    assert any(killed.ended < began < restarted.began for began in cloud)
    assert max(cloud) > restarted.ended

    expected = np.argmax(np.c_[rows, np.zeros(N_ITEMS)], axis=1)
    colours = ("red", "green", "blue")
    assert all(o.label == (colours[expected[o.item]] if o.route == "cloud" else "blue") for o in outcomes)
    assert {counted[k] for k in ("malformed", "oversized", "other_hpc", "refused", "busy", "flooded")} == {0}


def test_after_an_outage_of_the_broker_a_device_is_back_within_three_seconds(tmp_path):
    routes, outage_s = [], 4.0  # long enough for the longest pause between attempts

    def decide():
        bank = FakeBank([HARD] * 10_000)
        for record in Device(loaded, bank, link, RuntimeConfig(interval_s=0.05)).run():
            routes.append((time.monotonic(), record["route"]))
            if over.is_set():
                return

    over, loaded = threading.Event(), make_loaded()
    with running_mosquitto(tmp_path) as broker, Cloud(broker.url, retry_first_s=0.5):  # as a worker's
        link = Link(LinkConfig.to_broker(broker.url, "pi-1"), loaded.machine.program, loaded.manifest)
        thread = threading.Thread(target=decide)
        assert link.start(60.0)
        thread.start()
        try:
            until(lambda: len(routes) > 10)
            fastest = outage_s
            for _ in range(3):  # a machine that stands still for a while does not do so each time
                broker.kill()
                time.sleep(outage_s)
                broker.start()
                back = time.monotonic()
                until(lambda back=back: routes[-1][1] == "cloud" and routes[-1][0] > back)
                if (fastest := min(fastest, routes[-1][0] - back)) < 3.0:
                    break
            assert fastest < 3.0
            assert {route for _, route in routes} == {"cloud", "degraded"}
        finally:
            over.set()
            thread.join()
            link.stop()


def test_a_fleet_without_a_broker_decides_everything_alone(hpc, monkeypatch):
    monkeypatch.setattr("hardcase_cloud.sim.fleet.sockets.CONNECT_S", 0.2)
    rows = rows_of(60)
    fleet = Fleet(half_forwarding(hpc.sha256), rows, f"mqtt://127.0.0.1:{free_port()}", n_devices=3)
    outcomes = fleet.run(120)
    assert fleet.reconcile() == []
    assert Counter(o.route for o in outcomes) == {"degraded": hard(rows), "local": 60 - hard(rows)}
    assert {o.uplink_bytes for o in outcomes} == {0}


def test_costs_and_bytes_of_a_fleet_are_those_of_its_requests(tmp_path, hpc):
    rows = rows_of(40)
    loaded = half_forwarding(hpc.sha256)
    with (
        running_mosquitto(tmp_path) as broker,
        command("cloud", "worker", "--hpc", str(hpc.path), "--json", "--broker", broker.url) as worker,
    ):
        worker.wait_for("ready")
        config = RuntimeConfig(deadline_ms=PATIENT_MS)
        fleet = Fleet(loaded, rows, broker.url, n_devices=2, config=config, resend_every_s=PATIENT_MS / 1000)
        outcomes = fleet.run(120)
    size = request_bytes(DTYPES)
    asked = {"local": (1.0, 0, ("a",)), "cloud": (1 + 2 + 100 + 0.02 * size, size, ("a", "b"))}
    assert {o.route for o in outcomes} == set(asked)
    for o in outcomes:
        cost, uplink, sensors = asked[o.route]
        assert (o.cost, o.uplink_bytes, o.sensors) == (pytest.approx(cost), uplink, sensors)


def test_reconcile_sees_what_does_not_add_up(hpc, monkeypatch):
    monkeypatch.setattr("hardcase_cloud.sim.fleet.sockets.CONNECT_S", 0.0)
    fleet = Fleet(half_forwarding(hpc.sha256), rows_of(6), f"mqtt://127.0.0.1:{free_port()}", n_devices=2)
    fleet.run(120)
    assert fleet.reconcile() == []
    entries = fleet.journal._entries
    first = bytes(entries[: len(entries) // 6])
    entries += first
    assert any("decided twice" in problem for problem in fleet.reconcile())
    del entries[-len(first) :], entries[: len(first)]
    assert any("never decided" in problem for problem in fleet.reconcile())
    assert any("were asked for, but" in problem for problem in fleet.reconcile())


@pytest.mark.parametrize(
    ("width", "n_devices", "said"), [(2, 0, "1 to 60000"), (2, 60_001, "1 to 60000"), (1, 1, "do not fit 2 features")]
)
def test_a_fleet_that_does_not_fit_one_process_or_its_rows_is_refused(hpc, width, n_devices, said):
    with pytest.raises(InputError, match=said):
        Fleet(half_forwarding(hpc.sha256), rows_of(5)[:, :width], "mqtt://h", n_devices=n_devices)
