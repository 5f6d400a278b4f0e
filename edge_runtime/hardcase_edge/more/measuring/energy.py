# SPDX-License-Identifier: Apache-2.0
"""What a read of a sensor draws, by a power sensor: mean power above idle, times the time of a read.

Single reads are too short for most power sensors, so a round has a phase of reads without a pause, and a phase of
idleness before and behind it, which cancels slow changes. The scatter of several rounds says how sure the result is.
What a phase begins with is left out, because power sensors average. A power sensor that is read meanwhile gives the
mean power of a phase at once, and a recording gives it afterwards, from the times of the phases.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from statistics import fmean, stdev

from ...base.record import record
from ...drivers.channel import nothing_to_close
from ...errors import InputError, SensorError, one_line

ROUNDS = 5
STUDENT = 2.776  # of t with ROUNDS - 1 degrees of freedom, for an interval of 95 %
PHASE_S = 0.5
SETTLE = 0.2  # of a phase, before its power counts
EVERY_S = 0.005  # between two readings of the power
MOST = 1e12  # W or J of a reading; no sum of such is beyond a float


@record(frozen=True, slots=True)
class Round:
    """Mean powers in W before, while and after a sensor was read, and how many reads took how many seconds."""

    before: float
    busy: float
    after: float
    seconds: float
    reads: int


@record(frozen=True, slots=True)
class Times:
    """When the three phases of a round began and the last ended, in seconds of ``time.monotonic``, and the reads."""

    before: float
    busy: float
    after: float
    end: float
    reads: int


@record(frozen=True, slots=True)
class Energy:
    """Joules that a read takes beyond idleness, and how far the truth may be from it at a confidence of 95 %."""

    joules: float
    error: float

    @property
    def is_certain(self) -> bool:
        """Whether it is above what the power sensor can tell from nothing."""
        return self.joules > self.error


def energy_per_read(rounds: Sequence[Round]) -> Energy:
    """The energy of a read, from ``ROUNDS`` rounds.

    >>> energy_per_read([Round(1.0, 2.5, 2.0, seconds=0.5, reads=50)] * 5)
    Energy(joules=0.01, error=0.0)
    """
    joules = [(r.busy - (r.before + r.after) / 2) * r.seconds / r.reads for r in rounds]
    return Energy(fmean(joules), STUDENT * stdev(joules) / len(joules) ** 0.5)


def rounds(read: Callable[[], object], *, phase_s: float = PHASE_S) -> list[Times]:
    """The times of ``ROUNDS`` rounds of reads, of some 7.5 seconds; ``read`` reads the sensor once."""
    return [_round(read, phase_s) for _ in range(ROUNDS)]


def _round(read: Callable[[], object], phase_s: float) -> Times:
    before, n = time.monotonic(), 0
    time.sleep(phase_s)
    busy = time.monotonic()
    while time.monotonic() < busy + phase_s:
        read()
        n += 1
    after = time.monotonic()
    time.sleep(phase_s)
    return Times(before, busy, after, time.monotonic(), n)


def energy_of(times: Sequence[Times], watts: Callable[[float, float], float]) -> Energy:
    """The energy of a read, from the rounds' times and what gives the mean power in W between two of them."""

    def settled(began: float, ended: float) -> float:
        return watts(began + SETTLE * (ended - began), ended)

    return energy_per_read(
        [
            Round(
                settled(t.before, t.busy), settled(t.busy, t.after), settled(t.after, t.end), t.after - t.busy, t.reads
            )
            for t in times
        ]
    )


class Live:
    """A power sensor that is read on a thread of its own, in idle and in busy phases alike: its own draw cancels.

    Parameters
    ----------
    read : the power in W, or all the energy since any time, in J
    counts : whether it is the energy
    close : closes the device
    """

    def __init__(
        self, read: Callable[[], float], *, counts: bool = False, close: Callable[[], None] = nothing_to_close
    ) -> None:
        self._read, self._counts, self.close = read, counts, close
        self._at: list[float] = []
        self._values: list[float] = []
        self._failure = ""
        self._end = threading.Event()

    def rounds(self, read: Callable[[], object]) -> list[Times]:
        """The times of rounds of reads, while the power is sampled."""
        self._end.clear()
        thread = threading.Thread(target=self._run, name="hardcase-power", daemon=True)
        thread.start()
        try:
            return rounds(read)
        finally:
            self._end.set()
            thread.join(1.0)

    def finish(self) -> None:
        """Nothing is left to do before ``watts``."""

    def watts(self, began: float, ended: float) -> float:
        """The mean power between two times of its rounds.

        Raises
        ------
        InputError
            The power sensor gave no readings there.
        """
        first, end = bisect_left(self._at, began), bisect_right(self._at, ended)
        if end - first < 1 + self._counts:
            why = f" ({self._failure})" if self._failure else ""
            raise InputError(f"the power sensor gives no readings{why}; check the device and the channel of --power")
        if self._counts:
            return (self._values[end - 1] - self._values[first]) / (self._at[end - 1] - self._at[first])
        return fmean(self._values[first:end])

    def sample(self) -> None:
        """Read the power sensor once; if it fails, note why."""
        try:
            value = self._read()
        except (OSError, SensorError) as error:
            self._failure = one_line(error)
            return
        if not abs(value) < MOST:
            self._failure = f"a reading is {value:g}"
            return
        self._at.append(time.monotonic())
        self._values.append(value)

    def _run(self) -> None:
        while not self._end.wait(EVERY_S):
            self.sample()
