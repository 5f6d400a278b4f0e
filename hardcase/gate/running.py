# SPDX-License-Identifier: Apache-2.0
"""What goes along with a gate's decisions, as on devices: a running budget, audits, a promise and drift monitors.

An audit asks the reference, one API of the gate, about a random share of the decisions that nothing failed in; whether
it gives the same label tests what the gate promises. No answer waits for an audit, and one is open at a time. With the
rule ``FORWARD`` the reference stands where a device has f0: once the promise is broken, it answers for the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple

from hardcase_edge.base.clock import Clock
from hardcase_edge.bundle.agreement import above_shipped
from hardcase_edge.bundle.load import Loaded
from hardcase_edge.device.surroundings import Case
from hardcase_edge.errors import InputError
from hardcase_edge.more.audits.audits import Audit, Audits
from hardcase_edge.more.audits.draws import Draws
from hardcase_edge.more.drift.companion import Memory, Watching
from hardcase_edge.more.drift.promise import Promise
from hardcase_edge.more.drift.reaction import Rest, place_of
from hardcase_edge.more.drift.watch import Watch
from hardcase_edge.more.servo.companion import budgets_of
from hardcase_edge.program.cost import evaluate_polynomial, to_micro, to_unit
from hardcase_edge.session.actions import CLOUD, DEGRADED, LOCAL, Decision
from hardcase_edge.settings.config import RunConfig
from hardcase_edge.settings.values import ACT, ALARM, FORWARD, WATCH

from .calls import Said
from .file import GateFile

__all__ = ["Companions", "Forward"]

BUDGET = "budget.json"
AUDIT_S = 60.0  # for a reference to answer


class Forward(NamedTuple):
    """A decision that the reference is to make: by which rest, and its case there."""

    rest: Rest
    asked: tuple[int, bool] | None


class _Seen:
    """In place of a device's bank: what the last decision has read."""

    def __init__(self) -> None:
        self.readings: Mapping[int, Any] = {}
        self.without: frozenset[int] = frozenset()


class Companions:
    """Those of one gate, whose decisions may come from several threads.

    Parameters
    ----------
    folder : where ``budget.json`` and ``promise.json`` keep what goes on at the next start
    budget_per_hour : in the gate's unit; None: no running budget
    audit : share of the decisions, 0 to 1
    note : called with each line that a user should read
    drift : ``ACT``: the policy does without APIs that the monitors suspect, where it does better so
    on_broken : ``FORWARD``: the reference answers while what the policy answers alone does not keep the promise

    Raises
    ------
    InputError
        A value is out of range, the gate has no reference for audits, or a file cannot be used.
    """

    def __init__(
        self, loaded: Loaded, folder: Path, said: GateFile, budget_per_hour: float | None, audit: float,
        note: Callable[[str], None], *, drift: str = WATCH, on_broken: str = ALARM,
    ) -> None:  # fmt: skip
        for key, value, words in (("drift", drift, (WATCH, ACT)), ("on_broken", on_broken, (ALARM, FORWARD))):
            if value not in words:
                raise InputError(f"{key} is {value!r}; expected {' or '.join(words)}")
        if on_broken == FORWARD and not audit:
            raise InputError("on_broken forward needs audit, by which the reference tests the promise")
        if not 0 <= audit <= 1:
            raise InputError(f"audit is {audit}, a share from 0 to 1 is expected")
        if audit and said.reference is None:
            raise InputError(f"the gate in {folder} has no reference for audits; make it again with hardcase gate")
        config = RunConfig(budget_per_hour=budget_per_hour, budget_file=str(folder / BUDGET), drift=drift)
        self._budgets = budgets_of(config, loaded, Clock(), note)
        self._reference = said.reference or ""
        self._price = sum(to_micro(api.price) for api in said.apis if api.name == said.reference)
        self._worst, self._open = loaded.report.worst_cost + self._price * (on_broken == FORWARD), 0
        self._classes = {str(label): label for label in said.classes}
        promise = Promise(said.agreement, None, on_broken) if audit and said.agreement is not None else None
        if promise is None and on_broken == FORWARD:
            note("on_broken forward has no effect: gate.json has no agreement, which audits could test")
        manifest, program = loaded.manifest, loaded.machine.program
        self._program, self._shipped = program, manifest.shipped
        watch = None if manifest.monitors is None else Watch(manifest.monitors, program, manifest.shipped)
        memory = None if promise is None else Memory(str(folder), said.bundle, promise, note)
        self._seen, self._promise, self._lock = _Seen(), promise, Lock()
        self._watching = Watching(config, loaded, self._seen, None, promise, watch, memory, note)  # type: ignore[arg-type]
        self._draws, self._probes, self._audits_share = Draws(), Draws(), audit
        self._audits = Audits(0.0, audit, AUDIT_S, self._draws)

    def begin(self, limit: int | None) -> Case:
        """A decision begins; its ``limit`` is what it may cost, less what those that are under way may still cost."""
        case = Case(None, limit, False)
        with self._lock:
            if self._budgets is not None:
                self._budgets.begin(case)
                case.limit = max(0, (case.limit or 0) - self._open)
                case.size = min(case.limit, self._worst)  # what is held back for it
                self._open += case.size
        return case

    @property
    def dead(self) -> frozenset[int]:
        """The sensors that no decision asks, because they are suspected."""
        return self._seen.without

    def forwards(
        self, case: Case, decision: Decision, line: Mapping[str, Any], *, is_over: bool = False
    ) -> Forward | None:
        """Whether the reference is to answer in the policy's place, as the rule wants it and the limit allows it.

        ``is_over``: the request's time is, so that nobody can be asked.
        """
        with self._lock:
            rest = None if self._promise is None else self._promise.rest
            if rest is None or line["route"] != LOCAL:
                return None
            has_asked = self._reference in line["sensors"]
            price = 0 if has_asked else self._price
            is_dear = case.limit is not None and decision.cost + price > case.limit
            if is_dear or (is_over and not has_asked):
                rest.uncovered += 1
                return None
            place = place_of(int(decision.result), line["confidence"], len(line["sensors"]))
            return Forward(rest, rest.asked) if rest.takes(place, self._probes()) else None

    def forwarded(self, forward: Forward, line: dict[str, Any], said: Said | None) -> dict[str, Any]:
        """The line of a decision that the reference has made; where it gave no class, the policy's own, degraded."""
        name, price = self._reference, to_unit(self._price)
        label = None if said is None or said[0] is None else self._classes.get(said[0])
        if name not in line["sensors"]:
            paid = price if said is None or said[2] is None else min(price, said[2])
            line = line | {"cost": line["cost"] + paid, "sensors": [*line["sensors"], name]}
        if label is None:
            failed = line["failed"] if name in line["failed"] else [*line["failed"], name]
            return line | {"route": DEGRADED, "failed": failed}
        with self._lock:
            forward.rest.asked = forward.asked  # others may have been forwarded meanwhile
            forward.rest.answered(agrees=label == line["label"])
        return line | {"label": label, "confidence": None, "route": CLOUD}

    def end(
        self, case: Case, decision: Decision, line: dict[str, Any], readings: Mapping[int, Any],
        own: dict[str, Any] | None = None,
    ) -> Audit | None:  # fmt: skip
        """It is made; an audit, if one is to be made of it. ``own``: what the policy said where the reference spoke."""
        case.record, case.decision = line, decision
        with self._lock:
            if self._budgets is not None:
                self._open -= case.size
                self._budgets.end(case)
            self._seen.readings = readings
            self._watching.decided(line if own is None else own | {"price": line.get("price")})
            if not self._audits_share:
                return None
            self._audits.waited(monotonic())
            can_ask = above_shipped(line, self._shipped) <= 0
            return Audit(line, (), 0.0, False) if self._audits.drawn(line, can_ask=can_ask)[1] else None

    def left(self, case: Case, asked: Sequence[int]) -> None:
        """It was given up after these APIs had been asked, which their declared prices pay."""
        cost = sum(evaluate_polynomial(self._program.sensors[s].cost, 1) for s in asked)
        case.record, case.decision = {"cost": to_unit(cost)}, Decision(0, 0, LOCAL, cost, tuple(asked), ())
        with self._lock:
            if self._budgets is not None:
                self._open -= case.size
                self._budgets.end(case)

    def asked(self, audit: Audit, price: float) -> Audit:
        """The reference is asked about it, which costs this."""
        made = Audit(audit.decision, (), price, False)
        with self._lock:
            self._audits.made(made, monotonic(), is_asked=True)
        return made

    def heard(self, audit: Audit, label: str | None) -> None:
        """The reference has answered; None: it failed, which the time of the audit ends."""
        is_same = str(audit.decision["label"]) == label
        with self._lock:
            if label is not None and self._audits.answered(audit, is_same) and self._promise is not None:
                self._promise.audited(is_same)

    def facts(self) -> dict[str, Any]:
        """How budget, audits, promise and monitors stand, as ``docs/drift.md`` and ``docs/budgets.md`` list it."""
        with self._lock:
            audits = {**self._audits.counters, "cost": self._audits.cost, "share": self._audits.share}
            budget = {} if self._budgets is None else self._budgets.facts()
            return {**self._watching.facts(), **budget, "audits": audits, "draws": self._draws.facts()}

    def close(self) -> None:
        """No decision follows: write the files."""
        with self._lock:
            self._watching.ended()
            if self._budgets is not None:
                self._budgets.stop()
