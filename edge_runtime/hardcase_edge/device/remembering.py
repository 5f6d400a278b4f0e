# SPDX-License-Identifier: Apache-2.0
"""Inner sensors of a device: the memory's windows by the clock, and the coin of a mix of policies.

A window is an interval. If the loop has missed some, because the device slept or a read took long, as many windows
have passed; without an interval each decision is a window. The wall clock may only add to what the monotonic clock
says, which stands still while Linux is suspended: a clock that is set forward ages the memory, and the program then
buys once more than it needs to. The memory lives in this process, and so a restart empties it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING

from ..program.definition import Program
from ..program.readings import Reading
from ..stream.coin import Coin, Toss
from ..stream.layout import Layout
from ..stream.memory import MOST_WINDOWS, Memory

if TYPE_CHECKING:
    from .surroundings import Case

Readings = Mapping[int, Sequence[Reading] | None]


class Remembering:
    """A memory that goes along with each case (``surroundings.Inner``).

    Parameters
    ----------
    program, layout : of the memory
    interval_s : from one window to the next; 0: each decision is a window
    clocks : functions that give seconds, monotonic and wall time
    stream : says which stream the current item is of
    """

    def __init__(
        self, program: Program, layout: Layout, interval_s: float, clocks: Sequence[Callable[[], float]],
        stream: Callable[[], object],
    ) -> None:  # fmt: skip
        self._memory, self.sensor = Memory(program, layout), layout.sensor
        self._interval_s, self._clocks = interval_s, clocks
        self._began: list[float] | None = None
        self._stream_now, self._stream = stream, object()
        self.see, self.read = self._memory.see, self._memory.read

    def begin(self, case: Case) -> None:
        """A window begins; of another stream than the last, it is a first window."""
        now = [clock() for clock in self._clocks]
        stream = self._stream_now()
        if stream != self._stream:
            self._memory.forget()
            self._stream = stream
        self._memory.begin(1 if self._began is None else self._windows(now, self._began))
        self._began = now

    def end(self, case: Case) -> None:
        """The window has this decision, unless its item could not be used."""
        if case.item is None or not case.item.fault:
            self._memory.end(case.decision.result)

    def _windows(self, now: Sequence[float], began: Sequence[float]) -> int:
        if not self._interval_s:
            return 1
        passed = max(b - a for a, b in zip(began, now, strict=True))
        return max(1, round(min(passed / self._interval_s, MOST_WINDOWS))) if isfinite(passed) else 1


class Tossing:
    """A coin that goes along with each case (``surroundings.Inner``): one draw a decision, also if it buys no coin.

    Parameters
    ----------
    coin : of the program
    seed : as for ``Toss``
    """

    def __init__(self, coin: Coin, seed: int | None) -> None:
        self._coin, self._toss, self._draw = coin, Toss(seed), 0
        self.sensor = coin.sensor

    def begin(self, case: Case) -> None:
        """Draw."""
        self._draw = self._toss()

    def see(self, readings: Readings) -> None:
        """A coin does not look at them."""

    def read(self) -> Sequence[Reading]:
        """The draw."""
        return [self._draw]

    def end(self, case: Case) -> None:
        """The record says which policy the draw took: 1 is the dearer one, and 0 the cheaper one."""
        case.record["coin"] = int(self._draw < self._coin.below)
