# SPDX-License-Identifier: Apache-2.0
"""A client for questions to a broker: it waits for one event at a time, and acknowledges when it is told to."""

from __future__ import annotations

import ssl
from collections import deque
from contextlib import suppress
from time import monotonic
from typing import Any

from hardcase_edge.errors import WireError
from hardcase_edge.link.address import Address

from . import packets
from .machine import Acknowledged, Closed, Event, Granted, Machine, Refused, Up
from .packets import V5, Published
from .socket_line import open_line

WAIT_S = 3.0  # for an answer that should come at once
BYE_S = 0.5  # for a broker to hang up
MAX_PACKET_BYTES = 1024 * 1024


class Silence(Exception):  # noqa: N818  # it is what happened, and nobody's fault
    """The broker did not say in time what was waited for, or hung up."""


class Prober:
    """One connection.

    Parameters
    ----------
    address : of the broker
    client_id : its name there
    version : 5, or 4 for MQTT 3.1.1
    answer_s : how long to wait for an answer that should come at once, ``WAIT_S`` at least
    settings : as of ``packets.connect``

    Attributes
    ----------
    connected_s : float
        How long the broker took to answer the connection: a way there and back, and a little more.
    reason : int
        The CONNACK's reason code, 0 if it is connected.
    has_session : bool
        Whether the broker had a session for it.
    properties : dict
        The CONNACK's properties, by their numbers.

    Raises
    ------
    OSError, Silence
        The broker cannot be reached, or says nothing.
    """

    def __init__(
        self, address: Address, tls: ssl.SSLContext | None, client_id: str, version: int = V5, *,
        answer_s: float = 0.0, **settings: Any,
    ) -> None:  # fmt: skip
        self.version = version
        self._answer_s = max(WAIT_S, answer_s)
        self._line = open_line(address, self._answer_s, MAX_PACKET_BYTES, tls)
        self._machine = Machine(version, (), MAX_PACKET_BYTES)
        self._events: deque[Event] = deque()
        self.closed_for: int | None = None  # the reason of the broker's DISCONNECT
        began = monotonic()
        self.send(self._machine.hello(client_id, user=address.user, password=address.password, **settings))
        try:
            answer = self._await(Up, Refused)
        except (Silence, WireError):
            self.drop()
            raise
        self.reason = answer.reason if isinstance(answer, Refused) else 0
        self.has_session, self.properties = self._machine.has_session, self._machine.properties
        self.connected_s = monotonic() - began

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self._line.send(data)
        self._line.flush()

    def subscribe(self, topic: str, *, retained: bool = False) -> int:
        """Subscribe at QoS 1; the reason code, of which 0 to 2 grant it."""
        self.send(self._machine.subscribe([topic], retained=retained))
        answer = self._await(Granted)
        assert isinstance(answer, Granted)
        return answer.reasons[0]

    def publish(self, topic: str, payload: bytes, **settings: Any) -> int:
        """Publish at QoS 1; the reason code of the acknowledgement."""
        self.send(self._machine.publish(topic, payload, **settings))
        answer = self._await(Acknowledged)
        assert isinstance(answer, Acknowledged)
        return answer.reason

    def message(self, wait_s: float | None = None, *, acknowledges: bool = True) -> Published | None:
        """The next message; None if none comes in this time, or in that of an answer."""
        wait_s = self._answer_s if wait_s is None else wait_s
        try:
            message = self._await(Published, wait_s=wait_s)
        except Silence:
            return None
        assert isinstance(message, Published)
        if acknowledges:
            self.acknowledge(message)
        return message

    def acknowledge(self, message: Published) -> None:
        """Tell the broker that a message is done with."""
        if message.packet_id:
            self.send(packets.puback(message.packet_id))

    def close(self) -> None:
        """Disconnect, and see the broker hang up: until then, the next client of this name might be a second one."""
        with suppress(OSError, Silence, WireError):
            self.send(self._machine.disconnect())
            self._await(wait_s=BYE_S)
        self.drop()

    def drop(self) -> None:
        """Hang up without a word, as a device whose power is cut."""
        self._line.close()

    def _await(self, *kinds: type[Event], wait_s: float | None = None) -> Event:
        """The first event of these kinds; the others stay for later."""
        until = monotonic() + (self._answer_s if wait_s is None else wait_s)
        while True:
            for event in self._events:
                if isinstance(event, kinds):
                    self._events.remove(event)
                    return event
            left_s = until - monotonic()
            if left_s <= 0:
                raise Silence("no answer in time")
            try:
                events = self._machine.feed(self._line.receive(left_s))
            except OSError as error:
                raise Silence("the broker hung up") from error
            self._events += events
            for event in events:
                if isinstance(event, Closed):
                    self.closed_for = event.reason
