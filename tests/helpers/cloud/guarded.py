# SPDX-License-Identifier: Apache-2.0
"""A real mosquitto with the folder that ``hardcase cloud acl`` writes, on free ports and without TLS."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from hardcase_cloud.broker.acl import write_acl

from .brokers import Broker, free_port
from .raw_mqtt import Raw, connect


class Guarded(Broker):
    """mosquitto behind passwords and access rules; ``port`` is the devices' listener, ``workers_port`` the other."""

    def __init__(self, folder: Path, devices: Sequence[str], **users: str) -> None:
        super().__init__(folder, {})
        write_acl(folder / "acl", devices, **{"watcher": "eye", **users})
        self._devices = frozenset(devices)
        self.workers_port = free_port()
        self.use(folder / "acl", {"8883": self.port, "8884": self.workers_port})
        conf = self._config.read_text()
        self._config.write_text(re.sub(r"^(certfile|keyfile) .*\n", "", conf, flags=re.M))

    @property
    def ports(self) -> tuple[int, ...]:
        """Those of all listeners."""
        return self.port, self.workers_port

    def client(self, user: str, client_id: str = "", will: tuple[str, bytes] | None = None) -> Raw:
        """A raw client with the user's own password, at the user's own listener."""
        port = self.port if user in self._devices else self.workers_port
        return Raw(port, connect(client_id or user, user, self.passwords[user], will=will))

    def url_of(self, user: str) -> str:
        """Where this user connects, with the password."""
        port = self.port if user in self._devices else self.workers_port
        return f"mqtt://{user}:{self.passwords[user]}@{self.host}:{port}"


def guarded_mosquitto(tmp_path: Path, devices: Sequence[str], **users: str) -> Guarded:
    """A guarded broker that runs while the block does."""
    return Guarded(tmp_path / "guarded", devices, **users)
