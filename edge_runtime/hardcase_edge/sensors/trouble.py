# SPDX-License-Identifier: Apache-2.0
"""What a device's log says of sensors that fail: why, once for each cause, and when they work again.

A line names the sensor, what came and what is wanted. A sensor that fails again and again is told again only after
ever longer stretches of readings, so a loose wire does not fill a card. A row that cannot be read fails all sensors of
its item and is told once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..errors import SensorError

MAX_DETAIL = 200  # characters of what a plug-in says
MAX_NAMES = 5  # sensors or features in a line
OF_THE_ROW = "bad_row"
SAME = {"still_busy": "timed_out", "crashed": "timed_out"}  # what follows from another cause, told already


class Episode:
    """Something wrong that begins and ends, perhaps often: it is over after so many good cases in a row.

    After each end it takes twice as many, so that a log stays short whatever goes to and fro.

    Parameters
    ----------
    needed : good cases in a row after which the first episode is over

    Attributes
    ----------
    n : int
        Bad cases of the episode; 0 between two of them.

    >>> wire = Episode()
    >>> [wire.bad() if x else wire.good() for x in (0, 1, 1, 0, 0, 1, 0, 0)]
    [0, True, False, 2, 0, True, 0, 1]
    """

    __slots__ = ("_needed", "_row", "n")

    def __init__(self, needed: int = 1) -> None:
        self.n, self._needed, self._row = 0, needed, 0

    def bad(self) -> bool:
        """A bad case; whether an episode begins with it."""
        self.n, self._row = self.n + 1, 0
        return self.n == 1

    def good(self) -> int:
        """A good case: how many bad ones the episode had that ends with it; 0 if none ends."""
        if not self.n:
            return 0
        self._row += 1
        if self._row < self._needed:
            return 0
        n, self.n = self.n, 0
        self._needed *= 2
        return n


class Troubles:
    """The sensors of one run that fail.

    Parameters
    ----------
    names : of the sensors, in the program's order
    shapes : what is wanted of each, in words
    tell : called with each line
    """

    def __init__(self, names: Sequence[str], shapes: Sequence[str], tell: Callable[[str], object]) -> None:
        self._names, self._shapes, self._tell = names, shapes, tell
        self.failing: dict[int, set[str]] = {}  # by sensor the causes that the log has named since it began to fail
        self._episodes: dict[int, Episode] = {}

    def failed(self, errors: Mapping[int, SensorError]) -> None:
        """These sensors, which were read together, have failed."""
        news: dict[tuple[str, str], list[int]] = {}
        is_row_told = any(OF_THE_ROW in told for told in self.failing.values())
        for sensor, error in errors.items():
            self._episodes.setdefault(sensor, Episode()).bad()
            told = self.failing.setdefault(sensor, set())
            if error.reason in told or SAME.get(error.reason) in told:
                continue
            told.add(error.reason)
            if error.reason != OF_THE_ROW or not is_row_told:
                news.setdefault((error.reason, self._why(sensor, error)), []).append(sensor)
        for (reason, why), sensors in news.items():
            names, is_many = some([self._names[s] for s in sensors]), len(sensors) > 1
            who = f"sensors {names} fail" if is_many else f"sensor {names} fails"
            self._tell(f"{'a row cannot be read' if reason == OF_THE_ROW else who}: {why}")

    def works(self, sensor: int) -> None:
        """A sensor that is failing has given a reading."""
        n = self._episodes[sensor].good()
        if n and self.failing.pop(sensor) != {OF_THE_ROW}:
            self._tell(f"sensor {self._names[sensor]} works again; {n} reads had failed")

    def _why(self, sensor: int, error: SensorError) -> str:
        """What came and what is wanted."""
        detail = str(error)[:MAX_DETAIL]
        return f"{detail}, {self._shapes[sensor]}" if error.reason == "wrong_shape" else detail


def some(names: Sequence[str]) -> str:
    """The first few names, and how many follow."""
    more = len(names) - MAX_NAMES
    return ", ".join([name[:40] for name in names[:MAX_NAMES]]) + (f" and {more} more" if more > 0 else "")
