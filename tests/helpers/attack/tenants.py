# SPDX-License-Identifier: Apache-2.0
"""Tenants that reach for each other's topics, at a mosquitto with the folder of ``hardcase cloud acl``."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from hardcase_cloud.broker.rules import ROLES, users_of
from hardcase_edge.link.wire import tenant_of

from ..cloud.guarded import guarded_mosquitto
from ..cloud.raw_mqtt import publish, subscribe
from .outcome import Outcome

__all__ = ["attack", "cross"]

TENANTS = ("", "acme", "bolt")
USERS = {"watcher": "eye", "store": "keeper", "updater": "bringer"}
TOPICS = sorted({topic for grants in ROLES.values() for _, topic in grants}, key=lambda topic: topic("x"))
WIDE = ("#", "+/#", "hardcase/v1/#", "hardcase/v1/+/+/+", "$SYS/#")


def cross(folder: Path, n_devices: int, seed: int = 0) -> Outcome:
    """Every device and every other user of each tenant reads and writes every topic of every device.

    What somebody hears has been said by a user of the same tenant, on a topic of a device of it; anything else is
    wrong. Tenants have devices of the same names. So is silence: each tenant's worker must have heard its devices.

    Parameters
    ----------
    folder : for the broker's files
    n_devices : of each tenant
    seed : of the order in which the users speak
    """
    devices = [f"{tenant}/pi-{k}".lstrip("/") for tenant in TENANTS for k in range(n_devices)]
    users = [*devices, *users_of([tenant for tenant in TENANTS if tenant], **USERS)]
    random.Random(seed).shuffle(users)
    topics = [topic(device) for device in devices for topic in TOPICS]
    every = [topic(name) for topic in TOPICS for name in ("+", "acme/+", "bolt/+")]
    n = wrong = 0
    with guarded_mosquitto(folder, devices, **USERS) as broker:
        clients = {user: broker.client(user) for user in users}
        for client in clients.values():
            client.send(subscribe(*WIDE, *every, *(f"$share/g/{topic}" for topic in every), *topics))
            assert client.settle()
        for user, client in clients.items():
            for retain in (False, True):
                client.send(*(publish(topic, (tenant_of(user) or "none").encode(), retain=retain) for topic in topics))
                n += len(topics)
            assert client.settle()
        for user in users:  # what is retained comes to whoever subscribes later, too
            late = broker.client(user, f"{user}-late") if "pi" not in user else None
            if late is not None:
                late.send(subscribe(*every))
                assert late.settle()
                wrong += _foreign(user, late.heard)
                late.close()
        for user, client in clients.items():
            assert client.settle()
            wrong += _foreign(user, client.heard)
            if user.endswith("worker"):
                of = {topic for topic, _ in client.heard if topic.endswith("/request")}
                wrong += len(of) != n_devices
            client.close()
    return Outcome("topics of other tenants", n, 0, wrong)


def _foreign(user: str, heard: list[tuple[str, bytes]]) -> int:
    """How many messages are of another tenant than the user who has heard them."""
    own = tenant_of(user)
    said = (own or "none").encode()
    return sum(payload != said or tenant_of("/".join(topic.split("/")[2:-1])) != own for topic, payload in heard)


def attack(seconds: float, seed: int) -> list[Outcome]:
    """Three tenants of a device each; longer: of twelve."""
    with tempfile.TemporaryDirectory() as name:
        return [cross(Path(name), 1 if seconds < 10 else 12, seed)]
