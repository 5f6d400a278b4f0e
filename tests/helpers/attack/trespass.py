# SPDX-License-Identifier: Apache-2.0
"""Users who reach for each other's topics and names, at a mosquitto with the folder of ``hardcase cloud acl``.

Each says its own name on every topic of every device, retained and not, and devices leave wills; each has asked for
every topic, too. What anybody hears must be what its role and its tenant let it hear, said by whom may say it.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import permutations
from math import inf
from pathlib import Path

from hardcase_cloud.broker.rules import ROLES, users_of
from hardcase_edge.link import wire
from hardcase_edge.link.wire import reply_topic, request_topic, status_topic, tenant_of

from ..cloud.guarded import Guarded, guarded_mosquitto
from ..cloud.raw_mqtt import publish, subscribe
from .outcome import Attack, Outcome, calls

CROSSED, NAMES = "topics of other devices and tenants", "client ids of other devices"
USERS = {"watcher": "eye", "store": "keeper", "updater": "bringer"}
SAYS = (request_topic, status_topic, wire.facts_topic, wire.decision_topic, wire.audit_topic, wire.fetch_topic)
HEARS = (reply_topic, wire.ack_topic, wire.update_topic, wire.install_topic)
TOPICS = sorted({topic for grants in ROLES.values() for _, topic in grants}, key=lambda topic: topic("x"))
WILLS = (request_topic, reply_topic, status_topic)
WIDE = ("#", "+/#", "hardcase/v1/#", "hardcase/v1/+/+/+", "$SYS/#")


class Crowd:
    """All users of a broker; each has asked for everything."""

    def __init__(self, folder: Path, devices: Sequence[str], seed: int, stack: ExitStack) -> None:
        self.devices, tenants = devices, sorted({tenant_of(name) for name in devices} - {""})
        self.roles = users_of(tenants, **USERS)
        self.users = random.Random(seed).sample([*devices, *self.roles], len(devices) + len(self.roles))
        some = [topic(f"{head}+") for topic in TOPICS for head in ("", *(f"{tenant}/" for tenant in tenants))]
        topics = [topic(device) for device in devices for topic in TOPICS]
        self._all = subscribe(*WIDE, *some, *(f"$share/g/{topic}" for topic in some), *topics)
        self.broker: Guarded = stack.enter_context(guarded_mosquitto(folder, devices, **USERS))
        self.heard: dict[str, set[tuple[str, bytes]]] = {user: set() for user in self.users}
        self.clients = {user: self.broker.client(user) for user in self.users}
        stack.callback(lambda: [client.close() for client in self.clients.values()])
        for user in self.users:
            self._listen(user)

    def _listen(self, user: str) -> None:
        self.clients[user].send(self._all)
        self.settle(user)

    def settle(self, *users: str) -> None:
        """Wait until these, or all, have heard what was said."""
        for user in users or self.users:
            assert self.clients[user].settle()
            self.heard[user].update(self.clients[user].heard)

    def back(self, user: str) -> None:
        """Hang up and come again, which brings what is retained."""
        self.clients[user].close()
        self.clients[user] = self.broker.client(user)
        self._listen(user)

    def says(self, user: str) -> Outcome:
        """A user says its name wherever it can."""
        for retain in (False, True):
            packets = [publish(t(d), user.encode(), retain=retain) for d in self.devices for t in TOPICS]
            self.clients[user].send(*packets)
            self.settle(user)
        self.settle()
        return Outcome(CROSSED, 2 * len(packets), 0, 0)

    def wills(self, device: str) -> Outcome:
        """A device leaves wills on topics of the next one."""
        other = self.devices[(self.devices.index(device) + 1) % len(self.devices)]
        self.clients[device].close()
        for topic in WILLS:
            self.broker.client(device, will=(topic(other), device.encode())).close()
        self.back(device)
        return Outcome(CROSSED, len(WILLS), 0, 0)

    def end(self) -> Outcome:
        """Everybody has heard what it may, whoever comes later, too, and nothing else."""
        for user in self.users:
            self.back(user)
        return Outcome(CROSSED, 0, 0, sum(len(heard ^ self.due(user)) for user, heard in self.heard.items()))

    def due(self, user: str) -> set[tuple[str, bytes]]:
        """What a user must hear."""
        return {
            (topic(device), speaker.encode())
            for device in self.devices for topic in TOPICS if self.may(user, "read", topic, device)
            for speaker in self.users if self.may(speaker, "write", topic, device)
        }  # fmt: skip

    def may(self, user: str, access: str, topic: Callable[[str], str], device: str) -> bool:
        """Whether a user may write or read this topic of a device."""
        if user in self.roles:
            return tenant_of(user) == tenant_of(device) and (access, topic) in ROLES[self.roles[user]]
        return user == device and topic in (SAYS if access == "write" else HEARS)

    def stolen(self, thief: str, victim: str, said: bytes) -> int:
        """Connect as another device: the victim must stay, and what is said to it goes to it alone."""
        self.clients[thief].close()
        client, own, topic = self.broker.client(thief, client_id=victim), self.clients[victim], reply_topic(victim)
        client.send(subscribe(topic))
        client.settle()
        with suppress(OSError):  # it has been hung up on
            own.send(subscribe(topic))
        stays = own.settle()
        self.clients["worker"].send(publish(topic, said))
        if stays:
            own.wait_for(said)
        client.settle()
        wrong = (not stays) + len(client.heard)
        client.close()
        for user in (thief, victim):
            self.clients[user].close()
            self.clients[user] = self.broker.client(user)
        return wrong


Cases = Callable[[random.Random], Generator[Callable[[], Outcome], None, None]]


def crowds(devices: Sequence[str], cases: Callable[[Crowd, random.Random], Generator]) -> Cases:
    """Cases of one crowd."""

    def make(rng: random.Random) -> Generator[Callable[[], Outcome], None, None]:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            yield from cases(Crowd(Path(folder), devices, rng.getrandbits(30), stack), rng)

    return make


def crossing(devices: Sequence[str]) -> Attack:
    """Everybody says everything everywhere, once."""

    def cases(crowd: Crowd, _: random.Random) -> Generator[Callable[[], Outcome], None, None]:
        yield from (partial(crowd.says, user) for user in crowd.users)
        yield from (partial(crowd.wills, device) for device in devices)
        yield crowd.end

    return calls(CROSSED, crowds(devices, cases), inf)


def take_over(n_devices: int) -> Attack:
    """Devices connect under the names of others."""

    def cases(crowd: Crowd, rng: random.Random) -> Generator[Callable[[], Outcome], None, None]:
        pairs = list(permutations(crowd.devices, 2))
        while True:
            yield partial(lambda *pair: Outcome(NAMES, 1, 0, crowd.stolen(*pair, rng.randbytes(8))), *rng.choice(pairs))

    return calls(NAMES, crowds([f"pi-{k}" for k in range(n_devices)], cases))


def attack(seconds: float, seed: int) -> list[Outcome]:
    """Three tenants of a device each, or of twelve; and as many names as there is time for."""
    n = 1 if seconds < 10 else 12
    devices = [f"{tenant}/pi-{k}".lstrip("/") for tenant in ("", "acme", "bolt") for k in range(n)]
    return [*crossing(devices)(0, seed), *take_over(5 * n)(seconds / 2, seed)]
