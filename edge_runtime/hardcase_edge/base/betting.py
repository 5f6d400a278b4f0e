# SPDX-License-Identifier: Apache-2.0
"""A test by betting that may be looked at after every value: is the mean of values in [0, 1] above a bound?

The hypothesis is "whatever was seen before, the mean of the next value is at most m". A gambler stakes the share f of
the wealth on it being higher: the wealth is multiplied by 1 + f (x - m) / m, whose mean is at most 1 if the hypothesis
is true. The wealth is shared equally among several f, so its mean is at most 1 at any time, and by Ville's inequality
it ever reaches 1 / delta with probability at most delta (docs/math.md (109) to (111)). So the test may be read after
each value and ended at any time, and the interval that follows from it holds at all times at once.

References
----------
.. [1] Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, 2020.
.. [2] Ville, Étude critique de la notion de collectif, 1939.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FEW = (1.0, 1 / 2, 1 / 4, 1 / 8, 1 / 16)  # stakes for tens of values: only a mean that is far off shows in so few
MANY = tuple(0.7 * 2.0**-k for k in range(9))  # for thousands: the best stake is small where the mean is near the bound
STEPS = 40  # of a bisection


class Bets:
    """The wealth against "the mean is at most ``bound``".

    Parameters
    ----------
    bound : float in (0, 1)
    delta : probability with which a true hypothesis is ever rejected
    logs : logarithms of the wealth on each stake, of an earlier ``logs``
    stakes : shares of the wealth, each above 0 and at most 1, and at least one of them below 1

    Attributes
    ----------
    is_rejected : bool
        Whether the wealth has ever reached 1 / delta: the mean is above the bound.
    """

    def __init__(
        self, bound: float, delta: float, logs: Iterable[float] = (), *, stakes: Sequence[float] = MANY,
        is_rejected: bool = False,
    ) -> None:  # fmt: skip
        self.bound, self.delta = bound, delta
        self.is_rejected = is_rejected
        self.logs = list(logs) or [0.0] * len(stakes)
        self._stakes = stakes
        self._steps = {value: _steps(value, bound, stakes) for value in (0.0, 1.0)}  # most values are one of these

    def see(self, value: float, times: int = 1) -> None:
        """A value in [0, 1], at least once."""
        steps = self._steps.get(value) or _steps(value, self.bound, self._stakes)
        self.logs = [log + times * step for log, step in zip(self.logs, steps, strict=True)]
        needed = -math.log(self.delta)
        self.is_rejected = self.is_rejected or (max(self.logs) >= needed and self.log_wealth >= needed)

    @property
    def log_wealth(self) -> float:
        """Natural logarithm of the wealth, which began at 1."""
        return _log_mean_exp(self.logs)


def log_wealth(n: int, k: int, bound: float, stakes: Sequence[float] = MANY) -> float:
    """The logarithm of the wealth after n values of which k are 1 and the others 0."""
    logs = [0.0] * len(stakes)
    for value, times in ((1.0, k), (0.0, n - k)):
        if times:  # a stake of 1 loses all by one zero, and nothing by none
            logs = [log + times * step for log, step in zip(logs, _steps(value, bound, stakes), strict=True)]
    return _log_mean_exp(logs)


def interval(n: int, k: int, delta: float = 0.05) -> tuple[float, float]:
    """Bounds of the mean after k ones among n values: right at all times at once with probability 1 - delta."""
    return _lower(n, k, delta / 2), 1 - _lower(n, n - k, delta / 2)


def _lower(n: int, k: int, delta: float) -> float:
    """The least bound that is not rejected; the wealth falls as the bound rises."""
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if log_wealth(n, k, middle) >= -math.log(delta) else (low, middle)
    return low


def _steps(value: float, bound: float, stakes: Sequence[float]) -> list[float]:
    """What a value adds to the logarithm of the wealth on each stake."""
    gains = [stake * (value - bound) / bound for stake in stakes]
    return [math.log1p(gain) if gain > -1 else -math.inf for gain in gains]


def _log_mean_exp(logs: Sequence[float]) -> float:
    top = max(logs)
    return top + math.log(math.fsum(math.exp(x - top) for x in logs) / len(logs))
