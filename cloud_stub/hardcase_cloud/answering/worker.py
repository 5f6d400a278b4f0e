"""The worker: takes requests from a broker, has the service answer them, sends the replies.

The connection's thread only puts messages into a bounded inbox; one loop of ours does the rest, so that no lock is
needed. On MQTT 5 the workers of one HPC share a subscription and so the work; on 3.1.1 there can be only one.
"""

from __future__ import annotations

import logging
import math
import queue
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from hardcase_edge.errors import LinkError
from hardcase_edge.link.address import Address
from hardcase_edge.link.connection import Connection, ConnectionConfig, Message
from hardcase_edge.link.wire import reply_topic, request_topic

from .service import Outgoing, Service

__all__ = ["Worker", "default_group"]

log = logging.getLogger(__name__)

MAX_PACKET_BYTES = 1024 * 1024  # what is longer an MQTT 5 broker keeps to itself; on 3.1.1 it costs the connection
MAX_INBOX = 1024  # messages, normally under 1 KB each
START_S = 15.0  # for the first connection
POLL_S = 0.2  # how soon a stop is seen
LAST_CALL_S = 0.3  # what the broker still sends after we have unsubscribed
FLUSH_S = 3.0  # for the last reply to be acknowledged
FULL_PAUSE_S = 0.002  # while as many replies are on their way as may be


@dataclass(frozen=True, slots=True)
class _Incoming:
    message: Message
    at: float  # time.monotonic() of receipt


def default_group(sha256: str) -> str:
    """Workers of one HPC are one group: the first 16 digits of its SHA-256."""
    return sha256[:16]


class Worker:
    """One worker process's work.

    Parameters
    ----------
    service : Service
    address : Address
        The broker.
    group : str
        Name of the shared subscription.
    clock : function that gives monotonic seconds
    """

    def __init__(
        self, service: Service, address: Address, group: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.service = service
        self.unsent = 0  # replies that found no broker; their devices ask again and get the same
        self.lost = 0  # messages that found the inbox full
        self._clock = clock
        self._address = address
        self._inbox: queue.Queue[_Incoming] = queue.Queue(MAX_INBOX)
        self._stop = threading.Event()
        plain = request_topic("+")
        self._connection = Connection(
            ConnectionConfig(
                address=address,
                client_id=f"hardcase-worker-{secrets.token_hex(8)}",
                max_packet_bytes=MAX_PACKET_BYTES,
                max_in_flight=256,
            ),
            subscribe=plain,  # never shared on 3.1.1: amqtt grants that and delivers nothing
            subscribe_v5=f"$share/{group}/{plain}",
            on_message=self._take,
        )

    @property
    def protocol(self) -> str:
        """The protocol that the broker speaks: "5" or "3.1.1"."""
        return "5" if self._connection.protocol == 5 else "3.1.1"

    def start(self) -> None:
        """Connect and subscribe; from then on the connection is kept up for ever.

        Raises
        ------
        LinkError
            No broker can be reached, or it refuses us or our subscription.
        """
        if not self._connection.start(START_S):
            trouble = self._connection.trouble or f"no answer in {START_S:g} s"
            self._connection.stop()
            raise LinkError(f"broker {self._address.url}: {trouble}; start it, or correct its URL or our credentials")

    def run(self, count: int | None = None) -> None:
        """Serve until ``stop``, or until ``count`` requests have been answered; then finish what waits and close."""
        while not self._stop.is_set() and not self._has_served(count):
            self._step()
        self._close()

    def stop(self) -> None:
        """Make ``run`` return soon; may be called by a signal handler or another thread."""
        self._stop.set()

    def counters(self) -> dict[str, int]:
        """The service's counters and the worker's own."""
        return {**self.service.counters.as_dict(), "unsent": self.unsent, "lost": self.lost}

    # ------------------------------------------------------------ parts

    def _has_served(self, count: int | None) -> bool:
        return count is not None and self.service.counters.served + self.service.counters.refused >= count

    def _step(self) -> None:
        """Wait for a message or for a batch to fall due, then do what can be done."""
        due = self.service.due(self._clock())
        self._receive(POLL_S if due is None else min(due, POLL_S))
        for _ in range(self.service.config.max_batch - 1):
            if not self._receive(0.0):
                break
        if self.service.due(self._clock()) == 0:
            self._run_batch()

    def _receive(self, wait_s: float) -> bool:
        """Hand one message to the service; False if none came in this time."""
        try:
            incoming = self._inbox.get(timeout=wait_s) if wait_s > 0 else self._inbox.get_nowait()
        except queue.Empty:
            return False
        message = incoming.message
        reply = self.service.receive(message.topic, message.payload, incoming.at, message.correlation or b"")
        if reply is not None:
            self._send(reply)
        return True

    def _run_batch(self) -> None:
        for reply in self.service.run(self._clock()):
            self._send(reply)

    def _send(self, reply: Outgoing) -> None:
        until = self._clock() + reply.expires_s
        while not self._connection.publish(
            reply_topic(reply.device),
            reply.payload,
            correlation=reply.correlation or None,
            expiry_s=max(1, math.ceil(reply.expires_s)),
        ):
            if not self._connection.is_up or self._clock() > until:
                self.unsent += 1
                return
            time.sleep(FULL_PAUSE_S)

    def _close(self) -> None:
        """Take no more, answer what is here, wait for the broker to have it, go."""
        self._connection.unsubscribe()
        until = self._clock() + LAST_CALL_S
        while self._receive(max(0.0, until - self._clock())):
            pass
        while self.service.due(self._clock()) is not None:
            self._run_batch()
        self._connection.flush(FLUSH_S)
        self._connection.stop()

    def _take(self, message: Message) -> None:
        """On the connection's thread."""
        try:
            self._inbox.put_nowait(_Incoming(message, self._clock()))
        except queue.Full:
            self.lost += 1
