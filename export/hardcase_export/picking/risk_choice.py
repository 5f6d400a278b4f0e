# SPDX-License-Identifier: Apache-2.0
"""Risk-controlled choice: the cheapest point whose risk a Learn-then-Test procedure bounds on held-out rows.

``choose`` tests points in an order fixed beforehand and returns the cheapest that passes, with a ``Promise``: terms
that hold with probability 1 - delta over the draw of the held-out rows. The statistics are in ``risk_test``; a
``Trial`` counts what a point does on the rows, so nothing here reads a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from hardcase_edge.errors import InputError

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

__all__ = ["STARTS", "Promise", "RiskTerms", "Trial", "choose", "find", "say_promise"]

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


@dataclass(frozen=True, slots=True)
class RiskTerms:
    """The statement to be shown of a point.

    With probability at least 1 - ``delta`` over the draw of the held-out rows: at most a share ``risk`` of the local
    answers are wrong (``is_excess``: the share of wrong answers exceeds f0's on the same rows by at most ``risk``), and
    at most a share ``max_forward`` of all rows are forwarded (None: a bound derived from the validation forward rate).
    If the rows come in groups, shares are those of a group's rows, and their means over groups are bounded.
    """

    risk: float
    delta: float = 0.05
    max_forward: float | None = None
    is_excess: bool = False

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


@dataclass(frozen=True, slots=True)
class Promise:
    """Terms that the tests showed of one point.

    ``max_forward``: bound on the share of forwarded rows. ``counts``: of the point on the held-out rows. ``p``: its
    p-value. ``tried``: number of points tested.
    """

    terms: RiskTerms
    max_forward: float
    counts: Counts
    p: float
    tried: int

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, as they stand in a manifest's claims."""
        counts = self.counts
        return {
            "of": "excess" if self.terms.is_excess else "error",
            "risk": self.terms.risk,
            "delta": self.terms.delta,
            "max_forward": self.max_forward,
            "p": self.p,
            "tried": self.tried,
            "counts": {"local": counts.local, "errors": counts.errors, "worse": counts.worse, "better": counts.better},
        }


@dataclass(frozen=True, slots=True)
class _Test:
    """The test of one point, with everything that must be fixed before the held-out rows are seen."""

    point: Point
    terms: RiskTerms
    max_forward: float
    can_forward: bool
    bet: float
    forward_bet: float

    def p_value(self, counts: Counts) -> float:
        """p-value of the union of both null hypotheses, too many errors or too many forwards; docs/math.md (29)."""
        risk = self.terms.risk
        p_risk = (p_excess if self.terms.is_excess else p_error)(counts, risk, self.bet)
        return max(p_risk, p_forward(counts, self.max_forward, self.forward_bet) if self.can_forward else 0.0)


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
    return test.point, Promise(terms, test.max_forward, counts, test.p_value(counts), len(tests))


def _order(points: Sequence[Point], terms: RiskTerms, trial: Trial) -> list[Point]:
    """The testing order. Validation figures alone decide it, so it is fixed before the held-out rows are seen."""
    spare = [
        standard_errors_to_spare(_rates(p), _draws(trial), terms.risk, terms.is_excess, terms.max_forward)
        for p in points
    ]
    return [points[k] for k in order_of_tests(spare, [p.valid.cost for p in points])]


def _test(point: Point, terms: RiskTerms, trial: Trial) -> _Test:
    rates, n = _rates(point), _draws(trial)
    losses = rates if terms.is_excess else replace(rates, worse=rates.error, better=0.0)
    bet = best_bet(losses, terms.risk, n * (1 - rates.forward_rate))
    can_forward = trial.can_forward(point)
    bound = terms.max_forward
    if bound is None:
        level = terms.delta / STARTS
        bound = forward_bound(rates.forward_rate, n, level, trial.groups > 0) if can_forward else 0.0
    return _Test(point, terms, bound, can_forward, bet, forward_bet(rates.forward_rate, bound, n) if bound < 1 else 1.0)


def _draws(trial: Trial) -> int:
    """The number of independent draws: of groups, else of rows."""
    return trial.groups or trial.rows


def _rates(point: Point) -> ValidationRates:
    v = point.valid
    if v.local_error is None or v.local_worse is None or v.local_better is None:
        raise InputError(f"{point.method} in front.json has no local_error, which --risk needs; train again")
    return ValidationRates(v.forward_rate, v.local_error, v.local_worse, v.local_better)


# ---------------------------------------------------------------- the promise in words


def say_promise(claim: object) -> str | None:
    """The promise of a manifest's claims in one line; None if the claim, which may come from anyone, is malformed."""
    try:
        return _say(claim)
    except (TypeError, KeyError, ValueError):
        return None


def _say(claim: Any) -> str:
    risk, delta, max_forward = (_share(claim[key]) for key in ("risk", "delta", "max_forward"))
    rows, counts = claim["rows"], claim["counts"]
    n, local, errors = _whole(rows["n"], 10**12), counts["local"], counts["errors"]
    worse, better = (_whole(counts[key], _whole(local, n)) for key in ("worse", "better"))
    bounded = {"error": "of local answers wrong", "excess": "of local answers wrong beyond those that f0 gets wrong"}
    counted = {"error": f"{_whole(errors, local)} wrong", "excess": f"{worse} worse and {better} better than f0"}
    file, sha256 = rows["file"], rows["sha256"]
    over = f"{n} rows" if "groups" not in rows else f"{_whole(rows['groups'], n)} groups ({n} rows, each group alike)"
    if not isinstance(file, str) or not re.fullmatch("[0-9a-f]{64}", sha256):
        raise ValueError("file or sha256 of the rows is malformed")
    return (
        f"with probability {1 - delta:.4g} over the draw of {over}: at most {risk:.4g} {bounded[claim['of']]} and at "
        f"most {max_forward:.4g} forwarded; of {local} answered, {counted[claim['of']]} (rows {json.dumps(file)[:80]}, "
        f"sha256 {sha256[:16]})"
    )


def _share(value: object) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 1:  # type: ignore[operator]
        raise ValueError("not a share from 0 to 1")
    return float(value)  # type: ignore[arg-type]


def _whole(value: object, highest: int) -> int:
    if type(value) is not int or not 0 <= value <= highest:
        raise ValueError(f"not a whole number from 0 to {highest}")
    return value


# ---------------------------------------------------------------- no point passes


def _no_choice(points: Sequence[Point], terms: RiskTerms, trial: Trial) -> str:
    """The error message: the first point of the testing order with its counts, and terms that would have passed."""
    safest = _order(points, terms, trial)[0]
    c = trial.counts(safest)
    over = f"{trial.groups} groups ({c.rows} rows)" if trial.groups else f"{c.rows} rows"
    wrong = f"{c.worse} worse and {c.better} better than f0" if terms.is_excess else f"{c.errors} wrong"
    return (
        f"no program keeps --risk {terms.risk:g} at --delta {terms.delta:g} on the {over} of {trial.name}: "
        f"the safest, {safest.method}, forwards {c.forwarded} and answers {c.local}, {wrong}; "
        f"{_enough(points, terms, trial)}"
    )


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
