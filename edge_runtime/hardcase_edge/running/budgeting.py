# SPDX-License-Identifier: Apache-2.0
"""The running budgets of a run: joins the servo and its plan to the clocks, the bundle's machine and a file."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from ..bundle.load import Loaded
from ..bundle.prices import LEVEL
from ..errors import InputError
from ..kernel.machine import open_machine
from ..outbox.flags import parse_share
from ..program.cost import to_micro, to_unit
from ..servo.flags import date_of, is_asked
from ..servo.ledger import read_ledger, write_ledger
from ..servo.plan import MOST_LEFT_MS, Plan, energy_to_micro
from ..servo.servo import FORWARD, Servo, forward_bucket, spending_bucket
from ..session.session import CLOUD, DEGRADED

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from ..base.clock import Clock

__all__ = ["Budgets", "budgets_of", "movable"]

SAVE_EVERY_S = 600.0  # for the time that is left of a battery's plan; what is spent is saved before


def movable(loaded: Loaded) -> Loaded:
    """The bundle with a machine whose thresholds can move, where its manifest has prices."""
    prices, report = loaded.manifest.prices, loaded.report
    if prices is None:
        return loaded
    machine = open_machine(loaded.bundle.program, outlines=report.outlines, moved=prices.nodes)
    return Loaded(loaded.bundle, loaded.manifest, report, machine)


def budgets_of(
    args: argparse.Namespace,
    loaded: Loaded,
    clock: Clock,
    note: Callable[[str], None],
    monotonic: Callable[[], float] = monotonic,
) -> Budgets | None:
    """The running budgets that the flags ask for; None without one.

    Parameters
    ----------
    note : called with each line that a user should read

    Raises
    ------
    InputError
        A flag cannot be used with this bundle, or the file cannot be.
    """
    if not is_asked(args):
        return None
    loaded = movable(loaded)
    manifest, prices = loaded.manifest, loaded.manifest.prices
    if prices is None:
        note("the bundle has no prices, so no threshold moves: a budget only limits; export it with --prices")
    plan, until = None, None
    if args.budget_per_hour is not None or args.battery is not None:
        if manifest.clock:
            raise InputError("this bundle decides by the clock, and time is not a budget to save; use --budget")
        plan, until = _plan_of(args, manifest.unit, clock)
    spending = None if plan is None else spending_bucket(plan.rate, loaded.report.worst_cost, prices)
    share = None if args.max_forward_rate is None else parse_share(args.max_forward_rate, "--max-forward-rate")
    servo = Servo(prices, spending, None if share is None else forward_bucket(share, prices))
    path = args.budget_file or ("hardcase-budget.json" if args.store is None else f"{args.store}/budget.json")
    name = f"{args.budget_per_hour} {args.battery} {args.until} {share} {manifest.unit}"
    return Budgets(servo, plan, loaded, path, name, note, monotonic, until=until, clock=clock)


def _plan_of(args: argparse.Namespace, unit: str, clock: Clock) -> tuple[Plan, float | None]:
    per_hour = None if args.budget_per_hour is None else to_micro(args.budget_per_hour)
    if args.battery is None:
        return Plan(per_hour), None
    left, until = energy_to_micro(args.battery, unit), date_of(args.until)
    if left is None:
        raise InputError(f"--battery is an energy, but this bundle's costs are in {unit!r}; use --budget-per-hour")
    if until <= clock.now():
        raise InputError(f"--until {args.until} is past; name a later date")
    return Plan(per_hour, left, int((until - clock.now()) * 1000)), until


class Budgets:
    """What a device asks before and after each decision (``device.Pace``).

    Parameters
    ----------
    servo : Servo
    plan : of what is spent; None: forwards alone are limited
    loaded : the bundle, whose thresholds move
    path : of the file that keeps what is left
    name : of the plan, in the file
    note : called with each line that a user should read
    monotonic : seconds that only rise
    until, clock : the date of the plan, in seconds since 1970, and what is known of the date
    """

    def __init__(
        self,
        servo: Servo,
        plan: Plan | None,
        loaded: Loaded,
        path: str,
        name: str,
        note: Callable[[str], None],
        monotonic: Callable[[], float],
        *,
        until: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.servo, self.plan = servo, plan
        self.loaded, self._path, self._name, self._note = loaded, path, name, note
        self._until, self._clock, self._monotonic = until, clock, monotonic
        self._ms = int(monotonic() * 1000)
        self._may_forward = True
        prices = servo.prices
        self._position = 0 if prices is None else prices.shipped * LEVEL
        self._thresholds = () if prices is None else prices.at(self._position)
        self._spent = 0
        self._reserve = 0 if servo.spending is None else max(servo.spending.burst, 2 * loaded.report.worst_cost)
        self._forwards_reserve = 0 if servo.forwards is None else servo.forwards.burst
        self._resume(read_ledger(path, name))
        self._save()

    # ------------------------------------------------------------ before and after a decision

    def begin(self, budget: int | None) -> tuple[int | None, bool]:
        """What the next decision may cost, in micro-units, and whether it may ask the cloud; moves the thresholds."""
        self._pass()
        budget, self._may_forward = self.servo.begin(budget)
        if self.plan is not None:
            budget = self.plan.most(budget)
        if self.servo.spending is not None and budget is not None:
            budget = min(budget, self._reserve_left)
        self._move(self.servo.position)
        return budget, self._may_forward

    def end(self, route: str, cost: int, can_ask: bool) -> dict[str, Any]:
        """What the decision's record says of it: ``price``.

        Parameters
        ----------
        route, cost : of the decision; the cost in micro-units
        can_ask : whether the decision could ask the cloud
        """
        has_asked = route == CLOUD or (route == DEGRADED and can_ask)
        self.servo.n_held += route == DEGRADED and not self._may_forward
        self.servo.ended(cost, has_asked)
        self._spent += cost
        self._reserve_left -= cost
        self._forwards_left -= FORWARD * has_asked
        if self.plan is not None:
            self.plan.spent(cost)
        if self._is_used_up() or self._monotonic() >= self._saved_at + SAVE_EVERY_S:
            self._save()
        return {"price": self._price}

    @property
    def stretch(self) -> float:
        """By what the interval is multiplied, from 1: of a battery that falls behind its plan."""
        return 1.0 if self.plan is None or self.plan.left is None else self.servo.stretch

    def stop(self) -> None:
        """No decision follows: what is left is kept as it is."""
        self._save(is_last=True)

    def facts(self) -> dict[str, Any]:
        """The price, and what is spent and left, in the bundle's unit."""
        servo = self.servo
        facts: dict[str, Any] = {"price": self._price, "held": servo.n_held, "stretch": round(self.stretch, 3)}
        if self.plan is not None and servo.spending is not None:
            facts |= {"spent": to_unit(self._spent), "plan_per_hour": to_unit(self.plan.rate)}
            facts["ahead"] = to_unit(servo.spending.burst - servo.spending.left)
            if self.plan.left is not None:
                facts |= {"battery_left": to_unit(self.plan.left), "hours_left": self.plan.left_ms / 3_600_000}
        return {"budget": facts}

    # ------------------------------------------------------------ parts

    def _pass(self) -> None:
        now = int(self._monotonic() * 1000)
        ms, self._ms = now - self._ms, now
        if self.plan is not None and self.plan.left is not None and self.servo.spending is not None:
            self.plan.passed(ms)
            if self._until is not None and self._clock is not None:
                self.plan.date_is_in(int((self._until - self._clock.now()) * 1000), ms)
            self.servo.spending.rate = self.plan.rate
        self.servo.passed(ms)

    def _move(self, position: int) -> None:
        """Set the thresholds of a position of the price, those that change."""
        prices = self.servo.prices
        if prices is None or position == self._position:
            return
        thresholds = prices.at(position)
        for node, threshold, before in zip(prices.nodes, thresholds, self._thresholds, strict=True):
            if threshold != before:
                self.loaded.machine.move(node, threshold)
        self._position, self._thresholds = position, thresholds

    @property
    def _price(self) -> float | None:
        """The level at which the last decision was made, with its fraction."""
        return None if self.servo.prices is None else round(self._position / LEVEL, 3)

    def _is_used_up(self) -> bool:
        """Whether the next decision might spend more than the file reckons with."""
        spending, forwards = self.servo.spending, self.servo.forwards
        worst = self.loaded.report.worst_cost
        is_short = spending is not None and self._reserve_left < min(spending.left, worst)
        return is_short or (forwards is not None and self._forwards_left < FORWARD)

    def _resume(self, parts: dict[str, list[int]]) -> None:
        if self.servo.spending is not None and "spending" in parts:
            self.servo.spending.resume(*parts["spending"])
        if self.servo.forwards is not None and "forwards" in parts:
            self.servo.forwards.resume(*parts["forwards"])
        if self.plan is not None and self.plan.left is not None and "battery" in parts:
            left, left_ms = parts["battery"]
            self.plan.left = min(left, self.plan.left)
            self.plan.left_ms = min(left_ms, MOST_LEFT_MS)

    def _save(self, *, is_last: bool = False) -> None:
        """Write what would be left if the reserve were spent; what is left, if no decision follows."""
        reserve, forwards_reserve = (0, 0) if is_last else (self._reserve, self._forwards_reserve)
        parts: dict[str, tuple[int, int]] = {}
        if self.servo.spending is not None:
            left, base = self.servo.spending.state
            parts["spending"] = (max(0, left - reserve), base)
        if self.servo.forwards is not None:
            left, base = self.servo.forwards.state
            parts["forwards"] = (max(0, left - forwards_reserve), base)
        if self.plan is not None and self.plan.left is not None:
            parts["battery"] = (max(0, self.plan.left - reserve), self.plan.left_ms)
        try:
            write_ledger(self._path, self._name, dict(parts))
        except InputError as error:
            if self._spent == 0:
                raise
            self._note(f"{error}; until it can be, a restart may spend a part of the budget again")
        self._reserve_left, self._forwards_left = self._reserve, self._forwards_reserve
        self._saved_at = self._monotonic()
