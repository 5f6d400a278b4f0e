# SPDX-License-Identifier: Apache-2.0
"""What is wrong with the machine itself: its clock, its memory, and the service that systemd has of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from ...base.clock import RELEASED
from .fault import Fault

MEMORY_BYTES = 64 * 1024 * 1024  # for a start and a trial of a usual bundle (docs/benchmarks/edge.md)
UNIT = "hardcase-edge.service"
COMMAND_S = 5.0
PROPERTIES = ("LoadState", "ActiveState", "Result", "WatchdogUSec", "NRestarts")
RESULTS = {
    "watchdog": "the decision loop hung, and systemd ended it",
    "oom-kill": "it needed more memory than it may have",
    "exit-code": "it ended with an error",
    "timeout": "it did not start or stop in time",
}


def clock(now: float | None = None) -> Iterator[Fault]:
    """A clock that was never set, as after a start without a network."""
    seconds = time.time() if now is None else now
    if seconds < RELEASED:
        date = time.strftime("%Y-%m-%d", time.gmtime(seconds))
        what = f"the clock says {date}, before this version was made; certificates seem not to be valid yet"
        yield Fault(what, "the clock", "let it be set: systemctl enable --now systemd-timesyncd, or date -s")


def memory(path: Path = Path("/proc/meminfo")) -> Iterator[Fault]:
    """Too little memory to start."""
    try:
        lines = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError, IndexError):
        return  # a system that does not say
    if free < MEMORY_BYTES:
        what = f"{free // 1_048_576} MB of memory are free, and a start may need {MEMORY_BYTES // 1_048_576}"
        yield Fault(what, str(path), "stop other programs: ps aux --sort=-rss")


def service(booted: Path = Path("/run/systemd/system"), unit: str = UNIT) -> Iterator[Fault]:
    """A unit without a watchdog, and one that has failed."""
    systemctl = shutil.which("systemctl")
    if systemctl is None or not booted.is_dir():
        return
    words = [systemctl, "show", unit, f"--property={','.join(PROPERTIES)}"]
    try:
        process = subprocess.run(
            words, capture_output=True, text=True, timeout=COMMAND_S, check=False, env=_environment()
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    state = dict(line.split("=", 1) for line in process.stdout.splitlines() if "=" in line)
    if state.get("LoadState") != "loaded":
        return
    if state.get("WatchdogUSec") in ("0", "infinity"):
        what = "the unit has no watchdog, so a sensor that holds the device up holds it up for ever"
        yield Fault(what, unit, "print it anew: hardcase-edge service run ...")
    result, log = state.get("Result", "success"), f"journalctl -u {unit} -n 50"
    if result != "success":
        yield Fault(f"the service has failed: {RESULTS.get(result, result)}", unit, f"read why: {log}")
    elif state.get("NRestarts", "0") not in ("", "0"):
        yield Fault(f"the service was started again {state['NRestarts']} times", unit, f"read why: {log}")


def _environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C", "SYSTEMD_PAGER": ""}
