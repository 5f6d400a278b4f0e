# SPDX-License-Identifier: Apache-2.0
"""The rules by which a bundle passes its trial or fails it, without a clock and without I/O.

A trial passes after ``decisions`` decisions, if the process stayed within its memory and, where the store has seen the
cloud before, was connected to it, and after ``audits`` answers of f0 to local decisions, where the bundle promises how
often f0 agrees. If these have not come when half of the deadline is over, it passes without them: a cloud that does not
answer keeps no bundle on trial for ever. It fails by one rule that is broken, or by its deadline. What starts cost is
counted by ``slots.py``: a crash never gets as far as here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.record import record
from ..errors import InputError

if TYPE_CHECKING:
    from ..bundle.agreement import Agreement

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
    audits: int = 30  # answers of f0; 0: none are asked for

    def __post_init__(self) -> None:
        if not 1 <= self.decisions <= 1_000_000:
            raise InputError(f"a trial has {self.decisions} decisions; use 1 to 1000000")
        if not 1 <= self.deadline_s <= 1e7:
            raise InputError(f"the trial's deadline is {self.deadline_s} s; use 1 to 1e7")
        if not 0 <= self.audits <= 1_000_000:
            raise InputError(f"a trial has {self.audits} audits; use 0 to 1000000")


class Trial:
    """One start of a bundle on trial.

    Parameters
    ----------
    rules : Rules
    now : seconds of any clock that only rises
    needs_cloud : whether it must have been connected to the cloud to pass
    agreement : of the bundle with f0; None if it promises none, or nobody can ask
    """

    def __init__(
        self, rules: Rules, now: float, *, needs_cloud: bool = False, agreement: Agreement | None = None
    ) -> None:
        self._rules = rules
        self._end = now + rules.deadline_s
        self._end_of_audits = now + rules.deadline_s / 2
        self._agreement = agreement if rules.audits else None
        self._n_decisions = 0
        self._has_seen_cloud = not needs_cloud

    @property
    def wants_audit(self) -> bool:
        """Whether an answer of f0 to a local decision still says something."""
        return self._agreement is not None and self._agreement.n < self._rules.audits

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
        if self._agreement is not None and self._agreement.is_broken:
            agreed, n, promised = self._agreement.agreed, self._agreement.n, self._agreement.promised
            return f"f0 agreed with {agreed} of {n} audited answers, and the bundle promises {promised:.4g} of all"
        has_audits = not self.wants_audit or now >= self._end_of_audits
        if self._n_decisions >= self._rules.decisions and self._has_seen_cloud and has_audits:
            return PASSED
        return self.waited(now)

    def waited(self, now: float) -> str:
        """The reason why the trial has failed by its deadline, or ""."""
        if now < self._end:
            return ""
        lack = "" if self._has_seen_cloud else " and no connection to the cloud"
        return f"after {self._rules.deadline_s:g} s it had made {self._n_decisions} decisions{lack}"
