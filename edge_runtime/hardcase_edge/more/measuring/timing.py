# SPDX-License-Identifier: Apache-2.0
"""How long reads of a sensor take, as a run would read it: through the sensor bank, within its time limit."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from math import ceil

from ...base.record import record
from ...sensors.bank import SensorBank

GIVE_UP = 3  # failed reads in a row after which a sensor is not asked again


@record(frozen=True, slots=True)
class Timing:
    """What reads of one sensor took, in seconds, without those that failed; and the failures by kind."""

    seconds: tuple[float, ...]
    failures: dict[str, int]


def time_reads(
    bank: SensorBank,
    sensor: int,
    reads: int,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    wait: Callable[[float], object] = time.sleep,
) -> Timing:
    """Read a sensor so many times, one item each; fewer where its items end, or three reads in a row have failed."""
    seconds: list[float] = []
    before = Counter(bank.counters)
    in_a_row = n = 0
    while n < reads and in_a_row < GIVE_UP and bank.next_item():
        n += 1
        began = monotonic()
        reading = bank.read([sensor])[sensor]
        elapsed = monotonic() - began
        in_a_row = in_a_row + 1 if reading is None else 0
        if reading is not None:
            seconds.append(elapsed)
        wait(bank.pause_s)
    return Timing(tuple(seconds), dict(bank.counters - before))


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that at least this share of them does not exceed.

    >>> quantile([5, 1, 4, 2, 3], 0.5), quantile([1, 2], 0.95)
    (3, 2)
    """
    ordered = sorted(values)
    return ordered[ceil(share * len(ordered)) - 1]
