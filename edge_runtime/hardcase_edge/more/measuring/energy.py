# SPDX-License-Identifier: Apache-2.0
"""What a read of a sensor draws, by a power sensor: mean power above idle, times the time of a read.

Single reads are too short for most power sensors, so a round has a phase of reads without a pause, and a phase of
idleness before and behind it, which cancels slow changes. The scatter of several rounds says how sure the result is.
What a phase begins with is left out, because power sensors average.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from statistics import fmean, stdev

from ...base.record import record
from ...errors import InputError, SensorError

__all__ = ["Energy", "Round", "energy_per_read", "weigh"]

ROUNDS = 5
STUDENT = 2.776  # of t with ROUNDS - 1 degrees of freedom, for an interval of 95 %
PHASE_S = 0.5
SETTLE_S = 0.1  # of a phase, before its power counts
EVERY_S = 0.005  # between two readings of the power


@record(frozen=True, slots=True)
class Round:
    """Mean powers in W before, while and after a sensor was read, and how many reads took how many seconds."""

    before: float
    busy: float
    after: float
    seconds: float
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


def weigh(read: Callable[[], object], power: Callable[[], float], *, phase_s: float = PHASE_S) -> Energy:
    """The energy of a read, in some 7.5 seconds.

    Parameters
    ----------
    read : reads the sensor once; raises StopIteration where its items have ended
    power : reads the power sensor, in W
    phase_s : seconds of a phase, of which a fifth is left out

    Raises
    ------
    InputError
        The power sensor gives no readings.
    """
    meter = _Meter(power, phase_s * SETTLE_S / PHASE_S)
    with meter:
        return energy_per_read([_round(meter, read, phase_s) for _ in range(ROUNDS)])


def _round(meter: _Meter, read: Callable[[], object], phase_s: float) -> Round:
    n = 0
    before = meter.watts(lambda: time.sleep(phase_s))
    began = time.monotonic()

    def keep_reading() -> None:
        nonlocal n
        while time.monotonic() < began + phase_s:
            read()
            n += 1

    busy = meter.watts(keep_reading)
    seconds = time.monotonic() - began
    return Round(before, busy, meter.watts(lambda: time.sleep(phase_s)), seconds, n)


class _Meter:
    """Reads the power on a thread of its own, in idle and in busy phases alike, so that its own draw cancels."""

    def __init__(self, power: Callable[[], float], settle_s: float) -> None:
        self._power, self._settle_s = power, settle_s
        self._samples: list[tuple[float, float]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hardcase-power", daemon=True)

    def __enter__(self) -> _Meter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(1.0)

    def watts(self, phase: Callable[[], object]) -> float:
        """The mean power of a phase, without its beginning."""
        began = time.monotonic()
        self._samples = []
        phase()
        watts = [w for t, w in self._samples if t >= began + self._settle_s]
        if not watts:
            raise InputError("the power sensor gives no readings; check the device and the channel of --power")
        return fmean(watts)

    def _run(self) -> None:
        while not self._end.wait(EVERY_S):
            try:
                self._samples.append((time.monotonic(), self._power()))
            except (OSError, SensorError):
                continue
