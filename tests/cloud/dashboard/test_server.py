# SPDX-License-Identifier: Apache-2.0
"""The dashboard's command: it ends at once and without a traceback though somebody watches; tokens that fit a URL."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from hardcase.cli import main
from hardcase_cloud.records.database import Database

TOKEN = "a+token/of=24-characters"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_though_somebody_watches(tmp_path: Path, number: signal.Signals) -> None:
    url = f"sqlite:{tmp_path / 's.sqlite'}"
    Database(url).close()
    command = [sys.executable, "-m", "hardcase.cli", "cloud", "dashboard", "--store", url, "--bind", "127.0.0.1:0"]
    environment = {**os.environ, "HARDCASE_DASHBOARD_TOKEN": TOKEN}
    process = subprocess.Popen(
        [*command, "--json"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    address = urlsplit(json.loads(process.stdout.readline())["url"])
    assert address.query == "token=a%2Btoken%2Fof%3D24-characters"
    with socket.create_connection(("127.0.0.1", address.port or 0), 10) as line:
        line.sendall(f"GET /events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        said = b""
        while b"data: {" not in said:
            said += line.recv(65_536)
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, [json.loads(text) for text in out.splitlines()], err) == (0, [{"event": "stopped"}], "")


@pytest.mark.parametrize("token", ["short", "sixteen letters!", "a;cookie=of-others", "\u00fcber-sechzehn-zeichen"])
def test_a_token_that_does_not_fit_an_address_or_is_short_is_one_line(
    token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HARDCASE_DASHBOARD_TOKEN", token)
    assert main(["cloud", "dashboard", "--store", f"sqlite:{tmp_path / 's.sqlite'}"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "HARDCASE_DASHBOARD_TOKEN" in line
    assert token not in line
