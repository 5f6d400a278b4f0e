# SPDX-License-Identifier: Apache-2.0
"""The time limit of a run: how much of it is left, by a clock that never goes back."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from hardcase_edge.errors import InputError

UNITS = {"s": 1, "m": 60, "h": 3600}
MOST_S = 30 * 24 * 3600  # a month


@dataclass(frozen=True)
class Deadline:
    """The moments at which a run, or a part of it, starts and ends, in seconds of ``time.monotonic``.

    >>> Deadline.after(60).left() <= 60
    True
    """

    start: float
    end: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The time limit of a run that starts now."""
        now = time.monotonic()
        return cls(now, now + seconds)

    @property
    def limit(self) -> float:
        """Length in seconds."""
        return self.end - self.start

    def left(self) -> float:
        """Seconds that are left; negative when it is over."""
        return self.end - time.monotonic()

    def before(self, seconds: float) -> Deadline:
        """The deadline of what must end so many seconds before this one."""
        return Deadline(self.start, self.end - seconds)


def seconds_of(where: str, text: str) -> float:
    """Seconds of a number with a unit: s, m or h.

    Raises
    ------
    InputError
        It is neither, or not above 0 and at most 30 days.

    Examples
    --------
    >>> seconds_of("--time-limit", "10m"), seconds_of("--time-limit", "1.5h")
    (600.0, 5400.0)
    """
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smh])", text.strip(), re.ASCII)
    seconds = float(match[1]) * UNITS[match[2]] if match else 0.0
    if not 0 < seconds <= MOST_S:
        raise InputError(f"{where} is {text[:40]!r}; write a time above 0 with its unit: 90s, 10m or 2h (at most 720h)")
    return seconds
