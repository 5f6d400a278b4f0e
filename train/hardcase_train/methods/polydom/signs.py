# SPDX-License-Identifier: Apache-2.0
"""Where a polynomial with whole coefficients is below, at and above 0, on whole numbers, exactly. docs/math.md (95).

Between whole numbers nothing matters: item sizes are whole. So no root is computed; a polynomial is monotone where its
forward difference keeps its sign, and there a sign changes at most twice, which bisection finds.
"""

from __future__ import annotations

from collections.abc import Sequence

from hardcase_edge.program.cost import evaluate_polynomial

Runs = tuple[tuple[int, int], ...]  # first number, and sign from there to the next run: -1, 0 or 1


def minus(p: Sequence[int], q: Sequence[int]) -> tuple[int, ...]:
    """The polynomial p - q, without zeros of the highest degree.

    >>> minus((5, 0, 1), (2, 3, 1))
    (3, -3)
    """
    n = max(len(p), len(q))
    difference = [(p[k] if k < len(p) else 0) - (q[k] if k < len(q) else 0) for k in range(n)]
    while difference and difference[-1] == 0:
        difference.pop()
    return tuple(difference)


def sign_runs(p: Sequence[int], low: int, high: int) -> Runs:
    """The signs of ``p(s)`` for all whole s from ``low`` to ``high``, as runs.

    >>> sign_runs((6, -5, 1), 0, 9)  # (s - 2)(s - 3)
    ((0, 1), (2, 0), (4, 1))
    """
    p = minus(p, ())
    if len(p) < 2:
        return ((low, _sign(p[0] if p else 0)),)
    pieces = sign_runs(_step(p), low, high - 1) if high > low else ((low, 0),)
    ends = [start for start, _ in pieces[1:]] + [high]
    runs: list[tuple[int, int]] = [(low, _sign(evaluate_polynomial(tuple(p), low)))]
    for (start, slope), end in zip(pieces, ends, strict=True):
        if slope:  # monotone from start to end
            for sign in (0, 1) if slope > 0 else (0, -1):
                at = _first(p, start, end, sign, slope)
                if at is not None and at > runs[-1][0]:
                    runs.append((at, _sign(evaluate_polynomial(tuple(p), at))))
    return tuple(run for k, run in enumerate(runs) if k == 0 or run[1] != runs[k - 1][1])


def next_below(runs: Runs, start: int, ties: bool) -> int | None:
    """The first number from ``start`` on at which the sign is -1, or 0 if ``ties``; None if there is none."""
    signs = (-1, 0) if ties else (-1,)
    for k, (first, sign) in enumerate(runs):
        is_over = k + 1 < len(runs) and runs[k + 1][0] <= start
        if sign in signs and not is_over:
            return max(first, start)
    return None


def is_never_below(p: Sequence[int], low: int, high: int) -> bool:
    """Whether ``p(s) >= 0`` for all whole s from ``low`` to ``high``."""
    return (low >= 0 and min(p, default=0) >= 0) or all(sign >= 0 for _, sign in sign_runs(p, low, high))


def _step(p: Sequence[int]) -> tuple[int, ...]:
    """The forward difference p(s + 1) - p(s)."""
    row, shifted = [1], [0] * len(p)
    for c in p:  # row holds the binomial coefficients of (s + 1)^k
        for k, b in enumerate(row):
            shifted[k] += c * b
        row = [a + b for a, b in zip([*row, 0], [0, *row], strict=True)]
    return minus(shifted, p)


def _first(p: Sequence[int], low: int, high: int, sign: int, slope: int) -> int | None:
    """The first number of a monotone stretch where the sign of p has come as far as ``sign``; None: it never does."""
    coefficients = tuple(p)

    def has_come(s: int) -> bool:
        return slope * (_sign(evaluate_polynomial(coefficients, s)) - sign) >= 0

    if not has_come(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if has_come(middle) else (middle + 1, high)
    return low


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)
