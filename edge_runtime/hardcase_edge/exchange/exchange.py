# SPDX-License-Identifier: Apache-2.0
"""The exchange: one request at a time, from its first transmission to its reply or its deadline, as an automaton.

It has no I/O, no thread, no clock and no random numbers: its owner passes the time (whole milliseconds of any clock
that only rises) and the request's id (random bytes), publishes what ``poll`` says, and reports what happens:

    ask(now, id, deadline_ms, may_resend)   begin, if ``can_ask(now)``
    poll(now, connection)                   Send: publish it, and call ``sent`` if it went out
                                            Over: the request is over, with its reply or without one
                                            None: nothing to do for ``due(now)`` milliseconds, or until an event
    replied(now, id, reply, busy_ms)        an event: a reply that the owner has unpacked, for whatever id it bears
    refused(now, why)                       an event: the broker refused the last transmission, or has no worker
    connected()                             an event: a new connection; the owner polls with its number
    cancel()                                an event: the device is about to stop

``connection`` is 0 while there is none, and another number for each new one. After an event, poll again.

    a reply to this request arrives         Over with the reply, whatever it says
    the cloud is busy for N ms              Over with that reply; no request goes out for N ms, and for twice, four and
                                            eight times as long if the next ones are met so, too
    the deadline passes, or ``cancel``      Over without a reply; three silences open the circuit (``Circuit``)
    the broker refuses                      Over without a reply, and the circuit is open

A request is sent again under its id when a pause has passed, which doubles each time and is jittered by the bytes of
the id, and at once on a new connection, because a reply to the old one is lost. It is sent again only

- if more than ``WORTHWHILE_MS`` are left, and it is not a circuit's test,
- within the retry budget: a transmission again takes what ``ASKS_PER_RESEND`` requests bring, so that a device adds at
  most a tenth to what it asks, besides the ``MOST_RESENDS`` that it may save up, with which it begins; and
- if ``may_resend`` agrees (``Session.resend``, which charges the decision's budget).

Once one of the last two says no, the request only waits. Every transmission says how much time is left of the deadline.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from ..base.record import record

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

WORTHWHILE_MS = 50  # with less time left, a reply to another transmission would come too late
OLD_IDS = 16  # ids of finished requests, remembered to tell a late reply from an unknown one
ASKS_PER_RESEND = 10  # a retry budget of 10 %
MOST_RESENDS = 3  # saved up; as many as a request of a few seconds can use
MOST_DOUBLINGS = 3  # of the time for which a device obeys a cloud that is busy again and again
MAX_BUSY_MS = 60_000  # longer than this, and its jitter, no device stays away, whatever it is told
NO_ID = b""


@record(frozen=True, slots=True)
class Send:
    """Publish the request now."""

    id: bytes
    deadline_ms: int  # what is left of the deadline
    is_again: bool


@record(frozen=True, slots=True)
class Over:
    """The request is over."""

    reply: Any  # what ``replied`` was given; None if no reply came
    line: str = ""  # for the log, "" if there is nothing to tell
    level: int = logging.WARNING


class Exchange:
    """The requests of one device to its cloud.

    Parameters
    ----------
    resend_ms : time without a reply before a request is sent again for the first time
    counters : is counted into; an owner of many devices may give them all the same one
        ``sent``, ``resent``, ``replies``, ``busy`` (of these, the cloud was busy), ``rejected`` (transmissions that the
        broker refused), and replies dropped: ``late``, ``unknown``.

    Examples
    --------
    >>> counters = {}
    >>> exchange = Exchange(1_000, counters)
    >>> exchange.ask(0, b"an id", 2_000)
    >>> exchange.poll(0, connection=1)
    Send(id=b'an id', deadline_ms=2000, is_again=False)
    >>> exchange.sent()
    >>> exchange.poll(10, connection=1), exchange.poll(10, connection=2)
    (None, Send(id=b'an id', deadline_ms=1990, is_again=True))
    >>> exchange.sent()
    >>> exchange.replied(15, b"another id", "no reply of ours")
    >>> exchange.replied(20, b"an id", "a reply")
    >>> exchange.poll(20, connection=2).reply
    'a reply'
    >>> counters
    {'sent': 1, 'resent': 1, 'unknown': 1, 'replies': 1}
    """

    __slots__ = (
        "_counters", "_end", "_id", "_is_test", "_may_resend", "_may_send", "_n_busy", "_n_sent", "_next_at", "_old",
        "_quiet_until", "_resend_ms", "_savings", "_sent_on", "_until", "circuit",
    )  # fmt: skip

    def __init__(self, resend_ms: int, counters: MutableMapping[str, int]) -> None:
        self.circuit = Circuit()
        self._resend_ms, self._counters = resend_ms, counters
        self._savings = MOST_RESENDS * ASKS_PER_RESEND  # in requests
        self._quiet_until = self._n_busy = 0
        self._old: deque[bytes] = deque(maxlen=OLD_IDS)
        self._id = NO_ID  # no request waits
        self._end: Over | None = None
        self._may_resend: Callable[[], bool] = bool
        self._until = self._next_at = self._n_sent = 0
        self._sent_on = 0  # the connection of the last transmission
        self._may_send = self._is_test = False

    # ------------------------------------------------------------ what the owner asks

    @property
    def waiting(self) -> bytes:
        """The id of the request that waits for its reply; empty if none does."""
        return self._id

    def can_ask(self, now: int) -> bool:
        """Whether a request may begin: none waits, the cloud is not busy, and the circuit lets it through."""
        return self._id == NO_ID and now >= self._quiet_until and self.circuit.lets_through(now)

    def ask(self, now: int, id_: bytes, deadline_ms: int, may_resend: Callable[[], bool] = lambda: True) -> None:
        """Begin a request; ``may_resend`` is asked before each transmission but the first."""
        self._id, self._end, self._until = id_, None, now + deadline_ms
        self._may_resend, self._may_send, self._is_test = may_resend, True, self.circuit.is_open
        self._n_sent = self._sent_on = 0
        self._next_at = now
        self._savings = min(self._savings + 1, MOST_RESENDS * ASKS_PER_RESEND)

    def poll(self, now: int, connection: int) -> Send | Over | None:
        """What to do now."""
        if self._id == NO_ID:
            return None
        if self._end is not None or now >= self._until:
            return self._finish(now, connection)
        if not connection or not self._may_send or (now < self._next_at and connection == self._sent_on):
            return None
        left_ms, is_again = self._until - now, self._n_sent > 0
        if is_again:
            if left_ms <= WORTHWHILE_MS:
                self._next_at = self._until  # a new connection changes nothing any more
                return None
            if self._is_test or self._savings < ASKS_PER_RESEND or not self._may_resend():
                self._may_send = False
                return None
        self._sent_on = connection  # even if it cannot be published, because the connection may be full
        self._next_at = now + self._pause_ms()
        return Send(self._id, left_ms, is_again)

    def sent(self) -> None:
        """The caller has sent the request that the last ``poll`` returned."""
        if self._n_sent:
            self._savings -= ASKS_PER_RESEND
        self._count("resent" if self._n_sent else "sent")
        self._n_sent += 1

    def due(self, now: int) -> int | None:
        """Milliseconds until ``poll``, which has just said None, says something else; None if no request waits."""
        if self._id == NO_ID:
            return None
        if self._end is not None:
            return 0
        at = self._next_at if self._may_send and now < self._next_at < self._until else self._until
        return max(0, at - now)

    # ------------------------------------------------------------ what the owner reports

    def replied(self, now: int, id_: bytes, reply: Any, busy_ms: int = 0) -> None:
        """A reply came; ``busy_ms``: how long the cloud wants to be left alone, 0 if it is not busy."""
        if not id_ or id_ != self._id or self._end is not None:
            self._count("late" if id_ and (id_ == self._id or id_ in self._old) else "unknown")
            return
        self._count("replies")
        line, level = self.circuit.answered(), logging.INFO
        if busy_ms:
            self._count("busy")
            quiet_ms = min(MAX_BUSY_MS, busy_ms << min(self._n_busy, MOST_DOUBLINGS))
            self._quiet_until = now + quiet_ms + quiet_ms * id_[0] // 512  # up to half as much again, by the id
            if not self._n_busy:
                line = f"the cloud is busy; the device decides alone for {quiet_ms} ms"
            self._n_busy += 1
        else:
            self._n_busy = 0
        self._end = Over(reply, line, level)

    def refused(self, now: int, why: str) -> None:
        """The broker refused the last transmission, or had nobody to give it to."""
        if self._id != NO_ID and self._end is None:
            self._count("rejected")
            self._end = Over(None, self.circuit.refused(now, why))

    def connected(self) -> None:
        """There is a new connection: what made the circuit open may be over."""
        self.circuit.reset()

    def cancel(self) -> None:
        """End the request that waits, if one does."""
        if self._id != NO_ID and self._end is None:
            self._end = Over(None)

    # ------------------------------------------------------------ parts

    def _finish(self, now: int, connection: int) -> Over:
        end = self._end
        if end is None:
            end = Over(None, self.circuit.silent(now) if self._n_sent and connection else "")
        self._old.append(self._id)
        self._id, self._end, self._may_resend = NO_ID, None, bool
        return end

    def _pause_ms(self) -> int:
        """The pause after the transmission that is due: it doubles, and is jittered by a quarter up or down."""
        pause_ms = self._resend_ms << min(self._n_sent, 16)
        return pause_ms * (384 + self._id[-1 - self._n_sent % len(self._id)]) // 512

    def _count(self, name: str) -> None:
        self._counters[name] = self._counters.get(name, 0) + 1


# A circuit breaker: no request goes to a cloud that has just failed to answer, except one now and then as a test.
#
#     closed   requests go out                     opens at a request that the broker refuses or has no worker for, or
#                                                  at the third in a row without a reply
#     open     none goes out, except tests         closes at the first reply, and at a new connection
#
# A test request is a hard case like any other, but it is sent once only. The pause before the next one is half the time
# that the circuit has been open, at least ``PAUSE_LEAST_MS`` and at most ``PAUSE_MOST_MS``. It has no clock: ``now`` is
# milliseconds of any clock that only rises. Nothing here writes a log, because the caller may hold a lock: what a user
# should read is returned.


logger = logging.getLogger(__name__)

MOST_SILENT = 3  # requests in a row without a reply that open the circuit
PAUSE_LEAST_MS, PAUSE_MOST_MS = 500, 30_000


class Circuit:
    """The state of one circuit."""

    __slots__ = ("_n_silent", "_opened_at", "_test_at")

    def __init__(self) -> None:
        self._opened_at: int | None = None  # None: closed
        self._test_at = 0
        self._n_silent = 0

    @property
    def is_open(self) -> bool:
        """Whether only test requests may go out."""
        return self._opened_at is not None

    def lets_through(self, now: int) -> bool:
        """Whether a request may go out now."""
        return self._opened_at is None or now >= self._test_at

    def answered(self) -> str:
        """A reply came in time; returns the line to log, or ""."""
        line = "the cloud answers again" if self.is_open else ""
        self.reset()
        return line

    def silent(self, now: int) -> str:
        """No reply came in time; returns the line to log, or ""."""
        self._n_silent += 1
        if self.is_open or self._n_silent >= MOST_SILENT:
            return self._open(now, f"{self._n_silent} requests in a row had no reply")
        return ""

    def refused(self, now: int, why: str) -> str:
        """The broker refused a request, or had nobody to give it to; returns the line to log, or ""."""
        return self._open(now, f"the broker takes no request: {why}")

    def reset(self) -> None:
        """Close the circuit: the connection is a new one, or a reply came."""
        self._opened_at, self._n_silent = None, 0

    def _open(self, now: int, why: str) -> str:
        line = ""
        if self._opened_at is None:
            line = f"{why}; the device decides alone until the cloud answers"
            self._opened_at = now
        self._test_at = now + min(PAUSE_MOST_MS, max(PAUSE_LEAST_MS, (now - self._opened_at) // 2))
        return line


def log(line: str, level: int = logging.WARNING) -> None:
    """Log a line that a circuit returned, if it is one; for callers that hold no lock any more."""
    if line:
        logger.log(level, line)
