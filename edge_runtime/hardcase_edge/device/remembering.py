# SPDX-License-Identifier: Apache-2.0
"""Inner sensors in the device's loop: the memory's windows by the clock, and what they say on its way to the session.

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
    from .surroundings import Bank, Case

__all__ = ["Remembering", "Tossing"]

Readings = Mapping[int, Sequence[Reading] | None]


class Remembering:
    """A memory that goes along with each case (``surroundings.Companion``).

    Parameters
    ----------
    program, layout : of the memory
    bank : whose attribute ``stream``, where it has one, says which stream an item is of
    interval_s : from one window to the next; 0: each decision is a window
    clocks : functions that give seconds, monotonic and wall time
    """

    def __init__(
        self, program: Program, layout: Layout, bank: Bank, interval_s: float, clocks: Sequence[Callable[[], float]]
    ) -> None:
        self._memory = Memory(program, layout)
        self._bank = bank
        self._interval_s, self._clocks = interval_s, clocks
        self._began: list[float] | None = None
        self._stream: object = None

    def begin(self, case: Case) -> None:
        """A window begins; of another stream than the last, it is a first window."""
        now = [clock() for clock in self._clocks]
        stream = getattr(self._bank, "stream", None)
        if stream != self._stream:
            self._memory.forget()
            self._stream = stream
        self._memory.begin(1 if self._began is None else self._windows(now, self._began))
        self._began = now
        others = case.read
        case.read = lambda sensors: self._read(sensors, others)

    def _read(self, sensors: Sequence[int], others: Callable[[Sequence[int]], Readings]) -> Readings:
        """The readings of these sensors: what the memory says, and of the others what ``others`` gives for them."""
        inner = self._memory.layout.sensor
        outer = [s for s in sensors if s != inner]
        readings = others(outer) if outer else {}
        self._memory.see(readings)
        return {**readings, inner: self._memory.read()} if inner in sensors else readings

    def end(self, case: Case) -> None:
        """The window has this decision, unless its item could not be used."""
        if case.item is None or not case.item.fault:
            self._memory.end(case.decision.result)

    def _windows(self, now: Sequence[float], began: Sequence[float]) -> int:
        passed = max(b - a for a, b in zip(began, now, strict=True))
        if not self._interval_s or not isfinite(passed):
            return 1
        return max(1, round(min(passed / self._interval_s, MOST_WINDOWS)))


class Tossing:
    """A coin that goes along with each case (``surroundings.Companion``): one draw a decision, also if it buys no coin.

    Parameters
    ----------
    coin : of the program
    seed : as for ``Toss``
    """

    def __init__(self, coin: Coin, seed: int | None) -> None:
        self._coin, self._toss, self._draw = coin, Toss(seed), 0

    def begin(self, case: Case) -> None:
        """Draw, and give the draw to a session that asks for the coin."""
        self._draw = self._toss()
        others = case.read
        case.read = lambda sensors: self._read(sensors, others)

    def _read(self, sensors: Sequence[int], others: Callable[[Sequence[int]], Readings]) -> Readings:
        inner = self._coin.sensor
        outer = [s for s in sensors if s != inner]
        readings = others(outer) if outer else {}
        return {**readings, inner: [self._draw]} if inner in sensors else readings

    def end(self, case: Case) -> None:
        """The record says which policy the draw took: 1 is the dearer one, and 0 the cheaper one."""
        case.record["coin"] = int(self._draw < self._coin.below)
