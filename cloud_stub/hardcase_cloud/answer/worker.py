# SPDX-License-Identifier: Apache-2.0
"""The worker: takes requests from a broker, lets the service answer them, and sends the replies.

All of it is one loop on one thread. On MQTT 5, the workers of one HPC share a subscription and thereby the work, and by
NATS's own protocol (``nats_client.py``) a queue; on 3.1.1 there can be only one worker. A request is acknowledged when
it is answered, refused or dropped, not when it has come: so the broker keeps what is more than ``MAX_UNANSWERED``, lets
it expire, and some brokers give the requests of a worker that has died to another one. The service refuses what it
cannot answer in time, so that little waits there.
"""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from hardcase_edge.link.address import Address
from hardcase_edge.link.wire import devices_of, reply_topic, request_topic

from ..mqtt.client import Client, ClientConfig, Token
from .service import Outgoing, Service

if TYPE_CHECKING:
    from .nats_client import NatsClient

MAX_PACKET_BYTES = 1024 * 1024  # an MQTT 5 broker withholds longer messages; on 3.1.1 they end the connection
MAX_UNANSWERED = 1024  # twice as many as the service lets wait, so that it sees those that it has to refuse
POLL_S = 0.2  # how often the loop looks whether to stop
LAST_CALL_S = 0.3  # how long to take messages that the broker still sends after the unsubscription
AT_ONCE_S = 0.0005  # nothing was waited for
CLOSING_S = 0.005  # between two looks at what is still to be answered
FLUSH_S = 3.0  # how long to wait for the broker to take the last reply


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
    tenant : whose devices are answered; "": those without one
    is_nats : whether the address is one of NATS's own protocol

    Attributes
    ----------
    client : Client or NatsClient
        The connection.
    """

    def __init__(
        self,
        service: Service,
        address: Address,
        group: str,
        *,
        on_step: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        tenant: str = "",
        is_nats: bool = False,
    ) -> None:
        self.service = service
        self._on_step = on_step
        self._clock = clock
        self._stop = threading.Event()
        topic = request_topic(devices_of(tenant))
        self.client: Client | NatsClient
        if is_nats:
            from .nats_client import NatsClient

            self.client = NatsClient(
                address, topic, group, max_bytes=MAX_PACKET_BYTES, is_stopping=self._stop.is_set, clock=clock
            )
        else:
            config = ClientConfig(
                address=address,
                topics=[f"$share/{group}/{topic}"],
                name="hardcase-worker",
                max_packet_bytes=MAX_PACKET_BYTES,
                receive_maximum=MAX_UNANSWERED,
            )
            self.client = Client(config, is_stopping=self._stop.is_set, clock=clock)
        self._tokens: dict[int, Token] = {}  # of messages that are not acknowledged, by the service's tag
        self._tag = 0
        self._looked_at = clock()

    @property
    def protocol(self) -> str:
        """What the connection speaks: "5" or "3.1.1" of MQTT, or "NATS"."""
        return self.client.protocol

    def start(self) -> None:
        """Connect and subscribe; from then on ``run`` connects again whenever the connection breaks.

        Raises
        ------
        LinkError
            The broker cannot be reached, or it refuses the connection or the subscription.
        """
        self.client.open()

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
        """The service's counters, and ``unsent``: replies that could not be sent; their devices ask again."""
        return {**self.service.counters.as_dict(), "unsent": self.client.lost}

    # ------------------------------------------------------------ parts

    def _has_served(self, count: int | None) -> bool:
        return count is not None and self.service.counters.served + self.service.counters.refused >= count

    def _step(self) -> None:
        """Wait for messages or until a batch is due, take what has come, and run the batch if it is due."""
        due = self.service.due(self._clock())
        self._receive(POLL_S if due is None else min(due, POLL_S))
        if self.service.due(self._clock()) == 0:
            self.client.flush()  # before the model takes its time
            self._run_batch()

    def _receive(self, wait_s: float) -> None:
        """Pass the messages that are here within this time to the service."""
        began = self._clock()
        was_up = self.client.is_up
        messages = self.client.receive(wait_s)
        now = self._clock()
        if not (was_up and self.client.is_up):
            self.service.interrupted()
        at = self._looked_at if now - began < AT_ONCE_S else now  # what was here already may have come as early as that
        self._looked_at = now
        for token, message in messages:
            self._tag += 1
            self._tokens[self._tag] = token
            reply = self.service.receive(
                message.topic,
                message.payload,
                at,
                message.correlation or b"",
                tag=self._tag,
                expiry_s=message.expiry_s,
            )
            if reply is not None:
                self._send(reply)
        self._acknowledge()

    def _run_batch(self) -> None:
        for reply in self.service.run(self._clock()):
            self._send(reply)
        self._acknowledge()
        self.client.flush()
        self.service.ended(self._clock())

    def _send(self, reply: Outgoing) -> None:
        """Publish a reply, unless its device has stopped waiting or the broker takes no more."""
        self.client.publish(reply_topic(reply.device), reply.payload, reply.correlation or None, reply.expires_s)

    def _acknowledge(self) -> None:
        for tag in self.service.released():
            self.client.acknowledge(self._tokens.pop(tag))

    def _close(self) -> None:
        """Unsubscribe, answer all that has arrived, wait for the broker to take it, and disconnect."""
        self.client.unsubscribe()
        until = self._clock() + LAST_CALL_S
        while (left_s := until - self._clock()) > 0:
            self._receive(left_s)
        while self.service.due(self._clock()) is not None and not self.service.is_stuck:
            self._on_step()
            self._run_batch()
            if self.service.due(self._clock()):  # rows are on their way
                time.sleep(CLOSING_S)
        self.client.flush(FLUSH_S)
        self.client.close()
