# SPDX-License-Identifier: Apache-2.0
"""Devices that reach for each other's topics and names, at a mosquitto with the folder of ``hardcase cloud acl``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

from hardcase_edge.link.wire import reply_topic, request_topic, status_topic

from ..cloud.guarded import Guarded, guarded_mosquitto
from ..cloud.raw_mqtt import Raw, publish, subscribe
from .outcome import Outcome

__all__ = ["trespass"]

TOPICS = (request_topic, reply_topic, status_topic)
OWN, FORGED, END = b"own", b"forged", b"end"
WIDE = ("#", "+/#", *(topic("+") for topic in TOPICS), f"$share/g/{request_topic('+')}", "$SYS/#")


class Crowd:
    """All devices, each subscribed to every topic of every device; the worker, and the watcher."""

    def __init__(self, broker: Guarded, names: Sequence[str]) -> None:
        self.broker, self.names = broker, names
        self.devices = {name: broker.client(name) for name in names}
        self.worker, self.watcher = broker.client("worker", "hardcase-worker-1"), broker.client("eye")
        self.worker.send(subscribe(request_topic("+")))
        self.watcher.send(subscribe(status_topic("+")))
        every = [topic(name) for name in names for topic in TOPICS]
        for client in self.devices.values():
            client.send(subscribe(*WIDE, *every))
        assert all(client.settle() for client in self.all)

    @property
    def all(self) -> list[Raw]:
        """Every connection."""
        return [*self.devices.values(), self.worker, self.watcher]

    def speak(self, payload: bytes) -> None:
        """Everybody says what everybody may, and everybody hears it."""
        for name, client in self.devices.items():
            client.send(publish(request_topic(name), payload), publish(status_topic(name), payload))
        self.worker.send(*(publish(reply_topic(name), payload) for name in self.names))
        for client in self.devices.values():
            client.wait_for(payload)
        for client in (self.worker, self.watcher):
            client.wait_for(payload, len(self.names))

    def wrong(self) -> int:
        """How many messages have been delivered to somebody who may not have them, or are forged."""
        wrong = 0
        for name, client in self.devices.items():
            wrong += sum(topic != reply_topic(name) or payload == FORGED for topic, payload in client.heard)
        for client in (self.worker, self.watcher):
            wrong += sum(payload == FORGED for _, payload in client.heard)
        return wrong

    def close(self) -> None:
        """Hang up."""
        for client in self.all:
            client.close()


def trespass(folder: Path, n_devices: int, n_takeovers: int) -> list[Outcome]:
    """Every device writes to every topic of every other, retained and not, in wills too, and takes the others' names.

    Parameters
    ----------
    folder : for the broker's files
    n_devices : how many devices there are
    n_takeovers : how many connections with another device's client id are tried
    """
    names = [f"pi-{k}" for k in range(n_devices)]
    with guarded_mosquitto(folder, names) as broker:
        crowd = Crowd(broker, names)
        try:
            crowd.speak(OWN)
            topics = _write(crowd), _will(crowd)
            crowd.speak(END)
            crossed = Outcome("topics of other devices", sum(topics), 0, crowd.wrong() + _retained(crowd))
            return [crossed, _take_over(crowd, n_takeovers)]
        finally:
            crowd.close()


def _write(crowd: Crowd) -> int:
    """Publish to every topic of every other device; returns how often."""
    n = 0
    for name, client in crowd.devices.items():
        others = [other for other in crowd.names if other != name]
        for retain in (False, True):
            packets = [publish(t(o), FORGED, qos=1, retain=retain) for o in others for t in TOPICS]
            packets.append(publish(reply_topic(name), FORGED, retain=retain))  # a device does not answer itself
            client.send(*packets)
            n += len(packets)
        assert client.settle()
    return n


def _will(crowd: Crowd) -> int:
    """Leave wills on topics of the next device; returns how many."""
    n = 0
    for name, other in zip(crowd.names, [*crowd.names[1:], crowd.names[0]], strict=True):
        for topic in TOPICS:
            crowd.devices[name].close()
            crowd.broker.client(name, will=(topic(other), FORGED)).close()
            n += 1
        crowd.devices[name] = crowd.broker.client(name)
        crowd.devices[name].send(subscribe(*WIDE))
        assert crowd.devices[name].settle()
    return n


def _retained(crowd: Crowd) -> int:
    """How many messages are retained, or kept for somebody who subscribes now, but should not be."""
    wrong = 0
    for user in (crowd.names[0], "worker", "eye"):
        late = crowd.broker.client(user, "late")
        late.send(subscribe("#", "hardcase/v1/+/status", "hardcase/v1/+/request", "hardcase/v1/+/reply"))
        assert late.settle()
        wrong += len(late.heard)
        late.close()
    crowd.devices[crowd.names[0]].close()  # ``late`` had its name
    crowd.devices[crowd.names[0]] = crowd.broker.client(crowd.names[0])
    return wrong


def _take_over(crowd: Crowd, n: int) -> Outcome:
    """Connect with another device's client id: the victim must stay, and its replies must go to it alone."""
    wrong = 0
    pairs = list(permutations(crowd.names, 2))
    for k in range(n):
        thief, victim = pairs[k * 7919 % len(pairs)]
        crowd.devices[thief].close()
        client = crowd.broker.client(thief, client_id=victim)
        client.send(subscribe(reply_topic(victim)))
        client.settle()
        own = crowd.devices[victim]
        own.send(subscribe(reply_topic(victim)))
        payload = f"to the victim {k}".encode()
        stays = own.settle()
        crowd.worker.send(publish(reply_topic(victim), payload))
        if stays:
            own.wait_for(payload)
        client.settle()
        wrong += (not stays) + len(client.heard)
        client.close()
        crowd.devices[thief] = crowd.broker.client(thief)
    return Outcome("client ids of other devices", n, 0, wrong)
