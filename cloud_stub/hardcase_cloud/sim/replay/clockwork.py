# SPDX-License-Identifier: Apache-2.0
"""Virtual time: one heap of events in whole milliseconds, in an order that depends on nothing but the events."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class Clockwork:
    """Runs events in the order of their times, and those of one time in the order in which they were planned.

    Attributes
    ----------
    now : int
        Milliseconds since the beginning.
    n_events : int
        How many have happened.
    """

    def __init__(self) -> None:
        self.now = self.n_events = self._n_planned = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    @property
    def seconds(self) -> float:
        """The time in seconds."""
        return self.now / 1000

    def after(self, ms: int, act: Callable[..., None], *args: Any) -> None:
        """Plan an event so many milliseconds from now."""
        self._n_planned += 1
        heappush(self._heap, (self.now + ms, self._n_planned, act, args))

    def run(self, until: int) -> None:
        """Let everything happen up to this time, in milliseconds."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, act, args = heappop(heap)
            self.n_events += 1
            act(*args)
        self.now = until
