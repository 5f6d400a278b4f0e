# SPDX-License-Identifier: Apache-2.0
"""Rows on their way to a model that is asked several at once, such as one in another house: no row waits for another.

A service with such a model makes no batches. It begins a row as soon as one of ``at_once`` places is free, and sends
each reply when it comes; from how long rows take, it learns whether a new request can be answered in time.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from hardcase_edge.program.readings import Reading

from .asking import FAILED, Answer, Concurrent

LOOK_S = 0.005  # how long an answer may lie there before the service looks
MOST_TIME = 0.9  # share of a request's time until which it must be answered
SMOOTH = 0.2  # weight of the latest row in the mean

Key = tuple[str, bytes]  # device, request id


@dataclass(slots=True)
class _Flight:
    future: Future[Answer]
    began: float
    until: float


class Flights:
    """The rows on their way; times are seconds on the caller's clock."""

    def __init__(self, hpc: Concurrent) -> None:
        self._hpc = hpc
        self._open: dict[Key, _Flight] = {}
        self._takes_s = 0.0  # in the mean

    @property
    def room(self) -> int:
        """How many rows may begin now."""
        return self._hpc.at_once - len(self._open)

    def begin(self, key: Key, row: tuple[Reading, ...], deadline: float, now: float) -> None:
        """Have a row asked, whose answer ``landed`` gives."""
        self._open[key] = _Flight(self._hpc.begin(row, deadline - now), now, deadline)

    def landed(self, now: float) -> list[tuple[Key, Answer]]:
        """The answers that have come, and ``FAILED`` for rows whose time has passed; each row once."""
        out: list[tuple[Key, Answer]] = []
        for key, flight in list(self._open.items()):
            if flight.future.done():
                answer = FAILED if flight.future.exception() is not None else flight.future.result()
                if not isinstance(answer, str):
                    took_s = now - flight.began
                    self._takes_s += (SMOOTH if self._takes_s else 1.0) * (took_s - self._takes_s)
            elif now < flight.until:
                continue
            else:
                flight.future.cancel()
                answer = FAILED
            del self._open[key]
            out.append((key, answer))
        return out

    def due(self, n_waiting: int) -> float | None:
        """Seconds until the service should look: 0 if there is something to do, None if there is nothing at all."""
        if (n_waiting and self.room > 0) or any(flight.future.done() for flight in self._open.values()):
            return 0.0
        return LOOK_S if self._open else None

    def is_hopeless(self, place: int, left_s: float) -> bool:
        """Whether a request with so many others before it would be answered too late; never while nothing is asked."""
        ahead = max(0, place + 1 - self.room)
        return bool(self._open) and self._takes_s * (1 + ahead / self._hpc.at_once) > MOST_TIME * left_s
