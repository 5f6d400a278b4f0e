# SPDX-License-Identifier: Apache-2.0
"""The running budgets of a run: joins the servo and its plan to the clocks, the bundle's machine and a file."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from ...bundle.load import Loaded
from ...bundle.prices import LEVEL, Prices, can_move
from ...device.output import note
from ...device.surroundings import Part
from ...errors import InputError
from ...program.cost import start_of, to_micro, to_unit
from ...program.definition import Opaque
from ...program.inner import COIN, inner_sensors
from ...sensors.trouble import Episode, some
from ...session.actions import DEGRADED
from ...settings.config import RunConfig
from ...settings.table import check_values
from ...settings.values import BUDGET_FILE, parse_date, parse_share
from .bucket import HOUR_MS
from .ledger import lock_ledger, read_ledger, unlock_ledger, write_ledger
from .plan import Plan, energy_to_micro
from .servo import FORWARD, MOST_STRETCH, Servo, forward_bucket, spending_bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...base.clock import Clock
    from ...device.surroundings import Case, Surroundings

_PACE = "a running budget paces decisions of one part"
ONE_PART = {"budget_per_hour": _PACE, "battery": _PACE, "max_forward_rate": _PACE}

PAID_IN_A_ROW = 20  # decisions after which a plan that could not pay is said to pay again
SAVE_EVERY_MS = 600_000  # for the time that is left of a battery's plan; what is spent is saved before


def check(config: RunConfig) -> None:
    """Refuse running budgets of which no plan can be made, whatever the bundle.

    Raises
    ------
    InputError
        A setting is out of range, or one stands without the other that it needs.
    """
    check_values(config, ("budget_per_hour", "battery"))
    if (config.battery is None) != (config.until is None):
        raise InputError("--battery and --until need each other: an energy, and the date until which it is to last")
    check_values(config, ("until", "max_forward_rate"))


def make(run: Surroundings) -> Budgets | None:
    """The running budgets of a run; None without one."""
    return budgets_of(run.config, run.loaded, run.clock, note)


def budgets_of(
    config: RunConfig,
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
    check(config)
    if (config.budget_per_hour, config.battery, config.max_forward_rate) == (None, None, None):
        return None
    manifest, prices = loaded.manifest, loaded.manifest.prices
    share = None if config.max_forward_rate is None else parse_share(config.max_forward_rate, "--max-forward-rate")
    path = config.budget_file or (BUDGET_FILE if config.store is None else f"{config.store}/budget.json")
    name = f"{config.budget_per_hour} {config.battery} {config.until} {share} {manifest.unit}"
    lock_ledger(path)
    kept = read_ledger(path, name)
    if kept is None:
        note(f"budget file {path} is damaged: the budget begins with an empty purse, which fills with time")
        if config.battery is not None:
            note("the battery is taken for full, because nobody knows what is left; if you do, name it with --battery")
    battery = None if kept is None else kept.get("battery")
    if kept is None and config.until is not None and parse_date(config.until, "--until") <= clock.now():
        battery = [0, 0]  # the plan is over, and a device that can start without energy starts
    plan, until = plan_of(config, loaded, clock, battery, note)
    if prices is None:
        note(f"the bundle has no prices, so no threshold moves and a budget only limits: {_why_no_prices(loaded)}")
    spending = None if plan is None else spending_bucket(plan.rate, loaded.report.worst_cost, prices)
    servo = Servo(prices, spending, None if share is None else forward_bucket(share, prices))
    if plan is not None and (reason := _why_too_little(plan, loaded, config.interval)):
        note(reason)
    return Budgets(servo, plan, loaded, path, name, note, monotonic, kept, until=until, clock=clock)


def _why_too_little(plan: Plan, loaded: Loaded, interval_s: float) -> str:
    """Why a plan cannot pay for a decision at each interval, however cheap; empty if it can, or nobody knows."""
    prices, unit = loaded.manifest.prices, loaded.manifest.unit
    least = max(to_unit(loaded.report.best_cost), 0.0 if prices is None else prices.costs[-1])
    if not interval_s or not least:
        return ""
    paid, made = to_unit(plan.rate) / least, 3600 / interval_s
    stretch = "" if plan.left is None else f", and {made / MOST_STRETCH:,.0f} where the interval stretches most"
    if paid >= made / (1.0 if plan.left is None else MOST_STRETCH):
        return ""
    return (
        f"the plan pays {paid:,.0f} of the cheapest decisions an hour ({least:g} {unit} each), and the interval makes "
        f"{made:,.0f}{stretch}; the others will lack sensors: raise the budget, or the interval"
    )


def _why_no_prices(loaded: Loaded) -> str:
    """Why the exporter gave it none, or how it would."""
    program, manifest = loaded.machine.program, loaded.manifest
    inner = inner_sensors(program, manifest.features, manifest.sensors)
    if inner:
        return "a policy with a coin has none" if COIN in inner else "a policy that remembers has none"
    is_opaque = any(isinstance(scorer, Opaque) for scorer in program.scorers)
    if not program.n_classes or is_opaque or not any(can_move(program, k) for k in range(len(program.nodes))):
        return "its policy has no threshold that could move"
    return "hardcase export --prices adds them where a threshold moves the cost"


def check_fits(config: RunConfig, loaded: Loaded) -> None:
    """Refuse a plan of what may be spent with a bundle that it cannot hold back.

    Raises
    ------
    InputError
        The bundle has no such costs.
    """
    if config.budget_per_hour is None and config.battery is None:
        return
    manifest, start = loaded.manifest, start_of(loaded.bundle.program.costs)
    if manifest.clock:
        raise InputError("this bundle decides by the clock, and time is not a budget to save; use --budget")
    if start:
        raise InputError(
            f"each decision of this bundle costs {to_unit(start):g} {manifest.unit} before it reads anything, which a "
            "running budget cannot hold back; use --budget or --max-forward-rate, or train it without per_decision"
        )
    if config.battery is not None and energy_to_micro(config.battery, manifest.unit) is None:
        raise InputError(
            f"--battery is an energy, but this bundle's costs are in {manifest.unit!r}; use --budget-per-hour"
        )


def plan_of(
    config: RunConfig,
    loaded: Loaded,
    clock: Clock,
    kept: list[int] | None = None,
    note: Callable[[str], None] = print,
) -> tuple[Plan | None, float | None]:
    """The plan of what may be spent, and its date in seconds since 1970; each None without one.

    Parameters
    ----------
    kept : what a ledger of the same plan has of its battery; None: there is no such ledger
    note : called with the line that a user should read if the date is past, but the ledger's plan goes on

    Raises
    ------
    InputError
        A flag cannot be used with this bundle, or the date is past.
    """
    if config.budget_per_hour is None and config.battery is None:
        return None, None
    check_fits(config, loaded)
    unit, per_hour = loaded.manifest.unit, None if config.budget_per_hour is None else to_micro(config.budget_per_hour)
    if config.battery is None:
        return Plan(per_hour), None
    left, until = energy_to_micro(config.battery, unit), parse_date(config.until or "", "--until")
    assert left is not None  # by ``check_fits``
    left_ms = int((until - clock.now()) * 1000)
    is_past = f"--until {config.until} is past by this device's clock"
    if kept is None:
        if left_ms <= 0:
            raise InputError(f"{is_past}; name a later date, or set the clock")
        return Plan(per_hour, left, left_ms), until
    plan = Plan(per_hour, min(left, kept[0]), kept[1])
    if left_ms <= 0:
        note(f"{is_past}; its plan goes on, with {plan.left_ms / HOUR_MS:.1f} hours left")
    return plan, until


class Budgets(Part):
    """Running budgets, a companion of each case (``device.surroundings.Companion``).

    Parameters
    ----------
    servo : Servo
    plan : of what is spent; None: forwards alone are limited
    loaded : the bundle, whose thresholds move
    path : of the file that keeps what is left
    name : of the plan, in the file
    note : called with each line that a user should read
    monotonic : seconds that only rise
    kept : what the file has of this plan; None: it is damaged, and nothing is left
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
        kept: dict[str, list[int]] | None,
        *,
        until: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.servo, self.plan = servo, plan
        self._path, self._name, self._note = path, name, note
        self._until, self._clock, self._monotonic = until, clock, monotonic
        self._battery = plan if plan is not None and plan.left is not None else None
        self._ms = int(monotonic() * 1000)
        self._may_forward = True
        prices = servo.prices
        self._position = 0 if prices is None else prices.shipped * LEVEL
        self._move = (lambda position: None) if prices is None else _mover(loaded, prices)
        self._move(self._position)  # the run before this one may have left them elsewhere
        self._price = None if prices is None else float(prices.shipped)  # the level of the last decision
        self._spent = 0
        self._worst = loaded.report.worst_cost
        self._reserve = 0 if servo.spending is None else max(servo.spending.burst, 2 * self._worst)
        self._forwards_reserve = 0 if servo.forwards is None else servo.forwards.burst
        self._unit, self._is_limited = loaded.manifest.unit, False
        self._unpaid, self._held = Episode(PAID_IN_A_ROW), Episode(PAID_IN_A_ROW)
        for bucket in (servo.spending, servo.forwards) if kept is None else ():
            if bucket is not None:
                bucket.resume(0, bucket.state[1])
        self._resume(kept or {})
        self._has_begun = False
        # Nothing is reserved before a decision, so starts that fail cost nothing.
        # A plan that was begun goes on, also on a disk that has become full or read-only.
        self._save(is_last=True, must=kept == {})

    # ------------------------------------------------------------ before and after a decision

    def begin(self, case: Case) -> None:
        """Limit the case to what is left, and move the thresholds."""
        if not self._has_begun:
            self._has_begun = True
            self._save()
        servo, now = self.servo, int(self._monotonic() * 1000)
        ms, self._ms = now - self._ms, now
        if self._battery is not None:
            self._follow_battery(self._battery, ms)
        servo.passed(ms)
        limit, self._may_forward = servo.begin(case.limit)
        if limit is not None and self.plan is not None:
            limit = min(limit, self._reserve_left)  # what may be spent before the file is written again
        own, case.limit = case.limit, limit if self._battery is None else self._battery.most(limit)
        self._is_limited = case.limit != own
        if not self._may_forward:
            case.can_ask = False
        position = servo.position
        if position != self._position:
            self._move(position)
            self._position = position
            self._price = round(position * 1000 / LEVEL) / 1000  # a quarter of the time of round(x, 3)

    def end(self, case: Case) -> None:
        """Count what the case has cost, and say in its record at which ``price``."""
        record = case.record
        cost, has_asked = to_micro(record["cost"]), case.has_asked
        if not self._may_forward and case.decision.route == DEGRADED:
            self.servo.n_held += 1
        self.servo.ended(cost, has_asked)
        self._spent += cost
        self._reserve_left -= cost
        if has_asked:
            self._forwards_left -= FORWARD
        if self._battery is not None:
            self._battery.spent(cost)
            case.stretch = self.stretch
        if self._is_used_up() or self._ms >= self._save_at_ms:
            self._save()
        record["price"] = self._price
        self._tell(record, is_held=not self._may_forward and case.decision.route == DEGRADED)

    def _tell(self, record: Mapping[str, Any], *, is_held: bool) -> None:
        """Tell the log when the plan does not pay for a decision, or for a forward, and when it does again."""
        lacks = record.get("unpaid") if self._is_limited else None
        if lacks:
            if self._unpaid.bad():
                self._note(f"{self._why_unpaid()}: {some(lacks)} could not be paid, and answers without are degraded")
        elif n := self._unpaid.good():
            self._note(f"the budget pays for decisions again; {n} lacked a sensor")
        if is_held:
            if self._held.bad():
                self._note("the share of --max-forward-rate is used up; hard cases are answered here, and are degraded")
        elif n := self._held.good():
            self._note(f"hard cases may be forwarded again; {n} were not")

    def _why_unpaid(self) -> str:
        battery = self._battery
        if battery is not None and battery.left is not None and battery.left < self._worst:
            return f"the battery's energy for decisions is used up, {to_unit(battery.left):g} {self._unit} are left"
        rate = 0.0 if self.plan is None else to_unit(self.plan.rate)
        return f"the running budget of {rate:g} {self._unit} an hour is used up until it fills"

    @property
    def stretch(self) -> float:
        """By what the interval is multiplied, from 1: of a battery that falls behind its plan."""
        return 1.0 if self._battery is None else self.servo.stretch

    def stop(self) -> None:
        """No decision follows: what is left is kept as it is, and another run may use the file."""
        self._save(is_last=True)
        unlock_ledger(self._path)

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

    def _follow_battery(self, plan: Plan, ms: int) -> None:
        """The plan after these milliseconds."""
        plan.passed(ms)
        if self._until is not None and self._clock is not None:
            plan.date_is_in(int((self._until - self._clock.now()) * 1000), ms)
        if self.servo.spending is not None:
            self.servo.spending.rate = plan.rate

    def _is_used_up(self) -> bool:
        """Whether the next decision might spend more than the file reckons with."""
        spending, left = self.servo.spending, self._reserve_left
        is_short = spending is not None and left < self._worst and left < spending.left
        return is_short or (self.servo.forwards is not None and self._forwards_left < FORWARD)

    def _resume(self, parts: dict[str, list[int]]) -> None:
        if self.servo.spending is not None and "spending" in parts:
            self.servo.spending.resume(*parts["spending"])
        if self.servo.forwards is not None and "forwards" in parts:
            self.servo.forwards.resume(*parts["forwards"])

    def _save(self, *, is_last: bool = False, must: bool = False) -> None:
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
            if must:
                raise
            self._note(f"{error}; until it can be, a restart may spend a part of the budget again")
        self._reserve_left, self._forwards_left = self._reserve, self._forwards_reserve
        self._save_at_ms = self._ms + SAVE_EVERY_MS


def _mover(loaded: Loaded, prices: Prices) -> Callable[[int], None]:
    """A function that sets the machine's thresholds to those of a position of the price."""
    set_threshold = loaded.machine.move

    def move(position: int) -> None:
        for node, threshold in zip(prices.nodes, prices.at(position), strict=True):
            set_threshold(node, threshold)

    return move
