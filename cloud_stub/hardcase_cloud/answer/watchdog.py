# SPDX-License-Identifier: Apache-2.0
"""Ends this process if its loop stands still, even where a call holds the interpreter's lock and no Python runs."""

from __future__ import annotations

import faulthandler
from time import monotonic

__all__ = ["Watchdog"]


class Watchdog:
    """A timer that ends the process with status 1, and the stacks of its threads on standard error, unless fed.

    The timer is a thread of ``faulthandler``, which does not need the interpreter's lock.

    Parameters
    ----------
    limit_s : seconds without ``feed`` after which the process ends
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._fed_at = float("-inf")

    def feed(self) -> None:
        """Start the timer anew; cheap enough to be called often."""
        now = monotonic()
        if now - self._fed_at > self._limit_s / 10:
            faulthandler.dump_traceback_later(self._limit_s, exit=True)
            self._fed_at = now

    def close(self) -> None:
        """Stop the timer."""
        faulthandler.cancel_dump_traceback_later()
