# SPDX-License-Identifier: Apache-2.0
"""The rules by which a bundle passes its trial or fails it, without a clock and without I/O.

A trial passes after ``decisions`` decisions, if the process stayed within its memory and, where the store has seen the
cloud before, was connected to it, and after ``audits`` answers of f0 to local decisions, where the bundle promises how
often f0 agrees. If these have not come when half of the deadline is over, it passes without them: a cloud that does not
answer keeps no bundle on trial for ever. It fails by one rule that is broken, or by its deadline. What starts cost is
counted by ``slots.py``: a crash never gets as far as here.

A bundle has *worked* in a start once it has made ``decisions`` decisions with readings and has broken no rule, long
before all that a trial waits for has come: what has worked is not given up for what has not.

It fails when three requests in a row had no reply but that of a worker of another f0, or one by half of the deadline,
and none of its own f0; until then such a request keeps it from passing.

It also fails, from its last decision on, if a sensor that it wanted has given no reading since the start and has failed
three times, unless that sensor was broken under the bundle before; and if no sensor at all has given one. One failure
or two leave it open, until the sensor gives a reading or half of the deadline is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...base.record import record
from ...errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from ...bundle.agreement import Agreement

PASSED = "passed"
IN_A_ROW = 3  # failures from which on a sensor is broken, and readings from which on it works again
MOST_NAMED = 3  # sensors in a reason, each with at most MOST_OF_NAME characters
MOST_OF_NAME = 24


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


class SensorHealth:
    """What one start has heard of its sensors.

    Parameters
    ----------
    broken : sensors that were broken when it began
    inner : sensors that the device fills itself, which are no evidence

    Attributes
    ----------
    broken : set of str
        Sensors that have failed three times in a row, and have not given three readings in a row since.
    silent : dict of str to int
        How often each sensor has failed that has given no reading.
    n_good : int
        Decisions in which a sensor gave a reading, or none was wanted.
    """

    def __init__(self, broken: Iterable[str] = (), inner: Collection[str] = ()) -> None:
        self.broken, self.silent, self.n_good = set(broken), dict[str, int](), 0
        self._inner = inner
        self._in_a_row: dict[str, int] = {}  # readings; failures count below 0
        self._heard: set[str] = set()

    @property
    def has_reading(self) -> bool:
        """Whether any sensor has given a reading."""
        return bool(self._heard)

    def decided(self, record: Mapping[str, Any]) -> None:
        """A decision was made, with this record."""
        read, failed = _heard_in(record)
        self.n_good += bool(read) or not failed
        for name in read:
            if name not in self._inner:
                self._count(name, 1)
                self._heard.add(name)
                self.silent.pop(name, None)
        for name in failed:
            self._count(name, -1)
            if name not in self._heard:
                self.silent[name] = self.silent.get(name, 0) + 1

    def _count(self, name: str, step: int) -> None:
        n = self._in_a_row.get(name, 0)
        n = self._in_a_row[name] = n + step if n * step > 0 else step
        if n <= -IN_A_ROW:
            self.broken.add(name)
        elif n >= IN_A_ROW:
            self.broken.discard(name)


def _heard_in(record: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The sensors of a decision that gave a reading, and those that failed; for one part of an item at least."""
    failed = record.get("failed", ())
    if isinstance(failed, dict):
        bought = record.get("bought", {})
        read = [name for name, parts in bought.items() if set(parts) - set(failed.get(name, ()))]
    else:
        read = [name for name in record.get("sensors", ()) if name not in failed]
    return read, [name for name in failed if name not in read]


class Trial:
    """One start of a bundle on trial.

    Parameters
    ----------
    rules : Rules
    now : seconds of any clock that only rises
    needs_cloud : whether it must have been connected to the cloud to pass
    agreement : of the bundle with f0; None if it promises none, or nobody can ask
    sensors : what this start hears of them, told before each ``decided``
    broken_before : sensors that were broken under the bundle before; None if there was none
    unserved : gives how many requests only workers of another f0 have heard, 0 once its own has replied, and the words

    Attributes
    ----------
    has_worked : bool
        Whether the bundle has decided often enough, with readings, and had broken no rule by then.
    waits_for : dict of str to str
        What the trial still waits for, in words, by its cause; empty until it has made its decisions.
    """

    def __init__(
        self, rules: Rules, now: float, *, needs_cloud: bool = False, agreement: Agreement | None = None,
        sensors: SensorHealth | None = None, broken_before: Collection[str] | None = None,
        unserved: Callable[[], tuple[int, str]] = lambda: (0, ""),
    ) -> None:  # fmt: skip
        self._rules = rules
        self._end = now + rules.deadline_s
        self._half = now + rules.deadline_s / 2
        self._agreement = agreement if rules.audits else None
        self._sensors, self._broken_before = sensors or SensorHealth(), broken_before
        self._n_decisions, self._unserved = 0, unserved
        self._has_seen_cloud = not needs_cloud
        self.has_worked = False
        self.waits_for: dict[str, str] = {}

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
        verdict = self._verdict(now, memory_bytes)
        if verdict in ("", PASSED) and self._sensors.n_good >= self._rules.decisions:
            self.has_worked = True
        return verdict

    @property
    def is_useless(self) -> bool:
        """Whether the bundle has made its decisions, and no sensor has given it one reading."""
        silent = self._sensors.silent.values()
        is_dumb = not self._sensors.has_reading and any(n >= IN_A_ROW for n in silent)
        return is_dumb and self._n_decisions >= self._rules.decisions

    def _verdict(self, now: float, memory_bytes: int) -> str:
        if memory_bytes > self._rules.memory_bytes:
            return f"it took {memory_bytes} bytes of memory, more than {self._rules.memory_bytes}"
        if self._agreement is not None and self._agreement.is_broken:
            agreed, n, promised = self._agreement.agreed, self._agreement.n, self._agreement.promised
            return f"f0 agreed with {agreed} of {n} audited answers, and the bundle promises {promised:.4g} of all"
        n, why = self._unserved()
        if n >= IN_A_ROW or (n and now >= self._half):
            return why
        if self._n_decisions >= self._rules.decisions:
            silent = self._silent()
            if any(n >= IN_A_ROW for n in silent.values()):
                return self._reason(silent)
            self.waits_for = self._waits_for(silent)
            if not self.waits_for or (self._has_seen_cloud and now >= self._half):
                return PASSED
        return self.waited(now)

    def _waits_for(self, silent: Mapping[str, int]) -> dict[str, str]:
        """What is missing after enough decisions; all but the cloud is waited for until half of the deadline."""
        waits = {}
        if self.wants_audit and self._agreement is not None:
            waits["audits"] = f"{self._rules.audits} answers of f0, has {self._agreement.n}"
        if self._unserved()[0]:
            waits["f0"] = "a reply of its f0, and a worker of another one replies"
        if silent:
            waits["sensors"] = f"a reading of {self._names(silent)}"
        if not self._has_seen_cloud:
            waits["cloud"] = "a connection to the cloud"
        return waits

    def _silent(self) -> dict[str, int]:
        """The sensors that speak against the bundle, and how often each has failed."""
        before, sensors = self._broken_before, self._sensors
        if not sensors.has_reading:
            return sensors.silent
        return {} if before is None else {name: n for name, n in sensors.silent.items() if name not in before}

    def _reason(self, silent: Mapping[str, int]) -> str:
        names = self._names([name for name, n in silent.items() if n >= IN_A_ROW])
        n = self._n_decisions
        if not self._sensors.has_reading:
            return f"no sensor gave a reading in {n} decisions, and these failed: {names}"
        return f"in {n} decisions these sensors only failed, and were not broken before: {names}"

    def _names(self, sensors: Iterable[str]) -> str:
        names = list(sensors)
        more = "" if len(names) <= MOST_NAMED else f" and {len(names) - MOST_NAMED} more"
        return ", ".join([name[:MOST_OF_NAME] for name in names[:MOST_NAMED]]) + more

    def waited(self, now: float) -> str:
        """The reason why the trial has failed by its deadline, or ""."""
        if now < self._end:
            return ""
        lack = "" if self._has_seen_cloud else " and no connection to the cloud"
        return f"after {self._rules.deadline_s:g} s it had made {self._n_decisions} decisions{lack}"
