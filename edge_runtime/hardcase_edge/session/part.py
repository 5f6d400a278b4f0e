# SPDX-License-Identifier: Apache-2.0
"""A session that is one part of an item: it shares a budget with others, shows its scores, and can be tried out.

The kernel's sessions have the same methods; ``joint.session`` drives both.
"""

from __future__ import annotations

from .session import Session


class PartSession(Session):
    """A session of ``Session``'s parameters with what a driver of several needs."""

    def afford(self, left: int | None) -> None:
        """From now on so many micro-units are left, whatever was left before; None: no limit."""
        self._budget = None if left is None else self._spent + left

    def spent(self) -> int:
        """Declared costs so far, in micro-units."""
        return self._spent

    def node(self) -> int:
        """The node at which the session stands."""
        return self._at

    def fork(self) -> PartSession:
        """A copy, which goes its own way from here."""
        copy = PartSession.__new__(PartSession)
        copy.__dict__.update(self.__dict__)
        copy._codes, copy._readings, copy._scores = self._codes.copy(), self._readings.copy(), self._scores.copy()
        copy._bought, copy._failed, copy._lacked = self._bought.copy(), self._failed.copy(), self._lacked.copy()
        copy._leaves, copy._trace = self._leaves.copy(), self._trace.copy()
        return copy
