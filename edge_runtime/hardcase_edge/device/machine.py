# SPDX-License-Identifier: Apache-2.0
"""The machine of a device: how it decides one item, without I/O, a thread or a clock.

    decider = Decider(loaded, RuntimeConfig(budget=400.0))
    deciding = decider.decide(now, can_ask=True)
    effect = next(deciding)
    effect = deciding.send((now, result))      again and again; StopIteration.value is the case at its end
    record = decider.finish(case, now, wall)

    effect                what the owner does                        what it sends as the result
    Read(sensors, ...)    reads these sensors                        their readings by number, None for one that failed
    Ask(readings, ...)    asks the HPC (``link.requests``)           its result and confidence, None if no reply came

With each result comes the time, in seconds of any clock that only rises. The owner is a thread (``device.Device``), an
event loop (a simulated fleet) or a replay in virtual time; all of them decide by what stands here. ``Companion`` says
who else goes along with a case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.record import record
from ..errors import InputError
from ..program.cost import evaluate_polynomial, start_of, to_micro, to_unit
from ..program.inner import COIN, MEMORY
from ..program.readings import MAX_DEADLINE_MS
from ..session.actions import DEGRADED, Decision, NeedSensors
from .lines import LineMaker
from .surroundings import NS, Case

if TYPE_CHECKING:
    from ..bundle.load import Loaded
    from ..program.readings import Reading
    from ..sensors.items import Item
    from .surroundings import Companion, Inner

NONE: frozenset[int] = frozenset()

Record = dict[str, Any]
Readings = Mapping[int, "Sequence[Reading] | None"]


@record(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """Every setting of the loop, with its unit in its name.

    Raises
    ------
    InputError
        A setting is out of range.
    """

    budget: float | None = None  # hard limit per decision, in the bundle's unit of cost; None: no limit
    deadline_ms: int = 2_000  # how long to wait for the cloud before the device answers alone
    interval_s: float = 0.0  # from the start of one decision to the start of the next; 0: as fast as sensors read
    count: int | None = None  # decisions before the run ends; None: run until the items end
    item_size: int = 1  # size of items that have none of their own, for sensors whose cost depends on it
    strict_range: bool = False  # True: a sensor with a reading outside the range of training has failed
    facts_every_s: float = 60.0  # least time between two messages of facts, because each costs radio energy
    coin_seed: int | None = None  # of a bundle that mixes two policies; None: from the system's randomness

    def __post_init__(self) -> None:
        if self.budget is not None and not 0 <= self.budget <= 1e12:
            raise InputError(f"the budget is {self.budget}; use 0 to 1e12")
        if not 1 <= self.deadline_ms <= MAX_DEADLINE_MS:
            raise InputError(f"the deadline is {self.deadline_ms} ms; use 1 to {MAX_DEADLINE_MS}")
        if not 0 <= self.interval_s <= 1e6 or not 0 <= self.facts_every_s <= 1e6:
            raise InputError("an interval is negative or longer than a million seconds; use 0 to 1e6 seconds")
        if self.count is not None and self.count < 1:
            raise InputError(f"the count is {self.count}; use 1 or more")
        if self.coin_seed is not None and not 0 <= self.coin_seed < 2**64:
            raise InputError(f"the coin's seed is {self.coin_seed}; use 0 to {2**64 - 1}")

    def check_fits(self, loaded: Loaded) -> None:
        """Refuse a size of items that a bundle does not have, and a budget that does not pay for a decision's start.

        Raises
        ------
        InputError
            The message says which.
        """
        largest = loaded.machine.program.max_item_size
        if not 1 <= self.item_size <= largest:
            raise InputError(f"the item size is {self.item_size}; this bundle supports 1 to {largest}")
        start = to_unit(start_of(loaded.bundle.program.costs))
        if self.budget is not None and self.budget < start:
            raise InputError(
                f"the budget is {self.budget:g}, but each decision costs {start:g} {loaded.manifest.unit} before it "
                "reads anything; raise it"
            )


class Read(NamedTuple):
    """Read these sensors."""

    sensors: Sequence[int]
    until: float | None = None  # of a decision by the clock: one after the other until this time; None: all at once
    part: int | None = None  # of an item of several parts: which one, from 0


class Ask(NamedTuple):
    """Ask the HPC."""

    readings: Sequence[Reading]  # in the uplink's order, None for missing
    deadline_s: float  # how long to wait
    may_resend: Callable[[], bool]  # asked before each transmission but the first, which it pays for


Deciding = Generator["Read | Ask", tuple[float, Any], Case]


class Decider:
    """Decides items by a bundle; devices that run it alike may share one.

    Parameters
    ----------
    loaded : Loaded
        A bundle that has passed every check.
    config : RuntimeConfig
    tell : called with each line for the log

    Attributes
    ----------
    counters : Counter
        Decisions by reported route: ``asked`` = ``local`` + ``cloud`` + ``degraded``.
    lines : LineMaker

    Raises
    ------
    InputError
        The configured item size is outside what the bundle supports, or the budget too low for any decision.
    """

    def __init__(
        self, loaded: Loaded, config: RuntimeConfig | None = None, tell: Callable[[str], object] = lambda line: None
    ) -> None:
        config = config or RuntimeConfig()
        config.check_fits(loaded)
        self.lines = LineMaker(loaded)
        self.counters: Counter[str] = Counter(asked=0, local=0, cloud=0, degraded=0)
        self._loaded, self._config, self._tell = loaded, config, tell
        self._budget = None if config.budget is None else to_micro(config.budget)
        self._ranges = _ranges_by_sensor(loaded)
        self._trips: Any = None  # what the cloud took to reply, of decisions by the clock
        self._inner = _inner_of(loaded)
        if loaded.manifest.clock:
            from .by_clock import RoundTrips

            self._trips = RoundTrips()

    def inner(self, *clocks: Callable[[], float], stream: Callable[[], object], coin_seed: int | None) -> list[Inner]:
        """What answers for the inner sensors of one device: the memory of its stream, or a coin; most have none.

        Parameters
        ----------
        clocks : functions that give seconds, monotonic and wall time; none: each decision is a window of the memory
        stream : says which stream the current item is of
        coin_seed : as of ``RuntimeConfig``
        """
        interval_s = self._config.interval_s if clocks else 0.0
        return [make(interval_s, clocks, stream, coin_seed) for make in self._inner]

    def decide(
        self,
        now: float,
        item: Item | None = None,
        parts: int = 0,
        dead: frozenset[int] = NONE,
        can_ask: bool = False,
        inner: Sequence[Inner] = (),
        companions: Sequence[Companion] = (),
        is_by_clock: bool = False,
    ) -> Deciding:
        """Decide one item; the module's docstring says how its owner drives it.

        Parameters
        ----------
        item : what is known of it; None if nothing gives items
        parts : of how many parts it is; 0 in a bundle that decides single cases
        dead : sensors that are not to be asked
        can_ask : whether a request can go out
        inner : what answers for the inner sensors of this device, as ``inner`` made it
        companions : who else goes along with the case, in this order
        is_by_clock : whether the bundle's unit is the time that passes, and each sensor is read until then
        """
        config, trips, case = self._config, self._trips, self._case(now, item, can_ask)
        case.is_by_clock = is_by_clock
        if case.fault:
            self._tell(f"{case.fault} (its sensors are not read)")
            case.can_ask, dead = False, frozenset(range(len(self._loaded.manifest.sensors)))
        until = now + case.budget / NS if is_by_clock and case.budget is not None else inf
        is_slow = is_by_clock and trips.expected_s > until - now
        case.accompany((*inner, *companions) if inner else companions)
        case.session = session = self._loaded.machine.session(
            budget=case.limit, item_size=case.size, dead=dead, cloud=case.can_ask and not is_slow
        )
        self.counters["asked"] += 1
        if is_by_clock:
            session.elapsed(0)
        while not isinstance(action := session.next_action(), Decision):
            if isinstance(action, NeedSensors):
                own = [i for i in inner if i.sensor in action.sensors] if inner else ()
                outer = [s for s in action.sensors if all(s != i.sensor for i in own)] if own else action.sensors
                readings: Readings = {}
                if outer:
                    now, readings = yield Read(outer, until if is_by_clock else None)
                    readings = self.checked(outer, readings, case.outside) if self._ranges else readings
                for companion in inner:
                    companion.see(readings)
                session.feed({**readings, **{i.sensor: i.read() for i in own}} if own else readings)
                if is_by_clock:
                    session.elapsed(case.spent(now))
                continue
            wait_s, answer = config.deadline_ms / 1000, None
            if is_by_clock:
                wait_s = min(wait_s, until - now)
            if is_by_clock and (wait_s * 1000 < 1 or wait_s < trips.expected_s):
                trips.forget_one()
            else:
                case.has_asked, asked = True, now
                now, answer = yield Ask(action.readings, wait_s, session.resend)
                if is_by_clock:
                    trips.add(now - asked)
            if is_by_clock:
                session.elapsed(case.spent(now))
            if answer is None:
                session.no_reply()
            else:
                session.reply(*answer)
        case.decision = action
        if is_slow and action.route == DEGRADED:
            trips.forget_one()
        return case

    def finish(self, case: Case, now: float, wall: float) -> Record:
        """The record of a case that ``decide`` has ended, ready for JSON; ``record_keys`` lists its keys.

        ``wall`` is wall time in seconds, which is only reported.
        """
        case.record = {"t": round(wall, 3), **self._line(case, now - case.began)}
        for companion in case.along:
            companion.end(case)
        self.counters[case.record["route"]] += 1
        return case.record

    # ------------------------------------------------------------ parts

    def _case(self, now: float, item: Item | None, can_ask: bool) -> Case:
        """The case that an item begins."""
        item = self._checked(item)
        case = Case(item, self._budget if item is None or item.budget is None else item.budget, can_ask)
        case.began, case.size = now, self._config.item_size if item is None or item.size is None else item.size
        case.fault = "" if item is None else item.fault
        return case

    def _line(self, case: Case, elapsed_s: float) -> Record:
        """Its record, but for its time."""
        line, budget = self.lines.line(case.decision, elapsed_s, case.outside, case.session), case.budget
        if case.item is not None or case.is_by_clock:
            line["item_size"] = None if case.fault else case.size
            line["budget"] = None if budget is None else to_unit(budget)
            self._tell_if_too_small(budget, case.size, case.decision)
        if case.is_by_clock:
            line["late"] = budget is not None and elapsed_s > budget / NS
        return line

    def _checked(self, item: Item | None) -> Item | None:
        """The item; with a fault, if its own budget does not pay for the start of a decision."""
        start = start_of(self._loaded.bundle.program.costs)
        if item is None or item.budget is None or item.budget >= start:
            return item
        why = f"budget {to_unit(item.budget):g} of an item is less than the start of a decision costs"
        return Item(item.size, None, f"{why}, {to_unit(start):g}; raise it")

    def _tell_if_too_small(self, budget: int | None, size: int, decision: Decision) -> None:
        """Say so if the budget of an item is too small for anything."""
        if budget is None or decision.sensors or decision.failed:
            return
        costs = self._loaded.machine.program.sensors
        least = min((evaluate_polynomial(s.cost, size) for s in costs), default=0)
        if least > budget - start_of(self._loaded.bundle.program.costs):
            self._tell(f"a budget of {to_unit(budget):g} is less than any sensor costs; the answer is a guess")

    def checked(self, sensors: Sequence[int], readings: Readings, outside: list[str]) -> Readings:
        """The readings; adds the names of those outside their ranges, whose sensors fail if that is strict."""
        names = {s: some for s in sensors if (some := self._outside(s, readings[s]))}
        if not names:
            return readings
        outside.extend([name for some in names.values() for name in some if name not in outside])
        return {**readings, **dict.fromkeys(names)} if self._config.strict_range else readings

    def _outside(self, sensor: int, values: Sequence[Reading] | None) -> list[str]:
        """The names of a sensor's features whose readings lie outside their ranges."""
        if values is None:
            return []
        places = self._ranges[sensor]
        return [name for k, name, low, high in places if (x := values[k]) is not None and not low <= x <= high]


def _inner_of(loaded: Loaded) -> list[Callable[..., Inner]]:
    """Makers of what answers for a bundle's inner sensors; most have none, and import nothing of it."""
    manifest, program = loaded.manifest, loaded.machine.program
    makers: list[Callable[..., Inner]] = []
    if MEMORY in manifest.sensors:
        from ..stream.layout import layout_of
        from .remembering import Remembering

        layout = layout_of(program, manifest.features, manifest.sensors)
        if layout is not None:
            makers.append(lambda every_s, clocks, stream, seed: Remembering(program, layout, every_s, clocks, stream))
    if COIN in manifest.sensors:
        from ..stream.coin import coin_of
        from .remembering import Tossing

        coin = coin_of(program, manifest.features, manifest.sensors)
        if coin is not None:
            makers.append(lambda every_s, clocks, stream, seed: Tossing(coin, seed))
    return makers


def _ranges_by_sensor(loaded: Loaded) -> list[list[tuple[int, str, float, float]]]:
    """For each sensor the position, name and range of its features that have one; empty if no feature has."""
    manifest, sensors = loaded.manifest, loaded.machine.program.sensors
    pairs = [[(k, f, manifest.ranges[f]) for k, f in enumerate(s.features)] for s in sensors] if manifest.ranges else []
    return [[(k, manifest.features[f], *pair) for k, f, pair in some if pair is not None] for some in pairs]
