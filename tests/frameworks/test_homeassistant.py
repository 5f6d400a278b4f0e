# SPDX-License-Identifier: Apache-2.0
"""Home Assistant itself sees devices, decisions and updates, asks a device to install one, and loads the blueprint."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from websockets.sync.client import connect

from hardcase_edge.link.wire import install_topic
from tests.helpers.cloud.brokers import Broker, free_port, until
from tests.helpers.edge.device import EASY, HARD
from tests.helpers.places import ROOT
from tests.helpers.train.problems import ran
from tests.system.test_air import Rig, big_bundle

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


DEVICES = ("pump-1", "pump-2", "pump.3")
NEW = big_bundle("second")  # what one of the devices is offered
MOST_S = 300.0  # from an empty configuration until all is seen
READ = """\
import pathlib

from hardcase_edge.device.device import Device

report = Device._report
Device._report = lambda self: (self.report_soon(), report(self))  # facts after each decision, not once in a minute


def read(sensor):
    return float(pathlib.Path("reading").read_text()) if sensor == "x" else [0.0] * 5
"""
MORE = """
mqtt:
input_boolean:
  people:
input_number:
  level:
    min: 0
    max: 100
command_line:
  - sensor:
      name: Dear
      command: "date +%s%N"
      scan_interval: 86400
automation:
  - alias: ask
    use_blueprint:
      path: hardcase/ask_when_unsure.yaml
      input:
        confidence: sensor.pump_1_confidence
        threshold: 80
        sensors: [sensor.dear]
        pause: 0
        before:
          - service: input_boolean.turn_on
            target: {entity_id: input_boolean.people}
        after:
          - service: input_number.set_value
            target: {entity_id: input_number.level}
            data: {value: "{{ confidence }}"}
"""


@dataclass
class Home:
    """Home Assistant, the devices by their ids, and the seconds until it has seen them."""

    assistant: HomeAssistant
    devices: dict[str, Rig]
    seen_s: float = 0.0


def metered() -> str:
    """Hours that hold for as long as any test runs."""
    hour = time.localtime().tm_hour
    return f"{(hour - 2) % 24:02d}:00-{(hour + 3) % 24:02d}:00"


@pytest.fixture(scope="module")
def home(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """An empty Home Assistant that is told of the broker, and three devices with stores."""
    begin, folder = time.monotonic(), tmp_path_factory.mktemp("home")
    blueprints = folder / "blueprints" / "automation" / "hardcase"
    blueprints.mkdir(parents=True)
    shutil.copy(ROOT / "examples" / "homeassistant" / "blueprints" / "ask_when_unsure.yaml", blueprints)
    with ExitStack() as stack:
        rigs = {}
        for name in DEVICES:
            where = tmp_path_factory.mktemp("device")
            rigs[name] = Rig(where, broker, name)
            (where / "reading").write_text(str(EASY))
            more = ("--home-assistant", "--publish", "all", "--interval", 0.5, "--metered", metered())
            stack.enter_context(rigs[name].running(*more, plug_in=READ))
        assistant = stack.enter_context(HomeAssistant(folder, MORE))
        assistant.add_broker(broker)
        home = Home(assistant, rigs)
        until(lambda: all(assistant.state(f"sensor.{slug(d)}_decision") in ("low", "high") for d in DEVICES), MOST_S)
        home.seen_s = time.monotonic() - begin
        offer = rigs["pump-2"].offer(NEW)
        try:
            yield home
        finally:
            offer.kill()
            offer.communicate()


def slug(device: str) -> str:
    return device.replace("-", "_").replace(".", "_")


def test_three_devices_are_seen_with_a_decision_and_an_update_entity_each(home: Home) -> None:
    devices = [d for d in home.assistant.ask("config/device_registry/list") if d["name"] in DEVICES]
    assert sorted((d["name"], d["model"]) for d in devices) == [(name, "toy") for name in sorted(DEVICES)]
    entities = [e for e in home.assistant.ask("config/entity_registry/list") if e["platform"] == "mqtt"]
    ids = {d["id"] for d in devices}
    for kind in ("_decision", "_bundle"):
        assert {e["device_id"] for e in entities if e["entity_id"].endswith(kind)} == ids
    assert len(entities) == 6 * len(DEVICES)
    decision: dict[str, Any] = home.assistant.get("states/sensor.pump_1_decision")
    assert decision["attributes"]["route"] == "local"
    assert decision["attributes"]["device_class"] == "enum"
    assert home.assistant.state("update.pump_1_bundle") == "off"
    assert home.assistant.state("binary_sensor.pump_1_sensors") == "off"
    assert home.seen_s < MOST_S
    print(f"\nseen after {home.seen_s:.1f} s; Home Assistant had {home.assistant.cpu_s():.1f} s of a core")


def test_the_blueprint_reads_the_expensive_sensor_when_the_device_is_unsure(home: Home) -> None:
    assistant = home.assistant
    (blueprint,) = assistant.ask("blueprint/list", domain="automation").values()
    assert blueprint["metadata"]["name"] == "Ask the expensive sensor only when unsure"
    assert assistant.state("automation.ask") == "on"
    before = assistant.state("sensor.dear")
    time.sleep(1)
    assert assistant.state("sensor.dear") == before, "it was asked while the device was sure"
    assert assistant.state("input_boolean.people") == "off"
    (home.devices["pump-1"].tmp_path / "reading").write_text(str(HARD))
    until(lambda: assistant.state("sensor.dear") != before)
    until(lambda: assistant.state("input_boolean.people") == "on")
    until(lambda: float(assistant.state("input_number.level") or 0) > 0)
    assert float(assistant.state("input_number.level") or 0) < 80


def test_init_reads_the_history_while_home_assistant_writes_it(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for k in range(12):
        home.assistant.do("input_number.set_value", entity_id="input_number.level", value=(37 * k) % 11)
        home.assistant.do(f"input_boolean.turn_{('on', 'off')[k % 2]}", entity_id="input_boolean.people")
        time.sleep(0.1)
    time.sleep(2)  # the recorder writes once in a second
    said = ran(
        capsys, "init", "--from-homeassistant", home.assistant.database, "--every", "change",
        "--entity", "input_number.*", "--out", tmp_path / "h.toml",
    )  # fmt: skip
    assert (said["target"], said["sensors"]) == ("input_boolean.people", {"input_number.level": ["input_number.level"]})
    assert len((tmp_path / "h.csv").read_text().splitlines()) > 12


def test_an_update_waits_in_metered_hours_and_the_install_button_fetches_it(home: Home) -> None:
    device, update = home.devices["pump-2"], "update.pump_2_bundle"
    until(lambda: home.assistant.state(update) == "on")
    assert not device.is_good(NEW)
    home.assistant.do("update.install", entity_id=update)
    until(lambda: device.is_good(NEW))
    until(lambda: home.assistant.state(update) == "off")
    assert "is fetched in metered hours, as was asked for" in device.errors()


def test_what_is_seldom_looked_at_is_there_once_its_user_enables_it(home: Home) -> None:
    assistant, entity = home.assistant, "sensor.pump_2_cloud_share"
    off = [e for e in assistant.ask("config/entity_registry/list") if e["disabled_by"] and e["platform"] == "mqtt"]
    assert {e["entity_id"] for e in off} == {f"sensor.{slug(d)}_cloud_share" for d in DEVICES}
    assert assistant.state(entity) is None
    assistant.ask("config/entity_registry/update", entity_id=entity, disabled_by=None)
    assistant.post(f"config/config_entries/entry/{off[0]['config_entry_id']}/reload", {})  # or in half a minute
    until(lambda: assistant.state(entity) == "0.0")


def test_a_device_that_is_removed_is_gone_from_home_assistant(home: Home, broker: Broker) -> None:
    device = home.devices["pump.3"]
    with device.running("--home-assistant-remove", "--count", 1):
        until(lambda: home.assistant.state("sensor.pump_3_decision") is None)
    names = [d["name"] for d in home.assistant.ask("config/device_registry/list")]
    assert "pump.3" not in names
    assert "pump-1" in names


def test_install_raises_without_an_update_and_never_reaches_a_device_that_is_away(
    home: Home, broker: Broker, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match="install: 500"):
        home.assistant.do("update.install", entity_id="update.pump_1_bundle")
    with Rig(tmp_path, broker, "pump-4").running("--home-assistant", "--interval", 0.5):
        until(lambda: home.assistant.state("update.pump_4_bundle") == "off")
    until(lambda: home.assistant.state("update.pump_4_bundle") == "unavailable")
    asked: list[bytes] = []
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.on_message = lambda _c, _u, message: asked.append(message.payload)
    client.on_subscribe = lambda *_: asked.append(b"subscribed")
    client.connect(broker.host, broker.port)
    client.subscribe(install_topic("pump-4"))
    client.loop_start()
    try:
        until(lambda: asked)
        home.assistant.do("update.install", entity_id="update.pump_4_bundle")
        home.assistant.do("mqtt.publish", topic=install_topic("pump-4"), payload="last")
        until(lambda: len(asked) > 1)
    finally:
        client.disconnect()
        client.loop_stop()
    assert asked == [b"subscribed", b"last"]


def test_home_assistant_finds_no_fault_in_what_devices_say(home: Home) -> None:
    told = [line for line in home.assistant.log.splitlines() if "mqtt" in line.lower()]
    assert [line for line in told if "ERROR" in line or "WARNING" in line] == []
