# SPDX-License-Identifier: Apache-2.0
"""What devices say of their running budgets, by the bundle whose unit of cost they are in.

A device's facts are text from outside: what is not a number within bounds counts as nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..metrics.families import BudgetFigures
from ..records.incoming import amount_of


class Budget(NamedTuple):
    """One device's running budget, in its bundle's unit of cost."""

    plan_per_hour: float  # 0.0: forwards alone are limited
    spent: float  # since its start
    price: float | None  # level of the bundle's prices; None of a bundle without
    stretch: float  # of the interval, from 1
    held: float  # decisions that were not allowed to ask the cloud


def budget_of(facts: Mapping[str, Any]) -> Budget | None:
    """The budget in a device's facts; None if there is none.

    >>> budget_of({"budget": {"price": 1.5, "held": 0, "spent": 7.0, "plan_per_hour": 60.0, "stretch": 1.0}})
    Budget(plan_per_hour=60.0, spent=7.0, price=1.5, stretch=1.0, held=0.0)
    >>> budget_of({"budget": {"price": 1e400, "spent": "7"}})
    Budget(plan_per_hour=0.0, spent=0.0, price=None, stretch=1.0, held=0.0)
    """
    fields = facts.get("budget")
    if not isinstance(fields, dict):
        return None
    plan, spent, held = (amount_of(fields.get(key)) or 0.0 for key in ("plan_per_hour", "spent", "held"))
    return Budget(plan, spent, amount_of(fields.get("price")), max(1.0, amount_of(fields.get("stretch")) or 1.0), held)


def budgets_by_bundle(budgets: Iterable[tuple[str, Budget]], most: int) -> list[BudgetFigures]:
    """The sums of the bundles with most budgets; a bundle is named by the first 12 digits of its SHA-256."""
    by_bundle: dict[str, list[Budget]] = {}
    for bundle, budget in budgets:
        by_bundle.setdefault(bundle[:12], []).append(budget)
    rows = sorted(by_bundle.items(), key=lambda x: (-len(x[1]), x[0]))[:most]
    return [_sums(bundle, some) for bundle, some in rows]


def _sums(bundle: str, some: list[Budget]) -> BudgetFigures:
    prices = [b.price for b in some if b.price is not None]
    return BudgetFigures(
        bundle, len(some), sum(b.plan_per_hour for b in some), sum(b.spent for b in some),
        sum(prices) / len(prices) if prices else None, max(b.stretch for b in some), sum(b.held for b in some),
        sum(b.stretch > 1 for b in some),
    )  # fmt: skip
