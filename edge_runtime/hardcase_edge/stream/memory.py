# SPDX-License-Identifier: Apache-2.0
"""The memory of a stream: what an inner sensor ``memory`` says, as a state machine without I/O or a clock.

    memory.begin(1)             a window begins, one window after the last
    memory.see({0: [21.5]})     readings of this window, as they come
    memory.read()               what the program reads of it in this window
    memory.end(2)               the window has its answer

It knows nothing of the windows to come, it never leaves the device, and a restart or ``forget`` empties it: a program
then reads no held label, and must buy what it needs to answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..program.definition import Number, Program
from ..program.readings import I32_MAX, Reading, normalise
from .layout import Layout

MOST_WINDOWS = 1_000_000  # a count of windows stops here


class Memory:
    """What one stream's memory holds.

    Parameters
    ----------
    program : its readings are noted as its declared types hold them
    layout : of its memory
    """

    def __init__(self, program: Program, layout: Layout) -> None:
        self._program, self.layout = program, layout
        self._watched = {s for _, s in layout.since} | {program.sensor_of[f] for _, f in layout.change}
        self.forget()

    def forget(self) -> None:
        """Empty the memory: the next window is the first."""
        self._held: int | None = None
        self._since: dict[int, int] = {}
        self._then: dict[int, Reading] = {}
        self._now: dict[int, Reading] = {}
        self._read: set[int] = set()

    def begin(self, windows: int = 1) -> None:
        """A window begins, so many windows after the one before; at least 1."""
        self._since = {s: min(n + windows, MOST_WINDOWS) for s, n in self._since.items()}
        self._now, self._read = {}, set()

    def see(self, readings: Mapping[int, Sequence[Reading] | None]) -> None:
        """Readings of sensors in this window, by number; None, or what no session would take: the sensor failed."""
        for sensor in self._watched.intersection(readings):
            values, features = readings[sensor], self._program.sensors[sensor].features
            if values is None:
                continue
            try:
                stored = normalise(values, [self._program.features[f].dtype for f in features])
            except Exception:  # a foreign number may raise anything when it is read, as in a session
                continue
            if all(x is not None or self._program.features[f].nullable for f, x in zip(features, stored, strict=True)):
                self._now.update(zip(features, stored, strict=True))
                self._read.add(sensor)

    def read(self) -> list[Reading]:
        """The readings of the inner sensor, in the order of its features; None for what is not known."""
        values: dict[int, Reading] = dict.fromkeys(self.layout.held, self._held)
        values |= {f: self._since.get(sensor) for f, sensor in self.layout.since}
        for f, of in self.layout.change:
            values[f] = difference(self._now.get(of), self._then.get(of), self._program.features[f].dtype)
        return [values[f] for f in self._program.sensors[self.layout.sensor].features]

    def end(self, result: Number) -> None:
        """The window has this answer, a class index."""
        if self.layout.held:
            self._held = int(result)
        counted = {s for _, s in self.layout.since}
        self._since |= dict.fromkeys(counted & self._read, 0)
        if counted <= self._read:
            self._then = {of: self._now.get(of) for _, of in self.layout.change}


def difference(now: Reading, then: Reading, dtype: str) -> Reading:
    """How far a reading has moved; None if one is missing. A difference of i32 stops at the type's largest.

    Of f32 it is exact in 53 bits or rounded twice without effect, so that it equals the subtraction in f32.
    """
    if now is None or then is None:
        return None
    if dtype == "i32":
        return max(-I32_MAX, min(int(now) - int(then), I32_MAX))
    moved = float(now) - float(then)
    return moved if math.isfinite(moved) else None
