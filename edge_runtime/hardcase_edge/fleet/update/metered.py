# SPDX-License-Identifier: Apache-2.0
"""Hours of the day in which nothing is fetched, such as those in which a mobile network is dear.

The hours are those of the device's own time zone. A device whose clock has not been set fetches at any hour: it would
else never get an update, and an update may be what it needs most.
"""

from __future__ import annotations

import re
import time

from ...base.record import record
from ...errors import InputError

EPOCH_S = 1_767_225_600  # the start of 2026: a clock that says less has not been set since the device started
_SHAPE = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)", re.ASCII)


@record(frozen=True, slots=True)
class Metered:
    """From one minute of the day to another, the next day's if it is smaller."""

    start: int  # minutes since midnight
    end: int  # the first minute after them

    def is_on(self, now: float, floor: float = 0) -> bool:
        """Whether the hours are these.

        Parameters
        ----------
        now : seconds since 1970 by the device's clock
        floor : a time that has certainly passed

        Examples
        --------
        >>> night = parse_metered("22:00-06:00")
        >>> night.contains(23 * 60), night.contains(6 * 60), night.contains(5 * 60 + 59)
        (True, False, True)
        """
        if now < max(floor, EPOCH_S):
            return False
        local = time.localtime(now)
        return self.contains(60 * local.tm_hour + local.tm_min)

    def contains(self, minute: int) -> bool:
        """Whether a minute of the day is one of them."""
        return (minute - self.start) % 1440 < (self.end - self.start) % 1440


def parse_metered(text: str) -> Metered:
    """The hours in a text such as 07:00-23:30.

    Raises
    ------
    InputError
        The text is not two times, or they are the same.
    """
    match = _SHAPE.fullmatch(text)
    a, b, c, d = map(int, match.groups()) if match else (0, 0, 0, 0)
    if (a, b) == (c, d):
        raise InputError(f"the metered hours {text[:40]!r} are not two times of a day; use HH:MM-HH:MM")
    return Metered(60 * a + b, 60 * c + d)
