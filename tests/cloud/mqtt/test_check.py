# SPDX-License-Identifier: Apache-2.0
"""What ``check-broker`` finds at brokers of which we know what they do."""

from __future__ import annotations

import json

import pytest

from hardcase.cli import main
from hardcase_cloud.broker.embedded import EmbeddedBroker
from hardcase_cloud.mqtt import check, prober

from ...helpers.cloud.brokers import free_port, running_mosquitto


def findings(capsys: pytest.CaptureFixture[str], url: str) -> tuple[int, dict[str, str]]:
    status = main(["cloud", "check-broker", url, "--json"])
    return status, {finding["what"]: finding["does"] for finding in json.loads(capsys.readouterr().out)}


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What should come at once may take its time on a busy machine."""
    monkeypatch.setattr(prober, "WAIT_S", 60.0)


def test_mosquitto_does_all_that_workers_and_devices_lean_on(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(check, "QUIET_S", 0.05)
    with running_mosquitto(tmp_path) as broker:
        status, does = findings(capsys, broker.url)
    assert status == 0
    assert does.pop("word of a second client with one id") in ("yes", "no")  # 2.0.15 and later say so
    assert set(does.values()) == {"yes"}
    assert {"shared subscriptions", "message expiry", "Receive Maximum", "last wills", "MQTT 3.1.1"} <= set(does)


def test_the_embedded_broker_speaks_3_1_1_alone_and_says_what_that_costs(capsys):
    with EmbeddedBroker(port=0) as broker:
        assert main(["cloud", "check-broker", broker.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("no      MQTT 5: refused with reason 1; without it: several workers")
    assert [line[:3] for line in lines[1:]] == ["yes"] * 5


def test_a_broker_that_is_not_there_is_one_line(capsys):
    assert main(["cloud", "check-broker", f"mqtt://127.0.0.1:{free_port()}"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "takes no connection" in line
