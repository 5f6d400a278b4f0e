# SPDX-License-Identifier: Apache-2.0
"""What the services of ``hardcase cloud`` say when they cannot start: one line, no ``ready`` and no "trying again"."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hardcase.cli import main
from hardcase_cloud.commands import up
from tests.helpers.cloud.brokers import free_port, running_mosquitto
from tests.helpers.cloud.requests import write_model


def said(*words: object) -> tuple[int, str, list[str]]:
    """Exit status, standard output, and the lines on standard error."""
    command = [sys.executable, "-m", "hardcase.cli", "cloud", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr.splitlines()


@pytest.fixture
def taken() -> Iterator[str]:
    """An address at which somebody else listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("service", ["worker", "store"])
def test_a_port_of_metrics_that_is_taken_is_told_before_it_is_ready(service: str, taken: str, tmp_path: Path) -> None:
    own = {"worker": ("--hpc", write_model(tmp_path)), "store": ("--out", tmp_path / "s.sqlite")}
    with running_mosquitto(tmp_path) as broker:
        status, out, lines = said(service, "--broker", broker.url, *own[service], "--metrics", taken)
    assert (status, out, len(lines)) == (2, "", 1)
    assert taken in lines[0]


@pytest.mark.parametrize(("workers", "status"), [("0", 0), ("1", 2)])
def test_a_broker_alone_needs_no_f0(
    workers: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stops: list[Callable[[], None]] = []
    monkeypatch.setattr(up, "on_stop_signals", stops.append)
    monkeypatch.setattr(up, "say", lambda as_json, event, fields: (print(event), stops[0]()))
    assert main(["cloud", "up", "--workers", workers, "--bind", f"127.0.0.1:{free_port()}"]) == status
    out, err = capsys.readouterr()
    assert (out.split(), "need --hpc" in err) == ((["ready", "stopped"], False) if status == 0 else ([], True))


def test_without_a_broker_enrolment_says_so_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ca", "init", str(tmp_path / "authority")]) == 0
    capsys.readouterr()
    url = f"mqtt://127.0.0.1:{free_port()}"
    status, out, lines = said("enrol", "--authority", tmp_path / "authority", "--broker", url)
    assert (status, out, len(lines)) == (2, "", 1)
    assert "cannot be reached" in lines[0]
    assert "trying again" not in lines[0]


@pytest.mark.parametrize("kind", ["--devices", "--authority"])
def test_the_brokers_listeners_may_have_an_address(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "devices.txt").write_text("pi-1\n")
    assert main(["ca", "init", str(tmp_path / "authority")]) == 0
    assert main(["ca", "server", str(tmp_path / "authority"), "localhost"]) == 0
    given = {"--devices": tmp_path / "devices.txt", "--authority": tmp_path / "authority"}[kind]
    words = ["cloud", "acl", "--broker", "mosquitto", kind, str(given), "--out", str(tmp_path / "acl")]
    for listen, at in ((["--listen", "10.0.0.7"], " 10.0.0.7"), (["--listen", "::1"], " ::1"), ([], "")):
        assert main([*words, *listen]) == 0
        listeners = [x for x in (tmp_path / "acl/hardcase.conf").read_text().splitlines() if x.startswith("listener ")]
        assert listeners[:2] == [f"listener 8883{at}", f"listener 8884{at}"]
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main([*words, "--listen", "here\nallow_anonymous true"])
    assert "is not an IP address" in capsys.readouterr().err
