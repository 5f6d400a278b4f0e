# SPDX-License-Identifier: Apache-2.0
"""A log that cannot fill a card: lines that repeat are counted instead of written, and all lines together are bounded.

Lines are alike if they differ in digits only. Of each kind ``MOST_ALIKE`` are written within ``WINDOW_S``, and of all
kinds ``MOST``; the first line after a pause says how many were left out.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

WINDOW_S = 600.0
MOST_ALIKE = 5
MOST = 60  # of all kinds: at 200 bytes a line, 1.7 MB a day at most
KINDS = 64  # kinds remembered; the one that was seen least recently is forgotten
KEY = 200  # characters of a line that tell its kind
_DIGITS = re.compile(r"\d+")


class Repeats:
    """The memory of a log.

    Parameters
    ----------
    write : called with each line that is written
    now : seconds of a clock that only rises

    Attributes
    ----------
    suppressed : int
        How many lines were left out.
    """

    def __init__(self, write: Callable[[str], None], now: Callable[[], float] = monotonic) -> None:
        self._write, self._now = write, now
        self._kinds: OrderedDict[str, list[float]] = OrderedDict()  # end of its window, lines in it, left out
        self._all = [0.0, 0.0, 0.0]
        self.suppressed = 0

    def __call__(self, line: str) -> None:
        """Write a line, or count it."""
        now, key = self._now(), _DIGITS.sub("0", line[:KEY])
        kind = self._kinds.setdefault(key, [0.0, 0.0, 0.0])
        self._kinds.move_to_end(key)
        if len(self._kinds) > KINDS:
            self._kinds.popitem(last=False)
        for window in (kind, self._all):
            if now >= window[0]:
                window[:] = [now + WINDOW_S, 0.0, window[2]]
        if kind[1] >= MOST_ALIKE or self._all[1] >= MOST:
            window = kind if kind[1] >= MOST_ALIKE else self._all
            window[2] += 1
            self.suppressed += 1
            return
        suppressed = "".join(
            [f" ({n:.0f} more {what} left out)" for n, what in ((kind[2], "like this"), (self._all[2], "lines")) if n]
        )
        kind[1], self._all[1] = kind[1] + 1, self._all[1] + 1
        kind[2] = self._all[2] = 0.0
        self._write(line + suppressed)
