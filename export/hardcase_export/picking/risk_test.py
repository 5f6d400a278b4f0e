"""The mathematics of a promise: counts on held-out rows, p-values, and the order in which they are looked at.

Learn-then-Test: a policy is promised something only after the hypothesis that it breaks the promise has been rejected
on rows that no choice has seen, and the chance of rejecting any true hypothesis is at most delta. Equations (29) to
(38) of docs/math.md, with the proofs. Nothing here reads a file or knows what a front is.

References
----------
.. [1] Angelopoulos, Bates, Candès, Jordan and Lei, Learn then Test: Calibrating Predictive Algorithms to Achieve Risk
   Control, 2021.
.. [2] Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, 2020.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = [
    "Counts",
    "Judged",
    "best_bet",
    "binomial_tail",
    "certain_bound",
    "fixed_sequence",
    "forward_bound",
    "ladder",
    "margin",
    "p_error",
    "p_excess",
    "p_forward",
    "rows_needed",
]

QUANTILE = 0.99  # chance that a policy that forwards as it was judged keeps its own bound
STEPS = 50  # of a bisection: to 1e-15


@dataclass(frozen=True, slots=True)
class Counts:
    """What a policy did on held-out rows; all whole numbers.

    ``local``: rows that it answered itself; of these ``errors`` are wrong, ``worse`` wrong where f0 is right, and
    ``better`` right where f0 is wrong.
    """

    rows: int
    local: int
    errors: int
    worse: int
    better: int

    @property
    def forwarded(self) -> int:
        return self.rows - self.local


@dataclass(frozen=True, slots=True)
class Judged:
    """What choices were made on, as shares of 1: of all rows ``forward_rate``, of those answered locally the rest."""

    forward_rate: float
    error: float
    worse: float
    better: float


# ---------------------------------------------------------------- p-values


def binomial_tail(k: int, n: int, p: float) -> float:
    """P(B <= k) for B the number of successes in n trials of chance p; docs/math.md (31)."""
    if k >= n or p <= 0:
        return 1.0 if k >= 0 else 0.0
    if k < 0 or p >= 1:
        return 0.0
    if k >= n * p:  # the other tail is the short one
        return 1.0 - binomial_tail(n - k - 1, n, 1 - p)
    log = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(p) + (n - k) * math.log1p(-p)
    term = total = math.exp(log)
    for i in range(k, 0, -1):  # P(B = i - 1) from P(B = i): below the mean they fall
        term *= i * (1 - p) / ((n - i + 1) * p)
        total += term
        if term < total * 1e-17:
            break
    return min(1.0, total)


def p_error(counts: Counts, risk: float) -> float:
    """Of "more than ``risk`` of local answers are wrong"; docs/math.md (32). 1 where nothing was answered locally."""
    return binomial_tail(counts.errors, counts.local, risk) if counts.local else 1.0


def p_forward(counts: Counts, rate: float) -> float:
    """Of "more than ``rate`` is forwarded"; docs/math.md (33). 0 for a rate of 1, which nothing exceeds."""
    return 0.0 if rate >= 1 else binomial_tail(counts.forwarded, counts.rows, rate)


def p_excess(counts: Counts, risk: float, bet: float) -> float:
    """Of "local answers are wrong more than ``risk`` oftener than f0 on the same rows"; docs/math.md (34) to (36).

    Parameters
    ----------
    bet : float in (0, 1 / (1 - risk)]
        Fixed before the counts are seen (``best_bet``). Any bet is valid, the best is sharpest.
    """
    kept = 1 - bet * (1 - risk)
    if counts.worse and kept <= 0:
        return 1.0  # all was lost on one row
    ties = counts.local - counts.worse - counts.better
    wealth = counts.worse * math.log(kept) if counts.worse else 0.0
    wealth += ties * math.log1p(bet * risk) + counts.better * math.log1p(bet * (1 + risk))
    return math.exp(min(0.0, -wealth))


def best_bet(judged: Judged, risk: float, n_local: float) -> float:
    """The bet under which wealth grows fastest if the rows are as judged; docs/math.md (37).

    ``n_local``: how many local answers the rows will show, about. Judged shares count as if seen on so many rows and
    two more, one of them worse than f0.
    """
    worse = (judged.worse * n_local + 1) / (n_local + 2)
    better = judged.better * n_local / (n_local + 2)
    ties = 1 - worse - better

    def slope(bet: float) -> float:
        lost = worse * (1 - risk) / (1 - bet * (1 - risk))
        return ties * risk / (1 + bet * risk) + better * (1 + risk) / (1 + bet * (1 + risk)) - lost

    least, most = 0.0, 1 / (1 - risk)
    for _ in range(STEPS):
        middle = (least + most) / 2
        least, most = (middle, most) if slope(middle) > 0 else (least, middle)
    return most


# ---------------------------------------------------------------- before the rows are seen


@functools.lru_cache(maxsize=1024)  # an error line asks for the same ones again
def forward_bound(rate: float, rows: int, level: float) -> float:
    """The forward rate to promise for a policy judged to forward ``rate``, to be shown on so many rows.

    The least bound that it will keep with a chance of ``QUANTILE`` if it forwards as judged; docs/math.md (38).
    """
    likely = (rate * rows + 1) / (rows + 1)  # as if one row more were forwarded: 0 of n is not 0
    most = bisect.bisect_left(range(rows), QUANTILE, key=lambda k: binomial_tail(k, rows, likely))
    return certain_bound(lambda bound: binomial_tail(most, rows, bound), level)


def certain_bound(p_value: Callable[[float], float], level: float) -> float:
    """The least bound in [0, 1] whose p-value, which falls as the bound grows, is at most ``level``."""
    least, most = 0.0, 1.0
    for _ in range(STEPS):
        middle = (least + most) / 2
        least, most = (least, middle) if p_value(middle) <= level else (middle, most)
    return most


def margin(judged: Judged, rows: int, risk: float, is_excess: bool, max_forward: float | None) -> float:
    """How many standard errors a policy is expected to be on the safe side; the order of (30).

    The lesser of the two margins, that of the risk and that of the forward rate where a bound is given.
    """
    n_local = rows * (1 - judged.forward_rate)
    found, spread = (judged.error, judged.error) if not is_excess else (judged.worse - judged.better, judged.worse)
    spread += judged.better if is_excess else 0.0
    safe = _standing(found, spread, n_local, risk)
    if max_forward is None or max_forward >= 1:
        return safe
    return min(safe, _standing(judged.forward_rate, judged.forward_rate, rows, max_forward))


def _standing(found: float, spread: float, n: float, bound: float) -> float:
    """(bound - found) in standard errors of n rows; ``spread`` is E[d^2], smoothed as if one row of two more had it."""
    smooth = (spread * n + 1) / (n + 2)
    return (bound - found) * math.sqrt(n / (smooth * (1 - smooth))) if n > 0 else -math.inf


def ladder(margins: Sequence[float], costs: Sequence[float]) -> list[int]:
    """The surest policy first, then each that is cheaper than all before it; the others are never worth a test."""
    steps: list[int] = []
    for k in sorted(range(len(costs)), key=lambda k: (-margins[k], costs[k])):
        if not steps or costs[k] < costs[steps[-1]]:
            steps.append(k)
    return steps


def rows_needed(risk: float, level: float) -> int:
    """Local answers, none of them wrong, that are enough: ln(1/level) / -ln(1 - risk)."""
    return math.ceil(math.log(level) / math.log1p(-risk))


# ---------------------------------------------------------------- the sequence


def fixed_sequence(p_value: Callable[[int], float], n: int, delta: float, starts: int = 1) -> list[int]:
    """Which of n hypotheses, in an order fixed beforehand, are rejected; docs/math.md (30).

    Parameters
    ----------
    p_value : callable
        Of hypothesis k; asked only for those that are reached.
    delta : float
        The chance of rejecting any true one is at most this.
    starts : int
        Places to begin at, evenly spread, which share delta alike. From each, one goes on until the first that is
        not rejected.
    """
    begin = sorted({k * n // starts for k in range(min(starts, n))})
    rejected: set[int] = set()
    for first in begin:
        for k in range(first, n):
            if k not in rejected and p_value(k) > delta / len(begin):
                break
            rejected.add(k)
    return sorted(rejected)
