# SPDX-License-Identifier: Apache-2.0
"""A worker's connection to a NATS server by NATS's own protocol, through nats-py: a queue group shares the requests.

It offers what a worker asks of ``mqtt.client.Client``, with topics of MQTT: devices stay on the server's MQTT port,
which makes a subject of each topic. Nothing is acknowledged: a device asks again for what a worker had when it died.
nats-py runs on the owner's thread, and only while a method of the client does, so that what is not read waits at the
server. A subject that is no UTF-8 stops nats-py's reader: its unanswered pings end that connection for a new one.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from hardcase_edge.errors import InputError, LinkError
from hardcase_edge.link.address import Address, tls_context

from ..mqtt.attempts import Attempts
from ..mqtt.packets import Published

if TYPE_CHECKING:
    from nats.aio.msg import Msg

logger = logging.getLogger("hardcase_cloud.mqtt.attempts")

CONNECT_S = 5.0
RETRY_FIRST_S, RETRY_MOST_S = 0.5, 1.5
PING_S, MOST_PINGS = 1, 3  # between two pings, and how many may stay unanswered
SEND_S, QUIT_S = 3.0, 1.0  # for a server that does not read, and for the end of a connection
SHORTEST_S = 0.001  # of a wait, in which what is there already is read
MOST_WAITING, MOST_WAITING_BYTES = 1024, 8 * 1024 * 1024  # requests of one read; further ones are dropped
_SUBJECTS = str.maketrans({"/": ".", ".": "//", "+": "*"})
_TOPICS = {".": "/", "//": ".", "/": "/ /"}  # a single stroke is in no name of a device, and must not end one


def subject_of(topic: str) -> str:
    """The subject by which the server's MQTT port knows a topic.

    >>> subject_of("hardcase/v1/pump.7/request"), subject_of("hardcase/v1/+/request")
    ('hardcase.v1.pump//7.request', 'hardcase.v1.*.request')
    """
    return topic.translate(_SUBJECTS)


def topic_of(subject: str) -> str:
    """The topic of a subject; of one that has no topic of a device, what is no topic of a device either.

    >>> topic_of("hardcase.v1.pump//7.request"), topic_of("hardcase.v1.a/b.request")
    ('hardcase/v1/pump.7/request', 'hardcase/v1/a/ /b/request')
    """
    return re.sub(r"//|[./]", lambda found: _TOPICS[found[0]], subject)


class NatsClient:
    """Keeps one connection up.

    Parameters
    ----------
    address : Address
        Of the server's own protocol; over TLS, the handshake comes first, so that nobody can talk a worker out of it.
    topic : str
        To subscribe to.
    group : str
        Of the queue.
    max_bytes : int
        Of a message; longer ones are dropped.
    is_stopping : whether the owner wants to end
    clock : function that returns monotonic seconds

    Attributes
    ----------
    connects, lost : int
        How many times the connection has come up, and replies that could not be sent.

    Raises
    ------
    InputError
        nats-py is missing, or a certificate cannot be used.
    """

    protocol = "NATS"

    def __init__(
        self, address: Address, topic: str, group: str, *, max_bytes: int,
        is_stopping: Callable[[], bool] = lambda: False, clock: Callable[[], float] = monotonic,
    ) -> None:  # fmt: skip
        try:
            from nats.aio.client import Client
            from nats.errors import Error
        except ImportError as error:
            raise InputError("nats:// needs nats-py; install it: pip install 'hardcase-cloud[nats]'") from error
        self._make, self._errors = Client, (OSError, ValueError, Error)
        self._address, self._subject, self._group, self._max_bytes = address, subject_of(topic), group, max_bytes
        self._url, self._tls = address.url.replace("mqtt", "nats", 1), tls_context(address)
        self._is_stopping, self._attempts = is_stopping, Attempts(RETRY_FIRST_S, RETRY_MOST_S, clock)
        self.connects = self.lost = 0
        self._loop, self._rings = asyncio.new_event_loop(), asyncio.Event()
        self._nats = Client()
        self._has_tried, self._trouble = False, ""
        self._came: list[tuple[tuple[int, int], Published]] = []
        self._out: deque[tuple[str, bytes]] = deque()

    @property
    def is_up(self) -> bool:
        """Whether the connection is made, and its subscription granted."""
        return self._nats.is_connected

    def open(self) -> None:
        """Connect and subscribe.

        Raises
        ------
        LinkError
            The server cannot be reached, or it refuses the connection or the subscription.
        """
        self._loop.run_until_complete(self._connect())
        if not self.is_up:
            self._loop.close()
            raise LinkError(f"{self._url}: {self._attempts.trouble}; start it, or correct its URL or the credentials")

    def receive(self, wait_s: float) -> list[tuple[tuple[int, int], Published]]:
        """The messages that come within these seconds, each with what ``acknowledge`` takes; connects if need be."""
        if self.is_up:
            self._loop.run_until_complete(self._hear(max(wait_s, SHORTEST_S)))
        if self._has_tried and not self.is_up:
            self._failed("connection lost")
        elif not self.is_up and self._attempts.wait(wait_s) and not self._is_stopping():
            self._loop.run_until_complete(self._connect())
        came, self._came = self._came, []
        return came

    def acknowledge(self, token: tuple[int, int]) -> None:
        """Nothing: the server has forgotten the message."""

    def publish(
        self, topic: str, payload: bytes, correlation: bytes | None = None, expires_s: float | None = None
    ) -> None:
        """Send a message soon; what MQTT 5 has besides is dropped."""
        if self.is_up:
            self._out.append((subject_of(topic), payload))
        else:
            self.lost += 1

    def flush(self, wait_s: float = 0.0) -> bool:
        """Send what is ready; with a time, wait that long for the server to take all of it. Whether it may have."""
        if self.is_up:
            self._loop.run_until_complete(self._say(wait_s))
        return self.is_up

    def unsubscribe(self) -> None:
        """Ask the server to send nothing more; messages on their way still arrive."""
        if self.is_up:
            self._loop.run_until_complete(self._drain())

    def close(self) -> None:
        """Disconnect."""
        self._loop.run_until_complete(self._quit())
        self._loop.close()

    # ------------------------------------------------------------ parts

    async def _connect(self) -> None:
        """One attempt."""
        address, self._trouble, self._nats, self._has_tried = self._address, "", self._make(), True
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._nats.connect(
                    self._url.replace("natss", "nats", 1), name="hardcase-worker", user=address.user or None,
                    password=address.password or None, tls=self._tls, tls_handshake_first=address.is_tls,
                    allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0, ping_interval=PING_S,
                    max_outstanding_pings=MOST_PINGS, error_cb=self._told, closed_cb=self._ring,
                )  # fmt: skip
                self._subscription = await self._nats.subscribe(
                    self._subject, self._group, self._take, pending_msgs_limit=MOST_WAITING,
                    pending_bytes_limit=MOST_WAITING_BYTES,
                )  # fmt: skip
                await self._nats.flush()
            if self._trouble:
                raise OSError(self._trouble)
        except self._errors as error:
            await self._quit()
            self._failed(self._trouble or str(error) or type(error).__name__)
            return
        self._attempts.came_up()
        self.connects += 1
        logger.info("connected to %s", self._url)

    def _failed(self, why: str) -> None:
        self.lost += len(self._out)
        self._out.clear()
        self._has_tried = False
        self._attempts.failed(self._url, why)

    async def _told(self, error: Exception) -> None:
        self._trouble = str(error) or type(error).__name__

    async def _ring(self) -> None:
        self._rings.set()

    async def _take(self, message: Msg) -> None:
        if len(message.data) <= self._max_bytes:
            self._came.append(((self.connects, 0), Published(topic_of(message.subject), message.data, 0)))
            self._rings.set()

    async def _hear(self, wait_s: float) -> None:
        await self._say()
        self._rings.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._rings.wait()

    async def _say(self, wait_s: float = 0.0) -> None:
        """Send what is ready; a server that does not take it is left."""
        try:
            async with asyncio.timeout(SEND_S):
                while self._out:
                    await self._nats.publish(*self._out[0])
                    self._out.popleft()
                await (self._nats.flush(max(1, int(wait_s))) if wait_s else asyncio.sleep(0))  # its own task sends
        except self._errors:
            await self._quit()

    async def _drain(self) -> None:
        subscription: Any = self._subscription
        with suppress(*self._errors):
            async with asyncio.timeout(SEND_S):
                await subscription.drain()

    async def _quit(self) -> None:
        with suppress(TimeoutError):  # where a handshake has failed, it would wait for ever
            async with asyncio.timeout(QUIT_S):
                await self._nats.close()
