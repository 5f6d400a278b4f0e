# SPDX-License-Identifier: Apache-2.0
"""amqtt within bounds: hardcase's topics only, few retained messages, and no client that others have to wait for.

amqtt 0.12.1 keeps any number of messages for a client that does not read, lets the publishers of all wait for it, and
takes messages from its clients without turns. It also sends every new client the retained messages of all
subscriptions.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from typing import Any

from amqtt.broker import Broker
from amqtt.contexts import BrokerConfig
from amqtt.session import Session

from hardcase_edge.link.wire import (
    ack_topic,
    audit_topic,
    decision_topic,
    facts_topic,
    fetch_topic,
    install_topic,
    reply_topic,
    request_topic,
    status_topic,
    update_topic,
)

log = logging.getLogger(__name__)

MAX_RETAINED = 2048  # topics: the state and the facts of 1,024 devices
MAX_STATUS_BYTES = 4096  # a device's facts have about 700
MAX_WAITING = 16  # messages of one client that are not sent on, or requests not acknowledged; then the client waits
MAX_BACKLOG = 1024  # messages of all clients that are not sent on
MAX_OWED = 2 * 1024 * 1024  # bytes on their way to one client; what comes beyond is lost, as in other brokers
MAX_OWED_TO_ALL = 64 * 1024 * 1024  # then publishers wait
OVERHEAD = 1024  # bytes that a message on its way takes besides its payload
STALL_S = 10.0  # a client that has not taken a message in this time is closed
REFUSED = 0x80  # return code of a subscription

_ID = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_OF_ONE = (
    request_topic, reply_topic, status_topic, facts_topic, decision_topic, audit_topic, ack_topic, update_topic,
    fetch_topic, install_topic,
)  # fmt: skip
_OF_ALL = (status_topic, facts_topic, decision_topic, audit_topic)  # which a client may read of one device or of all
_TO_ALL = (re.escape(request_topic("+")), re.escape(fetch_topic("+")))
_TO_ONE = (reply_topic, ack_topic, update_topic, install_topic)
_TOPIC, _STATUS, _FILTER = (
    re.compile(f"(?:{'|'.join(kinds)})")
    for kinds in (
        [topic(_ID) for topic in _OF_ONE],
        [topic(_ID) for topic in (status_topic, facts_topic)],
        [*_TO_ALL, *[t(_ID) for t in _TO_ONE], *[t(f"(?:[+]|{_ID})") for t in _OF_ALL]],
    )
)
_REQUEST = request_topic("").rpartition("/")[2]


class BoundedBroker(Broker):  # type: ignore[misc]  # amqtt ships no types
    """The broker; ``is_busy`` says when a client's messages have to wait."""

    def __init__(self, config: BrokerConfig) -> None:
        super().__init__(config)
        self._waiting: Counter[str] = Counter()  # of each client, those that MAX_WAITING counts
        self._owed: Counter[str] = Counter()  # bytes on their way to each client
        self._deliveries: set[asyncio.Task[None]] = set()

    def is_busy(self, session: Session | None) -> bool:
        """Whether this client has to wait before it may publish."""
        if self._broadcast_queue.qsize() > MAX_BACKLOG or self._owed.total() > MAX_OWED_TO_ALL:
            return True
        if session is None:
            return False
        return bool(self._waiting[session.client_id] + session.delivered_message_queue.qsize() >= MAX_WAITING)

    # ------------------------------------------------------------ in place of amqtt's

    async def _handle_client_session(self, reader: Any, writer: Any, client_session: Session, *rest: Any) -> None:
        reader.session = client_session
        await super()._handle_client_session(reader, writer, client_session, *rest)

    async def add_subscription(self, subscription: tuple[str, int], session: Session) -> int:
        """Subscribe to what a device, a worker, a watcher, a store or an updater needs; refuse all else."""
        topic_filter, qos = subscription
        if not _FILTER.fullmatch(topic_filter):
            return REFUSED
        return int(await super().add_subscription((topic_filter, min(qos, 1)), session))

    async def retain_message(self, source_session: Session | None, topic_name: str, data: Any, qos: Any = None) -> None:
        """Keep a state or facts, unless they are too long or there are too many."""
        has_place = not data or topic_name in self._retained_messages or len(self._retained_messages) < MAX_RETAINED
        if has_place and len(data or b"") <= MAX_STATUS_BYTES and _STATUS.fullmatch(topic_name or ""):
            await super().retain_message(source_session, topic_name, data, qos)

    async def _publish_retained_messages_for_subscription(
        self, subscription: tuple[str, int], session: Session
    ) -> None:
        if any(subscriber is session for subscriber, _ in self._subscriptions.get(subscription[0], ())):
            await super()._publish_retained_messages_for_subscription(subscription, session)

    async def _broadcast_message(self, session: Session | None, topic: Any, data: Any, force_qos: Any = None) -> None:
        if session is None or not _TOPIC.fullmatch(topic or ""):
            return
        self._waiting[session.client_id] += 1
        await super()._broadcast_message(session, topic, data, force_qos)

    async def _run_broadcast(self, _tasks: Any) -> None:
        """Begin to deliver the next message, to each subscriber in a task of its own, which no other client awaits."""
        broadcast = await self._broadcast_queue.get()
        sender, topic = broadcast["session"].client_id, broadcast["topic"]
        deliveries = []
        for topic_filter, subscriptions in self._subscriptions.items():
            if self._matches(topic, topic_filter):
                deliveries += [self._begin_delivery(session, broadcast, qos) for session, qos in subscriptions]
        if topic.endswith(_REQUEST) and any(deliveries):
            task = asyncio.gather(*filter(None, deliveries), return_exceptions=True)
            task.add_done_callback(lambda _: self._is_through(sender))
        else:
            self._is_through(sender)

    # ------------------------------------------------------------ deliveries

    def _is_through(self, sender: str) -> None:
        """Count a message of this client no longer."""
        self._waiting[sender] -= 1
        if not self._waiting[sender]:
            del self._waiting[sender]

    def _begin_delivery(self, session: Session, broadcast: dict[str, Any], qos: int) -> asyncio.Task[None] | None:
        handler = self._get_handler(session)
        is_there = session.transitions.state == "connected" and handler is not None and handler.writer is not None
        if not is_there or self._owed[session.client_id] > MAX_OWED:
            return None
        task = asyncio.ensure_future(self._deliver(handler, session, broadcast, min(broadcast.get("qos", qos), 1)))
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)
        return task

    async def _deliver(self, handler: Any, session: Session, broadcast: dict[str, Any], qos: int) -> None:
        client_id, n_bytes = session.client_id, len(broadcast["data"] or b"") + OVERHEAD
        self._owed[client_id] += n_bytes
        try:
            async with asyncio.timeout(STALL_S) as limit:
                await handler.mqtt_publish(broadcast["topic"], broadcast["data"], qos, retain=False)
        except Exception as error:  # amqtt's have no common base; the connection that caused it ends by itself
            log.debug("a message to %.64s is lost: %r", client_id, error)
        finally:
            self._owed[client_id] -= n_bytes
            if not self._owed[client_id]:
                del self._owed[client_id]
        if limit.expired():
            _close(handler, session)


def _close(handler: Any, session: Session) -> None:
    if handler.writer is not None:
        log.warning("client %.64s is closed: it did not read a message in %g s", session.client_id, STALL_S)
        handler.writer.abort()
