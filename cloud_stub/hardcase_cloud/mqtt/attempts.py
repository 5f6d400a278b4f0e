# SPDX-License-Identifier: Apache-2.0
"""When to connect again: pauses that double with each failure, one line of log for each new trouble."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import SystemRandom
from time import sleep

logger = logging.getLogger(__name__)

STABLE_S = 5.0  # a connection that lasted this long resets the pause before the next attempt


class Pauses:
    """How long to wait before each next attempt: twice as long each time, and half of it at random.

    Parameters
    ----------
    first_s, most_s : the first one and the longest one, at most
    """

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s, self._most_s = first_s, most_s
        self._pause_s = first_s

    def next(self) -> float:
        """Seconds until the next attempt."""
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, self._most_s)
        return pause_s * SystemRandom().uniform(0.5, 1.0)

    def reset(self) -> None:
        """Begin with the first one again."""
        self._pause_s = self._first_s


class Attempts:
    """The attempts at one connection.

    Parameters
    ----------
    first_s, most_s : the pause after the first failure, and the longest one; half of each is random
    clock : function that returns monotonic seconds

    Attributes
    ----------
    trouble : str
        Why there is no connection, or "".
    """

    def __init__(self, first_s: float, most_s: float, clock: Callable[[], float]) -> None:
        self.trouble = ""
        self._pauses, self._clock = Pauses(first_s, most_s), clock
        self._next_at = 0.0
        self._up_since: float | None = None

    def wait(self, wait_s: float) -> bool:
        """Sleep until the next attempt, at most so long; whether its time has come."""
        left_s = self._next_at - self._clock()
        if left_s > 0:
            sleep(max(0.0, min(left_s, wait_s)))
        return self._clock() >= self._next_at

    def came_up(self) -> None:
        """The connection is there."""
        self.trouble, self._up_since = "", self._clock()

    def failed(self, where: str, why: str, pause_s: float | None = None) -> None:
        """The connection is lost or was not made; ``pause_s``: until the next attempt, if this reason asks for one."""
        now = self._clock()
        if self._up_since is not None and now - self._up_since > STABLE_S:
            self._pauses.reset()
        self._up_since = None
        if why != self.trouble:
            logger.warning("%s: %s; trying again", where, " ".join(why.split())[:300])
        self.trouble = why
        self._next_at = now + (self._pauses.next() if pause_s is None else pause_s)
