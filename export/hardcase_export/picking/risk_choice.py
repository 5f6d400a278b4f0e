# SPDX-License-Identifier: Apache-2.0
"""Risk-controlled choice: the cheapest point whose risk a Learn-then-Test procedure bounds on held-out rows.

``choose`` tests points in an order fixed beforehand and returns the cheapest that passes, with a ``Promise``: terms
that hold with probability 1 - delta over the draw of the held-out rows. The statistics are in ``risk_test``; a
``Trial`` counts what a point does on the rows, so nothing here reads a file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from hardcase_edge.errors import InputError

from .promise_words import BY_CLASS, BY_TRUTH, say_counts, say_name, say_promise
from .risk_test import (
    Counts,
    ValidationRates,
    best_bet,
    fixed_sequence,
    forward_bet,
    forward_bound,
    order_of_tests,
    p_error,
    p_excess,
    p_forward,
    rows_needed,
    standard_errors_to_spare,
)

if TYPE_CHECKING:
    from ..drafts.front import Point

STARTS = 1  # places in the testing order at which a sequence begins; several share delta and mostly pass less
GRID = 10_000  # an error message names risks in whole multiples of 1 / GRID


class Trial(Protocol):
    """Held-out rows on which points are tested.

    ``name``: shown to people; ``rows``: their number; ``groups``: the number of their groups, 0 if they are independent
    draws; only groups are then, and each counts alike.
    """

    @property
    def name(self) -> str: ...

    @property
    def rows(self) -> int: ...

    @property
    def groups(self) -> int: ...

    def can_forward(self, point: Point) -> bool:
        """Whether any path of the point's program forwards to the cloud."""
        ...

    def counts(self, point: Point) -> Counts:
        """Errors of the point's quantised program on the rows."""
        ...

    def expected(self, point: Point) -> Mapping[str, float]:
        """By part: the number of draws in it that are expected on the rows, from what is fixed before they are seen."""
        ...

    def judged(self, point: Point) -> ValidationRates:
        """The point's rates on validation rows, of values, of which ``front.json`` has none."""
        ...


@dataclass(frozen=True, slots=True)
class RiskTerms:
    """The statement to be shown of a point.

    With probability at least 1 - ``delta`` over the draw of the held-out rows: at most a share ``risk`` of the local
    answers are wrong (``is_excess``: the share of wrong answers exceeds f0's on the same rows by at most ``risk``), and
    at most a share ``max_forward`` of all rows are forwarded (None: a bound derived from the validation forward rate).
    If the rows come in groups, shares are those of a group's rows, and their means over groups are bounded.

    per : the risk bounds also the share of each part that has enough rows, all at once with the same probability:
        ``BY_CLASS``, local answers by the class that is answered; ``BY_TRUTH``, by the true class; else the name of a
        column, by its value. None: only that of all local answers
    tolerance : an answer is wrong if it is off from the true value by more than this, in the target's unit; None for
        classes
    """

    risk: float
    delta: float = 0.05
    max_forward: float | None = None
    is_excess: bool = False
    per: str | None = None
    tolerance: float | None = None

    def check(self) -> None:
        """Refuse values out of range.

        Raises
        ------
        InputError
            A value is out of range.
        """
        for flag, value in (("--risk", self.risk), ("--delta", self.delta)):
            if not 0 < value < 1:
                raise InputError(f"{flag} is {value:g}; give a share between 0 and 1 (0.02 is two per cent)")
        if self.max_forward is not None and not 0 <= self.max_forward <= 1:
            raise InputError(f"--max-forward is {self.max_forward:g}; give a share from 0 to 1")
        if self.tolerance is not None and not 0 < self.tolerance < math.inf:
            raise InputError(f"--risk-tolerance is {self.tolerance:g}; give an amount above 0 in the target's unit")
        if self.tolerance is not None and self.per in (BY_CLASS, BY_TRUTH):
            raise InputError(f"--risk-per {self.per} is for classes, but --risk-tolerance is for values; name a column")


@dataclass(frozen=True, slots=True)
class Promise:
    """Terms that the tests showed of one point.

    ``max_forward``: bound on the share of forwarded rows. ``counts``: of the point on the held-out rows. ``p``: its
    p-value. ``tried``: number of points tested. ``parts``: the names of those that are promised, each with its p-value.
    ``needs``: draws without an error that any other part would have needed.
    """

    terms: RiskTerms
    max_forward: float
    counts: Counts
    p: float
    tried: int
    parts: Mapping[str, float]
    needs: int

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, as they stand in a manifest's claims."""
        terms = self.terms
        return {
            "of": "excess" if terms.is_excess else "error",
            "risk": terms.risk,
            "delta": terms.delta,
            "max_forward": self.max_forward,
            "p": self.p,
            "tried": self.tried,
            "counts": _counts_json(self.counts),
            **({} if terms.tolerance is None else {"tolerance": terms.tolerance}),
            **({} if terms.per is None else {"per": self._per_json()}),
        }

    def _per_json(self) -> dict[str, Any]:
        """The parts that are promised, and those that are too small, with their counts."""
        counts = dict(self.counts.parts)
        return {
            "by": self.terms.per,
            "parts": [{"name": name, "p": p, **_counts_json(counts[name])} for name, p in self.parts.items()],
            "small": [{"name": name, **_counts_json(c)} for name, c in counts.items() if name not in self.parts],
            "needs": self.needs,
        }


def _counts_json(counts: Counts) -> dict[str, int]:
    return {"local": counts.local, "errors": counts.errors, "worse": counts.worse, "better": counts.better}


@dataclass(frozen=True, slots=True)
class _Test:
    """The test of one point, with everything that must be fixed before the held-out rows are seen."""

    point: Point
    terms: RiskTerms
    max_forward: float
    can_forward: bool
    bet: float
    forward_bet: float
    parts: tuple[str, ...]

    def p_value(self, counts: Counts) -> float:
        """p-value of the union of all null hypotheses: too many errors, of all or of a part, or too many forwards.

        The union needs no correction for the number of its parts; docs/math.md (29) and (143).
        """
        if self.terms.per is not None and not self.parts:
            return 1.0
        p_risk = max(self._p_risk(counts), *self.p_parts(counts).values(), 0.0)
        return max(p_risk, p_forward(counts, self.max_forward, self.forward_bet) if self.can_forward else 0.0)

    def p_parts(self, counts: Counts) -> dict[str, float]:
        """The p-value of each part that is tested; 1 of one without a local answer."""
        of = dict(counts.parts)
        return {name: self._p_risk(of[name]) if name in of else 1.0 for name in self.parts}

    def _p_risk(self, counts: Counts) -> float:
        return (p_excess if self.terms.is_excess else p_error)(counts, self.terms.risk, self.bet)


def choose(points: Sequence[Point], terms: RiskTerms, trial: Trial) -> tuple[Point, Promise]:
    """The cheapest of the points that pass the test of the terms, and the promise.

    Raises
    ------
    InputError
        The terms are out of range, or no point passes; the message names terms under which one would have passed.
    """
    terms.check()
    needed, draws = rows_needed(terms.risk, terms.delta / STARTS), _draws(trial)
    if draws < needed and not terms.is_excess:  # said before any point is tried, which takes long
        least = _least(lambda share: rows_needed(share, terms.delta / STARTS) <= draws)
        what = "groups" if trial.groups else "rows"
        raise InputError(
            f"--risk {terms.risk:g} at --delta {terms.delta:g} needs {needed} {what} that are answered locally without "
            f"an error; {trial.name} has {draws} {what}, which can show "
            f"{'nothing' if least is None else f'--risk {least:g} at best'}; give more {what} with --calibration"
        )
    choice = find(points, terms, trial)
    if choice is None:
        raise InputError(_no_choice(points, terms, trial))
    return choice


def find(points: Sequence[Point], terms: RiskTerms, trial: Trial) -> tuple[Point, Promise] | None:
    """As ``choose``; None if no point passes."""
    terms.check()
    order = _order(points, terms, trial)
    tests: dict[int, _Test] = {}

    def p_value(k: int) -> float:
        tests[k] = _test(order[k], terms, trial)
        return tests[k].p_value(trial.counts(order[k]))

    passed = fixed_sequence(p_value, len(order), terms.delta, STARTS)
    if not passed:
        return None
    test = tests[passed[-1]]  # costs fall along the testing order
    counts = trial.counts(test.point)
    needs = rows_needed(terms.risk, terms.delta / STARTS)
    parts = test.p_parts(counts)
    return test.point, Promise(terms, test.max_forward, counts, test.p_value(counts), len(tests), parts, needs)


def _order(points: Sequence[Point], terms: RiskTerms, trial: Trial) -> list[Point]:
    """The testing order. Validation figures alone decide it, so it is fixed before the held-out rows are seen."""
    if terms.tolerance is not None:  # the front has no share of values that are far off
        spare = [p.valid.quality for p in points]
    else:
        spare = [
            standard_errors_to_spare(_rates(p), _draws(trial), terms.risk, terms.is_excess, terms.max_forward)
            for p in points
        ]
    return [points[k] for k in order_of_tests(spare, [p.valid.cost for p in points])]


def _test(point: Point, terms: RiskTerms, trial: Trial) -> _Test:
    rates, n = _rates(point) if terms.tolerance is None else trial.judged(point), _draws(trial)
    losses = rates if terms.is_excess else replace(rates, worse=rates.error, better=0.0)
    bet = best_bet(losses, terms.risk, n * (1 - rates.forward_rate))
    can_forward = trial.can_forward(point)
    bound = terms.max_forward
    if bound is None:
        level = terms.delta / STARTS
        bound = forward_bound(rates.forward_rate, n, level, trial.groups > 0) if can_forward else 0.0
    on_forwards = forward_bet(rates.forward_rate, bound, n) if bound < 1 else 1.0
    parts: tuple[str, ...] = ()
    if terms.per is not None:
        needs, expected = rows_needed(terms.risk, terms.delta / STARTS), trial.expected(point)
        parts = tuple([name for name, draws in expected.items() if draws >= needs])
    return _Test(point, terms, bound, can_forward, bet, on_forwards, parts)


def _draws(trial: Trial) -> int:
    """The number of independent draws: of groups, else of rows."""
    return trial.groups or trial.rows


def _rates(point: Point) -> ValidationRates:
    v = point.valid
    if v.local_error is None or v.local_worse is None or v.local_better is None:
        raise InputError(f"{point.method} in front.json has no local_error, which --risk needs; train again")
    return ValidationRates(v.forward_rate, v.local_error, v.local_worse, v.local_better)


def terms_in(claim: Any) -> RiskTerms:
    """The terms of a manifest's promise, to be shown again of another bundle; the bound of forwards is left open.

    Raises
    ------
    InputError
        The claim is malformed.
    """
    if say_promise(claim) is None:
        raise InputError("the promise of the old bundle is malformed; state another wish, such as --risk or --max-loss")
    per, tolerance = claim.get("per"), claim.get("tolerance")
    by = None if per is None else per["by"]
    return RiskTerms(claim["risk"], claim["delta"], None, claim["of"] == "excess", by, tolerance)


# ---------------------------------------------------------------- no point passes


def _no_choice(points: Sequence[Point], terms: RiskTerms, trial: Trial) -> str:
    """The error message: the first point of the testing order with its counts, and terms that would have passed."""
    safest = _order(points, terms, trial)[0]
    c = trial.counts(safest)
    over = f"{trial.groups} groups ({c.rows} rows)" if trial.groups else f"{c.rows} rows"
    of = "excess" if terms.is_excess else "error"
    return (
        f"no program keeps --risk {terms.risk:g} at --delta {terms.delta:g} on the {over} of {trial.name}: "
        f"the safest, {safest.method}, forwards {c.forwarded} and answers {c.local}, "
        f"{say_counts(_counts_json(c), c.rows, of)}{_worst_part(safest, c, terms, trial)}; "
        f"{_enough(points, terms, trial)}"
    )


def _worst_part(point: Point, counts: Counts, terms: RiskTerms, trial: Trial) -> str:
    """The part of which least is shown, in words; or how large the largest is, if none is large enough."""
    if terms.per is None:
        return ""
    test = _test(point, terms, trial)
    p_values = test.p_parts(counts)
    if not p_values:
        name, draws = max(trial.expected(point).items(), key=lambda part: part[1], default=("none", 0.0))
        needs = rows_needed(terms.risk, terms.delta / STARTS)
        return f", and no part has the {needs} draws that each needs (the largest, {say_name(name)}, has {draws:.0f})"
    name = max(p_values, key=lambda name: p_values[name])
    if p_values[name] <= terms.delta / STARTS:
        return ""
    part = dict(counts.parts).get(name, Counts(counts.rows, 0, 0, 0, 0))
    of = "excess" if terms.is_excess else "error"
    return f" (of {say_name(name)}: {part.local}, {say_counts(_counts_json(part), part.rows, of)})"


def _enough(points: Sequence[Point], terms: RiskTerms, trial: Trial) -> str:
    """Terms that would have passed on these rows, and the fewest rows on which any point could pass."""

    def passes(changed: RiskTerms) -> bool:
        return find(points, changed, trial) is not None

    needed = rows_needed(terms.risk, terms.delta / STARTS)
    what = "groups with local answers" if trial.groups else "local answers"
    fewest = f"every program needs at least {needed} {what} without an error"
    risk = _least(lambda share: passes(replace(terms, risk=share)))
    if risk is not None:
        return f"--risk {risk:g} would have passed; {fewest}"
    max_forward = _least(lambda share: passes(replace(terms, max_forward=share)))
    remedy = "no other --risk" if max_forward is None else f"--max-forward {max_forward:g}"
    return f"{remedy} would have passed; {fewest}"


def _least(passes: Callable[[float], bool]) -> float | None:
    """The least multiple of 1 / GRID below 1 that passes, by bisection; None if the largest does not pass."""
    low, high = 0, GRID - 1
    if not passes(high / GRID):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle / GRID) else (middle, high)
    return high / GRID
