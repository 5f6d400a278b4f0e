# SPDX-License-Identifier: Apache-2.0
"""A running budget as a bucket that fills with time, and the price that its level asks for; integers only.

The bucket holds what may be spent now. It fills at the plan's rate, holds twice the *burst*, and stands in the middle
where spending is on plan. The price is high where it is nearly empty and low where it is nearly full, around a base
that follows slowly, so that the bucket comes back to its middle whatever the cases cost (docs/math.md (133) to
(135)). Near the middle it moves little, because a price that jumps with each dear case loses accuracy. What is
spent never exceeds what the bucket holds: the owner gives a decision no more than ``left``.

``kernel/hardcase_servo.c`` is the same machine in C, bit for bit.
"""

from __future__ import annotations

__all__ = ["HOUR_MS", "MOST_AMOUNT", "MOST_MS", "MOST_STEPS", "Bucket"]

HOUR_MS = 3_600_000
MOST_AMOUNT = 1 << 50  # of a rate and of a burst: 1.1e9 units an hour; products then fit 64 bits
MOST_MS = (1 << 32) - 1  # of time that passes at once: 49 days
MOST_STEPS = 1 << 22  # positions of the price: 64 levels
HALF = 1 << 9  # parts of a burst, as the price sees the bucket
SETTLE_MS = 600_000  # in which the base of the price moves through its range, if the bucket stays full or empty
LONGEST_MS = 10_000  # that the base follows at once, however long nobody decided
BASE_MOST = HALF * SETTLE_MS


class Bucket:
    """One running budget.

    Parameters
    ----------
    rate : micro-units in an hour, 0 to 2^50
    burst : micro-units that may be spent ahead of the plan, and may lie behind it, 1 to 2^50
    steps : the highest position of the price, 1 to 2^22
    begin : the position of the price where the bucket stands in the middle at first, 0 to ``steps``

    Examples
    --------
    An hour of 3600 units, spent at a unit a second: the bucket stays in the middle, and the price where it began.

    >>> bucket = Bucket(3_600_000_000, 90_000_000, 1000, 400)
    >>> for _ in range(500):
    ...     bucket.passed(1000)
    ...     bucket.spent(1_000_000)
    >>> bucket.left, bucket.position
    (90000000, 400)
    """

    __slots__ = ("_base", "_carry", "burst", "left", "rate", "steps")

    def __init__(self, rate: int, burst: int, steps: int, begin: int) -> None:
        self.rate, self.burst, self.steps = rate, burst, steps
        self.left = burst
        self._carry = 0
        self._base = -(-begin * BASE_MOST // steps)

    def passed(self, ms: int) -> None:
        """Time has passed: ``ms`` milliseconds, of which at most 2^32 - 1 count."""
        ms = min(max(ms, 0), MOST_MS)
        self._follow(min(ms, LONGEST_MS))
        part = self.rate % HOUR_MS * ms + self._carry
        filled = self.left + self.rate // HOUR_MS * ms + part // HOUR_MS
        self._carry = part % HOUR_MS
        self.left = min(filled, 2 * self.burst)

    def spent(self, cost: int) -> None:
        """A decision has cost this; what the bucket did not hold, as of a decision that was late, is forgiven."""
        self.left -= min(max(cost, 0), self.left)

    @property
    def position(self) -> int:
        """The price that the bucket asks for: 0, at which most is spent, to ``steps``."""
        base, beside = self.steps * self._base // BASE_MOST, HALF - self._fill()
        parts = abs(beside) * (HALF**2 + 3 * beside**2) // (4 * HALF**2)  # a quarter near the middle, all at the ends
        away = self.steps * parts // HALF
        return min(max(base + (away if beside > 0 else -away), 0), self.steps)

    @property
    def state(self) -> tuple[int, int]:
        """What is worth keeping over a restart: what is left, and the base of the price."""
        return self.left, self._base

    def resume(self, left: int, base: int) -> None:
        """Go on from a state that was kept; numbers outside their ranges are moved to the nearest."""
        self.left, self._base = min(max(left, 0), 2 * self.burst), min(max(base, 0), BASE_MOST)

    def _fill(self) -> int:
        """Parts of the bucket that are full, 0 to twice ``HALF``."""
        return self.left * HALF // self.burst

    def _follow(self, ms: int) -> None:
        """Move the base of the price, except where the price is at its end already."""
        change = (HALF - self._fill()) * ms
        at = self.position
        if (change > 0 and at < self.steps) or (change < 0 and at > 0):
            self._base = min(max(self._base + change, 0), BASE_MOST)
