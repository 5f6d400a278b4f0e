"""The link to the cloud: asks the HPC over MQTT and waits for its reply, and keeps the device's status standing there.

A request has a random id of 128 bits. It is sent again under that id where no reply comes, or at once on a new
connection (a reply to the old one is lost), as long as the budget pays for it and the deadline is not over; workers
answer a repeated id from memory. A reply counts only for the id that is waited for: everything else is counted and
dropped. docs/SPEC-wire-v1.md defines the bytes and the topics.
"""

from __future__ import annotations

import json
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
from ..errors import WireError
from ..program.definition import Program
from ..program.readings import Reading
from .address import parse_address
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

OLD_IDS = 64  # ids kept to tell a late reply from an unknown one
WORTHWHILE_S = 0.05  # with less time left, sending again only costs


@record(frozen=True, slots=True, kw_only=True)
class LinkConfig:
    """Every knob of the link. Units are in the names."""

    connection: ConnectionConfig  # its client_id is the device's id
    resend_every_s: float = 1.0  # a request without a reply goes out again; each time costs radio energy
    stop_wait_s: float = 1.0  # for the broker to acknowledge the last status

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
        """Settings for a broker's URL; ``connection_knobs`` are fields of ``ConnectionConfig``.

        Raises
        ------
        InputError
            The URL or the device's id cannot be used.
        """
        address = parse_address(url, ca=ca, cert=cert, key=key)
        client_id = check_device_id(device_id)
        connection = ConnectionConfig(address=address, client_id=client_id, **connection_knobs)
        return cls(connection=connection, resend_every_s=resend_every_s)


class Link:
    """One device's way to its HPC; one request at a time.

    Parameters
    ----------
    config : LinkConfig
    program : Program
        What a request carries, and how many classes a reply may name.
    manifest : Manifest
        Names the HPC that must answer.

    Attributes
    ----------
    counters : Counter
        ``sent``, ``resent``, ``sent_bytes`` (payloads), ``replies``, and what was dropped: ``malformed``,
        ``oversized``, ``late``, ``unknown``, ``other_hpc``.
    """

    def __init__(self, config: LinkConfig, program: Program, manifest: Manifest) -> None:
        self._config = config
        self._dtypes = tuple(program.features[f].dtype for f in program.uplink.features)
        self._n_classes = program.n_classes
        self._hpc = bytes.fromhex(manifest.hpc)
        self._device = config.connection.client_id
        self._changed = threading.Condition()
        self._waiting: bytes | None = None
        self._reply: Reply | None = None
        self._old: deque[bytes] = deque(maxlen=OLD_IDS)
        self._status: dict[str, Any] = {}
        self._is_cancelled = False
        self.counters: Counter[str] = Counter()
        self._connection = Connection(
            config.connection,
            subscribe=reply_topic(self._device),
            on_up=self._came_up,
            on_message=self._received,
            will=Will(status_topic(self._device), b'{"state":"offline"}'),
        )

    @property
    def is_connected(self) -> bool:
        """Whether a request can go out now."""
        return self._connection.is_up

    @property
    def trouble(self) -> str:
        """Why it is not connected, in one line; empty when it is."""
        return self._connection.trouble

    def start(self, wait_s: float = 0.0) -> bool:
        """Begin to connect, and keep at it; wait for the first attempt, at most ``wait_s``. Whether connected."""
        return self._connection.start(wait_s)

    def stop(self, fields: Mapping[str, Any] | None = None) -> None:
        """Say "offline" with these last fields, and disconnect; a request being waited for ends without a reply."""
        self.cancel()
        if fields is not None:
            self._status = dict(fields)
        self._say("offline", wait_s=self._config.stop_wait_s)
        self._connection.stop()

    def cancel(self) -> None:
        """End the wait for a reply, now and for ever: the device is about to stop. Safe in a signal handler."""
        self._is_cancelled = True
        with self._changed:
            self._changed.notify_all()

    def publish_status(self, fields: Mapping[str, Any]) -> bool:
        """Set the retained status: ``{"state": "online", **fields}``; it is said again on every new connection."""
        self._status = dict(fields)
        return self._say("online")

    def ask(
        self, readings: Sequence[Reading], deadline_s: float, may_resend: Callable[[], bool] = lambda: True
    ) -> Reply | None:
        """The HPC's reply, or None when the link is down now or none came in time.

        Parameters
        ----------
        readings : raw readings in the uplink's order, None for missing
        deadline_s : seconds to wait
        may_resend : asked before each repeated transmission: may, and does, pay for it (``Session.resend``)
        """
        if not self.is_connected or self._is_cancelled:
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
        sent, may_send = 0, True
        again_at, sent_on = 0.0, 0  # when to send next; the connection that the last one went out on
        while (now := monotonic()) < until and not self._is_cancelled:
            connect, left_s = self._connection.connects, until - now
            is_due = now >= again_at or connect != sent_on
            if is_due and self.is_connected and may_send and (not sent or left_s > WORTHWHILE_S):
                may_send = not sent or may_resend()
                if may_send:
                    sent += self._send(Request(id_, self._hpc, ceil(left_s * 1000), readings), is_again=sent > 0)
                    again_at, sent_on = now + every_s, connect
            if reply := self._wait(min(left_s, again_at - now if again_at > now else every_s)):
                return reply
        return None

    def _wait(self, seconds: float) -> Reply | None:
        """Until a reply, a new connection, or the end of these seconds."""
        with self._changed:
            if self._reply is None and not self._is_cancelled:
                self._changed.wait(seconds)
            return self._reply

    def _send(self, request: Request, *, is_again: bool) -> bool:
        payload = pack_request(request, self._dtypes)
        is_sent = self._connection.publish(
            request_topic(self._device),
            payload,
            response_topic=reply_topic(self._device),
            correlation=request.id,
            expiry_s=ceil(request.deadline_ms / 1000),
        )
        if is_sent:
            self.counters["resent" if is_again else "sent"] += 1
            self.counters["sent_bytes"] += len(payload)
        return is_sent

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

    def _came_up(self) -> None:
        self._say("online")
        with self._changed:
            self._changed.notify_all()

    def _say(self, state: str, wait_s: float = 0.0) -> bool:
        payload = json.dumps({"state": state, **self._status}, separators=(",", ":")).encode()
        return self._connection.publish(status_topic(self._device), payload, retain=True, wait_s=wait_s)
