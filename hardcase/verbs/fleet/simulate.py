# SPDX-License-Identifier: Apache-2.0
"""``hardcase fleet simulate``: thousands of devices on real sockets, a connection each, and what became of them."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardcase_cloud.commands.shared import broker_argument, number, on_stop_signals, positive, tls_arguments
from hardcase_edge.base.escape import terminal
from hardcase_edge.errors import InputError

if TYPE_CHECKING:
    from hardcase_cloud.answer.supervisor import Supervisor
    from hardcase_cloud.sim.fleet.scenario import Scenario
    from hardcase_cloud.sim.fleet.sockets import Fleet
    from hardcase_cloud.sim.slow_link.link import SlowLink
    from hardcase_edge.link.address import Address

HELP = "Run thousands of simulated devices against a real broker, a connection each, and reconcile their decisions."
POLL_S = 0.2  # how often it looks whether to stop
WAIT_S = 120.0  # after the last decision has begun: for its reply, and for the store
VERSIONS = {"5": 5, "3.1.1": 4}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("scenario", nargs="?", metavar="SCENARIO.toml", help="as of fleet replay; flags win over it")
    parser.add_argument("--bundle", required=True, metavar="FILE", help="the bundle that all devices run")
    parser.add_argument("--rows", required=True, metavar="FILE", help="rows for the sensors, such as build/test.npz")
    broker_argument(parser)
    parser.add_argument("--devices", type=positive, metavar="N", help="how many devices (default 100)")
    parser.add_argument("--interval", type=_seconds, metavar="S", help="from one decision to the next (default 1)")
    parser.add_argument("--seconds", type=_seconds, metavar="S", help="how long they decide (default 60)")
    parser.add_argument("--deadline-ms", type=positive, metavar="MS", help="how long they wait (default 2000)")
    parser.add_argument("--mqtt", choices=VERSIONS, help="the MQTT version (default 5, or what the broker takes)")
    parser.add_argument("--prefix", default="sim", metavar="NAME", help="device k is named NAME-k (default sim)")
    parser.add_argument("--hpc", metavar="MODEL", help="also start workers of this model, which faults may kill")
    parser.add_argument("--workers", type=positive, metavar="N", help="with --hpc: how many (default 1)")
    parser.add_argument(
        "--publish", metavar="WHICH", help="decisions that go to the store: all, changes, or 1%% of them"
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a page with pictures")
    tls_arguments(parser)
    parser.set_defaults(act=run)


def run(args: argparse.Namespace) -> int:
    """Simulate; 1 if a decision did not end, or ended twice."""
    from hardcase_cloud.sim.fleet.faults import check_scenario, link_of
    from hardcase_cloud.sim.fleet.scenario import Cloud as CloudOf
    from hardcase_cloud.sim.fleet.scenario import Fleet as FleetOf
    from hardcase_cloud.sim.fleet.scenario import Network as NetworkOf
    from hardcase_cloud.sim.fleet.scenario import Scenario, read_scenario

    if args.workers and args.hpc is None:
        raise InputError("--workers needs the model that they serve; name it with --hpc")
    if args.report is not None:
        _check_report(args.report)
    plain = Scenario(name="", fleet=FleetOf(), network=NetworkOf(), cloud=CloudOf())
    scenario = read_scenario(args.scenario) if args.scenario else plain
    check_scenario(scenario, 0 if args.hpc is None else args.workers or 1)
    n_devices = args.devices or scenario.fleet.devices
    link = link_of(scenario, _address(args), n_devices)
    workers = _workers(args)
    with ExitStack() as stack:
        if link is not None:
            stack.enter_context(link)
        fleet, seconds = _fleet(args, scenario, n_devices, link)
        for worker in workers:
            stack.callback(worker.stop)
            worker.start()
        values = _simulate(args, fleet, scenario, seconds, workers)
    values["link"] = {} if link is None else link.counters
    if args.report is not None:
        from hardcase_edge.base.files import write_whole

        from .page import fleet_page

        write_whole(args.report, fleet_page(values).encode())
    _say(args, values)
    return 1 if values["problems"] else 0


def _check_report(path: Path) -> None:
    """Refuse before the devices run what could not be written at the end, or would replace another's file."""
    from hardcase_edge.base.files import check_replaceable

    from ...reports.page import is_page_head

    if not path.absolute().parent.is_dir():
        raise InputError(f"--report {path} is in a folder that is not there; make it, or name another file")
    check_replaceable(path, "a report that hardcase wrote", is_page_head, remedy="name another file")


def _seconds(text: str) -> float:
    value = number(text)
    if not 0 < value <= 1e6:
        raise argparse.ArgumentTypeError(f"{value} is not above 0 and at most a million")
    return value


def _address(args: argparse.Namespace) -> Address:
    from hardcase_edge.link.address import parse_address

    return parse_address(args.broker, ca=args.ca, cert=args.cert, key=args.key)


def _fleet(args: argparse.Namespace, scenario: Scenario, n_devices: int, link: SlowLink | None) -> tuple[Fleet, float]:
    """The fleet, and how long its devices decide."""
    from hardcase_cloud.sim.fleet.sockets import Fleet
    from hardcase_edge.bundle.load import load_bundle
    from hardcase_edge.device.machine import RuntimeConfig
    from hardcase_edge.program.inner import MEMORY

    from ...measuring.labelled_rows import labelled_rows, sequences_of

    asked = scenario.fleet
    loaded = load_bundle(args.bundle)
    X, _, _ = labelled_rows(Path(args.rows), loaded.manifest, loaded.bundle.program)
    sequence = sequences_of(Path(args.rows), loaded.manifest) if MEMORY in loaded.manifest.sensors else None
    interval_s = args.interval or asked.interval_s
    seconds = args.seconds or (asked.decisions * interval_s if args.scenario else 60.0)
    fleet = Fleet(
        loaded,
        X,
        _address(args),
        n_devices=n_devices,
        config=RuntimeConfig(interval_s=interval_s, deadline_ms=args.deadline_ms or asked.deadline_ms),
        seconds=seconds,
        prefix=args.prefix,
        version=VERSIONS.get(args.mqtt or ""),
        resend_every_s=asked.resend_ms / 1000,
        publish=args.publish,
        link=link,
        sequence=sequence,
    )
    return fleet, seconds


def _workers(args: argparse.Namespace) -> list[Supervisor]:
    from hardcase_cloud.answer.supervisor import Supervisor

    if args.hpc is None:
        return []
    address = _address(args)
    command = [sys.executable, "-m", "hardcase.cli", "cloud", "worker", "--until-stdin-closes", "--json"]
    command += ["--broker", address.url, "--hpc", args.hpc]
    for name in ("ca", "cert", "key"):
        command += [f"--{name}", getattr(args, name)] if getattr(args, name) else []
    if ":" in args.hpc:  # a function, whose requests the bundle describes
        command += ["--bundle", args.bundle]
    secrets = {**os.environ, "HARDCASE_MQTT_USER": address.user, "HARDCASE_MQTT_PASSWORD": address.password}
    return [Supervisor(command, secrets, lambda event: None) for _ in range(args.workers or 1)]


def _simulate(
    args: argparse.Namespace, fleet: Fleet, scenario: Scenario, seconds: float, workers: list[Supervisor]
) -> dict[str, Any]:
    from hardcase_cloud.sim.fleet.faults import steps_of
    from hardcase_cloud.sim.fleet.sockets import not_connected

    from .page import latencies, per_second

    fleet.start()
    began, cpu = time.monotonic(), time.process_time()
    connected, troubles = fleet.connected(), not_connected(fleet)
    if not connected:
        fleet.stop()
        raise InputError(f"no device is connected: {troubles[0]}; start the broker, or correct its URL")
    stop = threading.Event()
    on_stop_signals(stop.set)
    if not args.json:
        print(f"{connected:,} of {fleet.n_devices:,} devices are connected after {fleet.connect_s:.1f} s")
        for line in troubles:
            print(terminal(line))
    steps = steps_of(scenario.faults, seconds, lambda: [worker.pid for worker in workers], fleet.cut)
    done = []
    for step in steps:
        while (left_s := began + step.at_s - time.monotonic()) > 0 and not stop.is_set():
            time.sleep(min(left_s, POLL_S))
        if stop.is_set():
            break
        step.act()
        done.append({"at_s": round(time.monotonic() - began, 2), "what": step.what})
    until = time.monotonic() + seconds + WAIT_S
    while not (stop.is_set() or fleet.has_ended(POLL_S) or time.monotonic() > until):
        pass
    seconds = min(seconds, time.monotonic() - began)
    fleet.stop()
    cpu_s = time.process_time() - cpu
    made, stored = fleet.records()
    n = max(1, len(fleet.journal))
    return {
        "devices": fleet.n_devices,
        "connected": connected,
        "connect_s": round(fleet.connect_s, 3),
        "not_connected": troubles,
        "decisions": len(fleet.journal),
        "routes": dict(fleet.journal.routes()),
        "latency_ms": latencies(fleet.journal.times()),
        "us_per_decision": round(cpu_s / n * 1e6, 1),
        "records": made,
        "stored": stored,
        "counters": dict(fleet.counters),
        "steps": done,
        "interrupted": stop.is_set(),
        "problems": fleet.reconcile(),
        "seconds": per_second(fleet.journal.times(), began, max(1, round(seconds))),
    }


def _say(args: argparse.Namespace, values: dict[str, Any]) -> None:
    if args.json:
        import json

        print(json.dumps({key: value for key, value in values.items() if key != "seconds"}))
        return
    routes = values["routes"]
    print(f"{values['decisions']:,} decisions: " + ", ".join(f"{n:,} {route}" for route, n in routes.items()))
    for route, wait in values["latency_ms"].items():
        print(f"  {route:<8} p50 {wait['p50']:.3g} ms, p99 {wait['p99']:.3g} ms")
    print(f"{values['us_per_decision']:.0f} us of this process's CPU a decision")
    if values["records"]:
        print(f"{values['records']:,} records, of which the store has acknowledged {values['stored']:,}")
    if values["link"]:
        print("the link: " + ", ".join(f"{n:,} {name}" for name, n in values["link"].items()))
    if values["interrupted"]:
        print(f"interrupted after {len(values['seconds'])} s")
    for step in values["steps"]:
        print(f"  at {step['at_s']:.1f} s: {step['what']}")
    print("\n".join(f"PROBLEM: {p}" for p in values["problems"]) or "reconciled: every decision has ended, once")
    if args.report is not None:
        print(terminal(f"report: {args.report}"))
