# SPDX-License-Identifier: Apache-2.0
"""Home Assistant itself as a process on loopback, set up by its own API as its first user would do it."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Self

import pytest
from websockets.sync.client import connect

from tests.helpers.places import ROOT

from .brokers import Broker, free_port, until

INSTALLED = ROOT / "build" / "homeassistant"
CONFIGURATION = """
http:
  server_host: 127.0.0.1
  server_port: {port}
api:
config:
recorder:
  commit_interval: 1
"""
PAGES = '''"""Stands for Home Assistant's pages, which the tests do not have."""
from pathlib import Path


def where() -> Path:
    return Path(__file__).parent
'''


class HomeAssistant:
    """One process; from an empty folder to a user with a token, and then a connection to a broker.

    more : lines of configuration.yaml beside the API's and the recorder's
    """

    def __init__(self, folder: Path, more: str = "") -> None:
        if not (INSTALLED / "bin" / "hass").exists():
            pytest.skip("Home Assistant is needed: make toolchains")
        self.folder, self.port = folder, free_port()
        self.database = folder / "home-assistant_v2.db"
        (folder / "pages" / "hass_frontend").mkdir(parents=True)
        (folder / "pages" / "hass_frontend" / "__init__.py").write_text(PAGES)
        (folder / "configuration.yaml").write_text(CONFIGURATION.format(port=self.port) + more)
        self._token = ""

    def __enter__(self) -> Self:
        words = [INSTALLED / "bin" / "hass", "--config", self.folder, "--skip-pip"]
        with (self.folder / "hass.out").open("wb") as out:
            self._process = subprocess.Popen(
                list(map(str, words)), stdout=out, stderr=out, cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(self.folder / "pages")},
            )  # fmt: skip
        try:
            until(self._is_up, 120)
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def log(self) -> str:
        """What it has said."""
        return (self.folder / "hass.out").read_text(errors="replace")

    def cpu_s(self) -> float:
        """Seconds of a core that it has had."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def add_broker(self, broker: Broker) -> None:
        """Set the MQTT integration up, as its page does."""
        flow = self.post("config/config_entries/flow", {"handler": "mqtt"})
        said = self.post(f"config/config_entries/flow/{flow['flow_id']}", {"broker": broker.host, "port": broker.port})
        assert said["type"] == "create_entry", said

    def get(self, path: str) -> Any:
        """The answer of a page of its REST API; None where there is nothing."""
        return self._call(path, None)

    def post(self, path: str, body: object) -> Any:
        """The answer of its REST API to a POST of JSON."""
        return self._call(path, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def do(self, action: str, **data: object) -> None:
        """One of its actions, such as ``update.install``."""
        self.post(f"services/{action.replace('.', '/')}", data)

    def state(self, entity: str) -> str | None:
        """The state of an entity; None before there is one."""
        found = self.get(f"states/{entity}")
        return None if found is None else found["state"]

    def ask(self, kind: str, **data: object) -> Any:
        """The result of a command of its WebSocket API."""
        with connect(f"ws://127.0.0.1:{self.port}/api/websocket") as socket:
            socket.recv()
            socket.send(json.dumps({"type": "auth", "access_token": self._token}))
            assert json.loads(socket.recv())["type"] == "auth_ok"
            socket.send(json.dumps({"id": 1, "type": kind, **data}))
            answer = json.loads(socket.recv())
        assert answer["success"], answer
        return answer["result"]

    def _is_up(self) -> bool:
        assert self._process.poll() is None, self.log[-2_000:]
        time.sleep(0.2)
        try:
            return bool(self.get("onboarding"))
        except OSError:
            return False

    def _begin(self) -> None:
        """Make the first user, and take a token for it."""
        me = f"http://127.0.0.1:{self.port}/"
        user = {"client_id": me, "name": "A", "username": "a", "password": "a-password", "language": "en"}
        code = self.post("onboarding/users", user)["auth_code"]
        form = urllib.parse.urlencode({"grant_type": "authorization_code", "code": code, "client_id": me})
        self._token = self._call("../auth/token", form.encode())["access_token"]

    def _call(self, path: str, data: bytes | None, headers: dict[str, str] | None = None) -> Any:
        token = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        where = urllib.parse.urljoin(f"http://127.0.0.1:{self.port}/api/", path)
        try:
            with urllib.request.urlopen(urllib.request.Request(where, data, {**(headers or {}), **token})) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise AssertionError(f"{path}: {error.code} {error.read()[:500]!r}") from error
