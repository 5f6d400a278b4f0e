# SPDX-License-Identifier: Apache-2.0
"""The servo: moves one number, the price of a unit of cost, so that a run's spending stays on its plan.

    servo.passed(ms)                          time has passed
    budget, may_forward = servo.begin(budget) what the next decision may cost, and whether it may ask the cloud
    servo.thresholds                          where the thresholds stand for it
    servo.ended(cost, has_forwarded)          what it did cost

There are at most two budgets, each a bucket: what is spent in an hour, and what share of decisions is forwarded. The
dearer of their prices counts. The price cannot leave the manifest's table, and no stream of cases can spend more than
the buckets hold: a decision may cost what is left, and without a forward left it does not ask the cloud.

A bundle without prices has no threshold to move; its budgets then only limit.
"""

from __future__ import annotations

from ...bundle.prices import LEVEL, Prices
from .bucket import HOUR_MS, MOST_AMOUNT, Bucket

FORWARD = 1_000_000  # of the bucket of forwards, for one; so a share is a rate in millionths
DECISION_MS = 1_000  # the time of that bucket: a decision is a second
PARTS_OF_HOUR = 40  # a burst is this part of an hour: 90 seconds of plan
MOST_STRETCH = 8.0  # of an interval
FEWEST_FORWARDS = 4  # that may be ahead of the plan


def spending_bucket(rate: int, worst_cost: int, prices: Prices | None) -> Bucket:
    """The bucket of what is spent.

    Parameters
    ----------
    rate : micro-units in an hour
    worst_cost : of a decision, as the verifier proved it: a bucket holds two at least
    """
    burst = min(max(rate // PARTS_OF_HOUR, worst_cost, 1), MOST_AMOUNT)
    return Bucket(min(rate, MOST_AMOUNT), burst, *_range(prices))


def forward_bucket(share: float, prices: Prices | None) -> Bucket:
    """The bucket of forwards: at most this share of the decisions, 0 to 1."""
    rate = round(share * FORWARD) * (HOUR_MS // DECISION_MS)
    return Bucket(rate, max(rate // PARTS_OF_HOUR, FEWEST_FORWARDS * FORWARD), *_range(prices))


def _range(prices: Prices | None) -> tuple[int, int]:
    return (1, 0) if prices is None else (prices.last, prices.shipped * LEVEL)


class Servo:
    """The price of one run.

    Parameters
    ----------
    prices : the bundle's table; None: it has none, and no threshold moves
    spending : the bucket of what is spent; None: no budget
    forwards : the bucket of forwards; None: they are not limited

    Attributes
    ----------
    n_held : int
        Decisions that were not allowed to ask the cloud.
    """

    def __init__(self, prices: Prices | None, spending: Bucket | None = None, forwards: Bucket | None = None) -> None:
        self.prices, self.spending, self.forwards = prices, spending, forwards
        self.n_held = 0

    @property
    def position(self) -> int:
        """The price: 0, at which most is spent, to ``prices.last``; without prices 0.

        Without a budget for spending it is at least the shipped one, because then nothing asks for more spending.
        """
        if self.prices is None:
            return 0
        position = self.prices.shipped * LEVEL if self.spending is None else self.spending.position
        if self.forwards is not None:
            position = max(position, self.forwards.position)
        return position

    @property
    def thresholds(self) -> tuple[int, ...]:
        """The thresholds of ``prices.nodes`` at this price."""
        return () if self.prices is None else self.prices.at(self.position)

    def passed(self, ms: int) -> None:
        """Time has passed: ``ms`` milliseconds."""
        if self.spending is not None:
            self.spending.passed(ms)

    def begin(self, budget: int | None) -> tuple[int | None, bool]:
        """What the next decision may cost, in micro-units, and whether it may ask the cloud.

        Parameters
        ----------
        budget : its own hard limit, None for none
        """
        if self.forwards is not None:
            self.forwards.passed(DECISION_MS)
        left = None if self.spending is None else self.spending.left
        most = budget if left is None else left if budget is None else min(budget, left)
        return most, self.forwards is None or self.forwards.left >= FORWARD

    def ended(self, cost: int, has_forwarded: bool) -> None:
        """A decision has cost this, in micro-units."""
        if self.spending is not None:
            self.spending.spent(cost)
        if self.forwards is not None:
            self.forwards.spent(FORWARD * has_forwarded)

    @property
    def stretch(self) -> float:
        """By what the interval between decisions should grow, 1 to 8; 1 unless the highest price is not enough.

        It begins where the bucket is a quarter full, and is 8 where it is empty.
        """
        bucket = self.spending
        if bucket is None or bucket.position < bucket.steps:
            return 1.0
        return 1.0 + (MOST_STRETCH - 1.0) * max(0.0, 1.0 - 2 * bucket.left / bucket.burst)
