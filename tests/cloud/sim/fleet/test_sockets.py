# SPDX-License-Identifier: Apache-2.0
"""A simulated fleet on real sockets: every decision ends once, limits are said with numbers, faults by kill and cut."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from hardcase.cli import main
from hardcase_cloud.answer.onnx_model import Hpc
from hardcase_cloud.answer.service import Service
from hardcase_cloud.answer.worker import Worker, default_group
from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.keeper import Keeper
from hardcase_cloud.sim.fleet import limits
from hardcase_cloud.sim.fleet.faults import check_scenario, steps_of
from hardcase_cloud.sim.fleet.scenario import Fault, parse_scenario
from hardcase_cloud.sim.fleet.sockets import Fleet, not_connected
from hardcase_edge.bundle.file import pack_bundle
from hardcase_edge.device.device import RuntimeConfig
from hardcase_edge.errors import InputError
from hardcase_edge.link.address import parse_address
from hardcase_edge.stream.coin import Toss
from tests.helpers.cloud.brokers import free_port, running_mosquitto, serving, until
from tests.helpers.cloud.requests import PATIENT_MS, half_forwarding, write_model
from tests.helpers.edge import streams
from tests.helpers.edge.coins import BELOW, load_mixed
from tests.helpers.edge.device import HARD

NAN = float("nan")


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory):
    with running_mosquitto(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="module")
def served(tmp_path_factory, mosquitto):
    """The SHA-256 of a model that a worker in a thread serves."""
    hpc = Hpc(write_model(tmp_path_factory.mktemp("hpc")))
    worker = Worker(Service(hpc), parse_address(mosquitto.url), default_group(hpc.sha256))
    with serving(worker):
        yield hpc.sha256


@pytest.mark.parametrize("version", [pytest.param(5, id="mqtt-5"), pytest.param(4, id="mqtt-3.1.1")])
def test_each_row_is_decided_once_and_the_hard_ones_by_the_model(mosquitto, served, version):
    rows = np.array([[1.0, 4.0], [-1.0, 0.0], [5.0, 2.0], [NAN, 1.0]] * 10, np.float32)
    fleet = Fleet(
        half_forwarding(served), rows, mosquitto.url, n_devices=20, prefix=f"v{version}", version=version,
        config=RuntimeConfig(deadline_ms=PATIENT_MS),
    )  # fmt: skip
    outcomes = fleet.run(120)
    assert fleet.reconcile() == []
    assert (fleet.connected(), len(outcomes)) == (0, 40)
    by_row = {(o.item % 4, o.route, o.label) for o in outcomes}
    assert by_row == {(0, "cloud", "green"), (1, "local", "blue"), (2, "cloud", "red"), (3, "degraded", "blue")}
    assert {o.uplink_bytes > 0 for o in outcomes if o.route == "cloud"} == {True}


def test_a_device_walks_its_streams_in_order_with_a_memory_of_its_own(mosquitto):
    X, sequence = streams.streams(3, n=60, n_streams=5)
    program = streams.make_program()
    _, expected = streams.in_turn(program, X, sequence)
    fleet = Fleet(streams.loaded(program), X, mosquitto.url, n_devices=3, prefix="stream", sequence=sequence)
    outcomes = fleet.run(120)
    assert fleet.reconcile() == []
    assert len({o.cost for o in outcomes}) > 1, "some windows buy, and some hold"
    assert [o.cost * 1e6 for o in sorted(outcomes, key=lambda o: o.item)] == [d.cost for d in expected]
    assert {o.item: o.device for o in outcomes} == {
        k: f"stream-{np.unique(sequence).tolist().index(name) % 3}" for k, name in enumerate(sequence.tolist())
    }


def test_each_device_tosses_by_a_seed_of_its_own(mosquitto):
    rows = np.array([[HARD, 1.0, 2.0, 3.0, 4.0, NAN]] * 90)
    fleet = Fleet(load_mixed(), rows, mosquitto.url, n_devices=3, config=RuntimeConfig(deadline_ms=1), prefix="coin")
    outcomes = fleet.run(120)
    assert fleet.reconcile() == []
    tosses = {f"coin-{k}": Toss(k) for k in range(3)}
    expected = [tosses[o.device]() < BELOW for o in sorted(outcomes, key=lambda o: o.item)]
    assert [o.route == "degraded" for o in sorted(outcomes, key=lambda o: o.item)] == expected
    assert len(set(expected)) == 2


def test_a_broker_that_takes_fewer_leaves_the_others_deciding_alone_and_says_how_many(tmp_path):
    config = RuntimeConfig(interval_s=0.2)
    with running_mosquitto(tmp_path, max_connections=10) as broker:
        fleet = Fleet(half_forwarding("ab" * 32), np.ones((4, 2)), broker.url, n_devices=30, config=config, seconds=300)
        fleet.start(connect_s=0.4)

        def adds_up() -> bool:  # but for the moment in which one connects
            n, lines = fleet.connected(), not_connected(fleet)
            return 0 < n < 30 and sum(int(line.split(" devices are not connected: ")[0]) for line in lines) == 30 - n

        until(adds_up)
        until(lambda: len(fleet.journal) >= 90)
        fleet.stop()
    assert fleet.reconcile() == []
    assert fleet.journal.routes()["degraded"] == len(fleet.journal) >= 30


def test_devices_that_are_cut_off_come_back(mosquitto, served, monkeypatch):
    monkeypatch.setattr("hardcase_cloud.sim.fleet.sockets.RETRY_S", (0.0, 0.1))
    config = RuntimeConfig(interval_s=0.1)
    fleet = Fleet(half_forwarding(served), np.ones((4, 2)), mosquitto.url, n_devices=5, config=config, seconds=300)
    fleet.start()
    fleet.cut(1.0, 0.1)
    until(lambda: all(device._connection > 1 for device in fleet._devices))
    until(lambda: fleet.connected() == 5)
    fleet.stop()
    assert fleet.reconcile() == []
    assert set(fleet.journal.routes()) == {"local", "cloud", "degraded"}


def test_more_devices_than_open_files_allow_is_one_line_with_the_number_and_the_command(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda what: (1024, 4096))
    raised = []
    monkeypatch.setattr(resource, "setrlimit", lambda what, pair: raised.append(pair))
    limits.raise_file_limit(500)
    limits.raise_file_limit(2000)
    assert raised == [(2064, 4096)]
    with pytest.raises(
        InputError, match=r"10000 devices need 10064 open files.* have 4096; .*`ulimit -Hn 10064`.* 4032"
    ):
        limits.raise_file_limit(10_000)
    with pytest.raises(InputError, match=r"2020 devices need 4104 open files.* use --devices 2016"):
        limits.raise_file_limit(2020, each=2)


def test_more_devices_than_ports_is_one_line(tmp_path):
    (tmp_path / "range").write_text("32768\t60999\n")
    limits.check_ports(28_232, tmp_path / "range")
    with pytest.raises(InputError, match="has 28232; widen the range with `sysctl"):
        limits.check_ports(28_233, tmp_path / "range")
    limits.check_ports(28_233, tmp_path / "no such file")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param('[[fault]]\nkind = "power-cut"', "'power-cut' happens in virtual time only", id="power-cut"),
        pytest.param('[[fault]]\nkind = "worker"', "needs workers of this command", id="no-workers"),
        pytest.param("[rollout]\n", "roll-out|rollout", id="rollout"),
    ],
)
def test_what_sockets_cannot_do_is_refused_in_one_line(text, message):
    with pytest.raises(InputError, match=message):
        check_scenario(parse_scenario("s.toml", text.encode()), n_workers=0)


def test_faults_come_at_their_times_and_again(tmp_path):
    cuts: list[tuple[float, float]] = []
    pid = os.spawnlp(os.P_NOWAIT, sys.executable, sys.executable, "-c", "import time; time.sleep(60)")
    faults = [Fault(kind="partition", at_s=1.0, for_s=0.5, every_s=2.0, share=0.3), Fault(kind="worker", at_s=2.0)]
    steps = list(steps_of(faults, 5.0, lambda: [0, pid], lambda *cut: cuts.append(cut)))
    assert [(step.at_s, step.what.split()[-1]) for step in steps] == [(1, "off"), (2, "killed"), (3, "off")]
    for step in steps:
        step.act()
    assert cuts == [(0.3, 0.5)] * 2
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL


def test_a_worker_that_stands_still_goes_on_when_the_devices_have_decided_however_long_its_fault():
    steps = steps_of([Fault(kind="worker-pause", at_s=1.0, for_s=1e6)], 5.0, list, lambda *cut: None)
    assert [(step.at_s, step.what) for step in steps] == [(1, "worker stopped"), (5, "worker goes on")]


def test_of_a_fault_that_comes_often_in_a_long_run_no_more_steps_are_planned_than_are_wanted():
    often = [Fault(kind="partition", every_s=0.01), Fault(kind="worker-pause", every_s=0.01, for_s=0.025)]
    steps = steps_of(often, 1e6, list, lambda *cut: None)
    assert [round(step.at_s, 3) for step in islice(steps, 8)] == [0, 0, 0.01, 0.01, 0.02, 0.02, 0.025, 0.03]


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_the_command_decides_reports_and_counts_to_its_end_or_to_a_signal(
    mosquitto, served, tmp_path, capsys, monkeypatch, is_interrupted
):
    bundle, rows, report = tmp_path / "model.hcb", tmp_path / "rows.csv", tmp_path / "fleet.html"
    bundle.write_bytes(pack_bundle(half_forwarding(served).bundle))
    rows.write_text("x0,x1,target\n1,4,red\n-1,0,blue\n")
    flags = ["--bundle", str(bundle), "--rows", str(rows), "--broker", mosquitto.url, "--json"]
    seconds = "60" if is_interrupted else "0.3"
    more = ["--devices", "10", "--interval", "0.1", "--seconds", seconds, "--report", str(report)]
    more += ["--deadline-ms", str(PATIENT_MS)]
    fleets: list[Fleet] = []
    start = Fleet.start
    monkeypatch.setattr(Fleet, "start", lambda self: (fleets.append(self), start(self)))

    def stops_later(stop: Callable[[], None]) -> None:
        until(lambda: len(fleets[0].journal) >= 10 and fleets[0].journal.routes()["cloud"] > 0)
        stop()

    signalled = "hardcase.verbs.fleet.simulate.on_stop_signals"
    later = (lambda stop: threading.Thread(target=stops_later, args=(stop,)).start()) if is_interrupted else id
    monkeypatch.setattr(signalled, later)
    assert main(["fleet", "simulate", *flags, *more]) == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["devices"], values["connected"], values["problems"]) == (10, 10, [])
    assert values["interrupted"] == is_interrupted
    assert values["decisions"] == sum(values["routes"].values()) >= 10
    assert values["routes"]["cloud"] > 0
    taken = {route for route, n in values["routes"].items() if n}
    assert set(values["latency_ms"]) == taken
    assert all(0 < wait["p50"] <= wait["p99"] for wait in values["latency_ms"].values())
    page = report.read_text()
    assert page.count("<svg") == 2
    assert "Every decision that began has ended, once." in page


def test_the_command_without_a_broker_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("hardcase_cloud.sim.fleet.sockets.NOBODY_S", 0.1)
    sha256 = hashlib.sha256(Path(write_model(tmp_path)).read_bytes()).hexdigest()
    bundle, rows = tmp_path / "model.hcb", tmp_path / "rows.csv"
    bundle.write_bytes(pack_bundle(half_forwarding(sha256).bundle))
    rows.write_text("x0,x1,target\n1,4,red\n-1,0,blue\n")
    words = ["--bundle", str(bundle), "--rows", str(rows), "--broker", f"mqtt://127.0.0.1:{free_port()}"]
    assert main(["fleet", "simulate", *words]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "no device is connected" in line
    assert main(["fleet", "simulate", *words, "--report", str(rows)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "rows.csv exists and is not a report that hardcase wrote; name another file" in line
    assert rows.read_text().startswith("x0,x1,target")


@pytest.mark.parametrize(("name", "text"), [("no/r.html", "is in a folder that is not there"), ("m.txt", "exists and")])
def test_a_report_that_could_not_be_written_is_refused_before_the_fleet_begins(tmp_path, capsys, name, text):
    (tmp_path / "m.txt").write_text("mine")
    flags = ["--bundle", "none.hcb", "--rows", "none.npz", "--broker", "mqtt://127.0.0.1:1"]
    assert main(["fleet", "simulate", *flags, "--report", str(tmp_path / name)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert text in line
    assert (tmp_path / "m.txt").read_text() == "mine"


def test_a_number_of_workers_without_their_model_is_refused(capsys):
    flags = ["--bundle", "none.hcb", "--rows", "none.npz", "--broker", "mqtt://127.0.0.1:1", "--workers", "2"]
    assert main(["fleet", "simulate", *flags]) == 2
    assert "--workers needs the model" in capsys.readouterr().err


def test_decisions_reach_the_store_each_once_though_connections_break(mosquitto, tmp_path, monkeypatch):
    monkeypatch.setattr("hardcase_cloud.sim.fleet.sockets.RETRY_S", (0.01, 0.1))
    database = Database(tmp_path / "store.db")
    keeper = Keeper(database, parse_address(mosquitto.url), note=print)
    config = RuntimeConfig(interval_s=0.1)
    rows = np.array([[-1.0, 0.0], [NAN, 1.0]], np.float32)
    fleet = Fleet(
        half_forwarding("cd" * 32), rows, mosquitto.url, n_devices=5, config=config, seconds=300, prefix="rec",
        publish="all", settle_s=60,
    )  # fmt: skip
    keeper.start()
    fleet.start()
    fleet.cut(0.5, 0.1)
    thread = threading.Thread(target=keeper.run)
    thread.start()
    until(lambda: len(fleet.journal) >= 25)
    fleet.stop()
    keeper.stop()
    thread.join(60)
    made, stored = fleet.records()
    assert made == stored == len(fleet.journal) == keeper.counters["kept"] >= 25
    assert fleet.reconcile() == []
