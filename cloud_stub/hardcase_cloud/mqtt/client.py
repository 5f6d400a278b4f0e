# SPDX-License-Identifier: Apache-2.0
"""A client of one broker on its owner's thread: it connects, subscribes and connects again, and nothing waits for it.

    client.open(15.0)                 the first connection, or an error that says why there is none
    client.receive(0.2)               the messages that come within this time; none while there is no connection
    client.publish(topic, payload)    sends at QoS 0, because a device asks again if an answer is lost
    client.acknowledge(token)         tells the broker that a message is done with, if its connection is still the same

It asks for MQTT 5 and takes 3.1.1 from a broker that refuses version 5 or hangs up without an answer. A message that
was not acknowledged when the connection broke is lost, or a broker gives it to another subscriber; who asked asks
again.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING

from hardcase_edge.base.record import record
from hardcase_edge.errors import LinkError, WireError
from hardcase_edge.link.address import Address, tls_context

from . import packets
from .attempts import Attempts
from .packets import V5, V311, Published
from .socket_line import Line, open_line

if TYPE_CHECKING:
    import ssl

__all__ = ["Client", "ClientConfig"]

logger = logging.getLogger(__name__)

UNSUPPORTED = (0x01, 0x84)  # reasons of a CONNACK: the broker does not speak this version
GRANTED = 2  # the highest reason code of a SUBACK that grants a subscription
REASONS = {
    0x04: "bad user name or password", 0x05: "not authorised", 0x85: "client id not valid",
    0x86: "bad user name or password", 0x87: "not authorised", 0x88: "server unavailable", 0x89: "server busy",
    0x8A: "banned", 0x97: "quota exceeded", 0x9F: "connection rate exceeded",
}  # fmt: skip
Token = tuple[int, int]  # number of the connection, packet id


@record(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Every setting of a client, with its unit in its name."""

    address: Address
    topics: Sequence[str]  # to subscribe to; on MQTT 3.1.1 without what ``$share/GROUP/`` says; none: it only publishes
    name: str = "hardcase"  # of the client id, before random digits
    max_packet_bytes: int = 1024 * 1024  # an MQTT 5 broker withholds longer ones; on 3.1.1 they end the connection
    receive_maximum: int = 1024  # unacknowledged messages that the broker may send; the others wait there
    keepalive_s: int = 30
    connect_timeout_s: float = 5.0
    retry_first_s: float = 0.5  # pause after the first failure; it doubles up to ...
    retry_most_s: float = 1.5
    refused_retry_s: float = 30.0  # pause after a refusal: to try sooner does not repair credentials


class Client:
    """Keeps one connection up.

    Parameters
    ----------
    config : ClientConfig
    is_stopping : whether the owner wants to end, which ends every wait
    clock : function that returns monotonic seconds

    Attributes
    ----------
    version : int
        5, or 4 for MQTT 3.1.1: in use, or to be tried next.
    connects : int
        How many times the connection has come up.
    lost : int
        Messages that could not be sent, because there was no connection or the broker does not read.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        is_stopping: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.config = config
        self.version = V5
        self.connects = self.lost = 0
        self._is_stopping = is_stopping
        self._clock = clock
        self._tls: ssl.SSLContext | None = tls_context(config.address)
        self._line: Line[tuple[int, bytes]] | None = None
        self._is_up = False
        self._attempts = Attempts(config.retry_first_s, config.retry_most_s, clock)
        self._heard_at = self._said_at = 0.0

    @property
    def is_up(self) -> bool:
        """Whether the connection is made and its subscriptions granted."""
        return self._is_up

    def open(self, wait_s: float) -> None:
        """Connect and subscribe.

        Raises
        ------
        LinkError
            The broker cannot be reached, or it refuses the connection or a subscription.
        """
        until = self._clock() + wait_s
        self._attempt(until)
        if not self._is_up and self.version == V311:
            self._attempt(until)
        if not self._is_up:
            url, trouble = self.config.address.url, self._attempts.trouble or f"no answer in {wait_s:g} s"
            raise LinkError(f"broker {url}: {trouble}; start it, or correct its URL or the credentials")

    def receive(self, wait_s: float) -> list[tuple[Token, Published]]:
        """The messages that come within these seconds, each with what ``acknowledge`` takes; connects if need be."""
        if self._line is None:
            self._reconnect(wait_s)
            return []
        try:
            return self._read(wait_s)
        except (OSError, WireError) as error:
            self._lose(str(error) or type(error).__name__)
            return []

    def acknowledge(self, token: Token) -> None:
        """Tell the broker that this message is done with."""
        connection, packet_id = token
        if packet_id and connection == self.connects and self._line is not None:
            self._line.send(packets.puback(packet_id))

    def publish(self, topic: str, payload: bytes, correlation: bytes | None, expires_s: float) -> bool:
        """Send a message at QoS 0, unless there is no connection or the broker does not read; returns whether it was.

        Parameters
        ----------
        correlation : MQTT 5 correlation data, dropped on 3.1.1
        expires_s : seconds after which nobody wants it any more
        """
        if self._line is None or not self._is_up or not self._line.has_room:
            self.lost += 1
            return False
        expiry_s = max(1, ceil(expires_s))
        self._line.send(packets.publish(topic, payload, 0, self.version, correlation=correlation, expiry_s=expiry_s))
        return True

    def flush(self, wait_s: float = 0.0) -> None:
        """Send what is ready; with a time, wait that long for the broker to take all of it."""
        until = self._clock() + wait_s
        try:
            while self._line is not None and not self._line.flush() and (left_s := until - self._clock()) > 0:
                self._line.receive(left_s)
        except (OSError, WireError) as error:
            self._lose(str(error))

    def unsubscribe(self) -> None:
        """Ask the broker to send nothing more; messages on their way still arrive."""
        if self._line is not None and self._is_up and self.config.topics:
            self._line.send(packets.unsubscribe(2, self._topics(), self.version))

    def close(self) -> None:
        """Disconnect cleanly."""
        if self._line is not None:
            try:
                self._line.send(packets.disconnect(self.version))
                self._line.flush()
            except OSError:
                pass
            self._line.close()
        self._line, self._is_up = None, False

    # ------------------------------------------------------------ connecting

    def _reconnect(self, wait_s: float) -> None:
        """Wait, at most so long, for the next attempt's time, and make it."""
        if self._attempts.wait(wait_s) and not self._is_stopping():
            self._attempt(self._clock() + 2 * self.config.connect_timeout_s)

    def _attempt(self, until: float) -> None:
        """One attempt: connect, and read until the subscription is granted."""
        config, tried = self.config, self.version
        has_answered = False
        try:
            self._line = open_line(config.address, config.connect_timeout_s, config.max_packet_bytes, self._tls)
        except OSError as error:
            self._lose(f"cannot be reached: {error.strerror or error}")
            return
        try:
            self._line.send(self._hello())
            while not self._is_up and self._line is not None:
                if self._clock() > until or self._is_stopping():
                    raise ConnectionError("no answer to the connection")
                for first, body in self._line.receive(min(0.2, max(0.0, until - self._clock()))):
                    has_answered = True
                    self._while_connecting(first, body)
        except (OSError, WireError) as error:
            hung_up = isinstance(error, ConnectionError) and not has_answered and not self.connects
            if hung_up and tried == V5 and self._clock() <= until:
                self.version = V311  # some brokers hang up instead of refusing a version
            self._lose(f"connection lost: {error}")

    def _hello(self) -> bytes:
        address, config = self.config.address, self.config
        return packets.connect(
            f"{config.name}-{secrets.token_hex(8)}"[:64],
            self.version,
            keepalive_s=config.keepalive_s,
            user=address.user,
            password=address.password,
            receive_maximum=config.receive_maximum,
            max_packet_bytes=config.max_packet_bytes,
        )

    def _while_connecting(self, first: int, body: bytes) -> None:
        kind = first & 0xF0
        if kind == packets.CONNACK:
            _, reason, _ = packets.read_connack(body, self.version)
            if reason:
                self._refused(reason)
                return
            assert self._line is not None
            if not self.config.topics:
                self._came_up()
                return
            self._line.send(packets.subscribe(1, self._topics(), self.version))
        elif kind == packets.SUBACK:
            _, reasons = packets.read_suback(body, self.version)
            for topic, reason in zip(self._topics(), reasons, strict=False):
                if reason > GRANTED:
                    self._lose(f"refused the subscription to {topic}", self.config.refused_retry_s)
                    return
            self._came_up()

    def _refused(self, reason: int) -> None:
        if reason in UNSUPPORTED and self.version == V5:
            self.version = V311
            self._lose("refused MQTT 5", pause_s=0.0)
            return
        why = REASONS.get(reason, f"reason {reason}")
        self._lose(f"refused the connection: {why}", self.config.refused_retry_s)

    def _came_up(self) -> None:
        self._is_up = True
        self._attempts.came_up()
        self.connects += 1
        self._heard_at = self._said_at = self._clock()
        logger.info("connected to %s, MQTT %s", self.config.address.url, "5" if self.version == V5 else "3.1.1")

    def _lose(self, why: str, pause_s: float | None = None) -> None:
        """Drop the connection; the next attempt comes after a pause."""
        if self._line is not None:
            self._line.close()
        self._line, self._is_up = None, False
        self._attempts.failed(f"broker {self.config.address.url}", why, pause_s)

    # ------------------------------------------------------------ a connection

    def _read(self, wait_s: float) -> list[tuple[Token, Published]]:
        assert self._line is not None
        messages = []
        now = self._clock()
        keepalive_s = self.config.keepalive_s
        if now - self._heard_at > 1.5 * keepalive_s:
            raise ConnectionError("no sign of life from the broker")
        if now - self._said_at > keepalive_s / 2:
            self._line.send(packets.PINGREQ)
            self._said_at = now
        version, connection = self.version, self.connects
        for first, body in self._line.receive(wait_s):
            kind = first & 0xF0
            if kind == packets.PUBLISH:
                message = packets.read_publish(first, body, version)
                messages.append(((connection, message.packet_id), message))
            elif kind == packets.DISCONNECT:
                raise ConnectionError("the broker closed the connection")
            self._heard_at = now
        return messages

    def _topics(self) -> list[str]:
        """The topics; on MQTT 3.1.1 not shared, because amqtt would grant that and deliver nothing."""
        if self.version == V5:
            return list(self.config.topics)
        return [t.split("/", 2)[2] if t.startswith("$share/") else t for t in self.config.topics]
