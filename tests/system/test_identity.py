# SPDX-License-Identifier: Apache-2.0
"""Identities on a real mosquitto: certificates open it, claims are exchanged, names hold, and revocation ends both."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hardcase_cloud.rollout.enrolment.folder import AuthorityFolder
from hardcase_edge.cli import main as edge
from hardcase_edge.errors import LinkError
from hardcase_edge.fleet.identity.by_hand import enrol_now
from hardcase_edge.fleet.identity.folder import Identities
from hardcase_edge.fleet.identity.messages import enrol_topic, enrolled_topic
from hardcase_edge.link.wire import reply_topic, request_topic, status_topic

from ..helpers.cloud.brokers import until
from ..helpers.cloud.mutual_tls import Tls, enrolling, mutual_tls
from ..helpers.cloud.raw_mqtt import Raw, connect, publish, subscribe
from ..helpers.edge.device import EASY, make_bundle_bytes, write_replay


def now() -> int:
    return int(time.time())


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with mutual_tls(tmp_path_factory.mktemp("broker")) as running:
        yield running


def device(broker: Tls, tmp_path: Path, name: str) -> Path:
    broker.authority.device(name, tmp_path / name, now=now())
    return tmp_path / name / "0001"


def claim(broker: Tls, tmp_path: Path, name: str = "claim", **settings) -> Path:
    broker.authority.claim(tmp_path / name, now=now(), broker=broker.claims_url, **settings)
    return tmp_path / name


def test_only_a_certificate_of_the_devices_authority_opens_the_devices_listener(broker, tmp_path):
    own = device(broker, tmp_path, "pi-1")
    claimed = claim(broker, tmp_path) / "claim"
    other = AuthorityFolder.init(tmp_path / "other", "test", now())
    other.device("pi-1", tmp_path / "foreign", now=now())
    assert broker.connect(own, connect("pi-1"))
    assert broker.connect(None, connect("pi-1")) is None
    assert broker.connect(tmp_path / "foreign" / "0001", connect("pi-1")) is None
    assert broker.connect(claimed, connect("pi-1")) is None
    assert broker.connect(broker.authority.folder / "server", connect("pi-1")) is None
    assert broker.connect(own, connect("pi-1"), port=broker.claims_port) is None
    assert broker.connect(claimed, connect("any"), port=broker.claims_port)


def test_the_name_in_a_certificate_is_the_user_and_the_client_id_whatever_a_device_says(broker, tmp_path):
    a, b = device(broker, tmp_path, "pi-a"), device(broker, tmp_path, "pi-b")
    victim, thief = broker.connect(a, connect("pi-a")), broker.connect(b, connect("pi-a", "pi-a", "any"))
    assert victim
    assert thief
    names = ("pi-a", "pi-b", "claim-0")
    topics = [topic(n) for n in names for topic in (reply_topic, enrolled_topic, request_topic, status_topic)]
    for client in (victim, thief):
        client.send(subscribe("#", *topics))
        assert client.settle()
    for topic in (request_topic, reply_topic, status_topic, enrol_topic, enrolled_topic):
        thief.send(publish(topic("pi-a"), b"forged", retain=True))
    eye = broker.connect(None, connect("eye", "eye", broker.passwords["eye"]), port=broker.workers_port)
    enroller = broker.connect(None, connect("w", "enroller", broker.passwords["enroller"]), port=broker.workers_port)
    assert eye
    assert enroller
    eye.send(subscribe(status_topic("+")))
    enroller.send(subscribe(enrol_topic("+")))
    thief.send(publish(status_topic("pi-b"), b"own"), publish(enrol_topic("pi-b"), b"own"))
    eye.wait_for(b"own")
    enroller.wait_for(b"own")
    enroller.send(publish(enrolled_topic("pi-a"), b"to a"), publish(enrolled_topic("pi-b"), b"to b"))
    victim.wait_for(b"to a")
    thief.wait_for(b"to b")
    assert victim.heard == [(enrolled_topic("pi-a"), b"to a")]
    assert thief.heard == [(enrolled_topic("pi-b"), b"to b")]
    assert eye.heard == [(status_topic("pi-b"), b"own")]
    assert enroller.heard == [(enrol_topic("pi-b"), b"own")]


def test_a_device_gets_its_certificate_by_a_claim_and_a_used_claim_gives_none(broker, tmp_path, capfd):
    first, second = claim(broker, tmp_path), tmp_path / "copy"
    shutil.copytree(first, second)
    with enrolling(broker):
        assert edge(["enrol", "--identity", str(first), "--broker", broker.url, "--device-id", "pi-c", "--json"]) == 0
        assert '"device":"pi-c"' in capfd.readouterr().out.replace(" ", "")
        assert edge(["enrol", "--identity", str(second), "--broker", broker.url, "--device-id", "pi-d"]) == 2
        said = capfd.readouterr().err
        assert "used up" in said
        assert said.count("\n") == 1
    current = Identities(first).current()
    assert current is not None
    assert current.facts.name == "pi-c"
    assert Identities(second).current() is None
    assert not (first / "claim").exists()
    assert broker.connect(current.folder, connect("pi-c"))


def test_a_renewed_certificate_has_a_new_key_and_takes_the_place_of_the_old_one(broker, tmp_path):
    old = device(broker, tmp_path, "pi-e")
    with enrolling(broker):
        report = enrol_now(old.parent, broker.url, ca=broker.ca)
    new = Identities(old.parent).current()
    assert new is not None
    assert (report["device"], new.number) == ("pi-e", 2)
    assert new.key.read_bytes() != (old / "key.pem").read_bytes()
    assert broker.connect(new.folder, connect("pi-e"))


def test_a_revoked_device_is_refused_after_a_reload_and_gets_no_new_certificate(broker, tmp_path):
    gone, stays = device(broker, tmp_path, "pi-f"), device(broker, tmp_path, "pi-g")
    line = broker.connect(gone, connect("pi-f"))
    assert line
    assert broker.authority.revoke("pi-f", now=now()) == 1
    with enrolling(broker), pytest.raises(LinkError, match="no certificate that could be renewed"):
        enrol_now(gone.parent, broker.url)  # as long as mosquitto has not read the list
    broker.reload()
    until(lambda: broker.connect(gone, connect("pi-f")) is None)
    assert broker.connect(stays, connect("pi-g"))
    assert broker.authority.revoke("pi-g", now=now()) == 1
    broker.reload()
    until(lambda: broker.connect(stays, connect("pi-g")) is None)
    assert broker.connect(device(broker, tmp_path, "pi-h"), connect("pi-h"))


# ---------------------------------------------------------------- a running device


@pytest.fixture
def running(broker, tmp_path):
    """Starts a device with an identity folder; returns what it has said on standard error so far."""
    processes = []
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes())
    replay = write_replay(tmp_path / "r.csv", [EASY] * 20_000)

    def start(identity: Path, *words: str) -> Callable[[], str]:
        command = [sys.executable, "-m", "hardcase_edge.cli", "run", str(tmp_path / "toy.hcb"), "--interval", "0.02"]
        command += ["--sensors", f"replay:{replay}", "--broker", broker.url, "--identity", str(identity), *words]
        with (tmp_path / "said").open("wb") as said:
            processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said))
        return (tmp_path / "said").read_text

    yield start
    for process in processes:
        process.kill()
        process.wait()


def status_of(broker: Tls, name: str) -> Raw:
    eye = broker.connect(None, connect("eye", "eye", broker.passwords["eye"]), port=broker.workers_port)
    assert eye
    eye.send(subscribe(status_topic(name)))
    return eye


def test_a_device_with_a_claim_decides_at_once_and_connects_as_soon_as_it_has_a_certificate(broker, tmp_path, running):
    folder = claim(broker, tmp_path, device="pi-i")
    said = running(folder, "--device-id", "pi-i")
    until(lambda: "no certificate for pi-i" in said() or (folder / "0001" / "request.der").exists())
    with enrolling(broker):
        until(lambda: "has accepted the certificate of pi-i" in said())
    eye = status_of(broker, "pi-i")
    until(lambda: eye.settle() and eye.heard)
    assert b'"state":"online"' in eye.heard[0][1]
    assert Identities(folder).current().facts.name == "pi-i"  # type: ignore[union-attr]


def test_a_running_device_renews_its_certificate_and_connects_with_the_new_one(broker, tmp_path, running):
    broker.authority.device("pi-j", tmp_path / "pi-j", now=now(), days=0.01)  # two thirds of its life are over
    with enrolling(broker):
        said = running(tmp_path / "pi-j")
        until(lambda: "has accepted the certificate of pi-j" in said())
        until(lambda: said().count("connected to") == 2)
    assert Identities(tmp_path / "pi-j").current().number == 2  # type: ignore[union-attr]
