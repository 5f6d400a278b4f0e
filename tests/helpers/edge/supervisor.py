# SPDX-License-Identifier: Apache-2.0
"""A service manager in a few lines: it hears what a service tells, kills one that falls silent, and starts it again."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

__all__ = ["Supervisor"]

GRACE = 5  # so many periods may pass on a busy machine


class Supervisor:
    """Runs a command as systemd runs a unit with ``Type=notify`` and ``WatchdogSec``; a context manager.

    Parameters
    ----------
    command, folder : what to run, and where
    watchdog_s : seconds
    is_abstract : whether the socket has a name instead of a file
    """

    def __init__(
        self, command: Sequence[object], folder: Path, watchdog_s: float, *, is_abstract: bool = False
    ) -> None:
        self.told: list[str] = []
        self.starts: list[subprocess.Popen[bytes]] = []
        self.watchdog_s = watchdog_s
        self._command, self._folder = [str(word) for word in command], folder
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        name = f"hardcase-{os.getpid()}-{id(self)}"
        self._socket.bind(f"\0{name}" if is_abstract else str(folder / "notify"))
        self._address = f"@{name}" if is_abstract else str(folder / "notify")

    def __enter__(self) -> Supervisor:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.starts:
            process.kill()
            process.communicate()
        self._socket.close()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process that runs now."""
        return self.starts[-1]

    def start(self) -> None:
        """Start the command."""
        micros = str(int(self.watchdog_s * 1e6))
        environment = {**os.environ, "NOTIFY_SOCKET": self._address, "WATCHDOG_USEC": micros}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.starts.append(subprocess.Popen(self._command, cwd=self._folder, env=environment, **pipes))

    def hear(self, word: str, seconds: float = 10.0) -> str:
        """Wait for a message with this word; a service that has said READY and then falls silent is killed, and waited
        for no longer: "".
        """
        until, is_ready = monotonic() + seconds, any("READY=1" in told for told in self.told[-20:])
        while monotonic() < until:
            self._socket.settimeout(GRACE * self.watchdog_s if is_ready else until - monotonic())
            try:
                message = self._socket.recv(4096).decode()
            except TimeoutError:
                self.process.kill()
                self.process.wait()
                return ""
            self.told.append(message)
            is_ready |= "READY=1" in message
            if word in message:
                return message
        raise AssertionError(f"{word} was not told; {self.told[-5:]}")
