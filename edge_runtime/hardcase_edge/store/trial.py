# SPDX-License-Identifier: Apache-2.0
"""The rules by which a bundle passes its trial or fails it, without a clock and without I/O.

A trial passes after ``decisions`` decisions, if the process stayed within its memory and, where the store has seen the
cloud before, was connected to it. It fails by one rule that is broken, or by its deadline. What starts cost is counted
by ``slots.py``: a crash never gets as far as here.
"""

from __future__ import annotations

from ..base.record import record
from ..errors import InputError

__all__ = ["PASSED", "Rules", "Trial"]

PASSED = "passed"


@record(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a bundle on trial must do.

    Raises
    ------
    InputError
        A rule is out of range.
    """

    decisions: int = 10
    deadline_s: float = 3_600.0  # of each start, from which on the trial has failed
    memory_bytes: int = 256 * 1024 * 1024  # resident; what loading the largest bundle may take (docs/THREATS.md)

    def __post_init__(self) -> None:
        if not 1 <= self.decisions <= 1_000_000:
            raise InputError(f"a trial has {self.decisions} decisions; use 1 to 1000000")
        if not 1 <= self.deadline_s <= 1e7:
            raise InputError(f"the trial's deadline is {self.deadline_s} s; use 1 to 1e7")


class Trial:
    """One start of a bundle on trial.

    Parameters
    ----------
    rules : Rules
    now : seconds of any clock that only rises
    needs_cloud : whether it must have been connected to the cloud to pass
    """

    def __init__(self, rules: Rules, now: float, *, needs_cloud: bool = False) -> None:
        self._rules = rules
        self._end = now + rules.deadline_s
        self._n_decisions = 0
        self._has_seen_cloud = not needs_cloud

    def decided(self, now: float, *, is_connected: bool, memory_bytes: int) -> str:
        """``PASSED``, a reason why the trial has failed, or "" while neither is known.

        Parameters
        ----------
        now : seconds of the same clock
        is_connected : whether the device is connected to its broker
        memory_bytes : resident memory of the process; 0 if nobody can tell
        """
        self._n_decisions += 1
        self._has_seen_cloud |= is_connected
        if memory_bytes > self._rules.memory_bytes:
            return f"it took {memory_bytes} bytes of memory, more than {self._rules.memory_bytes}"
        if self._n_decisions >= self._rules.decisions and self._has_seen_cloud:
            return PASSED
        return self.waited(now)

    def waited(self, now: float) -> str:
        """The reason why the trial has failed by its deadline, or ""."""
        if now < self._end:
            return ""
        lack = "" if self._has_seen_cloud else " and no connection to the cloud"
        return f"after {self._rules.deadline_s:g} s it had made {self._n_decisions} decisions{lack}"
