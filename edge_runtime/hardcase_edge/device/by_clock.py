# SPDX-License-Identifier: Apache-2.0
"""Decisions by the clock: what the cloud is expected to take, and threads that change often.

The unit of cost is a millisecond, so a micro-unit is a nanosecond. The clock starts with the decision, so what the
device itself takes is spent, too. The cloud is one more thing that takes time: ``RoundTrips`` remembers what it took.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

SWITCH_S = 0.0005  # how often a plug-in that computes in Python gives its lock back; Python's own is 5 ms
REMEMBERED = 20  # round trips, of which nine in ten took at most what is expected of the next one
FEWEST = 3  # before anything is expected


@contextmanager
def short_switches() -> Iterator[None]:
    """Meanwhile Python changes threads every ``SWITCH_S`` seconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class RoundTrips:
    """What the cloud took to reply, in seconds: the last ``REMEMBERED`` times.

    >>> trips = RoundTrips()
    >>> for ms in (20, 30, 900):
    ...     trips.add(ms / 1000)
    >>> trips.expected_s
    0.9
    """

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)

    def add(self, seconds: float) -> None:
        """Remember one; that of a reply that did not come is as long as the device waited."""
        self._seconds.append(seconds)

    @property
    def expected_s(self) -> float:
        """What nine in ten of those remembered did not exceed; 0 while there are too few to say."""
        n = len(self._seconds)
        return sorted(self._seconds)[-1 - n // 10] if n >= FEWEST else 0.0

    def forget_one(self) -> None:
        """Forget the oldest, so that a cloud that was slow once is asked again."""
        if self._seconds:
            self._seconds.popleft()
