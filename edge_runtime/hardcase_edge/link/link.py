# SPDX-License-Identifier: Apache-2.0
"""The link: sends a hard case to the HPC over MQTT, waits for its reply, and publishes the device's state and facts.

The device's loop calls ``ask`` on its own thread, for one request at a time, and ``ask`` blocks until one of these:

    a reply to this request arrives                 ask returns the Reply, whose status may be REFUSED or BUSY; one
                                                    of a worker of another HPC is no reply (``served.py``)
    the deadline passes, or ``cancel`` is called    ask returns None
    the broker refuses the request, or has no       ask returns None at once, and no further request is sent for a
    worker to give it to (MQTT 5)                   while
    ``can_ask`` is False when ``ask`` is called     ask returns None at once; no request is queued

What is sent when, and which reply counts, is ``requests.py``'s to say; a request has a random id of 128 bits, each
transmission carries the time that is left as its deadline, and a worker answers a repeated id from memory.

Two threads meet here. ``Connection`` runs a thread that keeps the connection up and calls ``_received`` for each
message, ``_was_refused`` for each refused one and ``_came_up`` for each new connection. Under the lock of ``_changed``,
they report to the requests and wake ``ask``, which does what these say. ``cancel`` may be called on any thread and in a
signal handler. Decisions and audits go out through ``publish_record``; what the cloud acknowledges of them is
for a listener, on the connection's thread.

docs/SPEC-wire-v1.md defines the bytes and the topics.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import ceil
from pathlib import Path
from time import monotonic_ns
from typing import Any

from ..base.record import record
from ..bundle.manifest import Manifest
from ..errors import LinkError
from ..exchange.exchange import Exchange, Over, log
from ..program.definition import Program
from ..program.readings import Reading
from .address import parse_address
from .connection import Connection
from .paho_client import ConnectionConfig, Message, Will
from .requests import Publish, RequestFormat, Requests
from .wire import (
    ID_BYTES,
    Reply,
    audit_topic,
    check_device_id,
    decision_topic,
    facts_topic,
    reply_topic,
    status_topic,
)

LOOK_MS = 1_000  # how often to look, at least, whether the connection is a new one


@record(frozen=True, slots=True, kw_only=True)
class LinkConfig:
    """Every setting of the link, with its unit in its name."""

    connection: ConnectionConfig  # its client_id is the device's id
    resend_every_s: float = 1.0  # time without a reply before a request is sent again for the first time
    stop_wait_s: float = 1.0  # how long ``stop`` waits for the broker to acknowledge the last status

    @classmethod
    def to_broker(
        cls,
        url: str,
        device_id: str,
        *,
        ca: str | Path | None = None,
        cert: str | Path | None = None,
        key: str | Path | None = None,
        resend_every_s: float = 1.0,
        **connection_knobs: Any,
    ) -> LinkConfig:
        """The settings for a broker's URL; ``connection_knobs`` are further fields of ``ConnectionConfig``.

        Raises
        ------
        InputError
            The URL or the device's id is unusable.
        """
        address = parse_address(url, ca=ca, cert=cert, key=key)
        client_id = check_device_id(device_id)
        connection = ConnectionConfig(address=address, client_id=client_id, **connection_knobs)
        return cls(connection=connection, resend_every_s=resend_every_s)


class Link:
    """One device's link to its HPC, for one request at a time.

    Parameters
    ----------
    config : LinkConfig
    program : Program
        Gives the types of a request's readings and the number of classes that a reply may name.
    manifest : Manifest
        Names the HPC that must answer. Without these two, nothing is asked.
    on_taken_over : called on the connection's thread when the link has given up, because other clients use its id
        None: it never gives up

    Attributes
    ----------
    device_id : str
    on_up : called on the connection's thread each time that it comes up
    served : Served
        Whether a worker serves the bundle's f0.
    counters : Counter
        Those of ``Exchange``, ``aside`` (requests of audits), ``sent_bytes`` (payloads only), and further messages
        dropped: ``malformed``, ``oversized``, ``other_hpc``.
    """

    def __init__(
        self,
        config: LinkConfig,
        program: Program | None,
        manifest: Manifest | None,
        on_taken_over: Callable[[], None] | None = None,
    ) -> None:
        self._config = config
        self.on_up: Callable[[], None] = lambda: None
        self._device = self.device_id = config.connection.client_id
        self._changed = threading.Condition()
        self._retained: dict[str, bytes] = {}  # by topic
        self._is_cancelled = False
        self._on_aside: Callable[[Reply], None] = lambda reply: None
        self._packet = 0  # id of the last transmission's packet
        self._refused: dict[int, str] = {}  # ids of packets that the broker refused since then, and why
        self._gave_up = False
        self._on_taken_over = on_taken_over
        self._listeners: dict[str, Callable[[bytes], None]] = {}
        self.counters: Counter[str] = Counter()
        self._lines: deque[tuple[str, int]] = deque()  # for the log, which is told where no lock is held
        self._requests = Requests(
            RequestFormat() if program is None or manifest is None else RequestFormat.of(program, manifest),
            self._device, Exchange(round(config.resend_every_s * 1000), self.counters), self.counters,
            lambda line, level: self._lines.append((line, level)),
        )  # fmt: skip
        self.served = self._requests.served
        self._connection = Connection(
            config.connection,
            subscribe=reply_topic(self._device),
            on_up=self._came_up,
            on_message=self._received,
            on_refused=self._was_refused,
            on_taken_over=None if on_taken_over is None else self._give_up,
            will=Will(status_topic(self._device), b'{"state":"offline"}'),
        )

    @property
    def is_connected(self) -> bool:
        """Whether the connection is up."""
        return self._connection.is_up

    @property
    def can_ask(self) -> bool:
        """Whether a request can go out now: the connection is up, and the exchange lets it."""
        return self.is_connected and self._requests.exchange.can_ask(_now())

    @property
    def trouble(self) -> str:
        """Why the link is not connected, in one line; empty while it is connected."""
        return self._connection.trouble

    @property
    def certificate(self) -> str | Path | None:
        """The file of the certificate that it shows the broker; None without one."""
        config = self._config.connection
        if config.certificates is None:
            return config.address.cert
        return None if config.certificates.shown is None else config.certificates.shown.cert

    def check(self) -> None:
        """Raise an error if the link has given up.

        Raises
        ------
        LinkError
            Other clients use this device's id.
        """
        if self._gave_up:
            raise LinkError(f"broker {self._config.connection.address.url}: {self.trouble}")

    def start(self, wait_s: float = 0.0) -> bool:
        """Start to connect, wait at most ``wait_s`` seconds for the first attempt, and return whether it succeeded.

        The connection's thread goes on trying in any case.
        """
        return self._connection.start(wait_s)

    def stop(self, fields: Mapping[str, Any] | None = None) -> None:
        """Publish these last facts and the state "offline", and disconnect; a waiting ``ask`` returns None."""
        self.cancel()
        if fields is not None:
            self.publish_facts(fields)
        self._publish_state("offline", wait_s=self._config.stop_wait_s)
        self._connection.stop()

    @property
    def is_stopped(self) -> bool:
        """Whether ``stop`` or ``cancel`` was called."""
        return self._is_cancelled

    def listen(self, topic: str, listener: Callable[[bytes], None] | None) -> None:
        """Pass the payloads on one more topic to a function, on the connection's thread; None ends that."""
        if listener is None:
            self._listeners.pop(topic, None)
        else:
            self._listeners[topic] = listener
            self._connection.subscribe(topic)

    def send(self, topic: str, payload: bytes) -> bool:
        """Publish a message over the present connection; returns whether it was sent."""
        return self._connection.publish(topic, payload) != 0

    def reconnect(self) -> None:
        """End the present connection and make another, as after a change of the device's certificate."""
        self._connection.reconnect()

    def cancel(self) -> None:
        """End this and every later wait for a reply, because the device is about to stop. Safe in a signal handler."""
        self._is_cancelled = True
        with self._changed:
            self._changed.notify_all()

    def publish_facts(self, fields: Mapping[str, Any]) -> bool:
        """Publish the retained facts, now and on every new connection; returns whether they were sent now."""
        return self.retain(facts_topic(self._device), json.dumps(fields, separators=(",", ":")).encode())

    @property
    def connects(self) -> int:
        """How many times the connection has come up."""
        return self._connection.connects

    @property
    def is_asking(self) -> bool:
        """Whether a request waits for its reply."""
        return self._requests.is_asking

    def publish_record(self, payload: bytes, *, is_audit: bool) -> bool:
        """Publish a decision, or an audit, over the present connection; returns whether it was sent."""
        topic = (audit_topic if is_audit else decision_topic)(self._device)
        return self._connection.publish(topic, payload) != 0

    def retain(self, topic: str, payload: bytes) -> bool:
        """Publish a retained message, now and on every new connection; returns whether it was sent now."""
        self._retained[topic] = payload
        return self._connection.publish(topic, payload, retain=True) != 0

    def ask(
        self, readings: Sequence[Reading], deadline_s: float, may_resend: Callable[[], bool] = lambda: True
    ) -> Reply | None:
        """The HPC's reply; None if no request can go out, no reply comes in time, or ``cancel`` is called.

        Parameters
        ----------
        readings : raw readings in the uplink's order, None for missing
        deadline_s : seconds to wait for the reply
        may_resend : called before each repeated transmission: pays for it, or returns False (``Session.resend``)
        """
        if not self.can_ask or self._is_cancelled:
            return None
        with self._changed:
            self._packet, self._refused = 0, {}
            self._requests.ask(_now(), os.urandom(ID_BYTES), readings, ceil(deadline_s * 1000), may_resend)
        while not isinstance(action := self._next(), Over):
            self._send(action)
        self._log()
        reply: Reply | None = action.reply
        return reply

    def ask_aside(self, readings: Sequence[Reading], deadline_s: float, on_reply: Callable[[Reply], None]) -> bool:
        """Send a request once, for an audit, and return whether it was sent; no circuit opens or closes by it.

        ``on_reply`` is called on the connection's thread, unless another request aside went out before.
        """
        if self._is_cancelled:
            return False
        with self._changed:
            publish = self._requests.aside(os.urandom(ID_BYTES), readings, ceil(deadline_s * 1000))
            if publish is not None:
                self._on_aside = on_reply
        self._log()
        is_sent = publish is not None and self._transmit(publish) != 0
        self.counters["aside"] += is_sent
        return is_sent

    # ------------------------------------------------------------ one request

    def _next(self) -> Publish | Over:
        """Wait until the requests say what to do next."""
        with self._changed:
            while True:
                now, connection = _now(), self._connection.connects if self.is_connected else 0
                if self._is_cancelled:
                    self._requests.exchange.cancel()
                elif self._packet in self._refused:
                    self._requests.exchange.refused(now, self._refused[self._packet])
                action = self._requests.poll(now, connection)
                if action is not None:
                    return action
                self._changed.wait(min(self._requests.exchange.due(now) or 0, LOOK_MS) / 1000)

    def _send(self, publish: Publish) -> None:
        self._packet, self._refused = 0, {}
        self._packet = self._transmit(publish)
        if self._packet:
            with self._changed:
                self._requests.exchange.sent()

    def _transmit(self, publish: Publish) -> int:
        packet = self._connection.publish(
            publish.topic, publish.payload, response_topic=publish.response_topic, correlation=publish.id,
            expiry_s=publish.expiry_s,
        )  # fmt: skip
        if packet:
            self.counters["sent_bytes"] += len(publish.payload)
        return packet

    def _log(self) -> None:
        with suppress(IndexError):  # the other thread has told the last one
            while True:
                log(*self._lines.popleft())

    # ------------------------------------------------------------ on the connection's thread

    def _received(self, message: Message) -> None:
        if listener := self._listeners.get(message.topic):
            listener(message.payload)
            return
        with self._changed:
            reply = self._requests.received(_now(), message.payload, message.correlation)
            on_aside = self._on_aside
            self._changed.notify_all()
        self._log()
        if reply is not None:
            on_aside(reply)

    def _was_refused(self, packet: int, why: str) -> None:
        with self._changed:
            if self.is_asking:
                self._refused[packet] = why  # perhaps before ``publish`` has returned this id to ``_send``
                self._changed.notify_all()

    def _came_up(self) -> None:
        self._publish_state("online")
        for topic, payload in list(self._retained.items()):
            self._connection.publish(topic, payload, retain=True)
        for topic in tuple(self._listeners):
            self._connection.subscribe(topic)
        with self._changed:
            self._requests.exchange.connected()
            self._changed.notify_all()
        self.on_up()

    def _give_up(self) -> None:
        self._gave_up = True
        if self._on_taken_over is not None:
            self._on_taken_over()

    def _publish_state(self, state: str, wait_s: float = 0.0) -> bool:
        payload = b'{"state":"%s"}' % state.encode()
        return self._connection.publish(status_topic(self._device), payload, retain=True, wait_s=wait_s) != 0


def _now() -> int:
    """Milliseconds of a clock that only rises."""
    return monotonic_ns() // 1_000_000
