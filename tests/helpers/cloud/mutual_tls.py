# SPDX-License-Identifier: Apache-2.0
"""A real mosquitto with an authority of ours and the folder of ``hardcase cloud acl --authority``, on free ports."""

from __future__ import annotations

import os
import signal
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hardcase_cloud.broker.mutual_tls import write_mutual_tls
from hardcase_cloud.rollout.enrolment.desk import Desk
from hardcase_cloud.rollout.enrolment.folder import AuthorityFolder
from hardcase_cloud.rollout.enrolment.worker import EnrolmentWorker
from hardcase_edge.link.address import parse_address

from .brokers import Broker, free_port, serving
from .raw_mqtt import Raw


class Tls(Broker):
    """mosquitto; ``port`` is the devices' listener, beside those of workers and of claims."""

    def __init__(self, folder: Path, **users: str) -> None:
        super().__init__(folder, {})
        self._clients: list[Raw] = []
        self.authority = AuthorityFolder.init(folder / "authority", "test", int(time.time()))
        self.authority.server([self.host, "localhost"], now=int(time.time()))
        write_mutual_tls(folder / "acl", self.authority.folder, watcher="eye", **users)
        self.workers_port, self.claims_port = free_port(), free_port()
        self.use(folder / "acl", {"8883": self.port, "8884": self.workers_port, "8885": self.claims_port})
        self.ca = self.authority.folder / "public" / "devices.pem"
        self.claims_url = f"mqtts://{self.host}:{self.claims_port}"

    @property
    def url(self) -> str:
        """Where devices connect."""
        return f"mqtts://{self.host}:{self.port}"

    def url_of(self, user: str) -> str:
        """Where this user connects, with the password."""
        return f"mqtts://{user}:{self.passwords[user]}@{self.host}:{self.workers_port}"

    def reload(self) -> None:
        """Have mosquitto read the list of revoked certificates again, when it next looks (within about 0.1 s)."""
        os.kill(self.pid, signal.SIGHUP)

    def connect(self, identity: Path | None, hello: bytes, *, port: int = 0) -> Raw | None:
        """A raw client with the certificate in this folder, or none; None if TLS ends it."""
        context = ssl.create_default_context(cafile=self.ca)
        if identity is not None:
            context.load_cert_chain(identity / "cert.pem", identity / "key.pem")
        try:
            raw = Raw(port or self.port, hello, context)
        except (ssl.SSLError, ConnectionError):
            return None
        self._clients.append(raw)
        return raw if raw.is_connected else None

    def kill(self) -> None:
        """End at once, and hang up."""
        super().kill()
        for raw in self._clients:
            raw.close()


def mutual_tls(tmp_path: Path, **users: str) -> Tls:
    """A broker that runs while the block does. ``users``: further users by role, as of ``hardcase cloud acl``."""
    return Tls(tmp_path / "tls", **users)


@contextmanager
def enrolling(broker: Tls) -> Iterator[EnrolmentWorker]:
    """An enrolment worker at the broker, while the block runs."""
    worker = EnrolmentWorker(Desk(broker.authority), parse_address(broker.url_of("enroller"), ca=broker.ca))
    with serving(worker):
        yield worker
