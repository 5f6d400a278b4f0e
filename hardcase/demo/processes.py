# SPDX-License-Identifier: Apache-2.0
"""Processes of the demonstration: a broker, a worker that can be killed, and a real device."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hardcase_edge.errors import HardcaseError

START_S = 60.0
STOP_S = 15.0


class StageError(HardcaseError):
    """A process of the demonstration failed or did not respond."""


class Process:
    """A child process that prints JSON lines, which are collected in ``lines``."""

    def __init__(self, name: str, module: str, arguments: Sequence[str]) -> None:
        self.name = name
        self.lines: list[dict[str, Any]] = []
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        command = [sys.executable, "-m", module, *arguments]
        self._child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )
        self._errors: list[str] = []
        self._readers = [threading.Thread(target=f, daemon=True) for f in (self._read, self._read_errors)]
        for thread in self._readers:
            thread.start()

    @property
    def pid(self) -> int:
        return self._child.pid

    def event(self, name: str) -> dict[str, Any]:
        """The next event of that name.

        Raises
        ------
        StageError
            The event does not come in time, or the process ends first.
        """
        while True:
            try:
                line = self._events.get(timeout=START_S)
            except queue.Empty:
                raise StageError(f"{self.name} printed nothing for {START_S:.0f} s") from None
            if line is None:
                raise StageError(f"{self.name} ended before it was {name}: {' '.join(self._errors[-3:])[:300]}")
            if line.get("event") == name:
                return line

    def kill(self) -> None:
        """Send SIGKILL, as in a power failure, and wait."""
        self._child.kill()
        self._child.wait()

    def stop(self) -> int:
        """Send SIGTERM and wait for the process to exit; its exit status."""
        if self._child.poll() is None:
            self._child.terminate()
        return self.wait(STOP_S)

    def wait(self, timeout_s: float) -> int:
        """Wait for the process to exit, and kill it after the timeout; its exit status."""
        try:
            self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
        for thread in self._readers:
            thread.join(STOP_S)
        return self._child.returncode

    def _read(self) -> None:
        assert self._child.stdout is not None
        for text in self._child.stdout:
            try:
                line = json.loads(text)
            except ValueError:
                continue
            self.lines.append(line)
            self._events.put(line)
        self._events.put(None)

    def _read_errors(self) -> None:
        assert self._child.stderr is not None
        for text in self._child.stderr:
            self._errors.append(text.strip())
            del self._errors[:-20]


def start_broker(hpc: Path) -> tuple[Process, str]:
    """Start the embedded broker on a free loopback port; the process and its URL."""
    flags = ["cloud", "up", "--workers", "0", "--bind", "127.0.0.1:0", "--hpc", str(hpc), "--json"]
    broker = Process("the broker", "hardcase.cli", flags)
    return broker, str(broker.event("ready")["broker"])


def start_worker(url: str, hpc: Path) -> Process:
    """Start a worker and wait until it is ready."""
    worker = Process("the worker", "hardcase.cli", ["cloud", "worker", "--broker", url, "--hpc", str(hpc), "--json"])
    worker.event("ready")
    return worker


def start_device(bundle: Path, key: Path, url: str, replay: Path, count: int, interval_s: float) -> Process:
    """Start a real ``hardcase-edge`` that replays samples, computes features and trusts only the signed bundle."""
    flags = ["run", str(bundle), "--trust", str(key), "--broker", url, "--device-id", "edge-1"]
    flags += ["--sensors", f"replay:{replay}", "--count", str(count), "--interval", str(interval_s)]
    return Process("hardcase-edge", "hardcase_edge.cli", flags)
