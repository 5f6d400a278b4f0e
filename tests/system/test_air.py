# SPDX-License-Identifier: Apache-2.0
"""Updates over a real mosquitto: a device takes a bundle, is killed on the way, tries it, keeps it or goes back."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hardcase_cloud.broker.embedded import EmbeddedBroker
from hardcase_cloud.rollout.updates.campaign import Campaign
from hardcase_cloud.rollout.updates.offer import make_offer
from hardcase_cloud.rollout.updates.serve import Server
from hardcase_edge.base.sha256 import sha256
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.store.receive import begin_trust
from hardcase_edge.fleet.update.transfer import MOST
from hardcase_edge.link.address import parse_address
from hardcase_edge.link.wire import facts_topic
from tests.helpers.cloud.brokers import Broker, retained, until
from tests.helpers.edge.device import EASY, FEATURES, make_bundle_bytes, write_replay
from tests.helpers.edge.repository import NOW, Repository


def big_bundle(name: str) -> bytes:
    """A bundle of 14 chunks."""
    return make_bundle_bytes(name=name, trained={"notes": random.Random(name).randbytes(106_000).hex()})


def n_here(part: Path, campaign: Campaign) -> int:
    """How many chunks of the offer a file has."""
    data, offer = part.read_bytes() if part.exists() else b"", campaign.offer
    parts = [data[k * offer.chunk_bytes : (k + 1) * offer.chunk_bytes] for k in range(offer.n_chunks)]
    return sum(offer.is_right(k, part) for k, part in enumerate(parts))


class Rig:
    """One device's store, the fleet's metadata, and what is run on them."""

    def __init__(
        self, tmp_path: Path, broker: Broker | EmbeddedBroker, device: str, first: bytes | None = None
    ) -> None:
        self.tmp_path, self.broker, self.device = tmp_path, broker, device
        self.store, self.repository = Store(tmp_path / "store"), Repository()
        (tmp_path / "1.root.json").write_bytes(self.repository.roots[0])
        begin_trust(self.store, tmp_path / "1.root.json")
        self.replay = write_replay(tmp_path / "r.csv", [EASY] * 40_000)
        self.first = make_bundle_bytes(name="first") if first is None else first
        if self.first:
            self.store.put(self.first)

    def offer(self, data: bytes, *more: str) -> subprocess.Popen[bytes]:
        """``hardcase cloud offer`` as a process."""
        path = self.tmp_path / "next.hcb"
        path.write_bytes(data)
        folder = self.repository.write(self.tmp_path / "metadata", data)
        words = ["offer", path, "--metadata", folder, "--device", self.device, "--broker", self.broker.url, "--json"]
        return subprocess.Popen(
            [sys.executable, "-m", "hardcase.cli", "cloud", *map(str, words), *more],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def made_offer(self, data: bytes, *, replaces: bool = False):
        """The arguments of a campaign."""
        path = self.tmp_path / "next.hcb"
        path.write_bytes(data)
        return make_offer(path, self.repository.write(self.tmp_path / "metadata", data), now=NOW, replaces=replaces)

    @contextmanager
    def running(self, *more: object, plug_in: str = "") -> Iterator[subprocess.Popen[bytes]]:
        """``hardcase-edge run`` as a process."""
        (self.tmp_path / "air_plug_in.py").write_text(plug_in)
        words = ["run", "--store", self.store.folder, "--broker", self.broker.url, "--device-id", self.device]
        words += ["--sensors", "air_plug_in:read" if plug_in else f"replay:{self.replay}", "--interval", 0.02]
        words += ["--trial-decisions", 3, *more]
        with (self.tmp_path / "out").open("ab") as out, (self.tmp_path / "errors").open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "hardcase_edge.cli", *map(str, words)],
                stdout=out, stderr=errors, cwd=self.tmp_path,
            )  # fmt: skip
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def facts(self) -> dict:
        return retained(self.broker, facts_topic(self.device))

    def is_good(self, data: bytes) -> bool:
        slots = self.store.slots()
        return bool(slots.current) and slots[slots.current].sha256 == sha256(data).hex()

    def errors(self) -> str:
        return (self.tmp_path / "errors").read_text()


def end(offer: subprocess.Popen[bytes]) -> tuple[int, list[dict], str]:
    """What an offer that has ended said."""
    out, errors = offer.communicate(timeout=120)
    return offer.returncode, [json.loads(line) for line in out.splitlines()], errors.decode()


class Halting(Campaign):
    """A campaign that stops after so many chunks."""

    limit = 1_000_000

    def outgoing(self, now: float) -> tuple[str, bytes] | None:
        return super().outgoing(now) if self.sent_chunks < self.limit else None


@contextmanager
def serving(broker: Broker, campaign: Campaign) -> Iterator[Server]:
    """A campaign served by a thread of this process."""
    server = Server(campaign, parse_address(broker.url))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


def test_a_device_that_is_killed_on_the_way_goes_on_where_it_was(broker, tmp_path):
    rig = Rig(tmp_path, broker, "pump-1")
    new = big_bundle("new")
    campaign = Halting(*rig.made_offer(new), named=frozenset({"pump-1"}))
    campaign.limit = 5
    with serving(broker, campaign):
        with rig.running() as device:
            until(lambda: rig.is_good(rig.first))
            part = rig.store.folder / "incoming" / sha256(new).hex()
            until(lambda: n_here(part, campaign) == 5)
            assert rig.facts()["bundle"] == sha256(rig.first).hex()
            device.kill()
        campaign.limit = 1_000_000
        with rig.running():
            until(lambda: rig.is_good(new))
            until(lambda: campaign.is_done)
            status = rig.facts()
    assert campaign.sent_chunks <= campaign.offer.n_chunks + MOST  # at most a window again
    assert "5/14 here" in rig.errors()
    assert (status["bundle"], status["store"]["state"]) == (sha256(new).hex(), "good")
    assert status["store"]["release"] == "1.1"
    assert not part.exists()


def test_a_bundle_that_fails_its_trial_is_rolled_back_and_reported(broker, tmp_path):
    rig = Rig(tmp_path, broker, "pump-2")
    new = make_bundle_bytes(name="new", features=("elsewhere", *FEATURES[1:]))  # a sensor that is not here
    with rig.running() as device:
        until(lambda: rig.is_good(rig.first))
        began = time.monotonic()
        status, events, errors = end(rig.offer(new, "--replace-program"))
        assert status == 2
        assert errors.splitlines()[1].startswith("hardcase cloud: 1 of 1 devices run what they ran before")
        assert time.monotonic() - began < 60
        assert device.poll() is None
        store = rig.facts()["store"]
    assert rig.is_good(rig.first)
    assert (store["state"], store["failed"]["sha256"]) == ("good", sha256(new).hex())
    states = [event["state"] for event in events if event["event"] == "device"]
    assert states[-1] == "rolled back"
    assert rig.errors().count("fetching bundle") == 1  # it is not fetched again


def test_an_offer_ends_when_the_device_runs_it_for_good_on_mqtt_3_1_1_too(tmp_path):
    with EmbeddedBroker(port=0) as embedded:
        rig = Rig(tmp_path, embedded, "pump-3")
        with rig.running():
            until(lambda: rig.is_good(rig.first))
            status, events, _ = end(rig.offer(make_bundle_bytes(name="new")))
        assert "MQTT 3.1.1" in rig.errors()
    assert status == 0
    assert [event["event"] for event in events][:: len(events) - 1] == ["offering", "stopped"]
    assert events[-1]["good"] == 1


# ---------------------------------------------------------------- a device keeps what has worked

PLUG_IN = """
def read(sensor):
    return {"x": 3.0, "vib": [1.0] * 5}[sensor]
"""
CLAIM = {"audits": {"local": 238, "agreed": 236, "at_least": 0.95}}  # so that a trial waits for f0, which is not there


def without_sensors(name: str) -> bytes:
    """A bundle whose sensors the plug-in does not have."""
    return make_bundle_bytes(name=name, sensors=("y", "noise"), windows={"noise": 5})


@pytest.mark.parametrize("trial_s", [None, 20], ids=["by default", "with a short deadline"])
def test_two_offers_before_the_first_trial_has_passed_lose_no_bundle_that_works(broker, tmp_path, trial_s):
    device = f"pump-5{trial_s}"
    rig = Rig(tmp_path, broker, device, make_bundle_bytes(name="first", claims=CLAIM))
    second, third = make_bundle_bytes(name="second", claims=CLAIM), without_sensors("third")
    worked = {sha256(data).hex() for data in (rig.first, second)}

    def works(data: bytes) -> bool:
        """Whether this bundle runs and has made decisions enough for its trial."""
        slots, n = rig.store.slots(), len((tmp_path / "out").read_text().splitlines())
        is_there = bool(slots.runs) and slots[slots.runs].sha256 == sha256(data).hex()
        since.setdefault(data, n) if is_there else None
        return is_there and n >= since[data] + 5

    since: dict[bytes, int] = {}
    with rig.running(*(() if trial_s is None else ("--trial-s", trial_s)), plug_in=PLUG_IN) as process:
        until(lambda: works(rig.first))
        until(lambda: "the trial of slot a waits for 30 answers of f0, has 0" in rig.errors())
        with serving(broker, Campaign(*rig.made_offer(second), named=frozenset({device}))):
            until(lambda: works(second))
        campaign = Campaign(*rig.made_offer(third, replaces=True), named=frozenset({device}))
        with serving(broker, campaign):
            until(lambda: campaign.is_done)
        assert campaign.states()[device][0] == "rolled back"
        assert process.poll() is None
        until(lambda: rig.facts().get("local", 0) > 0)
        facts = rig.facts()
    assert facts["bundle"] in worked
    assert (facts["degraded"], facts["cloud"]) == (0, 0)
    slots = rig.store.slots()
    assert slots[slots.runs].sha256 in worked
    assert rig.errors().count("runs again") == 1


def test_a_first_bundle_without_sensors_fails_and_the_next_offer_runs_without_a_step_by_hand(broker, tmp_path):
    rig = Rig(tmp_path, broker, "pump-6", without_sensors("first"))
    new = make_bundle_bytes(name="new")
    with rig.running(plug_in=PLUG_IN) as process:
        until(lambda: rig.facts().get("store", {}).get("state") == "none")
        n_lines = len((tmp_path / "out").read_text().splitlines())
        why = "no sensor gave a reading in 3 decisions, and these failed: y"
        store = rig.facts()["store"]
        assert (store["failed"]["sha256"], store["failed"]["reason"]) == (sha256(rig.first).hex(), why)
        assert f"the trial of slot a has failed: {why}; the store has no other bundle" in rig.errors()
        assert rig.errors().count("no decision is made, because the store has no bundle to run") == 1
        status, events, errors = end(rig.offer(new))
        assert (status, events[-1]["good"]) == (0, 1), errors
        assert process.poll() is None
    assert n_lines == 3
    assert rig.is_good(new)


def test_an_empty_store_that_trusts_a_root_takes_its_first_bundle_over_the_air(broker, tmp_path):
    rig = Rig(tmp_path, broker, "pump-7", b"")
    with rig.running() as process:
        until(lambda: "no decision is made" in rig.errors())
        assert end(rig.offer(make_bundle_bytes(name="new")))[0] == 0
        process.terminate()
        assert process.wait(timeout=60) == 0


def test_a_device_that_waits_for_a_bundle_ends_when_it_is_told_to(broker, tmp_path):
    rig = Rig(tmp_path, broker, "pump-8", b"")
    with rig.running() as process:
        until(lambda: rig.facts().get("store", {}).get("state") == "none")
        process.terminate()
        assert process.wait(timeout=60) == 0
    assert (tmp_path / "out").read_bytes() == b""
