# SPDX-License-Identifier: Apache-2.0
"""A client for questions to a broker: it waits for one packet at a time, and acknowledges when it is told to."""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

from hardcase_edge.errors import WireError
from hardcase_edge.link.address import Address

from . import packets
from .packets import V5, Published
from .socket_line import open_line

__all__ = ["Prober", "Silence"]

WAIT_S = 3.0  # for an answer that should come at once
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
        self._packets: deque[tuple[int, bytes]] = deque()
        self._packet_id = 0
        self.closed_for: int | None = None  # the reason of the broker's DISCONNECT
        began = monotonic()
        self.send(packets.connect(client_id, version, user=address.user, password=address.password, **settings))
        try:
            body = self._await(lambda first, _: first & 0xF0 == packets.CONNACK, self._answer_s)[1]
            self.has_session, self.reason, self.properties = packets.read_connack(body, version)
        except (Silence, WireError):
            self.drop()
            raise
        self.connected_s = monotonic() - began

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self._line.send(data)
        self._line.flush()

    def subscribe(self, topic: str, *, retained: bool = False) -> int:
        """Subscribe at QoS 1; the reason code, of which 0 to 2 grant it."""
        self._packet_id += 1
        self.send(packets.subscribe(self._packet_id, [topic], self.version, retained=retained))
        body = self._await(lambda first, _: first & 0xF0 == packets.SUBACK, self._answer_s)[1]
        return packets.read_suback(body, self.version)[1][0]

    def publish(self, topic: str, payload: bytes, **settings: Any) -> int:
        """Publish at QoS 1; the reason code of the acknowledgement."""
        self._packet_id += 1
        number = self._packet_id
        self.send(packets.publish(topic, payload, number, self.version, **settings))

        def is_mine(first: int, body: bytes) -> bool:
            return first & 0xF0 == packets.PUBACK and packets.read_acknowledgement(body)[0] == number

        return packets.read_acknowledgement(self._await(is_mine, self._answer_s)[1])[1]

    def message(self, wait_s: float | None = None, *, acknowledges: bool = True) -> Published | None:
        """The next message; None if none comes in this time, or in that of an answer."""
        wait_s = self._answer_s if wait_s is None else wait_s
        try:
            first, body = self._await(lambda first, _: first & 0xF0 == packets.PUBLISH, wait_s)
        except Silence:
            return None
        message = packets.read_publish(first, body, self.version)
        if acknowledges:
            self.acknowledge(message)
        return message

    def acknowledge(self, message: Published) -> None:
        """Tell the broker that a message is done with."""
        if message.packet_id:
            self.send(packets.puback(message.packet_id))

    def close(self) -> None:
        """Disconnect."""
        with suppress(OSError):
            self.send(packets.disconnect(self.version))
        self.drop()

    def drop(self) -> None:
        """Hang up without a word, as a device whose power is cut."""
        self._line.close()

    def _await(self, is_it: Callable[[int, bytes], bool], wait_s: float) -> tuple[int, bytes]:
        """The first packet for which this is true; the others stay for later."""
        until = monotonic() + wait_s
        looked_at = 0
        while True:
            for k in range(looked_at, len(self._packets)):
                first, body = self._packets[k]
                if is_it(first, body):
                    del self._packets[k]
                    return first, body
            looked_at = len(self._packets)
            left_s = until - monotonic()
            if left_s <= 0:
                raise Silence("no answer in time")
            try:
                self._packets.extend(self._line.receive(left_s))
            except OSError as error:
                raise Silence("the broker hung up") from error
            for first, body in list(self._packets)[looked_at:]:
                if first & 0xF0 == packets.DISCONNECT:
                    self.closed_for = body[0] if body else 0
