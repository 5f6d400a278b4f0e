# SPDX-License-Identifier: Apache-2.0
"""One MQTT connection of a client as a machine: bytes in, events and bytes out. It has no socket and no clock.

    machine = Machine(V5, ["hardcase/v1/+/request"], 65_536)
    send(machine.hello("worker-1"))
    for event in machine.feed(received):  # Up, then Published, Acknowledged, ...
        ...
    send(machine.answer())  # what the machine itself has to say to what it was fed

| it waits for     | and takes              | event                             | then                            |
|------------------|------------------------|-----------------------------------|---------------------------------|
| CONNACK          | one that connects      | ``Up`` if it has no topics        | it is up, or waits for SUBACK   |
| CONNACK          | one that refuses       | ``Refused``                       | its driver hangs up             |
| SUBACK           | one that grants all    | ``Up``                            | it is up                        |
| SUBACK           | one that refuses       | ``Refused``                       | its driver hangs up             |
| anything         | PUBLISH, PUBACK        | ``Published``, ``Acknowledged``   |                                 |
| anything, is up  | SUBACK                 | ``Granted``                       |                                 |
| anything         | DISCONNECT             | ``Closed``                        | its driver hangs up             |
| anything else    | CONNACK                | an error                          | its driver hangs up             |

When to connect, with which version, and what to do with a message, its driver decides: a thread (``client``,
``threaded``), asyncio (``fleet``), or questions one at a time (``prober``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hardcase_edge.errors import WireError
from hardcase_edge.framing.packets import Reader

from . import packets
from .packets import V5, Published

UNSUPPORTED = (0x01, 0x84)  # reasons of a CONNACK: the broker does not speak this version
FAILURES = 0x80  # reason codes from here on are failures
GRANTED = 2  # the highest reason code of a SUBACK that grants a subscription
NO_SUBSCRIBERS = 0x10  # of a PUBACK: the broker took the message, but has nobody to give it to
SUBSCRIBING = 1  # packet id of the subscription to the machine's topics
REASONS = {
    0x04: "bad user name or password", 0x05: "not authorised", 0x85: "client id not valid",
    0x86: "bad user name or password", 0x87: "not authorised", 0x88: "server unavailable", 0x89: "server busy",
    0x8A: "banned", 0x97: "quota exceeded", 0x9F: "connection rate exceeded",
}  # fmt: skip
NOTHING: Mapping[int, Any] = {}


@dataclass(frozen=True, slots=True)
class Up:
    """The connection is made, and its subscriptions are granted."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker refuses the connection or, if ``topic`` is not "", the subscription to it."""

    reason: int
    topic: str = ""

    @property
    def is_version(self) -> bool:
        """Whether the broker does not speak this version of MQTT."""
        return not self.topic and self.reason in UNSUPPORTED

    @property
    def words(self) -> str:
        """What is refused and why, after "the broker"."""
        if self.topic:
            return f"refused the subscription to {self.topic}"
        return f"refused the connection: {REASONS.get(self.reason, f'reason {self.reason}')}"


@dataclass(frozen=True, slots=True)
class Granted:
    """The broker has answered a later subscription; reason codes up to 2 grant it."""

    packet_id: int
    reasons: bytes


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The broker has answered a message of QoS 1."""

    packet_id: int
    reason: int

    @property
    def is_refused(self) -> bool:
        """Whether the broker refused it, or has nobody to give it to."""
        return self.reason >= FAILURES or self.reason == NO_SUBSCRIBERS


@dataclass(frozen=True, slots=True)
class Closed:
    """The broker ends the connection."""

    reason: int


Event = Published | Up | Refused | Granted | Acknowledged | Closed


class Machine:
    """One connection, from CONNECT to its end.

    Parameters
    ----------
    version : 5, or 4 for MQTT 3.1.1
    topics : to subscribe to; on MQTT 3.1.1 without what ``$share/GROUP/`` says, because amqtt would grant that and
        deliver nothing
    max_packet_bytes : a longer packet raises an error before it is read
    wants_retained : whether retained messages are wanted, too; counts on MQTT 5 only
    max_in_flight : messages of QoS 1 that await an acknowledgement at most

    Attributes
    ----------
    is_up : bool
        Whether the connection is made and its subscriptions granted.
    in_flight : int
        Messages of QoS 1 that await an acknowledgement.
    has_session : bool
        Whether the broker had a session of this client.
    properties : mapping
        Those of the CONNACK, by their numbers.
    """

    __slots__ = (
        "_answer", "_is_connected", "_max_in_flight", "_packet_id", "_reader", "_topics", "_wants_retained",
        "has_session", "in_flight", "is_up", "properties", "version",
    )  # fmt: skip

    def __init__(
        self,
        version: int,
        topics: Sequence[str],
        max_packet_bytes: int,
        *,
        wants_retained: bool = False,
        max_in_flight: int = packets.MAX_PACKET_ID,
    ) -> None:
        self.version = version
        self.is_up = self.has_session = self._is_connected = False
        self.in_flight = 0
        self.properties = NOTHING
        self._reader = Reader(max_packet_bytes)
        self._topics, self._wants_retained = topics, wants_retained
        self._max_in_flight = max_in_flight
        self._packet_id = SUBSCRIBING
        self._answer = b""

    @property
    def topics(self) -> list[str]:
        """What it subscribes to, at this version."""
        if self.version == V5:
            return list(self._topics)
        return [t.split("/", 2)[2] if t.startswith("$share/") else t for t in self._topics]

    # ------------------------------------------------------------ bytes to send

    def hello(self, client_id: str, **settings: Any) -> bytes:
        """The CONNECT; settings as of ``packets.connect``."""
        return packets.connect(client_id, self.version, **settings)

    def answer(self) -> bytes:
        """What is to be sent after ``feed``; perhaps nothing."""
        answer, self._answer = self._answer, b""
        return answer

    def publish(self, topic: str, payload: bytes, qos: int = 1, **settings: Any) -> bytes:
        """A message; nothing if it is of QoS 1 and as many await their acknowledgement as may.

        Settings as of ``packets.publish``.
        """
        packet_id = self.new_message() if qos else 0
        return b"" if qos and not packet_id else packets.publish(topic, payload, packet_id, self.version, **settings)

    def new_message(self) -> int:
        """The packet id of a message of QoS 1 that is sent now; 0 if as many await their acknowledgement as may."""
        if self.in_flight >= self._max_in_flight:
            return 0
        self.in_flight += 1
        return self.next_id()

    def subscribe(self, topics: Sequence[str], *, retained: bool = False) -> bytes:
        """A further subscription, which ``Granted`` answers."""
        return packets.subscribe(self.next_id(), topics, self.version, retained=retained)

    def unsubscribe(self) -> bytes:
        """Ask for nothing more; messages that are already on their way still arrive."""
        return packets.unsubscribe(self.next_id(), self.topics, self.version)

    def disconnect(self) -> bytes:
        """The last packet."""
        return packets.disconnect(self.version)

    def next_id(self) -> int:
        """The id of the next packet."""
        self._packet_id = self._packet_id % packets.MAX_PACKET_ID + 1
        return self._packet_id

    # ------------------------------------------------------------ bytes that come

    def feed(self, data: bytes) -> list[Event]:
        """The events of what has come.

        Raises
        ------
        WireError
            It is not MQTT, a packet is too long, or the connection is answered twice.
        """
        events: list[Event] = []
        for first, body in self._reader.feed(data):
            kind = first & 0xF0
            if kind == packets.PUBLISH:
                events.append(packets.read_publish(first, body, self.version))
            elif kind == packets.PUBACK:
                self.in_flight = max(0, self.in_flight - 1)
                events.append(Acknowledged(*packets.read_acknowledgement(body)))
            elif kind == packets.CONNACK:
                events += self._connected(body)
            elif kind == packets.SUBACK:
                events.append(self._subscribed(body))
            elif kind == packets.DISCONNECT:
                self.is_up = False
                events.append(Closed(body[0] if body else 0))
        return events

    def _connected(self, body: bytes) -> list[Event]:
        if self._is_connected:
            raise WireError("malformed", "a second CONNACK")
        self._is_connected = True
        self.has_session, reason, self.properties = packets.read_connack(body, self.version)
        if reason:
            return [Refused(reason)]
        if not self._topics:
            self.is_up = True
            return [Up()]
        self._answer += packets.subscribe(SUBSCRIBING, self.topics, self.version, retained=self._wants_retained)
        return []

    def _subscribed(self, body: bytes) -> Event:
        packet_id, reasons = packets.read_suback(body, self.version)
        if packet_id != SUBSCRIBING or self.is_up:
            return Granted(packet_id, reasons)
        for topic, reason in zip(self.topics, reasons, strict=False):  # as many as the broker gave
            if reason > GRANTED:
                return Refused(reason, topic)
        self.is_up = True
        return Up()
