# SPDX-License-Identifier: Apache-2.0
"""The link: sends a hard case to the HPC over MQTT, waits for its reply, and publishes the device's status.

The device's loop calls ``ask`` on its own thread, for one request at a time, and ``ask`` blocks until one of these:

    a reply to this request arrives                 ask returns the Reply, whose status may be REFUSED
    the deadline passes, or ``cancel`` is called    ask returns None
    the broker refuses the request, or has no       ask returns None at once, and no further request is sent for a
    worker to give it to (MQTT 5)                   while (``circuit.py``)
    ``can_ask`` is False when ``ask`` is called     ask returns None at once; no request is queued

While it waits, ``ask`` sends the request again under the same random id of 128 bits

- when ``resend_every_s`` have passed without a reply, and
- at once on a new connection, because a reply to the old one is lost,

but only if more than ``WORTHWHILE_S`` are left and ``may_resend`` agrees. ``may_resend`` is the session's ``resend``,
which charges the budget; the session has charged the first transmission already. Once it declines, ``ask`` only waits.
Each transmission carries the time that is left as its deadline. A worker answers a repeated id from memory.

Two threads meet here. ``Connection`` runs a thread that keeps the connection up and calls ``_received`` for each
message, ``_was_refused`` for each refused one and ``_came_up`` for each new connection. Under the lock of ``_changed``,
``_received`` hands the reply to the waiting ``ask`` if it bears the id that is waited for; it counts and drops all
other messages. ``_came_up`` publishes the retained status, closes the circuit and wakes ``ask``. ``cancel`` may be
called on any thread and in a signal handler.

docs/SPEC-wire-v1.md defines the bytes and the topics.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from pathlib import Path
from time import monotonic
from typing import Any

from ..base.record import record
from ..bundle.manifest import Manifest
from ..errors import LinkError, WireError
from ..program.definition import Program
from ..program.readings import Reading
from .address import parse_address
from .circuit import Circuit, log
from .connection import Connection, ConnectionConfig, Message, Will
from .wire import (
    ID_BYTES,
    Reply,
    Request,
    check_device_id,
    pack_request,
    reply_topic,
    request_topic,
    status_topic,
    unpack_reply,
)

__all__ = ["Link", "LinkConfig"]

OLD_IDS = 64  # ids of finished requests, remembered to tell a late reply from an unknown one
WORTHWHILE_S = 0.05  # with less time left, a reply to another transmission would come too late


@record(frozen=True, slots=True, kw_only=True)
class LinkConfig:
    """Every setting of the link, with its unit in its name."""

    connection: ConnectionConfig  # its client_id is the device's id
    resend_every_s: float = 1.0  # time without a reply before a request is sent again, which costs radio energy
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
        Names the HPC that must answer.
    on_taken_over : called on the connection's thread when the link has given up, because other clients use its id
        None: it never gives up

    Attributes
    ----------
    device_id : str
    counters : Counter
        ``sent``, ``resent``, ``sent_bytes`` (payloads only), ``rejected`` (transmissions that the broker refused or had
        no worker for), ``replies``, and the messages dropped: ``malformed``, ``oversized``, ``late``, ``unknown``,
        ``other_hpc``.
    """

    def __init__(
        self,
        config: LinkConfig,
        program: Program,
        manifest: Manifest,
        on_taken_over: Callable[[], None] | None = None,
    ) -> None:
        self._config = config
        self._dtypes = tuple(program.features[f].dtype for f in program.uplink.features)
        self._n_classes = program.n_classes
        self._hpc = bytes.fromhex(manifest.hpc)
        self._device = self.device_id = config.connection.client_id
        self._changed = threading.Condition()
        self._waiting: bytes | None = None
        self._reply: Reply | None = None
        self._old: deque[bytes] = deque(maxlen=OLD_IDS)
        self._status: dict[str, Any] = {}
        self._retained: dict[str, bytes] = {}  # by topic
        self._is_cancelled = False
        self._circuit = Circuit()
        self._packet = 0  # id of the last transmission's packet
        self._refused: dict[int, str] = {}  # ids of packets that the broker refused since then, and why
        self._gave_up = False
        self._on_taken_over = on_taken_over
        self.counters: Counter[str] = Counter()
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
        """Whether a request can go out now: the connection is up, and the circuit is closed or wants a test."""
        return self.is_connected and self._circuit.lets_through

    @property
    def trouble(self) -> str:
        """Why the link is not connected, in one line; empty while it is connected."""
        return self._connection.trouble

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
        """Publish the status "offline" with these last fields and disconnect; a waiting ``ask`` returns None."""
        self.cancel()
        if fields is not None:
            self._status = dict(fields)
        self._publish_state("offline", wait_s=self._config.stop_wait_s)
        self._connection.stop()

    def cancel(self) -> None:
        """End this and every later wait for a reply, because the device is about to stop. Safe in a signal handler."""
        self._is_cancelled = True
        with self._changed:
            self._changed.notify_all()

    def publish_status(self, fields: Mapping[str, Any]) -> bool:
        """Publish the retained status ``{"state": "online", **fields}``, now and on every new connection.

        Returns whether it was sent now.
        """
        self._status = dict(fields)
        return self._publish_state("online")

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
        id_ = os.urandom(ID_BYTES)
        with self._changed:
            self._waiting, self._reply = id_, None
        try:
            return self._exchange(id_, tuple(readings), monotonic() + deadline_s, may_resend)
        finally:
            with self._changed:
                self._waiting, self._reply = None, None
                self._old.append(id_)

    # ------------------------------------------------------------ one request

    def _exchange(
        self, id_: bytes, readings: tuple[Reading, ...], until: float, may_resend: Callable[[], bool]
    ) -> Reply | None:
        every_s = self._config.resend_every_s
        n_sent, may_send, is_test = 0, True, self._circuit.is_open
        next_at, sent_on = 0.0, 0  # when the next transmission is due; the connection that carried the last one
        while (now := monotonic()) < until and not self._is_cancelled:
            connection, left_s = self._connection.connects, until - now
            is_due = now >= next_at or connection != sent_on
            if is_due and self.is_connected and may_send and (not n_sent or left_s > WORTHWHILE_S):
                may_send = not n_sent or (not is_test and may_resend())
                if may_send:
                    request = Request(id_, self._hpc, ceil(left_s * 1000), readings)
                    n_sent += self._send(request, is_again=n_sent > 0)
                    next_at, sent_on = now + every_s, connection
            is_over, reply = self._wait(min(left_s, next_at - now if next_at > now else every_s))
            if is_over:
                return reply
        line = ""
        with self._changed:
            if n_sent and self.is_connected and not self._is_cancelled:
                line = self._circuit.silent()
        log(line)
        return None

    def _wait(self, seconds: float) -> tuple[bool, Reply | None]:
        """Wait for a reply, a refusal, a new connection, or the end of these seconds.

        Returns whether the request is over, and the reply if there is one.
        """
        with self._changed:
            if self._reply is None and self._packet not in self._refused and not self._is_cancelled:
                self._changed.wait(seconds)
            reply, level = self._reply, logging.WARNING
            if reply is not None:
                line, level = self._circuit.answered(), logging.INFO
            elif self._packet in self._refused:
                line = self._circuit.refused(self._refused[self._packet])
                self.counters["rejected"] += 1
            else:
                return False, None
        log(line, level)
        return True, reply

    def _send(self, request: Request, *, is_again: bool) -> bool:
        payload = pack_request(request, self._dtypes)
        self._packet, self._refused = 0, {}
        self._packet = self._connection.publish(
            request_topic(self._device),
            payload,
            response_topic=reply_topic(self._device),
            correlation=request.id,
            expiry_s=ceil(request.deadline_ms / 1000),
        )
        if self._packet:
            self.counters["resent" if is_again else "sent"] += 1
            self.counters["sent_bytes"] += len(payload)
        return self._packet != 0

    # ------------------------------------------------------------ on the connection's thread

    def _received(self, message: Message) -> None:
        try:
            reply = unpack_reply(message.payload, self._hpc, self._n_classes)
            if message.correlation not in (None, reply.id):
                raise WireError("malformed", "the correlation data is not the reply's id")
        except WireError as error:
            self.counters[error.reason] += 1
            return
        with self._changed:
            if reply.id == self._waiting and self._reply is None:
                self._reply = reply
                self.counters["replies"] += 1
                self._changed.notify_all()
            else:
                self.counters["late" if reply.id == self._waiting or reply.id in self._old else "unknown"] += 1

    def _was_refused(self, packet: int, why: str) -> None:
        with self._changed:
            if self._waiting is not None:
                self._refused[packet] = why  # perhaps before ``publish`` has returned this id to ``_send``
                self._changed.notify_all()

    def _came_up(self) -> None:
        self._publish_state("online")
        for topic, payload in list(self._retained.items()):
            self._connection.publish(topic, payload, retain=True)
        with self._changed:
            self._circuit.reset()
            self._changed.notify_all()

    def _give_up(self) -> None:
        self._gave_up = True
        if self._on_taken_over is not None:
            self._on_taken_over()

    def _publish_state(self, state: str, wait_s: float = 0.0) -> bool:
        payload = json.dumps({"state": state, **self._status}, separators=(",", ":")).encode()
        return self._connection.publish(status_topic(self._device), payload, retain=True, wait_s=wait_s) != 0
