# SPDX-License-Identifier: Apache-2.0
"""The time that a store has noted, for a device without a clock: written at most hourly, and it never falls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ...base.clock import RELEASED, Clock, risen

if TYPE_CHECKING:
    from .folder import Store

HOUR_S = 3_600.0


def clock_of(store: Store) -> Clock:
    """The clock of a device with this store: its floor is the newest of the noted time and the newest signed one."""
    return Clock(max(store.noted_time(), signed_time_in(store.trust())))


def signed_time_in(data: bytes | None) -> int:
    """The newest signed time in a trust file, whose signatures are not checked for it; 0 if there is none."""
    try:
        return int(json.loads(data or b"{}").get("floor", 0))
    except (AttributeError, TypeError, ValueError, OverflowError, RecursionError):
        return 0


class Hours:
    """Notes the time in a store, after each hour that a process has counted.

    What is noted has the signed time left out, so that new keys end the times of a thief, too.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._since: float | None = None

    def passed(self, now: float, wall: float) -> None:
        """Some time has passed: ``now`` is seconds of a clock that only rises, ``wall`` those of the device's clock.

        Raises
        ------
        HardcaseError
            The time cannot be noted; the next attempt comes after another hour.
        """
        if self._since is None:
            self._since = now
        counted_s = now - self._since
        if counted_s >= HOUR_S:
            self._since = now
            self._store.note_time(risen(max(self._store.noted_time(), RELEASED), counted_s, wall))
