# SPDX-License-Identifier: Apache-2.0
"""One simulated device on a connection of its own: session, exchange and wire of a real one, and rows for sensors.

The device is the connection's asyncio protocol, which saves memory and calls. It connects, subscribes to its replies,
says that it is online, and from then on makes a decision whenever its time has come, connected or not.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from math import ceil, inf
from time import monotonic
from typing import TYPE_CHECKING, Any

from hardcase_edge.errors import WireError
from hardcase_edge.exchange.exchange import Exchange, Over, Send
from hardcase_edge.link.wire import (
    BUSY,
    ID_BYTES,
    OK,
    Request,
    ack_topic,
    decision_topic,
    pack_request,
    reply_topic,
    request_topic,
    status_topic,
    unpack_reply,
)
from hardcase_edge.program.readings import Reading
from hardcase_edge.session.session import Decision, NeedReply, NeedSensors
from hardcase_edge.stream.coin import Toss

from ..mqtt import packets
from ..mqtt.machine import Acknowledged, Event, Machine, Refused, Up
from .shared import KEEPALIVE_S

if TYPE_CHECKING:
    from .backlog import Backlog
    from .shared import Shared

__all__ = ["NoDevice", "SimulatedDevice"]

MAX_PACKET_BYTES = 65_536
NOT_YET = "no answer yet"
HUNG_UP = (
    "the broker hung up at once, as if it has all the connections or open files that it may",
    "the broker hung up",
)
NONE_DEAD: frozenset[int] = frozenset()
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
        "_began", "_bytes", "_connection", "_decides_at", "_ends", "_item", "_items", "_machine", "_memory", "_need",
        "_session", "_shared", "_timer", "_toss", "_transport", "_wake", "_wake_at", "backlog", "exchange", "is_cut",
        "is_done", "number", "trouble",
    )  # fmt: skip

    def __init__(
        self, shared: Shared, number: int, items: Callable[[], int | None], backlog: Backlog | None = None
    ) -> None:
        self.number = number
        self.backlog = backlog
        self.exchange = Exchange(shared.resend_ms, shared.counters)
        self.is_done = self.is_cut = False
        self.trouble = NOT_YET
        self._shared = shared
        self._items = items
        self._transport: Any = None
        self._machine = self._new_machine()
        self._ends: asyncio.Future[None] | None = None  # waits for the subscription to be granted
        self._connection = 0
        self._session: Any = None  # of the decision that waits for the cloud
        self._need: NeedReply | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wake: asyncio.TimerHandle | None = None  # for the backlog
        self._wake_at = inf
        self._item, self._bytes = -1, 0
        self._memory = shared.new_memory()
        self._toss = Toss(shared.coin_seed + self.number)
        self._began = self._decides_at = 0.0

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
        return self._need is not None

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
            if event.is_refused and self.exchange.waiting:
                self.exchange.refused(_now(), f"reason {event.reason}")
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
        self.exchange.connected()
        if self._ends is not None and not self._ends.done():
            self._ends.set_result(None)
        if self._session is not None:
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
        if self._session is None and not self.is_done:
            self.decide_at(self._shared.loop.time())

    def _decide(self) -> None:
        shared = self._shared
        item = None if shared.is_stopping else self._items()
        if item is None:
            self.is_done = True
            shared.done()
            return
        shared.journal.asked[self.number] += 1
        if self._memory is not None:
            if item <= self._item or self._item < 0 or shared.stream_of(item) != shared.stream_of(self._item):
                self._memory.forget()  # another stream, or the same from its beginning
            self._memory.begin()
        self._item, self._bytes, self._began = item, 0, monotonic()
        can_ask = self._machine.is_up and self.exchange.can_ask(_now())
        self._session = shared.machine.session(budget=shared.budget, item_size=1, dead=NONE_DEAD, cloud=can_ask)
        self._advance()

    def _advance(self) -> None:
        """Go on with the session until it waits for the cloud or has decided."""
        session, sensors = self._session, self._shared.sensors_of(self._item)
        while True:
            action = session.next_action()
            if isinstance(action, NeedSensors):
                session.feed(self._read(action.sensors, sensors))
            elif isinstance(action, NeedReply):
                self._need = action
                deadline_ms = self._shared.deadline_ms
                self.exchange.ask(_now(), os.urandom(ID_BYTES), deadline_ms, session.resend)
                self._go_on()
                return
            else:
                self._decided(action)
                return

    def _read(self, asked: Sequence[int], sensors: Sequence[Sequence[Reading]]) -> dict[int, Sequence[Reading]]:
        """Readings of the row, and what a coin or the memory says."""
        coin, memory = self._shared.coin, self._memory
        if coin is not None:
            return {s: [self._toss()] if s == coin.sensor else sensors[s] for s in asked}
        if memory is None:
            return {s: sensors[s] for s in asked}
        readings = {s: sensors[s] for s in asked if s != memory.layout.sensor}
        memory.see(readings)
        return {**readings, memory.layout.sensor: memory.read()} if len(readings) < len(asked) else readings

    def _go_on(self) -> None:
        """Do what the exchange says, until it waits or is over."""
        if self._need is None:
            return
        exchange = self.exchange
        while True:
            now = _now()
            action = exchange.poll(now, self._connection if self._machine.is_up else 0)
            if isinstance(action, Send):
                self._send(action, self._need.readings)
            elif isinstance(action, Over):
                self._end(action.reply)
                return
            else:
                due = exchange.due(now)
                self._set_timer(self._shared.loop.call_later((due or 0) / 1000, self._go_on))
                return

    def _send(self, send: Send, readings: Sequence[Reading]) -> None:
        shared = self._shared
        payload = pack_request(Request(send.id, shared.hpc, send.deadline_ms, tuple(readings)), shared.dtypes)
        self._write(
            self._machine.publish(
                request_topic(self.name),
                payload,
                response_topic=reply_topic(self.name),
                correlation=send.id,
                expiry_s=ceil(send.deadline_ms / 1000),
            )
        )
        self._bytes += len(payload)
        self.exchange.sent()

    def _replied(self, message: packets.Published) -> None:
        shared = self._shared
        try:
            reply = unpack_reply(message.payload, shared.hpc, shared.n_classes)
            if message.correlation not in (None, reply.id):
                raise WireError("malformed", "the correlation data is not the reply's id")
        except WireError as error:
            shared.counters[error.reason] += 1
            return
        self.exchange.replied(_now(), reply.id, reply, reply.result if reply.status == BUSY else 0)
        self._go_on()

    def _end(self, reply: Any) -> None:
        self._need = None
        if reply is None or reply.status != OK:
            self._session.no_reply()
        else:
            self._session.reply(reply.result, reply.confidence)
        self._advance()

    def _decided(self, decision: Decision) -> None:
        shared, session = self._shared, self._session
        self._session = None
        if self._memory is not None:
            self._memory.end(decision.result)
        latency_s = monotonic() - self._began
        shared.journal.add(self.number, self._item, decision, self._began, latency_s, self._bytes)
        if self.backlog is not None:
            self.backlog.add(shared.journal.line(decision, latency_s, session))
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
