# SPDX-License-Identifier: Apache-2.0
"""The link between real namespaces: a fleet behind it, what is cut, and what is said where there can be none."""

from __future__ import annotations

import hashlib
import os
import sys
import time

import numpy as np
import pytest

from hardcase.cli import main
from hardcase_cloud.sim.fleet.faults import link_of
from hardcase_cloud.sim.fleet.scenario import parse_scenario
from hardcase_cloud.sim.fleet.sockets import Fleet
from hardcase_cloud.sim.slow_link import link as link_module
from hardcase_edge.bundle.file import pack_bundle
from hardcase_edge.device.device import RuntimeConfig
from hardcase_edge.link.address import parse_address
from tests.helpers.cloud.brokers import running_mosquitto, until
from tests.helpers.cloud.requests import half_forwarding

SCENARIO = b"[network]\nloss = 0.02\nduplicate = 0.02\nreorder = 0.02\ndelay_ms = 1\njitter_ms = 2\n"
REFUSED = """
from hardcase_cloud.sim.slow_link import process
def refused():
    raise PermissionError(1, "Operation not permitted")
process.new_namespace = refused
process.main()
"""


def namespace() -> str:
    return os.readlink("/proc/thread-self/ns/net")


def test_a_fleet_behind_a_poor_link_decides_everything_and_a_cut_breaks_no_connection(tmp_path, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("root is needed, for a network namespace: run make test as root")
    monkeypatch.setattr("hardcase_cloud.sim.fleet.sockets.KEEPALIVE_S", 0.1)  # a ping each 0.05 s
    before = namespace()
    with running_mosquitto(tmp_path) as broker:
        link = link_of(parse_scenario("s.toml", SCENARIO), parse_address(broker.url), 6)
        assert link is not None
        config = RuntimeConfig(interval_s=0.05, deadline_ms=100)
        with link:
            fleet = Fleet(
                half_forwarding("ab" * 32), np.ones((4, 2)), broker.url, n_devices=6, config=config, seconds=300,
                link=link,
            )  # fmt: skip
            fleet.start()
            assert fleet.connected() == 6
            until(lambda: len(fleet.journal) >= 30)
            fleet.cut(0.5, 1.0)
            time.sleep(1.0)
            connected = fleet.connected()
            fleet.stop()
        assert (connected, fleet.reconcile()) == (6, [])
    assert link.counters["packets"] > 100
    assert link.counters["cut"] > 0
    assert namespace() == before


def test_without_a_network_there_is_no_link():
    scenario = parse_scenario("s.toml", b"[fleet]\ndevices = 5\n[[fault]]\nkind = 'partition'\n")
    assert link_of(scenario, parse_address("mqtt://127.0.0.1:1"), 5) is None


def test_where_namespaces_cannot_be_made_one_line_says_so(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(link_module, "COMMAND", [sys.executable, "-c", REFUSED])
    bundle, rows, scenario = tmp_path / "model.hcb", tmp_path / "rows.csv", tmp_path / "s.toml"
    bundle.write_bytes(pack_bundle(half_forwarding(hashlib.sha256().hexdigest()).bundle))
    rows.write_text("x0,x1,target\n1,4,red\n")
    scenario.write_bytes(SCENARIO)
    words = ["--bundle", str(bundle), "--rows", str(rows), "--broker", "mqtt://127.0.0.1:1"]
    assert main(["fleet", "simulate", str(scenario), *words]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "needs network namespaces and tun devices, which cannot be had here: Operation not permitted; run it" in line
