# SPDX-License-Identifier: Apache-2.0
"""Whether a bundle in the field is as good as was promised: agreement with f0 in audits, and cost against a budget.

Each criterion has two hypotheses, tested by betting (``hardcase_edge/base/betting.py``), so both may be looked at after
every value:

    broken   rejects "the loss is at most what was promised": then the roll-out ends
    kept     rejects "the loss is more than what was promised and the tolerance": then the canary may be left

A bundle that falls short by more than the tolerance leaves the canary with probability at most delta, and one that
keeps its promise is stopped with probability at most delta / 5 for each criterion.
"""

from __future__ import annotations

from typing import Any

from hardcase_edge.base.betting import Bets

from .plan import Plan

KEPT, BROKEN, UNDECIDED = "kept", "broken", "undecided"
STRICTER = 5  # a good bundle that is stopped costs a person's time: it may happen less often than delta


class Criterion:
    """A loss in [0, 1] whose mean should be at most ``bound``, give or take ``tolerance``."""

    def __init__(self, bound: float, tolerance: float, delta: float) -> None:
        self.n, self.total = 0, 0.0
        self.broken = Bets(bound, delta / STRICTER)
        self.kept = Bets(max(1e-6, 1 - bound - tolerance), delta)

    def see(self, loss: float) -> None:
        """Count one loss."""
        loss = min(1.0, max(0.0, loss))
        self.n += 1
        self.total += loss
        self.broken.see(loss)
        self.kept.see(1 - loss)

    @property
    def verdict(self) -> str:
        """``KEPT``, ``BROKEN`` or ``UNDECIDED``; a bundle that is broken once stays so."""
        return BROKEN if self.broken.is_rejected else KEPT if self.kept.is_rejected else UNDECIDED

    def to_json(self) -> list[Any]:
        """What ``restore`` takes."""
        sides = (self.broken, self.kept)
        return [self.n, self.total, *([*side.logs, side.is_rejected] for side in sides)]

    def restore(self, value: list[Any]) -> None:
        """Go on from an earlier ``to_json``."""
        self.n, self.total = value[0], value[1]
        for side, (*logs, is_rejected) in zip((self.broken, self.kept), value[2:], strict=True):
            side.logs, side.is_rejected = logs, is_rejected


class Quality:
    """The criteria that a plan has; without any, quality is kept."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.criteria: dict[str, Criterion] = {}
        if plan.agreement is not None:
            self.criteria["agreement"] = Criterion(1 - plan.agreement, plan.tolerance, plan.delta)
        if plan.budget is not None and plan.cost_limit is not None:
            self.criteria["cost"] = Criterion(plan.budget / plan.cost_limit, plan.tolerance, plan.delta)

    def audited(self, agrees: bool) -> None:
        """Device and f0 agree in one audit, or they do not."""
        if (criterion := self.criteria.get("agreement")) is not None:
            criterion.see(0.0 if agrees else 1.0)

    def spent(self, cost: float) -> None:
        """What one decision cost, in the user's unit."""
        if (criterion := self.criteria.get("cost")) is not None and self._plan.cost_limit is not None:
            criterion.see(cost / self._plan.cost_limit)

    @property
    def verdict(self) -> str:
        """The worst of the criteria."""
        verdicts = {c.verdict for c in self.criteria.values()}
        return next((v for v in (BROKEN, UNDECIDED) if v in verdicts), KEPT)

    def words(self) -> str:
        """The state of each criterion, in words for people."""
        parts = []
        if (c := self.criteria.get("agreement")) is not None and c.n:
            parts.append(f"agreement {1 - c.total / c.n:.1%} in {c.n} audits, promised {self._plan.agreement:.1%}")
        if (c := self.criteria.get("cost")) is not None and c.n:
            mean = c.total / c.n * (self._plan.cost_limit or 0.0)
            parts.append(f"mean cost {mean:.4g} in {c.n} decisions, budget {self._plan.budget:.4g}")
        return "; ".join(parts) or "no audits and no costs"

    def to_json(self) -> dict[str, Any]:
        """What ``restore`` takes."""
        return {name: criterion.to_json() for name, criterion in self.criteria.items()}

    def restore(self, value: dict[str, Any]) -> None:
        """Go on from an earlier ``to_json`` of the same plan."""
        for name, criterion in self.criteria.items():
            criterion.restore(value[name])
