# SPDX-License-Identifier: Apache-2.0
"""The time that a device is sure of: a floor that only rises, for devices whose clock may be years behind.

It is certainly later than the day on which this runtime was released, than every time that the device has noted before,
than the newest signed time, and than any of these with the seconds added that the device has counted since. What
expires is compared with the device's clock or with this floor, whichever is later.
"""

from __future__ import annotations

from time import monotonic, time

RELEASED = 1_795_305_600  # 2026-11-22, in seconds since 1970; each release raises it
LEAP = 24  # seconds that the noted time follows the device's clock, at most, for each second that was counted


class Clock:
    """The floor, and the time to compare with.

    Parameters
    ----------
    floor : int
        What is known when this begins, in seconds since 1970; the runtime's release is known anyway.
    """

    def __init__(self, floor: int = 0) -> None:
        self._floor, self._begun = max(floor, RELEASED), monotonic()

    def floor(self) -> float:
        """A time that has passed for certain, in seconds since 1970."""
        return self._floor + monotonic() - self._begun

    def now(self) -> float:
        """The later one of the device's clock and the floor, in seconds since 1970."""
        return max(time(), self.floor())


def risen(floor: int, counted_s: float, wall: float) -> int:
    """The time to note after some seconds that were counted: at least these later.

    It follows the device's clock where that is ahead, a day for each hour at most, so that a clock that is wrong for an
    hour cannot put the floor years ahead, where everything has expired.

    >>> risen(1_000_000, 3_600, 0.0), risen(1_000_000, 3_600, 1_050_000.0), risen(1_000_000, 3_600, 9e9)
    (1003600, 1050000, 1086400)
    """
    return floor + int(min(max(counted_s, wall - floor), LEAP * counted_s))
