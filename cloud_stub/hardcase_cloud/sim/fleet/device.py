# SPDX-License-Identifier: Apache-2.0
"""One simulated device on a connection of its own: machine and requests of a real one, and rows for sensors.

The device is the connection's asyncio protocol, which saves memory and calls. It connects, subscribes to its replies,
says that it is online, and from then on makes a decision whenever its time has come, connected or not.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

from hardcase_edge.device.machine import Deciding, Read
from hardcase_edge.device.surroundings import Case
from hardcase_edge.errors import WireError
from hardcase_edge.exchange.exchange import Exchange, Over
from hardcase_edge.link.requests import Publish, Requests
from hardcase_edge.link.wire import ID_BYTES, ack_topic, decision_topic, reply_topic, status_topic

from ...mqtt import packets
from ...mqtt.machine import Acknowledged, Event, Machine, Refused, Up
from .shared import KEEPALIVE_S

if TYPE_CHECKING:
    from .backlog import Backlog
    from .shared import Shared

MAX_PACKET_BYTES = 65_536
NOT_YET = "no answer yet"
HUNG_UP = (
    "the broker hung up at once, as if it has all the connections or open files that it may",
    "the broker hung up",
)
NoDevice = (ConnectionError, OSError, TimeoutError)


class SimulatedDevice(asyncio.Protocol):
    """Device ``number`` of a fleet.

    Parameters
    ----------
    shared : what all devices of the fleet have in common
    number : from 0
    items : gives the number of the next row; None after the last
    backlog : takes its records; None: they go nowhere

    Attributes
    ----------
    trouble : str
        Why it is not connected; empty while it is.
    """

    __slots__ = (
        "_bytes", "_connection", "_decides_at", "_deciding", "_ends", "_inner", "_item", "_items", "_lap", "_machine",
        "_shared", "_timer", "_transport", "_wake", "_wake_at", "backlog", "is_cut", "is_done", "number", "requests",
        "trouble",
    )  # fmt: skip

    def __init__(
        self, shared: Shared, number: int, items: Callable[[], int | None], backlog: Backlog | None = None
    ) -> None:
        self.number = number
        self.backlog = backlog
        self.is_done = self.is_cut = False
        self.trouble = NOT_YET
        self._shared = shared
        self.requests = Requests(shared.form, self.name, Exchange(shared.resend_ms, shared.counters), shared.counters)
        self._items = items
        self._transport: Any = None
        self._machine = self._new_machine()
        self._ends: asyncio.Future[None] | None = None  # waits for the subscription to be granted
        self._connection = 0
        self._deciding: Deciding | None = None  # the decision that waits for the cloud
        self._timer: asyncio.TimerHandle | None = None
        self._wake: asyncio.TimerHandle | None = None  # for the backlog
        self._wake_at = inf
        self._item, self._lap, self._bytes = -1, 0, 0
        self._inner = shared.decider.inner(
            stream=lambda: (self._lap, shared.stream_of(self._item)), coin_seed=shared.coin_seed + number
        )
        self._decides_at = 0.0

    @property
    def name(self) -> str:
        """The device's id."""
        return f"{self._shared.prefix}-{self.number}"

    @property
    def is_up(self) -> bool:
        """Whether it is connected and subscribed."""
        return self._machine.is_up

    @property
    def is_asking(self) -> bool:
        """Whether a request waits for its reply."""
        return self.requests.is_asking

    @property
    def is_idle(self) -> bool:
        """Whether it has made its last decision, and the store has all of its records."""
        return self.is_done and not (self.backlog is not None and self.backlog.waiting)

    # ------------------------------------------------------------ the connection

    def begin(self, waits: asyncio.Future[None]) -> None:
        """Have this future end when the next connection is up or has failed."""
        self._ends = waits
        self._machine = self._new_machine()

    def _new_machine(self) -> Machine:
        topics = (reply_topic(self.name), *((ack_topic(self.name),) if self.backlog is not None else ()))
        return Machine(self._shared.version, topics, MAX_PACKET_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send CONNECT, with the last will of a real device."""
        shared = self._shared
        self._transport = transport
        will = (status_topic(self.name), b'{"state":"offline"}')
        self._write(
            self._machine.hello(
                self.name, keepalive_s=KEEPALIVE_S, user=shared.address.user, password=shared.address.password,
                will=will,
            )
        )  # fmt: skip

    def data_received(self, data: bytes) -> None:
        """Take packets."""
        try:
            for event in self._machine.feed(data):
                self._take(event)
            if answer := self._machine.answer():
                self._write(answer)
        except WireError as error:
            self._shared.counters[error.reason] += 1
            self.trouble = str(error)
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Tell whoever waits, and have the fleet connect again."""
        was_up, self._machine.is_up = self._machine.is_up, False
        if self._transport is not None and self.trouble in ("", NOT_YET):
            self.trouble = f"connection lost: {error}" if error else HUNG_UP[was_up]
        self._transport = None
        if self._ends is not None and not self._ends.done():
            self._ends.set_exception(ConnectionError(self.trouble))
        if was_up:
            self._shared.lost(self)

    def close(self) -> None:
        """Say that the device is offline, and disconnect."""
        for timer in (self._timer, self._wake):
            if timer is not None:
                timer.cancel()
        if self._transport is not None:
            if self._machine.is_up:
                self._say(b'{"state":"offline"}')
            self._machine.is_up = False
            self._write(self._machine.disconnect())
            self._transport.close()

    def abort(self) -> bool:
        """End an attempt to connect; False if it has no transport, which would own the socket."""
        if self._transport is None:
            return False
        self._transport.abort()
        return True

    def ping(self) -> None:
        """Keep an idle connection alive."""
        if self._machine.is_up:
            self._write(packets.PINGREQ)

    def _take(self, event: Event) -> None:
        if isinstance(event, packets.Published):
            if event.packet_id:
                self._write(packets.puback(event.packet_id))
            if self.backlog is not None and event.topic == ack_topic(self.name):
                self.backlog.acknowledged(event.payload, monotonic())
                self._send_records()
            else:
                self._replied(event)
        elif isinstance(event, Acknowledged):
            if event.is_refused and self.is_asking:
                self.requests.exchange.refused(_now(), f"reason {event.reason}")
                self._go_on()
        elif isinstance(event, Up):
            self._came_up()
        elif isinstance(event, Refused):
            self.trouble = f"the broker {event.words}"
            self._transport.close()

    def _came_up(self) -> None:
        self.trouble = ""
        self._connection += 1
        self._say(b'{"state":"online"}')
        self.requests.exchange.connected()
        if self._ends is not None and not self._ends.done():
            self._ends.set_result(None)
        self._go_on()
        if self.backlog is not None:
            self.backlog.connected(monotonic())
            self._send_records()

    def _say(self, state: bytes) -> None:
        self._write(self._machine.publish(status_topic(self.name), state, qos=0, retain=True))

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    # ------------------------------------------------------------ decisions

    def decide_at(self, at: float) -> None:
        """Make the next decision at this time of the loop, and one at each interval from then on."""
        self._decides_at = at
        self._set_timer(self._shared.loop.call_at(at, self._decide))

    def hurry(self) -> None:
        """Look at once whether there is another decision to make, unless one waits for the cloud."""
        if self._deciding is None and not self.is_done:
            self.decide_at(self._shared.loop.time())

    def _decide(self) -> None:
        shared = self._shared
        item = None if shared.is_stopping else self._items()
        if item is None:
            self.is_done = True
            shared.done()
            return
        shared.journal.asked[self.number] += 1
        self._lap += item <= self._item  # the same rows from their beginning
        self._item, self._bytes = item, 0
        can_ask = self._machine.is_up and self.requests.exchange.can_ask(_now())
        self._deciding = shared.decider.decide(monotonic(), can_ask=can_ask, inner=self._inner)
        self._advance(None)

    def _advance(self, event: tuple[float, Any] | None) -> None:
        """Go on with the decision until it waits for the cloud or has ended."""
        deciding, sensors = self._deciding, self._shared.sensors_of(self._item)
        assert deciding is not None
        try:
            while isinstance(effect := deciding.send(event), Read):  # type: ignore[arg-type]
                event = monotonic(), {s: sensors[s] for s in effect.sensors}
        except StopIteration as end:
            self._decided(end.value)
            return
        id_, deadline_ms = os.urandom(ID_BYTES), self._shared.deadline_ms
        self.requests.ask(_now(), id_, effect.readings, deadline_ms, effect.may_resend)
        self._go_on()

    def _go_on(self) -> None:
        """Do what the requests say, until one waits or is over."""
        requests = self.requests
        while requests.is_asking:
            now = _now()
            action = requests.poll(now, self._connection if self._machine.is_up else 0)
            if isinstance(action, Publish):
                self._send(action)
            elif isinstance(action, Over):
                self._advance((monotonic(), None if action.reply is None else action.reply.answer))
                return
            else:
                due = requests.exchange.due(now)
                self._set_timer(self._shared.loop.call_later((due or 0) / 1000, self._go_on))
                return

    def _send(self, publish: Publish) -> None:
        self._write(
            self._machine.publish(
                publish.topic,
                publish.payload,
                response_topic=publish.response_topic,
                correlation=publish.id,
                expiry_s=publish.expiry_s,
            )
        )
        self._bytes += len(publish.payload)
        self.requests.exchange.sent()

    def _replied(self, message: packets.Published) -> None:
        self.requests.received(_now(), message.payload, message.correlation)
        self._go_on()

    def _decided(self, case: Case) -> None:
        shared, began = self._shared, case.began
        self._deciding = None
        latency_s = monotonic() - began
        shared.journal.add(self.number, self._item, case.decision, began, latency_s, self._bytes)
        if self.backlog is not None or self._inner:  # nobody else needs the record
            line = shared.decider.finish(case, began + latency_s, 0.0)
        if self.backlog is not None:
            self.backlog.add(line)
            self._send_records()
        now = shared.loop.time()
        self.decide_at(max(self._decides_at + shared.interval_s, now))  # missed ones are skipped, not made up

    # ------------------------------------------------------------ records

    def publish_record(self, payload: bytes) -> None:
        """Send a record of a decision."""
        self._write(self._machine.publish(decision_topic(self.name), payload))

    def _send_records(self) -> None:
        """Let the backlog send, and call again when it wants to."""
        if self.backlog is None or not self._machine.is_up:
            return
        wake_at = self.backlog.send(self, monotonic())
        if wake_at != self._wake_at:
            if self._wake is not None:
                self._wake.cancel()
            self._wake_at = wake_at
            wait_s = wake_at - monotonic()
            self._wake = None if wake_at == inf else self._shared.loop.call_later(wait_s, self._wake_up)

    def _wake_up(self) -> None:
        self._wake, self._wake_at = None, inf
        self._send_records()

    def _set_timer(self, timer: asyncio.TimerHandle) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer


def _now() -> int:
    """Milliseconds of a clock that only rises."""
    return int(monotonic() * 1000)
