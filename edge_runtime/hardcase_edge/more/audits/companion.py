# SPDX-License-Identifier: Apache-2.0
"""The audits of a run: joins their machine to the sensors, the link, the trial and the records.

An audit begins when its decision is on its way to the reader, on the thread of the decisions, which is the only one
that asks about live cases: so no request of an audit goes out while a live one waits. The reply comes on the
connection's thread and is looked at after a later decision.
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from ...bundle.agreement import above_shipped, promised_share
from ...device.output import note
from ...device.surroundings import Part
from ...link.wire import OK
from ...program.cost import Meter, to_unit
from ...sensors.specs import timeout_s_of
from ...settings.values import parse_share
from .audits import Audit, Audits
from .bank import AuditedBank
from .draws import Draws

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...bundle.load import Loaded
    from ...device.surroundings import Surroundings
    from ...fleet.outbox.evidence import Evidence
    from ...fleet.outbox.opening import Publisher
    from ...fleet.store.run import Run
    from ...link.link import Link
    from ...link.wire import Reply

ONE_PART = {"audit": "an audit holds the readings of one part"}


def make(run: Surroundings) -> Auditing | None:
    """The audits that the settings and a trial ask for; None if there are none.

    Raises
    ------
    InputError
        A share is not a number from 0 to 1.
    """
    config, loaded = run.config, run.loaded
    if loaded.joint is not None:  # a trial of items passes without audits
        return None
    ask = parse_share(config.trial_audit_share, "--trial-audit-share")
    keep = 0.0 if config.audit is None else parse_share(config.audit, "--audit")
    if not keep and not (run.is_trial and _promised(loaded) is not None):
        return None
    publisher = None
    if keep:
        from ...fleet.outbox.opening import Publisher

        publisher = run.part(Publisher)
    draws = Draws()
    audits = Audits(keep, ask, config.deadline_ms / 1000, draws)
    evidence = None
    if keep and (functions := getattr(run.bank, "witnesses", {})):
        from ...fleet.outbox.evidence import Evidence

        evidence = Evidence(functions, timeout_s_of(config.sensor_timeout_ms), note)
    audited = AuditedBank(run.bank, loaded.machine.program, config.item_size)
    return Auditing(audits, draws, loaded, audited, run.link, publisher, run.stored, evidence)


def _promised(loaded: Loaded) -> float | None:
    """The share of its local answers with which f0 agrees, as the bundle promises; None where it promises none."""
    manifest = loaded.manifest
    can_compare = bool(manifest.hpc) and (bool(manifest.classes) or manifest.value is not None)
    return promised_share(manifest.claims) if can_compare else None


class Retest(Protocol):
    """What is tested again by f0's answers to audits; ``drift.promise.Promise`` is."""

    def audited(self, agrees: bool) -> None:
        """F0 gives the same answer, or does not."""


class Auditing(Part):
    """One run's audits.

    Parameters
    ----------
    audits : Audits
    draws : by which they draw
    loaded : the bundle that decides
    bank : for the device, in place of its own
    link : to the cloud, where there is one
    publisher : of records, where there is one
    stored : the run of a store's slot, where there is one
    evidence : asked for a picture or a sound of an audit that is kept; None: no plug-in gives any

    Attributes
    ----------
    promised : float or None
        Share of its local answers with which f0 agrees, as the bundle promises.
    retest : Retest or None
        What is told each answer of f0; while there is one, f0 is asked about every audit that is kept.
    """

    bank: AuditedBank

    def __init__(
        self, audits: Audits, draws: Draws, loaded: Loaded, bank: AuditedBank, link: Link | None,
        publisher: Publisher | None, stored: Run | None, evidence: Evidence | None = None,
    ) -> None:  # fmt: skip
        self._evidence, self._link = evidence, link
        self.bank, self.promised = bank, _promised(loaded)
        self.retest: Retest | None = None
        self._audits, self._draws, self._publisher, self._stored = audits, draws, publisher, stored
        self._manifest = loaded.manifest
        self._request_cost = to_unit(Meter(loaded.machine.program).request_cost)
        self._replies: deque[tuple[Audit, Reply]] = deque()

    def decided(self, decision: Mapping[str, Any]) -> None:
        """A decision is on its way to its reader."""
        if self._replies or self._audits.open is not None:
            self._look()
        link = self._link
        can_ask = link is not None and is_told(decision) and self._is_promised(decision)
        is_trial = can_ask and self._stored is not None and self._stored.wants_audit
        is_kept, is_asked = self._audits.drawn(
            decision, can_ask=is_trial, asks_kept=can_ask and self.retest is not None
        )
        if not (is_kept or is_asked):
            return
        readings, cost = self.bank.request_readings()
        seen = self._evidence.take() if is_kept and self._evidence is not None else {}
        audit = Audit(decision, readings, cost + self._request_cost * is_asked, is_kept, self._draws.n, seen)
        if link is not None and is_asked and self._asked(audit, link):
            self._audits.made(audit, monotonic(), is_asked=True)
            return
        audit = Audit(decision, readings, cost, is_kept, self._draws.n, seen)
        self._audits.made(audit, monotonic(), is_asked=False)
        self._keep(audit, {})

    def _is_promised(self, decision: Mapping[str, Any]) -> bool:
        """Whether the bundle's promise holds for it: not at a higher price than the shipped one."""
        return above_shipped(decision, self._manifest.shipped) <= 0

    def ended(self) -> None:
        """No decision follows: what is known by now is kept, and the seed of the draws is told."""
        self._draws.end()
        self._look()
        if self._audits.open is not None:
            self._keep(self._audits.open, {})
        if self._evidence is not None:
            self._evidence.close()

    def facts(self) -> dict[str, Any]:
        """The counters, what audits have cost, and how they were drawn."""
        audits = {**self._audits.counters, "cost": self._audits.cost, "share": self._audits.share}
        return {"audits": audits, "draws": self._draws.facts()}

    def _asked(self, audit: Audit, link: Link) -> bool:
        deadline_s = self._audits.deadline_s
        return link.ask_aside(audit.readings, deadline_s, lambda reply: self._replies.append((audit, reply)))

    def _look(self) -> None:
        while self._replies:
            audit, reply = self._replies.popleft()
            if reply.status != OK:
                continue
            answer = self._answer(reply)
            is_same = agrees(audit.decision, answer)
            if self._audits.answered(audit, is_same):
                if self._stored is not None:
                    self._stored.audited(is_same)
                if self.retest is not None:
                    self.retest.audited(is_same)
                self._keep(audit, answer)
        late = self._audits.waited(monotonic())
        if late is not None:
            self._keep(late, {})

    def _answer(self, reply: Reply) -> dict[str, Any]:
        """The answer, as a decision line has it."""
        value, classes = self._manifest.value, self._manifest.classes
        answer = {"value": value.of(reply.result)} if value is not None else {"label": classes[reply.result]}
        return {**answer, "confidence": reply.confidence / 10_000}

    def _keep(self, audit: Audit, f0: Mapping[str, Any]) -> None:
        if audit.is_kept and self._publisher is not None:
            more = (audit.cost, f0, audit.draw, audit.evidence)
            self._publisher.audited(audit.decision, audit.readings, *more)


def is_told(decision: Mapping[str, Any]) -> bool:
    """Whether it can be told if f0 agrees: of values, there must be an interval."""
    return "value" not in decision or decision["interval"] is not None


def agrees(decision: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    """Whether f0 gives the same class, or a value within the interval that the device told."""
    if "value" in answer:
        low, high = decision["interval"]
        return bool(low <= answer["value"] <= high)
    return bool(decision["label"] == answer["label"])
