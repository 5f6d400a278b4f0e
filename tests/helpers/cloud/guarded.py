# SPDX-License-Identifier: Apache-2.0
"""A real mosquitto with the folder that ``hardcase cloud acl`` writes, on free ports and without TLS."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hardcase_cloud.broker.acl import write_acl

from .brokers import Broker, free_port
from .raw_mqtt import Raw, connect

__all__ = ["Guarded", "guarded_mosquitto"]


class Guarded(Broker):
    """mosquitto behind passwords and access rules; ``port`` is the devices' listener, ``workers_port`` the other."""

    def __init__(self, folder: Path, devices: Sequence[str], **users: str) -> None:
        super().__init__(folder, {})
        write_acl(folder / "acl", devices, **{"watcher": "eye", **users})
        self._devices = frozenset(devices)
        self.workers_port = free_port()
        lines = (folder / "acl" / "hardcase.passwords").read_text().splitlines()
        self.passwords = dict(line.split(" ", 1) for line in lines if not line.startswith("#"))
        conf = (folder / "acl" / "hardcase.conf").read_text()
        conf = conf.replace("listener 8883", f"listener {self.port} {self.host}")
        conf = conf.replace("listener 8884", f"listener {self.workers_port} {self.host}")
        conf = re.sub(r"^(certfile|keyfile) .*\n", "", conf, flags=re.M)
        self._config.write_text(conf + ("user root\n" if os.geteuid() == 0 else ""))

    def client(self, user: str, client_id: str = "", will: tuple[str, bytes] | None = None) -> Raw:
        """A raw client with the user's own password, at the user's own listener."""
        port = self.port if user in self._devices else self.workers_port
        return Raw(port, connect(client_id or user, user, self.passwords[user], will=will))

    def url_of(self, user: str) -> str:
        """Where this user connects, with the password."""
        port = self.port if user in self._devices else self.workers_port
        return f"mqtt://{user}:{self.passwords[user]}@{self.host}:{port}"


@contextmanager
def guarded_mosquitto(tmp_path: Path, devices: Sequence[str], **users: str) -> Iterator[Guarded]:
    """A guarded broker that runs while the block does."""
    folder = tmp_path / "guarded"
    folder.mkdir(parents=True, exist_ok=True)
    broker = Guarded(folder, devices, **users)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()
