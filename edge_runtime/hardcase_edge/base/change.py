# SPDX-License-Identifier: Apache-2.0
"""When did values in [0, 1] begin to lie above a bound? By betting, with few false alarms over a whole life.

The hypothesis is "whatever was seen before, the mean of the next value is at most the bound". Before each value, a part
of a purse is staked on a change that happens just then: half of the purse on one at the first value, and the rest ever
more slowly, so that all parts together are never more than the purse. What has been staked is multiplied by
1 + f (x - m) / m at each value, as in ``betting.py``, with several shares f (``stakes``) that suit the bound; purse and
stakes together are a supermartingale that begins with 1, so they ever reach 1 / delta with probability at most delta,
however long the life is (docs/math.md (126) to (128)). One number for each f is all that is remembered, because parts
that were staked earlier and later grow by the same factors.

References
----------
.. [1] Shin, Ramdas and Rinaldo, E-detectors: a nonparametric framework for sequential change detection, 2022.
"""

from __future__ import annotations

from math import inf, log, sqrt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

N_STAKES = 5
LARGEST = 0.35  # share of what is staked that goes on the next value ...
SPAN = 16.0  # ... and by how much the least one is smaller, at least
LEAST = 0.25  # the least share in units of a small bound: the best one where values lie a quarter above it
RISE = 0.175  # the share for ``since``, at most
FIRST = 0.5  # of the purse, staked on "from the first value on"
SLOW = 8.0  # the larger, the more evenly the rest is staked over the first values
LOG_SLOW = log(SLOW)
LEFT = (1 - FIRST) * LOG_SLOW
MOST = 1e15  # of a number that is restored


def stake_at(n: int) -> float:
    """The part of the purse that is staked before value n, from 1; all parts together are at most 1."""
    return (FIRST if n == 1 else 0.0) + (1 - FIRST) * (_left(n - 1) - _left(n))


def stakes(bound: float) -> list[float]:
    """Shares of what is staked that go on the next value, for ones that are a little or much more often than the bound.

    The best share against ones with a rate of r is (r - m) / (1 - m) (docs/math.md (129)), so small bounds need small
    ones. They fall evenly from the largest to the least; square roots have the same bits on every computer.

    >>> stakes(0.1)
    [0.35, 0.175, 0.0875, 0.04375, 0.021875]
    >>> [round(share, 4) for share in stakes(0.004)]
    [0.35, 0.0809, 0.0187, 0.0043, 0.001]
    """
    shares, ratio = [LARGEST], sqrt(sqrt(min(1 / SPAN, LEAST * bound / LARGEST)))
    while len(shares) < N_STAKES:
        shares.append(shares[-1] * ratio)
    return shares


def _left(n: int) -> float:
    return LOG_SLOW / log(n + SLOW)


class Change:
    """A test for a change that may be looked at after every value.

    Parameters
    ----------
    bound : float in (0, 1)
    delta : probability at most with which it ever says that the mean is above a bound that holds

    Attributes
    ----------
    n : int
        Values so far.
    is_noticed : bool
        Whether purse and stakes have ever reached 1 / delta.
    since : int
        The mark of the value from which on values have spoken for a change: where one is noticed, about its beginning.

    Examples
    --------
    >>> change = Change(0.05, 0.05)
    >>> for mark, value in enumerate([0.0] * 100 + [1.0] * 8, 1):
    ...     change.see(value, mark)
    >>> change.is_noticed, change.since
    (True, 101)
    """

    def __init__(self, bound: float, delta: float) -> None:
        self.bound, self.delta = bound, delta
        self.n, self.is_noticed, self.since = 0, False, 0
        self._shares = [min(RISE, bound), *stakes(bound)]
        self._staked = [0.0] * N_STAKES
        self._rise = 1.0  # the wealth of one who began to bet at ``since``, with the first of these shares
        self._left = 1 - FIRST

    def see(self, value: float, mark: int) -> None:
        """A value in [0, 1]; ``mark`` says when it was, as a number that only rises."""
        self.see_all([value], [mark])

    def see_all(self, values: Sequence[float], marks: Sequence[int]) -> float:
        """Values with their marks, one after the other; those below 0 count for nothing, and are not values.

        Returns the mark of the value after which a change is noticed; 0 if it was before, infinity if it is not.
        """
        if self.is_noticed:
            return 0
        n, purse = self.n, [self._left if self.n else 1.0, self._rise, *self._staked]
        lefts = [LEFT / log(k + SLOW) for k in range(n + 1, n + len(values) + 1)]
        needed = 1 / self.delta
        n_taken, self.since, at, purse = _bet(purse, self.since, values, marks, lefts, self.bound, self._shares, needed)
        if n_taken:
            self.n, self._left, self._rise, self._staked = n + n_taken, purse[0], purse[1], purse[2:]
        self.is_noticed = at >= 0
        return marks[at] if self.is_noticed else inf

    def to_json(self) -> list[Any]:
        """What ``restore`` takes."""
        return [self.n, int(self.is_noticed), self.since, list(self._staked), self._rise]

    def restore(self, value: object) -> bool:
        """Go on from an earlier ``to_json`` of the same bound; False, and nothing is changed, if it is not one.

        A purse that was filled with other shares goes on with these: shares may be chosen anew before any value.
        """
        if not (isinstance(value, list) and len(value) == 5 and isinstance(value[3], list)):
            return False
        n, is_noticed, since, staked, rise = value
        are_counts = all(type(x) is int and 0 <= x <= MOST for x in (n, is_noticed, since))
        are_numbers = all(type(x) is float and 0 <= x <= MOST for x in (*staked, rise))
        if not (are_counts and are_numbers and is_noticed <= 1 and len(staked) == len(self._staked)):
            return False
        self.n, self.is_noticed, self.since = n, bool(is_noticed), since
        self._staked, self._rise = list(staked), rise
        self._left = (1 - FIRST) * _left(n)
        return True


def _bet(
    purse: list[float], since: int, values: Sequence[float], marks: Sequence[int], lefts: Sequence[float],
    bound: float, shares: Sequence[float], needed: float,
) -> tuple[int, int, int, list[float]]:  # fmt: skip
    """Bet on values, one after the other, until a change is noticed.

    Parameters
    ----------
    purse : what is left of it, the rise since ``since``, and what is staked with each share
    lefts : what is left of the purse after the first of the values, the second, ...
    shares : that for the rise, and those of what is staked
    needed : the wealth that a change takes

    Returns
    -------
    How many values were taken, ``since``, the place of the one after which a change is noticed or -1, and the purse.
    """
    left, rise, a, b, c, d, e = purse  # a loop over five would take twice the time
    zeros, ones = _factors(0.0, bound, shares), _factors(1.0, bound, shares)
    r, f, g, h, i, j = zeros
    n_taken = 0
    for at, value in enumerate(values):
        if value < 0:
            continue
        before, left = left, lefts[n_taken]
        n_taken += 1
        stake = before - left
        if rise <= 1:  # whoever began to bet before would have lost by now
            rise, since = 1.0, marks[at]
        if value == 0:  # most are; what is staked shrinks, so nothing can be noticed
            rise *= r
            a = (a + stake) * f
            b = (b + stake) * g
            c = (c + stake) * h
            d = (d + stake) * i
            e = (e + stake) * j
            continue
        u, v, w, x, y, z = ones if value == 1 else _factors(value, bound, shares)
        rise *= u
        a, b, c, d, e = (a + stake) * v, (b + stake) * w, (c + stake) * x, (d + stake) * y, (e + stake) * z
        if left + (a + b + c + d + e) / 5 >= needed:
            return n_taken, since, at, [left, rise, a, b, c, d, e]
    return n_taken, since, -1, [left, rise, a, b, c, d, e]


def _factors(value: float, bound: float, shares: Sequence[float]) -> Sequence[float]:
    """What a value multiplies by what is staked, for each share."""
    return [1 + f * (value - bound) / bound for f in shares]
