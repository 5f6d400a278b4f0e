# SPDX-License-Identifier: Apache-2.0
"""A circuit breaker: no request goes to a cloud that has just failed to answer, except one now and then as a test.

    closed   requests go out                     opens at a request that the broker refuses or has no worker for, or
                                                 at the third in a row without a reply
    open     none goes out, except tests         closes at the first reply, and at a new connection

A test request is a hard case like any other, but it is sent once only. The pause before the next one is half the time
that the circuit has been open, at least ``PAUSE_LEAST_MS`` and at most ``PAUSE_MOST_MS``. It has no clock: ``now`` is
milliseconds of any clock that only rises. Nothing here writes a log, because the caller may hold a lock: what a user
should read is returned.
"""

from __future__ import annotations

import logging

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
