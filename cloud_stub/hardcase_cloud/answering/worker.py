# SPDX-License-Identifier: Apache-2.0
"""The worker: takes requests from a broker, lets the service answer them, and sends the replies.

The connection's thread only puts messages into a bounded inbox, and the loop of ``run`` does everything else on its
caller's thread, so nothing else needs a lock. On MQTT 5, the workers of one HPC share a subscription and thereby the
work; on 3.1.1 there can be only one worker.
"""

from __future__ import annotations

import hmac
import logging
import math
import secrets
import threading
import time
from collections.abc import Callable

from hardcase_edge.link.address import Address
from hardcase_edge.link.connection import Connection, ConnectionConfig, Message
from hardcase_edge.link.wire import reply_topic, request_topic

from .inbox import Inbox
from .service import Outgoing, Service

__all__ = ["Worker", "default_group"]

log = logging.getLogger(__name__)

MAX_PACKET_BYTES = 1024 * 1024  # an MQTT 5 broker withholds longer messages; on 3.1.1 they end the connection
START_S = 15.0  # how long to wait for the first connection
POLL_S = 0.2  # how often the loop looks whether to stop
LAST_CALL_S = 0.3  # how long to take messages that the broker still sends after the unsubscription
FLUSH_S = 3.0  # how long to wait for the last reply's acknowledgement
FULL_PAUSE_S = 0.002  # pause while the connection has as many unacknowledged replies as it may
MAX_PAUSE_S = 1.0  # in all for one reply, whatever deadline its device has named


def default_group(sha256: str, password: str = "") -> str:
    """The name of the group that the workers of one HPC share: 16 digits that follow from its SHA-256.

    Whoever knows the name can join the group and make requests disappear, and devices know the SHA-256. So the name
    follows from the workers' password too, if they have one.

    >>> default_group("ba7816bf8f01cfea414140de5dae2223")
    'ba7816bf8f01cfea'
    >>> default_group("ba7816bf8f01cfea414140de5dae2223", "secret")
    'cf2544b4a7d724e1'
    """
    if not password:
        return sha256[:16]
    return hmac.digest(password.encode(), b"hardcase group\0" + sha256.encode(), "sha256").hex()[:16]


class Worker:
    """Serves one HPC's requests from one broker.

    Parameters
    ----------
    service : Service
    address : Address
        The broker's address.
    group : str
        Name of the shared subscription.
    on_step : called often while the loop of ``run`` goes on
    clock : function that returns monotonic seconds

    Attributes
    ----------
    unsent : int
        Replies that could not be sent in time; their devices ask again and get the same replies.
    """

    def __init__(
        self,
        service: Service,
        address: Address,
        group: str,
        *,
        on_step: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.service = service
        self.unsent = 0
        self._on_step = on_step
        self._clock = clock
        self._inbox = Inbox()
        self._stop = threading.Event()
        all_requests = request_topic("+")
        self._connection = Connection(
            ConnectionConfig(
                address=address,
                client_id=f"hardcase-worker-{secrets.token_hex(8)}",
                max_packet_bytes=MAX_PACKET_BYTES,
                max_in_flight=256,
            ),
            subscribe=all_requests,  # not shared on 3.1.1: amqtt would grant that and deliver nothing
            subscribe_v5=f"$share/{group}/{all_requests}",
            admits=lambda topic: self._inbox.admits(topic, self._clock()),
            on_message=self._take,
        )

    @property
    def protocol(self) -> str:
        """The MQTT version in use: "5" or "3.1.1"."""
        return "5" if self._connection.protocol == 5 else "3.1.1"

    def start(self) -> None:
        """Connect and subscribe; from then on the connection's thread reconnects whenever the connection breaks.

        Raises
        ------
        LinkError
            The broker cannot be reached, or it refuses the connection or the subscription.
        """
        self._connection.open(START_S)

    def run(self, count: int | None = None) -> None:
        """Serve until ``stop``, or until ``count`` requests are answered; then answer what is queued and close.

        Returns at once when the service is stuck.
        """
        while not (self._stop.is_set() or self._has_served(count) or self.service.is_stuck):
            self._on_step()
            self._step()
        self._close()

    def stop(self) -> None:
        """Make ``run`` return soon; may be called by a signal handler or another thread."""
        self._stop.set()

    def counters(self) -> dict[str, int]:
        """The service's counters, and the worker's own: ``unsent``, and ``lost`` as of its inbox."""
        return {**self.service.counters.as_dict(), "unsent": self.unsent, "lost": self._inbox.lost}

    # ------------------------------------------------------------ parts

    def _has_served(self, count: int | None) -> bool:
        return count is not None and self.service.counters.served + self.service.counters.refused >= count

    def _step(self) -> None:
        """Wait for a message or until a batch is due, take what else has arrived, and run the batch if it is due."""
        due = self.service.due(self._clock())
        self._receive(POLL_S if due is None else min(due, POLL_S))
        for _ in range(self.service.config.max_batch - 1):
            if not self._receive(0.0):
                break
        if self.service.due(self._clock()) == 0:
            self._run_batch()

    def _receive(self, wait_s: float) -> bool:
        """Pass one message to the service; False if none arrived in this time."""
        incoming = self._inbox.take(wait_s)
        if incoming is None:
            return False
        reply = self.service.receive(incoming.topic, incoming.payload, incoming.at, incoming.correlation)
        if reply is not None:
            self._send(reply, incoming.at)
        return True

    def _run_batch(self) -> None:
        now = self._clock()
        for reply in self.service.run(now):
            self._send(reply, now)

    def _send(self, reply: Outgoing, since: float) -> None:
        """Publish a reply whose ``expires_s`` counts from ``since``, unless its device has stopped waiting."""
        began = self._clock()
        until = min(since + reply.expires_s, began + MAX_PAUSE_S)
        while (now := self._clock()) < until:
            is_sent = self._connection.publish(
                reply_topic(reply.device),
                reply.payload,
                correlation=reply.correlation or None,
                expiry_s=max(1, math.ceil(since + reply.expires_s - now)),
            )
            if is_sent:
                return
            if not self._connection.is_up:
                break
            time.sleep(FULL_PAUSE_S)
        self.unsent += 1

    def _close(self) -> None:
        """Unsubscribe, answer all that has arrived, wait for the last acknowledgement, and disconnect."""
        self._connection.unsubscribe()
        until = self._clock() + LAST_CALL_S
        while self._receive(max(0.0, until - self._clock())):
            pass
        while self.service.due(self._clock()) is not None:
            self._on_step()
            self._run_batch()
        self._connection.flush(FLUSH_S)
        self._connection.stop()

    def _take(self, message: Message) -> None:
        """Put a message into the inbox; runs on the connection's thread."""
        self._inbox.put(message, self._clock())
