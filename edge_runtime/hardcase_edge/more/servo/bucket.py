# SPDX-License-Identifier: Apache-2.0
"""A running budget as a bucket that fills with time, and the price that its level asks for; integers only.

The bucket holds what may be spent now. It fills at the plan's rate, holds twice the *burst*, and stands in the middle
where spending is on plan. The price is high where it is nearly empty and low where it is nearly full, around a base
that follows slowly, so that the bucket comes back to its middle whatever the cases cost (docs/math.md (133) to
(135)). Near the middle it moves little, because a price that jumps with each dear case loses accuracy. What is
spent never exceeds what the bucket holds: the owner gives a decision no more than ``left``.

``kernel/hardcase_servo.c`` is the same machine in C, bit for bit, for microcontrollers.
"""

from __future__ import annotations

HOUR_MS = 3_600_000
MOST_AMOUNT = 1 << 50  # of a rate and of a burst: 1.1e9 units an hour; products then fit 64 bits
MOST_MS = (1 << 32) - 1  # of time that passes at once: 49 days
MOST_STEPS = 1 << 22  # positions of the price: 64 levels
HALF = 1 << 9  # parts of a burst, as the price sees the bucket
SETTLE_MS = 600_000  # in which the base of the price moves through its range, if the bucket stays full or empty
LONGEST_MS = 10_000  # that the base follows at once, however long nobody decided
BASE_MOST = HALF * SETTLE_MS
PARTS = [b * (HALF**2 + 3 * b**2) // (4 * HALF**2) for b in range(HALF + 1)]  # of HALF: a quarter near the middle


class Bucket:
    """One running budget.

    Parameters
    ----------
    rate : micro-units in an hour, 0 to 2^50
    burst : micro-units that may be spent ahead of the plan, and may lie behind it, 1 to 2^50
    steps : the highest position of the price, 1 to 2^22
    begin : the position of the price where the bucket stands in the middle at first, 0 to ``steps``

    Raises
    ------
    ValueError
        A number is outside its range; ``rate`` also when it is set later.

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

    __slots__ = ("_base", "_carry", "_rate", "burst", "left", "steps")

    def __init__(self, rate: int, burst: int, steps: int, begin: int) -> None:
        are_inside = 0 <= rate <= MOST_AMOUNT and 1 <= burst <= MOST_AMOUNT
        if not (are_inside and 1 <= steps <= MOST_STEPS and 0 <= begin <= steps):
            raise ValueError("a bucket with numbers outside their ranges")
        self.rate, self.burst, self.steps = rate, burst, steps
        self.left = burst
        self._carry = 0
        self._base = -(-begin * BASE_MOST // steps)

    def passed(self, ms: int) -> None:
        """Time has passed: ``ms`` milliseconds, of which at most 2^32 - 1 count."""
        ms = 0 if ms < 0 else MOST_MS if ms > MOST_MS else ms
        beside = HALF - self.left * HALF // self.burst
        if beside and ms:
            self._follow(beside, ms if ms < LONGEST_MS else LONGEST_MS)
        filled, self._carry = divmod(self._rate * ms + self._carry, HOUR_MS)
        filled, most = self.left + filled, 2 * self.burst
        self.left = filled if filled < most else most

    def spent(self, cost: int) -> None:
        """A decision has cost this; what the bucket did not hold, as of a decision that was late, is forgiven."""
        if cost > 0:
            self.left = self.left - cost if cost < self.left else 0

    @property
    def rate(self) -> int:
        """Micro-units in an hour."""
        return self._rate

    @rate.setter
    def rate(self, rate: int) -> None:
        if not 0 <= rate <= MOST_AMOUNT:
            raise ValueError("a rate is 0 to 2^50")
        self._rate = rate

    @property
    def position(self) -> int:
        """The price that the bucket asks for: 0, at which most is spent, to ``steps``."""
        return self._at(HALF - self.left * HALF // self.burst)

    def _at(self, beside: int) -> int:
        """The price where the bucket's level lies so many parts below its middle."""
        steps = self.steps
        away = steps * PARTS[abs(beside)] // HALF
        at = steps * self._base // BASE_MOST + (away if beside > 0 else -away)
        return 0 if at < 0 else steps if at > steps else at

    @property
    def state(self) -> tuple[int, int]:
        """What is worth keeping over a restart: what is left, and the base of the price."""
        return self.left, self._base

    def resume(self, left: int, base: int) -> None:
        """Go on from a state that was kept; numbers outside their ranges are moved to the nearest."""
        self.left, self._base = min(max(left, 0), 2 * self.burst), min(max(base, 0), BASE_MOST)

    def _follow(self, beside: int, ms: int) -> None:
        """Move the base of the price, except where the price is at its end already."""
        if self._at(beside) < self.steps if beside > 0 else self._at(beside) > 0:
            base = self._base + beside * ms
            self._base = 0 if base < 0 else BASE_MOST if base > BASE_MOST else base
