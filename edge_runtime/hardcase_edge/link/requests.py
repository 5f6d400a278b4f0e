# SPDX-License-Identifier: Apache-2.0
"""The requests of one device, as bytes of the wire, without I/O, a thread, a clock or random numbers.

``exchange.exchange`` says when a request goes out and which reply counts; here it becomes a message, and messages
become replies. The owner is a thread (``link.Link``), an event loop or a replay in virtual time. It passes the time in
milliseconds and random ids, does what ``poll`` says, and polls again after each event:

    ask(now, id, readings, deadline_ms, may_resend)   begin, if ``exchange.can_ask(now)``
    poll(now, connection)                             Publish: send it, and call ``exchange.sent`` if it went out
                                                      Over: the request is over
                                                      None: nothing for ``exchange.due(now)`` milliseconds
    received(now, payload, correlation)               an event: a message on the reply topic
                                                      further events are the exchange's own

Beside it one request may be aside: sent once, for an audit, while nobody waits; its reply comes later or never. It has
an id of its own, so that no live request can take its reply, nor it the reply of a live one.
"""

from __future__ import annotations

import logging
from math import ceil
from typing import TYPE_CHECKING, Any

from ..base.record import record
from ..errors import WireError
from ..exchange.exchange import Exchange, Over, Send
from .wire import (
    BUSY,
    Reply,
    Request,
    other_hpc_in,
    pack_request,
    reply_topic,
    request_topic,
    unpack_reply,
)

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping, Sequence

    from ..bundle.manifest import Manifest
    from ..program.definition import Program
    from ..program.readings import Reading


@record(frozen=True, slots=True)
class RequestFormat:
    """How the requests of a bundle look, and what may reply to them; all devices that run it share one."""

    dtypes: tuple[str, ...] = ()  # of the readings of a request, in the uplink's order
    hpc: bytes = b""  # SHA-256 of the model that must answer
    n_classes: int = 0  # that a reply may name; 0 in a program of values

    @classmethod
    def of(cls, program: Program, manifest: Manifest) -> RequestFormat:
        """That of a bundle."""
        dtypes = tuple([program.features[f].dtype for f in program.uplink.features])
        return cls(dtypes, bytes.fromhex(manifest.hpc), program.n_classes)


@record(frozen=True, slots=True)
class Publish:
    """A request to send now, as a message of QoS 1."""

    device: str
    payload: bytes
    id: bytes  # the correlation data
    deadline_ms: int  # what is left of the deadline

    @property
    def topic(self) -> str:
        """Where it goes."""
        return request_topic(self.device)

    @property
    def response_topic(self) -> str:
        """Where the reply is expected."""
        return reply_topic(self.device)

    @property
    def expiry_s(self) -> int:
        """For how many seconds the broker may keep it."""
        return ceil(self.deadline_ms / 1000)


class Requests:
    """The requests of one device.

    Parameters
    ----------
    form : RequestFormat
    device : the device's name
    exchange : of the device
    counters : is counted into: messages dropped, as ``malformed``, ``oversized`` or ``other_hpc``
    tell : called with each line for the log, and its level

    Attributes
    ----------
    exchange : Exchange
    served : Served
        Whether a worker serves the bundle's f0.

    Examples
    --------
    >>> from collections import Counter
    >>> from hardcase_edge.link.wire import OK, pack_reply
    >>> counters = Counter()
    >>> requests = Requests(RequestFormat(("f32",), bytes(32), 2), "pump-7", Exchange(1_000, counters), counters)
    >>> requests.ask(0, bytes(16), [21.5], 2_000)
    >>> publish = requests.poll(0, connection=1)
    >>> publish.topic, len(publish.payload), publish.expiry_s
    ('hardcase/v1/pump-7/request', 60, 2)
    >>> requests.exchange.sent()
    >>> requests.received(10, pack_reply(Reply(bytes(16), bytes(32), OK, result=1, confidence=9_700)))
    >>> requests.poll(10, connection=1).reply.answer
    (1, 9700)
    """

    __slots__ = ("_aside", "_counters", "_device", "_form", "_readings", "_tell", "exchange", "served")

    def __init__(
        self, form: RequestFormat, device: str, exchange: Exchange, counters: MutableMapping[str, int],
        tell: Callable[[str, int], object] = lambda line, level: None,
    ) -> None:  # fmt: skip
        self.exchange, self.served = exchange, Served(form.hpc)
        self._form, self._device, self._counters, self._tell = form, device, counters, tell
        self._readings: tuple[Reading, ...] = ()
        self._aside = b""  # id of the request aside that is open

    @property
    def is_asking(self) -> bool:
        """Whether a request waits for its reply."""
        return bool(self.exchange.waiting)

    def ask(
        self, now: int, id_: bytes, readings: Sequence[Reading], deadline_ms: int,
        may_resend: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        """Begin a request with readings in the uplink's order, None for missing; the rest as of ``Exchange.ask``."""
        self._readings = tuple(readings)
        self.exchange.ask(now, id_, deadline_ms, may_resend)

    def poll(self, now: int, connection: int) -> Publish | Over | None:
        """What to do now; a request that is over has been told to the log."""
        id_ = self.exchange.waiting
        action = self.exchange.poll(now, connection)
        if isinstance(action, Send):
            return self._publish(Request(action.id, self._form.hpc, action.deadline_ms, self._readings))
        if action is not None:
            self._say(action.line, action.level)
            self._ended(id_, is_answered=action.reply is not None)
        return action

    def aside(self, id_: bytes, readings: Sequence[Reading], deadline_ms: int) -> Publish | None:
        """A request aside, to be sent once; None while the circuit is open. It takes the place of the last one."""
        if self.exchange.circuit.is_open:
            return None
        if self._aside:
            self._ended(self._aside, is_answered=False)
        self._aside = id_
        return self._publish(Request(id_, self._form.hpc, deadline_ms, tuple(readings), is_audit=True))

    def received(self, now: int, payload: bytes, correlation: bytes | None = None) -> Reply | None:
        """A message on the reply topic; returns the reply to the request aside, if it is that."""
        try:
            reply = unpack_reply(payload, self._form.hpc, self._form.n_classes)
            if correlation not in (None, reply.id):
                raise WireError("malformed", "the correlation data is not the reply's id")
        except WireError as error:
            self._counters[error.reason] = self._counters.get(error.reason, 0) + 1
            told = other_hpc_in(payload) if error.reason == "other_hpc" else None
            if told is not None and told[0] in (self.exchange.waiting, self._aside):
                self.served.heard(*told)
            return None
        if reply.id == self._aside:
            self._aside = b""
            self._ended(reply.id, is_answered=True)
            return reply
        self.exchange.replied(now, reply.id, reply, reply.result if reply.status == BUSY else 0)
        return None

    # ------------------------------------------------------------ parts

    def _publish(self, request: Request) -> Publish:
        return Publish(self._device, pack_request(request, self._form.dtypes), request.id, request.deadline_ms)

    def _ended(self, id_: bytes, *, is_answered: bool) -> None:
        self._say(self.served.ended(id_, is_answered=is_answered), logging.WARNING)

    def _say(self, line: str, level: int) -> None:
        if line:
            self._tell(line, level)


# Whether any worker serves the f0 of the bundle that runs, as far as requests have heard.
#
# A worker of another f0 says so in a reply (status 3), which ends no request: where both f0 are served, the right reply
# comes, too. Only a request that ends without one says that nobody serves its f0.


MOST_OPEN = 4  # requests that are remembered: one that is live and one aside, and those just before
DIGITS = 12  # of a digest in a line


class Served:
    """What is known of one f0; its owner holds a lock around each call.

    Parameters
    ----------
    hpc : SHA-256 of the f0

    Attributes
    ----------
    n_unserved : int
        Requests that ended without a reply although a worker of another f0 spoke; 0 once a worker of this one has.

    >>> served = Served(bytes(32))
    >>> served.heard(b"one", bytes([255] * 32))
    >>> served.ended(b"one", is_answered=False)
    'no worker serves f0 000000000000 of this bundle, but one serves ffffffffffff: start a worker of the first'
    >>> served.ended(b"two", is_answered=False), served.n_unserved
    ('', 1)
    >>> served.ended(b"three", is_answered=True), served.n_unserved, served.facts()
    ('', 0, {})
    """

    __slots__ = ("_has_answered", "_has_told", "_heard", "_hpc", "_other", "n_unserved")

    def __init__(self, hpc: bytes) -> None:
        self._hpc = hpc
        self._heard: tuple[tuple[bytes, bytes], ...] = ()  # ids of requests, and the f0 that replied
        self._other = b""
        self._has_answered = self._has_told = False
        self.n_unserved = 0

    def heard(self, id_: bytes, other: bytes) -> None:
        """A worker of another f0 has replied to this request."""
        self._heard = (*self._heard, (id_, other))[-MOST_OPEN:]

    def ended(self, id_: bytes, *, is_answered: bool) -> str:
        """This request is over; returns the line to log, or ""."""
        if is_answered:
            self._has_answered, self._has_told, self.n_unserved = True, False, 0
            return ""
        other = next((hpc for heard, hpc in self._heard if heard == id_), b"")
        if not other:
            return ""
        self._other = other
        self.n_unserved += not self._has_answered
        line, self._has_told = "" if self._has_told else self.why, True
        return line

    @property
    def why(self) -> str:
        """What is wrong, in words."""
        ours, other = self._hpc.hex()[:DIGITS], self._other.hex()[:DIGITS]
        return f"no worker serves f0 {ours} of this bundle, but one serves {other}: start a worker of the first"

    def unserved(self) -> tuple[int, str]:
        """``n_unserved``, and what is wrong, in words."""
        return self.n_unserved, self.why

    def facts(self) -> dict[str, Any]:
        """For the facts: what is asked, and what is served in its place; nothing while that is not so."""
        if not self._has_told:
            return {}
        return {"f0": {"asked": self._hpc.hex(), "served": self._other.hex(), "unserved": self.n_unserved}}
