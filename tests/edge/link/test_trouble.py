# SPDX-License-Identifier: Apache-2.0
"""A cloud that does not answer is left alone for a while; a device whose id another one uses gives up by name."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from itertools import pairwise

import pytest

from hardcase_edge.errors import LinkError
from hardcase_edge.exchange import exchange
from hardcase_edge.exchange.exchange import Circuit
from hardcase_edge.link import identity, rivals
from hardcase_edge.link import link as link_module
from hardcase_edge.link.identity import default_id
from hardcase_edge.link.rivals import Rivals
from tests.edge.link.test_link import READINGS, OldBroker, linked
from tests.helpers.cloud.brokers import running_mosquitto, until
from tests.helpers.edge.device import EASY, REQUEST_BYTES, Cloud, make_bundle_bytes, write_replay


def never():
    raise AssertionError("nothing may be sent again")


# ---------------------------------------------------------------- requests that go nowhere


def test_a_request_that_no_worker_gets_ends_at_once_and_is_sent_once(broker):
    with linked(broker.url, resend_every_s=20.0) as link:
        began = time.monotonic()
        assert link.ask(READINGS, 60.0, never) is None
        assert time.monotonic() - began < 15.0
        assert link.counters == Counter(sent=1, sent_bytes=REQUEST_BYTES, rejected=1)
        assert link.is_connected
        assert not link.can_ask
        assert link.ask(READINGS, 30.0, never) is None
        assert link.counters["sent"] == 1, "the circuit is open: no request goes out"


def test_a_request_that_the_broker_forbids_ends_at_once(tmp_path, caplog):
    rules = tmp_path / "rules"
    rules.write_text("topic read hardcase/v1/dev-1/reply\n")
    with running_mosquitto(tmp_path, acl_file=str(rules)) as broker, linked(broker.url) as link:
        began = time.monotonic()
        assert link.ask(READINGS, 30.0, never) is None
        assert time.monotonic() - began < 20.0
        assert link.counters["rejected"] == 1
        assert not link.can_ask
    assert "the broker takes no request: not authorized; the device decides alone" in caplog.text


def test_a_test_request_that_is_answered_closes_the_circuit(broker, caplog, monkeypatch):
    now, later_ms = link_module._now, [0]
    monkeypatch.setattr(link_module, "_now", lambda: now() + later_ms[0])
    monkeypatch.setattr(exchange, "PAUSE_LEAST_MS", 600_000)
    monkeypatch.setattr(exchange, "PAUSE_MOST_MS", 600_000)
    caplog.set_level("INFO")
    with linked(broker.url) as link:
        assert link.ask(READINGS, 30.0) is None
        with Cloud(broker.url) as cloud:
            assert not link.can_ask
            later_ms[0] = 600_000
            assert link.can_ask
            assert link.ask(READINGS, 30.0) is not None
            assert link.ask(READINGS, 30.0) is not None
            assert len(cloud.requests) == 2
    told = [r.getMessage().partition(";")[0] for r in caplog.records if r.name.endswith("exchange")]
    assert told == ["the broker takes no request: no matching subscribers", "the cloud answers again"]


def test_a_new_connection_closes_the_circuit(tmp_path, monkeypatch):
    monkeypatch.setattr(exchange, "PAUSE_LEAST_MS", 60_000)
    monkeypatch.setattr(exchange, "PAUSE_MOST_MS", 60_000)
    with running_mosquitto(tmp_path) as broker, linked(broker.url) as link:
        assert link.ask(READINGS, 30.0) is None
        assert not link.can_ask
        broker.restart()
        with Cloud(broker.url):
            until(lambda: link.can_ask)
            assert link.ask(READINGS, 30.0) is not None


def test_tests_grow_rarer_with_the_time_that_the_circuit_is_open():
    began = 1_000_000
    subject, tests = Circuit(), []
    subject.refused(began, "for a test")
    for _ in range(16):
        now = subject._test_at
        assert not subject.lets_through(now - 1)
        assert subject.lets_through(now)
        tests.append(now - began)
        subject.silent(now)
    assert tests[:5] == [500, 1_000, 1_500, 2_250, 3_375]
    assert [b - a for a, b in pairwise(tests[-4:])] == [30_000] * 3
    subject.answered()
    assert (subject.is_open, subject.lets_through(began)) == (False, True)


# ---------------------------------------------------------------- two devices with one id


@pytest.fixture
def impatient(monkeypatch):
    """Short pauses; our own session counts as gone at once, because here another client is connected for sure."""
    monkeypatch.setattr(rivals, "PAUSE_S", 0.02)
    monkeypatch.setattr(rivals, "MOST_PAUSE_S", 0.02)
    monkeypatch.setattr(rivals, "OWN_SESSION_S", 0.0)


USED_TWICE = "another client uses the id {}; give each device its own --device-id"


def test_of_two_devices_with_one_id_one_gives_up_and_names_it(broker, impatient, caplog):
    gave_up = threading.Event()
    with linked(broker.url, "twin") as rival, linked(broker.url, "twin", on_taken_over=gave_up.set) as link:
        assert gave_up.wait(60)
        until(lambda: rival.is_connected)
        time.sleep(0.2)
        assert rival.is_connected
        assert not link.is_connected
        assert link.trouble == USED_TWICE.format("twin")
        rival.check()
        with pytest.raises(LinkError, match=USED_TWICE.format("twin")):
            link.check()
    assert "unspecified" not in caplog.text


def test_a_device_whose_id_is_used_twice_ends_with_status_2_while_it_waits(broker, impatient, tmp_path):
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes())
    replay = write_replay(tmp_path / "r.csv", [EASY] * 10)
    code = (
        "import sys; from hardcase_edge.link import rivals; "
        "rivals.PAUSE_S = rivals.MOST_PAUSE_S = 0.02; rivals.OWN_SESSION_S = 0.0; "
        "from hardcase_edge.cli import main; sys.exit(main())"
    )
    words = [sys.executable, "-c", code, "run", tmp_path / "toy.hcb", "--sensors", f"replay:{replay}"]
    words += ["--broker", broker.url, "--device-id", "twin-2", "--interval", "600"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(list(map(str, words)), **pipes) as process:
        assert process.stdout.readline().endswith("}\n")
        with linked(broker.url, "twin-2"):
            rest, errors = process.stdout.read(), process.stderr.read()
    assert (process.returncode, rest) == (2, ""), "it waited for its second decision"
    assert errors.splitlines()[-1] == f"hardcase-edge: broker {broker.url}: {USED_TWICE.format('twin-2')}"
    assert "Traceback" not in errors


def test_who_does_not_listen_for_it_never_gives_up(broker, impatient):
    with linked(broker.url, "twin-3") as one, linked(broker.url, "twin-3") as two:
        until(lambda: one._connection._rivals.is_sure and two._connection._rivals.is_sure)
        one.check()
        two.check()
        assert one._connection._thread.is_alive()


class TellingBroker(OldBroker):
    """Grants everything, then says that the session is taken over, as mosquitto does from 2.0.15 on."""

    def _say(self, peer):
        peer.recv(4096)
        self.levels.append(5)
        peer.sendall(b"\x20\x03\x00\x00\x00")
        subscribe = peer.recv(4096)
        peer.sendall(b"\x90\x04" + subscribe[2:4] + b"\x00\x01")
        peer.sendall(b"\xe0\x02\x8e\x00")


def test_a_broker_that_tells_of_the_other_client_is_believed(impatient, caplog):
    gave_up = threading.Event()
    with TellingBroker(b"") as told, linked(f"mqtt://127.0.0.1:{told.port}", on_taken_over=gave_up.set) as link:
        assert gave_up.wait(60)
        assert len(told.levels) == rivals.MOST_PROOFS
        assert link.trouble == USED_TWICE.format("dev-1")


def test_a_broker_that_goes_away_and_comes_back_is_no_other_client(tmp_path, impatient):
    with running_mosquitto(tmp_path) as broker, linked(broker.url, retry_most_s=0.1, on_taken_over=never) as link:
        for _ in range(3):
            broker.kill()
            until(lambda: "cannot be reached" in link.trouble)
            broker.start()
            until(lambda: link.is_connected)
        assert not link._connection._rivals.is_suspected


def test_the_pauses_after_losses_grow(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(rivals, "monotonic", lambda: now[0])
    subject = Rivals()
    assert [subject.lost(is_proved=False) for _ in range(6)] == [0.0, 8.0, 16.0, 32.0, 32.0, 32.0]
    assert (subject.is_suspected, subject.is_proved, subject.is_sure) == (True, False, False)
    assert not subject.looks_for_session
    now[0] += 4.1
    assert subject.looks_for_session
    subject.came_up()
    assert not subject.looks_for_session, "only the session of another client could be there before"
    now[0] += 600.0
    assert (subject.is_suspected, subject.lost(is_proved=True), subject.is_proved) == (False, 0.0, True)


# ---------------------------------------------------------------- the default id


def test_the_default_id_is_the_hosts_name_and_digits_of_the_machine(tmp_path):
    path = tmp_path / "machine-id"
    path.write_text("0123456789abcdef0123456789abcdef\n")
    name, is_lasting = default_id(str(path), host="raspberrypi.local")
    assert (name, is_lasting) == ("raspberrypi-a46965e4", True)
    assert default_id(str(path), host="raspberrypi") == (name, True)
    path.write_text("0123456789abcdef0123456789abcdee\n")
    assert default_id(str(path), host="raspberrypi")[0] != name


@pytest.mark.parametrize("text", [None, "", "uninitialized\n"])
def test_without_a_machines_id_the_digits_are_random(tmp_path, text):
    path = tmp_path / "machine-id"
    if text is not None:
        path.write_text(text)
    names = {default_id(str(path), host="pi") for _ in range(5)}
    assert len(names) == 5
    assert all(name.startswith("pi-") and not is_lasting for name, is_lasting in names)


@pytest.mark.parametrize("host", ["", "-", "häuschen", "a" * 64, "...", "(none)", "x y\nz"])
def test_any_hosts_name_gives_an_id_that_can_stand_in_a_topic(tmp_path, host, monkeypatch):
    monkeypatch.setattr(identity.os, "uname", lambda: type("Uname", (), {"nodename": host}))
    assert len(default_id(str(tmp_path / "none"))[0]) <= 64
