# SPDX-License-Identifier: Apache-2.0
"""Learn-then-Test: p-values and fixed-sequence testing that bound a policy's risk on held-out rows.

Learn-then-Test is distribution-free risk control in the family of conformal prediction. For each policy it takes the
null hypothesis "this policy breaks the terms" and rejects it on rows on which nothing was chosen. The probability of
rejecting any true hypothesis (the family-wise error rate) is at most delta, so every policy whose hypothesis is
rejected keeps the terms with probability 1 - delta. Equations (29) to (38) of docs/math.md give the proofs, and (78) to
(82) those for rows that come in groups, which count groups instead of rows. Nothing here reads a file or knows what a
front is.

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

QUANTILE = 0.99  # probability that a policy passes its derived forward bound if it forwards as on validation rows
STEPS = 50  # of a bisection: to a precision of 1e-15


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of a policy's errors on held-out rows.

    ``local``: rows that the policy answered itself. Of these, ``errors`` are wrong, ``worse`` are wrong where f0 is
    right, and ``better`` are right where f0 is wrong. ``groups``: the counts of each group, if rows come in groups.
    ``parts``: by name, the counts of the local answers of one part, such as those of one class, among the same rows.
    """

    rows: int
    local: int
    errors: int
    worse: int
    better: int
    groups: tuple[Counts, ...] = ()
    parts: tuple[tuple[str, Counts], ...] = ()

    @property
    def forwarded(self) -> int:
        return self.rows - self.local


@dataclass(frozen=True, slots=True)
class ValidationRates:
    """A policy's rates on validation rows: ``forward_rate`` of all rows, the others of the rows answered locally."""

    forward_rate: float
    error: float
    worse: float
    better: float


# ---------------------------------------------------------------- p-values


def binomial_tail(k: int, n: int, p: float) -> float:
    """P(B <= k) for a binomial B, the number of successes in n trials of probability p; docs/math.md (31)."""
    if k >= n or p <= 0:
        return 1.0 if k >= 0 else 0.0
    if k < 0 or p >= 1:
        return 0.0
    if k >= n * p:  # the other tail has fewer terms
        return 1.0 - binomial_tail(n - k - 1, n, 1 - p)
    log = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(p) + (n - k) * math.log1p(-p)
    term = total = math.exp(log)
    for i in range(k, 0, -1):  # P(B = i - 1) from P(B = i); below the mean the terms fall
        term *= i * (1 - p) / ((n - i + 1) * p)
        total += term
        if term < total * 1e-17:
            break
    return min(1.0, total)


def p_error(counts: Counts, risk: float, bet: float = 1.0) -> float:
    """p-value of "more than ``risk`` of local answers are wrong"; docs/math.md (32). 1 without a local answer.

    ``bet``: as for ``p_groups``, needed if rows come in groups.
    """
    if counts.groups:
        return p_groups([(g.errors / g.rows, g.local / g.rows) for g in counts.groups], risk, bet)
    return binomial_tail(counts.errors, counts.local, risk) if counts.local else 1.0


def p_forward(counts: Counts, rate: float, bet: float = 1.0) -> float:
    """p-value of "more than ``rate`` of all rows are forwarded"; docs/math.md (33). 0 for a rate of 1.

    ``bet``: as for ``p_groups``, needed if rows come in groups.
    """
    if rate >= 1:
        return 0.0
    if counts.groups:
        return p_groups([(g.forwarded / g.rows, 1.0) for g in counts.groups], rate, bet)
    return binomial_tail(counts.forwarded, counts.rows, rate)


def p_excess(counts: Counts, risk: float, bet: float) -> float:
    """p-value of "the error rate of local answers exceeds f0's on the same rows by more than ``risk``".

    The test bets on each row (testing by betting); docs/math.md (34) to (36).

    Parameters
    ----------
    bet : float in (0, 1 / (1 - risk)]
        Fixed before the counts are seen (``best_bet``). Every bet is valid; the best bet gives the smallest p-values.
    """
    if counts.groups:
        return p_groups([((g.worse - g.better) / g.rows, g.local / g.rows) for g in counts.groups], risk, bet)
    remaining = 1 - bet * (1 - risk)
    if counts.worse and remaining <= 0:
        return 1.0  # one row took the whole wealth
    ties = counts.local - counts.worse - counts.better
    wealth = counts.worse * math.log(remaining) if counts.worse else 0.0
    wealth += ties * math.log1p(bet * risk) + counts.better * math.log1p(bet * (1 + risk))
    return math.exp(min(0.0, -wealth))


def p_groups(groups: Sequence[tuple[float, float]], risk: float, bet: float) -> float:
    """p-value of "the mean loss of groups exceeds ``risk`` times their mean base"; docs/math.md (78) to (80).

    Half of the wealth follows ``bet`` and half the largest bet, which is the best one if no group is lost as a whole.

    Parameters
    ----------
    groups : (loss, base) of each group, the base from 0 to 1 and the loss at most the base: of its rows, the share
        that is answered wrong and the share that is answered locally
    bet : float in (0, 1 / (1 - risk)], fixed before the groups are seen (``best_bet``)
    """
    wealth = 0.0
    for stake in (bet, 1 / (1 - risk)):
        factors = [1 + stake * (risk * base - loss) for loss, base in groups]
        if min(factors) > 0:
            wealth += math.exp(min(700.0, math.fsum(map(math.log, factors)))) / 2
    return min(1.0, 1 / wealth) if wealth else 1.0


def best_bet(rates: ValidationRates, risk: float, n_local: float) -> float:
    """The bet under which wealth grows fastest if held-out rows follow the validation rates; docs/math.md (37).

    ``n_local``: expected number of local answers on the held-out rows. The rates are smoothed as if they came from that
    many rows and two more, one of them worse than f0.
    """
    worse = (rates.worse * n_local + 1) / (n_local + 2)
    better = rates.better * n_local / (n_local + 2)
    ties = 1 - worse - better

    def slope(bet: float) -> float:
        lost = worse * (1 - risk) / (1 - bet * (1 - risk))
        return ties * risk / (1 + bet * risk) + better * (1 + risk) / (1 + bet * (1 + risk)) - lost

    low, high = 0.0, 1 / (1 - risk)
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return high


# ---------------------------------------------------------------- before the rows are seen


@functools.lru_cache(maxsize=1024)  # the search for an error message asks for the same bounds again
def forward_bound(rate: float, rows: int, level: float, is_grouped: bool = False) -> float:
    """The bound to test for a policy that forwards ``rate`` of the validation rows, on ``rows`` held-out rows.

    It is the least bound that passes with probability ``QUANTILE`` if the policy forwards as before; docs/math.md (38).
    ``is_grouped``: ``rows`` counts groups, of which each may be forwarded as a whole; docs/math.md (82).
    """
    likely = (rate * rows + 1) / (rows + 1)  # as if one row more were forwarded: 0 of n is not 0
    n_forwarded = bisect.bisect_left(range(rows), QUANTILE, key=lambda k: binomial_tail(k, rows, likely))
    if not is_grouped:
        return certain_bound(lambda bound: binomial_tail(n_forwarded, rows, bound), level)
    groups = [(float(k < n_forwarded), 1.0) for k in range(rows)]

    def p_value(bound: float) -> float:
        return p_groups(groups, bound, forward_bet(rate, bound, rows)) if bound < 1 else 0.0

    return certain_bound(p_value, level)


def forward_bet(rate: float, bound: float, n: float) -> float:
    """The bet against "more than ``bound`` is forwarded" by a policy that forwarded ``rate`` of the validation rows."""
    return best_bet(ValidationRates(0.0, rate, rate, 0.0), bound, n)


def certain_bound(p_value: Callable[[float], float], level: float) -> float:
    """The least bound in [0, 1] whose p-value, which falls as the bound grows, is at most ``level``."""
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if p_value(middle) <= level else (middle, high)
    return high


def standard_errors_to_spare(
    rates: ValidationRates, rows: int, risk: float, is_excess: bool, max_forward: float | None
) -> float:
    """Expected distance of a policy from its bounds, in standard errors; it decides the testing order of (30).

    It is the lesser of two distances: that of the risk and, if ``max_forward`` is given, that of the forward rate.
    """
    n_local = rows * (1 - rates.forward_rate)
    rate, spread = (rates.error, rates.error) if not is_excess else (rates.worse - rates.better, rates.worse)
    spread += rates.better if is_excess else 0.0
    safe = _distance(rate, spread, n_local, risk)
    if max_forward is None or max_forward >= 1:
        return safe
    return min(safe, _distance(rates.forward_rate, rates.forward_rate, rows, max_forward))


def _distance(rate: float, spread: float, n: float, bound: float) -> float:
    """(bound - rate) in standard errors of n rows; ``spread`` is E[d^2], smoothed by two rows, one with d = 1."""
    smooth = (spread * n + 1) / (n + 2)
    return (bound - rate) * math.sqrt(n / (smooth * (1 - smooth))) if n > 0 else -math.inf


def order_of_tests(spare: Sequence[float], costs: Sequence[float]) -> list[int]:
    """Policies by falling standard errors to spare, each cheaper than all before it; others cannot lower the cost."""
    order: list[int] = []
    for k in sorted(range(len(costs)), key=lambda k: (-spare[k], costs[k])):
        if not order or costs[k] < costs[order[-1]]:
            order.append(k)
    return order


def rows_needed(risk: float, level: float) -> int:
    """The fewest local answers that pass if none of them is wrong: ln(1/level) / -ln(1 - risk)."""
    return math.ceil(math.log(level) / math.log1p(-risk))


# ---------------------------------------------------------------- the sequence


def fixed_sequence(p_value: Callable[[int], float], n: int, delta: float, starts: int = 1) -> list[int]:
    """Fixed-sequence testing: the rejected ones of n hypotheses whose order is fixed beforehand; docs/math.md (30).

    Parameters
    ----------
    p_value : callable
        The p-value of hypothesis k; called only for hypotheses that the procedure reaches.
    delta : float
        Bound on the probability of rejecting any true hypothesis (family-wise error rate).
    starts : int
        Number of places to begin at, evenly spread, which share delta equally. From each place testing goes on until
        the first hypothesis that is not rejected.
    """
    begin = sorted({k * n // starts for k in range(min(starts, n))})
    rejected: set[int] = set()
    for first in begin:
        for k in range(first, n):
            if k not in rejected and p_value(k) > delta / len(begin):
                break
            rejected.add(k)
    return sorted(rejected)
