# SPDX-License-Identifier: Apache-2.0
"""What ``check-broker`` finds at brokers of which we know what they do."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from hardcase.cli import main
from hardcase_cloud.broker.embedded import EmbeddedBroker
from hardcase_cloud.mqtt import check, packets, prober
from hardcase_edge.link.address import parse_address

from ...helpers.cloud.brokers import free_port, running_mosquitto
from ...helpers.edge.device import Cloud


def findings(capsys: pytest.CaptureFixture[str], url: str) -> tuple[int, dict[str, str]]:
    status = main(["cloud", "check-broker", url, "--json"])
    return status, {finding["what"]: finding["does"] for finding in json.loads(capsys.readouterr().out)}


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What should come at once may take its time on a busy machine."""
    monkeypatch.setattr(prober, "WAIT_S", 60.0)
    monkeypatch.setattr(check, "SLOW_MS", 5_000.0)


def test_mosquitto_does_all_that_workers_and_devices_lean_on(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(check, "QUIET_S", 0.05)
    with running_mosquitto(tmp_path) as broker:
        status, does = findings(capsys, broker.url)
    assert status == 0
    assert does.pop("word of a second client with one id") in ("yes", "no")  # 2.0.15 and later say so
    assert set(does.values()) == {"yes"}
    assert {"shared subscriptions", "message expiry", "Receive Maximum", "last wills", "MQTT 3.1.1"} <= set(does)


def test_beside_a_running_worker_the_broker_still_says_that_nobody_subscribes(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(check, "QUIET_S", 0.05)
    with running_mosquitto(tmp_path) as broker, Cloud(broker.url):
        status, does = findings(capsys, broker.url)
    assert (status, does["word that nobody subscribes"]) == (0, "yes")


def test_the_embedded_broker_speaks_3_1_1_alone_and_says_what_that_costs(capsys):
    with EmbeddedBroker(port=0) as broker:
        assert main(["cloud", "check-broker", broker.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("no      MQTT 5: refused with reason 1; without it: several workers")
    assert [line[:3] for line in lines[1:]] == ["yes"] * 5


class Late:
    """A line whose bytes come a tenth of a second late."""

    late_s = 0.1

    def __init__(self, line: Any) -> None:
        self._line, self._due = line, list[tuple[float, bytes]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._line, name)

    def receive(self, wait_s: float) -> bytes:
        until = time.monotonic() + wait_s
        while (now := time.monotonic()) < until and not (self._due and self._due[0][0] <= now):
            if data := self._line.receive(0.005):
                self._due.append((now + self.late_s, data))
        due = [data for at, data in self._due if at <= now]
        del self._due[: len(due)]
        return b"".join(due)


class BusyOnce(Late):
    """A line to a broker that takes a while over acknowledgements, and over nothing else."""

    late_s = 0.0

    def send(self, data: bytes) -> None:
        if data[0] == packets.PUBACK:
            self.late_s = 0.3
        self._line.send(data)


def test_on_a_slow_line_it_waits_for_longer_before_it_says_that_nothing_came(tmp_path, monkeypatch):
    monkeypatch.setattr(check, "QUIET_S", 0.01)
    open_line = prober.open_line
    monkeypatch.setattr(prober, "open_line", lambda *args: Late(open_line(*args)))
    with running_mosquitto(tmp_path) as broker:
        checks = check._Checks(parse_address(broker.url))
        assert [question().does for question in (checks._mqtt_5, checks._receive_maximum)] == ["yes", "yes"]
        assert checks._quiet_s >= check.TRIPS * 0.1


def test_a_broker_that_is_busy_for_a_while_is_not_said_to_flood(tmp_path, monkeypatch):
    monkeypatch.setattr(check, "QUIET_S", 0.01)
    open_line = prober.open_line
    monkeypatch.setattr(prober, "open_line", lambda *args: BusyOnce(open_line(*args)))
    with running_mosquitto(tmp_path) as broker:
        found = check._Checks(parse_address(broker.url))._receive_maximum()
        assert (found.does, found.detail) == ("yes", "2 before an acknowledgement, 2 after it")


class Impatient(prober.Prober):
    """Waits for its connection as any, and for nothing after that."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._answer_s = 0.05


def test_a_broker_that_only_takes_connections_is_of_no_use(capsys, monkeypatch):
    monkeypatch.setattr(check, "Prober", Impatient)
    monkeypatch.setattr(prober, "BYE_S", 0.05)
    listener = socket.create_server(("127.0.0.1", 0))

    def greet() -> None:
        with suppress(OSError):
            while True:
                line, _ = listener.accept()
                said = line.recv(65_536)
                line.sendall(b"\x20\x03\x00\x00\x00" if b"MQTT\x05" in said else b"\x20\x02\x00\x00")
                lines.append(line)

    lines: list[socket.socket] = []
    thread = threading.Thread(target=greet, daemon=True)
    thread.start()
    status, does = findings(capsys, f"mqtt://127.0.0.1:{listener.getsockname()[1]}")
    assert (status, does["MQTT 5"], does["Requests and replies"]) == (1, "yes", "no")
    for line in (listener, *lines):
        line.close()


class Later:
    """A connection to a broker that shows a state at the third subscription alone, as NATS may."""

    connected_s, reason, looks = 0.01, 0, 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def publish(self, *_: Any, **__: Any) -> int:
        return 0

    def subscribe(self, *_: Any, **__: Any) -> None:
        self.looks += 1

    def message(self, wait_s: float | None = None) -> packets.Published | None:
        return packets.Published("t", b"online", 1, retain=True) if self.looks == 3 else None

    def close(self) -> None:
        pass


def test_a_state_that_the_broker_keeps_a_little_after_it_has_acknowledged_it_is_found(monkeypatch):
    monkeypatch.setattr(check, "Prober", Later)
    assert check._Checks(parse_address("mqtt://127.0.0.1:1"))._retained().does == check.YES


def test_a_broker_that_is_not_there_is_one_line(capsys):
    assert main(["cloud", "check-broker", f"mqtt://127.0.0.1:{free_port()}"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "takes no connection" in line
