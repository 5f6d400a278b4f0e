# SPDX-License-Identifier: Apache-2.0
"""The plan: how much may be spent in an hour, of an hourly budget, of a battery until a date, or of both.

A battery's plan spreads what is left evenly over the time that is left, so what easy hours save, later ones may spend.
The time that is left goes by the milliseconds that the device counts; a clock may only shorten it, and not at once. So
a device whose clock begins in 1970 at each start keeps to its plan, one that was switched off catches up once its clock
is right, and a clock that is years ahead for an hour does not spend the battery.
"""

from __future__ import annotations

from ...base.clock import LEAP
from .bucket import HOUR_MS, MOST_AMOUNT

MOST_LEFT_MS = 10**13  # three centuries
JOULES = {
    "J": 1.0, "kJ": 1e3, "mJ": 1e-3, "uJ": 1e-6, "µJ": 1e-6, "μJ": 1e-6, "nJ": 1e-9,
    "Wh": 3600.0, "mWh": 3.6, "uWh": 0.0036, "Ws": 1.0, "mWs": 1e-3,
}  # fmt: skip


def energy_to_micro(mwh: float, unit: str) -> int | None:
    """An energy in mWh as micro-units of this unit of cost; None if the unit is not one of energy.

    >>> energy_to_micro(1.0, "J"), energy_to_micro(1.0, "cents")
    (3600000, None)
    """
    return round(mwh * 3.6 / JOULES[unit] * 1e6) if unit in JOULES else None


class Plan:
    """What may be spent.

    Parameters
    ----------
    per_hour : micro-units; None: a battery alone
    left : micro-units of the battery; None: no battery
    left_ms : until the battery's date

    >>> plan = Plan(left=7_200, left_ms=2 * HOUR_MS)
    >>> plan.rate, plan.most(10_000)
    (3600, 7200)
    >>> plan.passed(HOUR_MS)
    >>> plan.rate
    7200
    """

    def __init__(self, per_hour: int | None = None, left: int | None = None, left_ms: int = 0) -> None:
        self.per_hour, self.left, self.left_ms = per_hour, left, min(max(left_ms, 0), MOST_LEFT_MS)

    @property
    def rate(self) -> int:
        """Micro-units in an hour. In its last hour, and after its date, a battery's plan is for an hour."""
        rates = [] if self.per_hour is None else [self.per_hour]
        if self.left is not None:
            rates.append(self.left * HOUR_MS // max(self.left_ms, HOUR_MS))
        return min([*rates, MOST_AMOUNT])

    def passed(self, ms: int) -> None:
        """Milliseconds have passed."""
        self.left_ms = max(0, self.left_ms - ms)

    def date_is_in(self, ms: int, counted_ms: int) -> None:
        """A clock gives this time until the date, after ``counted_ms``; it never lengthens the plan.

        It shortens the plan by at most a day for each hour that was counted, as noted time moves.
        """
        self.left_ms = min(self.left_ms, max(ms, self.left_ms - LEAP * counted_ms, 0))

    def spent(self, cost: int) -> None:
        """A decision has cost this, in micro-units."""
        if self.left is not None:
            self.left = max(0, self.left - cost)

    def most(self, amount: int | None) -> int | None:
        """This amount, or what is left of the battery if that is less."""
        if self.left is None:
            return amount
        return self.left if amount is None else min(amount, self.left)
