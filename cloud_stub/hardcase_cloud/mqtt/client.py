# SPDX-License-Identifier: Apache-2.0
"""A client of one broker on its owner's thread: it connects, subscribes and connects again, and nothing waits for it.

    client.open()                     the first connection, or an error that says why there is none
    client.receive(0.2)               the messages that come within this time; none while there is no connection
    client.publish(topic, payload)    sends at QoS 0, as answers go out, because a device asks again if one is lost
    client.acknowledge(token)         tells the broker that a message is done with, if its connection is still the same

It asks for MQTT 5 and takes 3.1.1 from a broker that refuses version 5 or hangs up without an answer. A message that
was not acknowledged when the connection broke is lost, or a broker gives it to another subscriber; who asked asks
again. What the connection says and means is ``machine``'s; here are its socket, its clock and its next attempt.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import ceil
from time import monotonic, sleep
from typing import TYPE_CHECKING

from hardcase_edge.base.record import record
from hardcase_edge.errors import LinkError, WireError
from hardcase_edge.link.address import Address, tls_context

from . import packets
from .attempts import Attempts
from .machine import Acknowledged, Closed, Event, Machine, Refused, Up
from .packets import V5, V311, Published
from .socket_line import Line, open_line

if TYPE_CHECKING:
    import ssl

logger = logging.getLogger(__name__)

START_S = 15.0  # how long to wait for the first connection
SPIN_S = 0.001
REFUSALS = 256  # that are remembered
Token = tuple[int, int]  # number of the connection, packet id


@record(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Every setting of a client, with its unit in its name."""

    address: Address
    topics: Sequence[str]  # to subscribe to; on MQTT 3.1.1 without what ``$share/GROUP/`` says; none: it only publishes
    name: str = "hardcase"  # of the client id, before random digits
    max_packet_bytes: int = 1024 * 1024  # an MQTT 5 broker withholds longer ones; on 3.1.1 they end the connection
    wants_retained: bool = False  # whether the retained messages of its topics are wanted, too
    max_in_flight: int = 64  # messages of QoS 1 that await the broker's acknowledgement; no more are sent
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
    refusals : deque of tuples
        Packet id and reason code of the last messages of QoS 1 that the broker refused, or had nobody to give to.
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
        self.refusals: deque[tuple[int, int]] = deque(maxlen=REFUSALS)
        self._is_stopping = is_stopping
        self._clock = clock
        self._tls: ssl.SSLContext | None = tls_context(config.address)
        self._line: Line | None = None
        self._machine = self._new_machine()
        self._early: list[tuple[Token, Published]] = []  # messages that came with the answer to the subscription
        self._attempts = Attempts(config.retry_first_s, config.retry_most_s, clock)
        self._heard_at = self._said_at = 0.0

    @property
    def protocol(self) -> str:
        """The version of MQTT in use, "5" or "3.1.1"."""
        return "5" if self.version == V5 else "3.1.1"

    @property
    def is_up(self) -> bool:
        """Whether the connection is made and its subscriptions granted."""
        return self._machine.is_up

    @property
    def is_ready(self) -> bool:
        """Whether ``receive`` has something without a wait."""
        return bool(self._early) or (self._line is not None and self._line.is_ready)

    @property
    def in_flight(self) -> int:
        """Messages of QoS 1 that the broker has not acknowledged; none without a connection."""
        return self._machine.in_flight

    def open(self, wait_s: float = START_S) -> None:
        """Connect and subscribe.

        Raises
        ------
        LinkError
            The broker cannot be reached, or it refuses the connection or a subscription.
        """
        until = self._clock() + wait_s
        self._attempt(until)
        if not self.is_up and self.version == V311:
            self._attempt(until)
        if not self.is_up:
            url, trouble = self.config.address.url, self._attempts.trouble or f"no answer in {wait_s:g} s"
            raise LinkError(f"broker {url}: {trouble}; start it, or correct its URL or the credentials")

    def receive(self, wait_s: float) -> list[tuple[Token, Published]]:
        """The messages that come within these seconds, each with what ``acknowledge`` takes; connects if need be."""
        if self._line is None:
            self._reconnect(wait_s)
            return self._take_early()
        if self._early:
            return self._take_early()
        try:
            return self._read(wait_s)
        except (OSError, WireError) as error:
            self._lose(str(error) or type(error).__name__)
            return []

    def wait(self, wait_s: float) -> None:
        """Wait for the socket, or until the next attempt to connect; ``is_ready`` has to be asked before."""
        if self._line is None:
            self._attempts.wait(wait_s)
        else:
            self._line.wait(wait_s)

    def acknowledge(self, token: Token) -> None:
        """Tell the broker that this message is done with."""
        connection, packet_id = token
        if packet_id and connection == self.connects and self._line is not None:
            self._line.send(packets.puback(packet_id))

    def publish(
        self,
        topic: str,
        payload: bytes,
        correlation: bytes | None = None,
        expires_s: float | None = None,
        *,
        qos: int = 0,
        response_topic: str | None = None,
    ) -> int:
        """Send a message; returns its packet id, or 1 at QoS 0, or 0 if it was not sent.

        It is not if there is no connection, if the broker does not read, or, at QoS 1, if as many messages as may await
        their acknowledgement. Nothing is sent twice.

        Parameters
        ----------
        correlation, response_topic : of MQTT 5, dropped on 3.1.1
        expires_s : seconds after which nobody wants it any more; None: it does not expire
        """
        machine, line = self._machine, self._line
        if line is None or not machine.is_up or not line.has_room:
            self.lost += 1
            return 0
        expiry_s = None if expires_s is None else max(1, ceil(expires_s))
        packet_id = machine.new_message() if qos else 0
        if qos and not packet_id:
            return 0
        data = packets.publish(
            topic, payload, packet_id, machine.version, correlation=correlation, response_topic=response_topic,
            expiry_s=expiry_s,
        )  # fmt: skip
        line.send(data)
        return packet_id or 1

    def flush(self, wait_s: float = 0.0) -> bool:
        """Send what is ready; with a time, wait that long for the broker to take all of it. Whether it has."""
        until = self._clock() + wait_s
        try:
            while self._line is not None and not self._line.flush():
                left_s = until - self._clock()
                if left_s <= 0:
                    return False
                if self._line.wait(left_s):
                    sleep(SPIN_S)  # it has something to read, which is not this method's
        except OSError:  # ``receive`` meets it again, and drops the connection
            return False
        return self._line is not None

    def subscribe(self, topic: str) -> None:
        """Ask for one more topic on the present connection."""
        if self._line is not None and self.is_up:
            self._line.send(self._machine.subscribe([topic]))

    def unsubscribe(self) -> None:
        """Ask the broker to send nothing more; messages on their way still arrive."""
        if self._line is not None and self.is_up and self.config.topics:
            self._line.send(self._machine.unsubscribe())

    def close(self) -> None:
        """Disconnect cleanly."""
        if self._line is not None:
            with suppress(OSError):
                self._line.send(self._machine.disconnect())
                self._line.flush()
            self._line.close()
        self._line, self._machine.is_up = None, False

    # ------------------------------------------------------------ connecting

    def _reconnect(self, wait_s: float) -> None:
        """Wait, at most so long, for the next attempt's time, and make it."""
        if self._attempts.wait(wait_s) and not self._is_stopping():
            self._attempt(self._clock() + 2 * self.config.connect_timeout_s)

    def _attempt(self, until: float) -> None:
        """One attempt: connect, and read until the subscription is granted."""
        config, tried = self.config, self.version
        has_answered = False
        self._machine, self._early = self._new_machine(), []
        try:
            self._line = open_line(config.address, config.connect_timeout_s, config.max_packet_bytes, self._tls)
        except OSError as error:
            self._lose(f"cannot be reached: {error.strerror or error}")
            return
        try:
            self._line.send(self._hello())
            while not self.is_up and self._line is not None:
                if self._clock() > until or self._is_stopping():
                    raise ConnectionError("no answer to the connection")
                data = self._line.receive(min(0.2, max(0.0, until - self._clock())))
                has_answered = has_answered or bool(data)
                for event in self._machine.feed(data):
                    if self._line is not None:  # otherwise it was refused
                        self._take(event, self._early)
                if self._line is not None:
                    self._line.send(self._machine.answer())
        except (OSError, WireError) as error:
            hung_up = isinstance(error, ConnectionError) and not has_answered and not self.connects
            if hung_up and tried == V5 and self._clock() <= until:
                self.version = V311  # some brokers hang up instead of refusing a version
            self._lose(f"connection lost: {error}")

    def _new_machine(self) -> Machine:
        config = self.config
        return Machine(
            self.version, config.topics, config.max_packet_bytes, wants_retained=config.wants_retained,
            max_in_flight=config.max_in_flight,
        )  # fmt: skip

    def _hello(self) -> bytes:
        address, config = self.config.address, self.config
        return self._machine.hello(
            f"{config.name}-{secrets.token_hex(8)}"[:64],
            keepalive_s=config.keepalive_s,
            user=address.user,
            password=address.password,
            receive_maximum=config.receive_maximum,
            max_packet_bytes=config.max_packet_bytes,
        )

    def _came_up(self) -> None:
        self._attempts.came_up()
        self.connects += 1
        self._heard_at = self._said_at = self._clock()
        logger.info("connected to %s, MQTT %s", self.config.address.url, self.protocol)

    def _refused(self, refused: Refused) -> None:
        """Drop the connection; a broker that does not speak MQTT 5 is asked again at once."""
        if refused.is_version and self.version == V5:
            self.version = V311
            self._lose("refused MQTT 5", pause_s=0.0)
        else:
            self._lose(refused.words, self.config.refused_retry_s)

    def _lose(self, why: str, pause_s: float | None = None) -> None:
        """Drop the connection; the next attempt comes after a pause."""
        if self._line is not None:
            self._line.close()
        self._line, self._machine.is_up, self._machine.in_flight = None, False, 0
        self._attempts.failed(f"broker {self.config.address.url}", why, pause_s)

    # ------------------------------------------------------------ a connection

    def _read(self, wait_s: float) -> list[tuple[Token, Published]]:
        assert self._line is not None
        messages: list[tuple[Token, Published]] = []
        now = self._clock()
        keepalive_s = self.config.keepalive_s
        if now - self._heard_at > 1.5 * keepalive_s:
            raise ConnectionError("no sign of life from the broker")
        if now - self._said_at > keepalive_s / 2:
            self._line.send(packets.PINGREQ)
            self._said_at = now
        connection = self.connects
        if data := self._line.receive(wait_s):
            self._heard_at = now
            for event in self._machine.feed(data):
                if type(event) is Published:
                    messages.append(((connection, event.packet_id), event))
                else:
                    self._take(event, messages)
        return messages

    def _take(self, event: Event, messages: list[tuple[Token, Published]]) -> None:
        """One event; a message is added to these."""
        if isinstance(event, Published):
            messages.append(((self.connects, event.packet_id), event))
        elif isinstance(event, Up):
            self._came_up()
        elif isinstance(event, Refused):
            self._refused(event)
        elif isinstance(event, Closed):
            raise ConnectionError("the broker closed the connection")
        elif isinstance(event, Acknowledged) and event.is_refused:
            self.refusals.append((event.packet_id, event.reason))

    def _take_early(self) -> list[tuple[Token, Published]]:
        early, self._early = self._early, []
        return early
