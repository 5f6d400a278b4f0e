# SPDX-License-Identifier: Apache-2.0
"""Serves a campaign at a broker: states, facts and fetches in, offers and chunks out.

The connection's thread only fills a bounded queue; ``run`` does the rest on its caller's thread. Nothing is kept
between two runs, because the devices' retained facts say how far each one is.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from threading import Condition

from hardcase_edge.errors import HardcaseError, InputError, WireError
from hardcase_edge.link.address import Address
from hardcase_edge.link.wire import (
    device_of_topic,
    devices_of,
    facts_topic,
    fetch_topic,
    status_topic,
    update_topic,
)

from ...mqtt.client import ClientConfig
from ...mqtt.packets import Published
from ...mqtt.threaded import ThreadedClient
from .campaign import Campaign
from .served import Question, Served

MOST_WAITING = 262_144  # messages: state and facts of all devices come at once, and come but once
MOST_BYTES = 256 * 1024 * 1024  # of them
MAX_PACKET_BYTES = 65_536
STEP_S = 0.25  # how long to wait for a message at most
FULL_PAUSE_S = 0.002  # while the connection has as many unacknowledged messages as it may
SETTLE_S = 3.0  # how long retained statuses take to come, before which nothing is said to be done
RELOAD_S = 60.0  # how often new metadata are looked for


class Server:
    """One campaign at one broker.

    Parameters
    ----------
    campaign : Campaign
    address : the broker's
    reload : called now and then: may put a fresh offer into the campaign
    on_change : called with a device, its state and the reason, each time that a state changes
    on_step : called again and again, at least four times a second, on the thread of ``run``
    on_open : called once ``run`` is connected for the first time
    tenant : whose devices are served; "": those without one
    """

    def __init__(
        self,
        campaign: Campaign,
        address: Address,
        *,
        reload: Callable[[], None] = lambda: None,
        on_change: Callable[[str, str, str], None] = lambda device, state, reason: None,
        on_step: Callable[[], None] = lambda: None,
        on_open: Callable[[], None] = lambda: None,
        tenant: str = "",
    ) -> None:
        self.campaign = campaign
        self._on_step, self._on_open = on_step, on_open
        self._reload, self._on_change = reload, on_change
        self._changed = Condition()
        self._queue: deque[Published | None] = deque()  # None: a new connection
        self._bytes = 0  # of the messages in it
        self._told: dict[str, tuple[str, str]] = {}
        self._is_stopping = False
        self._question: Question | None = None
        self._on_found: Callable[[Served], None] = lambda served: None
        self._until = 0.0  # when the question is over
        topics = [topic(devices_of(tenant)) for topic in (fetch_topic, status_topic, facts_topic)]
        config = ClientConfig(
            address=address, topics=topics, name="hardcase-offer", max_packet_bytes=MAX_PACKET_BYTES,
            wants_retained=True,
        )  # fmt: skip
        self._client = ThreadedClient(config, self._take, on_up=lambda: self._take(None))

    def run(self, *, waits: bool = False) -> None:
        """Connect, and serve until every device is done or ``stop`` is called; ``waits``: only ``stop`` ends it.

        Raises
        ------
        LinkError
            The broker cannot be reached.
        InputError
            All devices are to be served, and there are none.
        """
        self._client.open()
        self._on_open()
        settled_at, reload_at = time.monotonic() + SETTLE_S, time.monotonic() + RELOAD_S
        try:
            while not self._is_stopping:
                self._step()
                self._on_step()
                now = time.monotonic()
                if now >= reload_at:
                    reload_at = now + RELOAD_S
                    self._renew()
                is_settled = self.campaign.named is not None or now >= settled_at
                if waits or not is_settled:
                    continue
                if self.campaign.is_done:
                    return
                if not self.campaign.states():
                    raise InputError(
                        "the broker shows the status of no device; name devices with --device, have --wait for some, "
                        "or log in as a user who may read their status"
                    )
        finally:
            self._client.flush(STEP_S)
            self._client.stop()

    def ask(self, question: Question, on_found: Callable[[Served], None]) -> None:
        """Ask the workers on this connection; what is found comes on the thread of ``run``, which does not wait."""
        self._question, self._on_found = question, on_found
        self._until = time.monotonic() + question.wait_s
        if not question.is_over:
            self._client.subscribe(question.topic)
            question.put(self._client.publish)

    def stop(self) -> None:
        """Make ``run`` return soon; may be called by a signal handler or another thread."""
        self._is_stopping = True

    @property
    def is_up(self) -> bool:
        """Whether the broker is there."""
        return self._client.is_up

    # ------------------------------------------------------------ parts

    def _step(self) -> None:
        message = self._next(0.0 if self._flush_one() else STEP_S)
        while message is not False:
            self._receive(message)
            message = self._next(0.0)
        self._answer()
        self._tell()

    def _answer(self) -> None:
        """Hand over what the workers have said, once it is all."""
        question, refusals = self._question, self._client.take_refusals()
        if question is None:
            return
        question.refused(refusals)
        if question.is_over or time.monotonic() >= self._until:
            self._question = None
            self._on_found(question.found())

    def _flush_one(self) -> bool:
        """Publish the next message, if there is one."""
        outgoing = self.campaign.outgoing(time.monotonic()) if self._client.is_up else None
        if outgoing is None:
            return False
        device, payload = outgoing
        while not self._client.publish(update_topic(device), payload, qos=1):
            if not self._client.is_up or self._is_stopping:
                break  # the device asks again
            time.sleep(FULL_PAUSE_S)
        return True

    def _next(self, wait_s: float) -> Published | bool | None:
        """The next message; False if none comes in this time."""
        with self._changed:
            if not self._queue and wait_s:
                self._changed.wait(wait_s)
            if not self._queue:
                return False
            message = self._queue.popleft()
            self._bytes -= 0 if message is None else len(message.payload)
            return message

    def _receive(self, message: Published | bool | None) -> None:
        now = time.monotonic()
        if not isinstance(message, Published):
            self.campaign.connected()
            return
        if self._question is not None and message.topic == self._question.topic:
            self._question.hear(message.payload)
            return
        kinds = {"fetch": fetch_topic, "status": status_topic, "facts": facts_topic}
        what = message.topic.rpartition("/")[2]
        try:
            device = device_of_topic(message.topic, kinds.get(what, fetch_topic))
        except WireError:
            self.campaign.dropped += 1
            return
        if what == "fetch":
            self.campaign.fetch(now, device, message.payload)
        elif what == "status":
            self.campaign.status(now, device, message.payload)
        else:
            self.campaign.facts(device, message.payload)

    def _renew(self) -> None:
        try:
            self._reload()
        except HardcaseError as error:
            self._on_change("", "the metadata are those of before", str(error))

    def _tell(self) -> None:
        states = self.campaign.states()
        if states != self._told:
            for device, state in states.items():
                if self._told.get(device) != state:
                    self._on_change(device, *state)
            self._told = states

    def _take(self, message: Published | None) -> None:
        size = 0 if message is None else len(message.payload)
        with self._changed:
            if len(self._queue) < MOST_WAITING and self._bytes + size <= MOST_BYTES:
                self._bytes += size
                self._queue.append(message)
                self._changed.notify_all()
