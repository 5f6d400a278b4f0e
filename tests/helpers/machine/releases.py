# SPDX-License-Identifier: Apache-2.0
"""Release files over the air in the emulated machine: good and bad runtimes and settings, and a cut in each step."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hardcase.verbs.release.making import make_release
from hardcase_edge import __version__
from hardcase_edge.base.sha256 import sha256
from hardcase_edge.fleet.release.archive import pack_archive, read_archive
from tests.helpers.cloud.brokers import Broker, running_mosquitto

from .emulator import Machine
from .fleet import DEVICE, Fleet
from .life import BOOT_S, FIRST_BOOT_S, LOG, UPDATE_S, Watch, copy_of, offer

CUTS = {  # what the console shows, and how many seconds later the power is cut at most
    "chunks come": (r"fetching bundle", 2.0),
    "put, unpacked and tried": (r"is in slot [ab], and its trial begins", 8.0),
    "an offer has come": (r"fetching bundle", 0.0),
    "on trial": (r"is in slot [ab], and its trial begins", 20.0),
    "just put": (r"is in slot [ab], and its trial begins", 0.5),
}


def runtime(version: str, more: Mapping[str, str] | None = None) -> bytes:
    """A release of this runtime under another version; ``more`` goes at the end of modules."""
    archive = read_archive(make_release(None, (), {}), "a release")
    files = dict(archive.files)
    files["hardcase_edge/__init__.py"] += f'\n__version__ = "{version}"\n'.encode()
    for name, text in (more or {}).items():
        files[name] += text.encode()
    about = {key: value for key, value in archive.manifest.items() if key != "files"}
    return pack_archive(files, {**about, "runtime": version})


def live_on_releases(base: Path, folder: Path, n_cuts: int, seed: int) -> dict[str, Any]:
    """Flash a card and update all that it runs; seconds of each step, and what came of each cut.

    Raises
    ------
    TimeoutError, AssertionError
        A step has not come to its end, or to the wrong one.
    """
    card, fleet, rng = copy_of(base, folder), Fleet(folder, n_releases=0), random.Random(seed)
    steps: dict[str, float] = {}
    with running_mosquitto(folder) as broker, Watch(broker) as watch, Machine(base, folder, card) as machine:
        fleet.flash(card, broker.port, "good_sensors")
        machine.power_on(LOG)
        end = time.monotonic() + FIRST_BOOT_S
        while machine.is_on and time.monotonic() < end:
            time.sleep(0.1)
        machine.power_on(LOG)
        runs(watch, __version__)

        def step(what: str, name: str, data: bytes, status: int, version: str, reason: str = "") -> None:
            began = time.monotonic()
            told = offer(fleet, broker, name, data)
            assert told[0] == status, told
            runs(watch, version, began, reason=reason)
            steps[what] = time.monotonic() - began
            print(f"{what}: {steps[what]:.0f} s", flush=True)

        step("a new runtime, to the end of its trial", "new", runtime("9.0.1"), 0, "9.0.1")
        torn = {"hardcase_edge/errors.py": "\nraise ImportError('torn')\n"}
        step("a runtime that cannot be imported", "torn", runtime("9.0.2", torn), 2, "9.0.1", "torn")
        hangs = {"hardcase_edge/errors.py": "\nimport time\ntime.sleep(1e6)\n"}
        step("a runtime that hangs", "hangs", runtime("9.0.3", hangs), 2, "9.0.1", "was not done in 60 s")
        words = [
            "--sensors", "good_sensors:read", "--interval", "0.25", "--broker", "mqtt://10.0.2.2:9", "--trial-s",
            "30",
        ]  # fmt: skip
        settings = make_release(None, words, None)
        step("settings with another broker", "settings", settings, 2, "9.0.1", "no connection to the cloud")
        old, seen = "9.0.1", {}
        for k, (what, (pattern, most_s)) in enumerate(list(CUTS.items())[:n_cuts]):
            version = f"9.1.{k}"
            seen[what] = _cut(fleet, broker, watch, machine, version, pattern, rng.uniform(0, most_s), old)
            old = version
    return {"steps": steps, "cuts": seen}


def _cut(
    fleet: Fleet, broker: Broker, watch: Watch, machine: Machine, version: str, pattern: str, pause_s: float, old: str
) -> str:
    """Offer a runtime, cut the power, and see that the machine runs the old one or the new; returns which."""
    data = runtime(version)
    bundle, metadata = fleet.publish(f"cut-{version}", data)
    words = ["cloud", "offer", bundle, "--metadata", metadata, "--device", DEVICE, "--broker", broker.url]
    n_lines = len(machine.console())
    with subprocess.Popen(
        [sys.executable, "-m", "hardcase.cli", *map(str, words)], stdout=subprocess.DEVNULL
    ) as command:
        try:
            machine.run_until(rf"(?s).{{{n_lines}}}.*{pattern}", UPDATE_S)
            time.sleep(pause_s)
            machine.cut()
            since = time.monotonic()
            machine.power_on(LOG)
            first = watch.wait("facts", lambda body: body["store"].get("runtime"), BOOT_S, since).body["store"]
            assert first["runtime"] in (old, version), first
            runs(watch, version, since, digest=sha256(data).hex())  # it comes to its end, too
            return str(first["runtime"])
        finally:
            command.terminate()


def runs(watch: Watch, version: str, since: float = 0.0, digest: str = "", reason: str = "") -> None:
    """Wait until the device says that a slot with this runtime is good, and why the other one has failed."""

    def is_it(body: dict[str, Any]) -> bool:
        store = body.get("store") or {}
        has_it = store.get("runtime") == version and digest in ("", store.get("sha256"))
        has_reason = reason in (store.get("failed") or {}).get("reason", "")
        return has_it and has_reason and store.get("state") == "good"

    watch.wait("facts", is_it, UPDATE_S, since)
