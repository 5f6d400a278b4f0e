# SPDX-License-Identifier: Apache-2.0
"""A flashed card's life in the emulated machine: first boot, decisions, a hung driver, and updates over the air.

Each step waits for what the broker or the console shows, and says how long that took.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from hardcase_edge.base.sha256 import sha256
from tests.helpers.cloud.brokers import Broker, running_mosquitto
from tests.helpers.edge.device import make_bundle_bytes

from .emulator import Machine
from .fleet import DEVICE, Fleet, crashing_bundle

LOG = "systemd.journald.forward_to_console=1"
FIRST_BOOT_S, BOOT_S, WATCHDOG_S, UPDATE_S = 240.0, 180.0, 240.0, 300.0  # how long each may take on a busy machine


class Seen(NamedTuple):
    """A message of the device."""

    t: float
    kind: str  # the topic's last part
    body: dict[str, Any]


class Watch(AbstractContextManager["Watch"]):
    """All that a device has told a broker."""

    def __init__(self, broker: Broker) -> None:
        self._seen: list[Seen] = []
        self._changed = threading.Condition()
        self._client = paho.Client(CallbackAPIVersion.VERSION2)
        self._client.on_connect = lambda client, *_: client.subscribe(f"hardcase/v1/{DEVICE}/#")
        self._client.on_message = self._on_message
        self._client.connect(broker.host, broker.port)
        self._client.loop_start()

    def _on_message(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        kind = message.topic.rpartition("/")[2]
        if kind in ("status", "facts", "decision") and message.payload:
            with self._changed:
                self._seen.append(Seen(time.monotonic(), kind, json.loads(message.payload)))
                self._changed.notify_all()

    def wait(self, kind: str, is_it: Callable[[dict[str, Any]], object], timeout_s: float, since: float = 0.0) -> Seen:
        """The first such message after a moment.

        Raises
        ------
        TimeoutError
            There is none yet, and none has come.
        """
        end = time.monotonic() + timeout_s
        with self._changed:
            while True:
                for seen in self._seen:
                    if seen.kind == kind and seen.t >= since and is_it(seen.body):
                        return seen
                if not self._changed.wait(max(end - time.monotonic(), 0)):
                    last = [s for s in self._seen if s.kind == kind][-1:]
                    raise TimeoutError(f"no such {kind} after {timeout_s:.0f} s; the last one: {last}")

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def copy_of(base: Path, folder: Path) -> Path:
    """A card of one's own, with holes where it has zeros."""
    card = folder / "card.img"
    subprocess.run(["cp", "--sparse=always", str(base / "card.img"), str(card)], check=True)
    return card


def live(base: Path, folder: Path) -> dict[str, float]:
    """Flash a card and live through all of it; seconds of each step.

    Raises
    ------
    TimeoutError, AssertionError
        A step has not come to its end, or to the wrong one.
    """
    card, fleet = copy_of(base, folder), Fleet(folder, n_releases=0)
    with running_mosquitto(folder) as broker, Watch(broker) as watch, Machine(base, folder, card) as machine:
        began = time.monotonic()
        fleet.flash(card, broker.port)
        steps = {"hardcase flash": time.monotonic() - began}

        on = time.monotonic()
        machine.power_on(LOG)
        machine.run_until("Starting kernel-command-line.service", FIRST_BOOT_S)
        steps["power on to the first boot's script"] = time.monotonic() - on
        while machine.is_on:
            assert time.monotonic() < on + FIRST_BOOT_S, machine.console()[-2000:]
            time.sleep(0.1)
        steps["power on to the first boot's end"] = time.monotonic() - on

        again = time.monotonic()
        machine.power_on(LOG)
        decision = watch.wait("decision", lambda body: True, BOOT_S)
        steps["power on to the first decision at the broker"] = decision.t - again
        steps["both boots"] = decision.t - on
        report = watch.wait("facts", lambda body: body.get("first_boot"), BOOT_S).body["first_boot"]
        assert (report["how"], report["evaluator"]) == ("firstrun", "kernel"), report

        machine.run_until("card_sensors: this reading hangs", BOOT_S)
        hung = time.monotonic()
        machine.run_until("Watchdog timeout", WATCHDOG_S)
        steps["a driver hangs to the watchdog's signal"] = time.monotonic() - hung
        decision = watch.wait("decision", lambda body: True, WATCHDOG_S, since=time.monotonic())
        steps["a driver hangs to the next decision"] = decision.t - hung

        offered, second = time.monotonic(), make_bundle_bytes(name="second")
        status, said = offer(fleet, broker, "second", second)
        assert status == 0, said
        steps["an offer over the air to a bundle that has passed its trial"] = time.monotonic() - offered

        offered = time.monotonic()
        status, said = offer(fleet, broker, "third", crashing_bundle())
        assert status == 2, said
        assert "rolled back" in said, said  # and not refused before it ran
        digest = sha256(second).hex()
        decision = watch.wait("decision", lambda body: body["bundle"] == digest, UPDATE_S, since=time.monotonic())
        steps["an offer of a bundle that crashes to decisions of the one before"] = decision.t - offered
    return steps


def offer(fleet: Fleet, broker: Broker, name: str, data: bytes) -> tuple[int, str]:
    """``hardcase cloud offer``: its exit status and what it said."""
    bundle, metadata = fleet.publish(name, data)
    words = ["cloud", "offer", bundle, "--metadata", metadata, "--device", DEVICE, "--broker", broker.url]
    command = [sys.executable, "-m", "hardcase.cli", *map(str, words)]
    done = subprocess.run(command, check=False, timeout=UPDATE_S, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr
