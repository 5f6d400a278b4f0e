#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts the store, the dashboard and, where an f0 is named, a worker, with the broker that Home Assistant names.

If one of them ends, the others are told to end, too, and the add-on ends with status 1: the Supervisor says so, and
starts it again if its watchdog is on.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

SUPERVISOR = os.environ.get("SUPERVISOR_URL", "http://supervisor")
INGRESS = os.environ.get("INGRESS_ADDRESS", "172.30.32.2")  # whose requests Home Assistant has logged in
BIND = os.environ.get("INGRESS_BIND", "0.0.0.0:8099")
DATA, CONFIG = Path(os.environ.get("DATA_FOLDER", "/data")), Path(os.environ.get("CONFIG_FOLDER", "/config"))
WORKER_METRICS = "127.0.0.1:9102"
STOP_S = 8.0  # the Supervisor waits for ten


def main() -> int:
    """Run until told to end, or until a part ends."""
    try:
        options = checked(json.loads((DATA / "options.json").read_text()))
    except (OSError, ValueError, RecursionError) as error:
        print(f"hardcase: the options cannot be used ({error}); correct them", file=sys.stderr)
        return 1
    try:
        broker = broker_of(service("mqtt"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        print(f"hardcase: Home Assistant names no broker ({error}); set up the MQTT integration", file=sys.stderr)
        return 1
    processes: list[subprocess.Popen[bytes]] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        for words in commands(options, broker):
            processes.append(subprocess.Popen([sys.executable, "-m", "hardcase.cli", "cloud", *words]))
            wait_for(DATA / "store.sqlite", processes)
        while all(process.poll() is None for process in processes):
            time.sleep(0.2)
        return 1
    finally:
        end(processes)


def checked(options: Any) -> dict[str, Any]:
    """The options, if their texts are texts and their files lie in the add-on's folder; else ``ValueError``."""
    if not isinstance(options, dict) or not isinstance(options.get("bundles", []), list):
        raise ValueError("they are no table, or bundles is no list")
    names = [*options.get("bundles", []), *([options["hpc"]] if options.get("hpc") else [])]
    for text in [*names, options.get("keep") or ""]:
        if not isinstance(text, str) or not text.isprintable():
            raise ValueError(f"{text!r:.80} is no text of one line")
    for name in names:
        if CONFIG.resolve() not in (CONFIG / name).resolve().parents:
            raise ValueError(f"{name!r:.80} is no file in the add-on's configuration folder")
    return options


def service(name: str) -> dict[str, Any]:
    """What the Supervisor knows of a service."""
    token = {"Authorization": f"Bearer {os.environ.get('SUPERVISOR_TOKEN', '')}"}
    with urllib.request.urlopen(
        urllib.request.Request(f"{SUPERVISOR}/services/{name}", headers=token), timeout=10
    ) as answer:
        found: dict[str, Any] = json.load(answer)["data"]
        return found


def broker_of(mqtt: dict[str, Any]) -> str:
    """The broker's address; its user and password go into the environment, which only children see."""
    os.environ["HARDCASE_MQTT_USER"] = str(mqtt.get("username") or "")
    os.environ["HARDCASE_MQTT_PASSWORD"] = str(mqtt.get("password") or "")
    return f"{'mqtts' if mqtt.get('ssl') else 'mqtt'}://{mqtt['host']}:{mqtt['port']}"


def commands(options: dict[str, Any], broker: str) -> list[list[str]]:
    """The arguments of ``hardcase cloud`` of each part, the store first."""
    store = f"sqlite:{DATA / 'store.sqlite'}"
    keep = ["--keep", options["keep"]] if options.get("keep") else []
    bundles = [word for name in options.get("bundles", []) for word in ("--bundle", str(CONFIG / name))]
    worker = ["--worker", f"http://{WORKER_METRICS}/metrics"] if options.get("hpc") else []
    parts = [
        ["store", "--store", store, "--broker", broker, *keep],
        ["dashboard", "--store", store, "--bind", BIND, "--public", "--ingress", INGRESS, *bundles, *worker],
    ]
    if options.get("hpc"):
        parts.append(["worker", "--broker", broker, "--hpc", str(CONFIG / options["hpc"]), "--metrics", WORKER_METRICS])
    return parts


def wait_for(path: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    """Wait until the store has made its file, or has ended."""
    while not path.exists() and all(process.poll() is None for process in processes):
        time.sleep(0.05)


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Tell all to end, and kill what does not."""
    for process in processes:
        process.terminate()
    until = time.monotonic() + STOP_S
    for process in processes:
        try:
            process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()


if __name__ == "__main__":
    os.environ.setdefault("HARDCASE_DASHBOARD_TOKEN", secrets.token_urlsafe(24))  # nobody needs it: ingress is the way
    sys.exit(main())
