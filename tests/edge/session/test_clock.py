# SPDX-License-Identifier: Apache-2.0
"""Decisions by the clock: what is spent is the time that has passed, more or less than what was declared."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from hardcase_edge.errors import SessionError
from hardcase_edge.kernel.machine import decide as decide_row
from hardcase_edge.kernel.machine import open_machine
from hardcase_edge.program.cost import Meter
from hardcase_edge.program.definition import Acquire, Answer, Costs, Forward, Polynomial, Program, Sensor, Slice, Uplink
from hardcase_edge.program.readings import request_bytes
from hardcase_edge.session.session import Decision, Machine, NeedSensors, Session
from hardcase_edge.verifier.verify import verify
from tests.helpers.attack.by_clock import Clock, attack, difference, random_case
from tests.helpers.edge.evaluators import evaluator  # noqa: F401
from tests.helpers.edge.from_spec import World
from tests.helpers.edge.hybrid import hybrid
from tests.helpers.edge.strategies import random_program, random_readings
from tests.helpers.edge.worlds import as_tuple, by_the_pages


def test_any_program_decides_by_the_clock_as_the_specification_read_literally(evaluator: str) -> None:  # noqa: F811
    (outcome,) = attack(60.0, seed=1, evaluator=evaluator, n=500)
    assert (outcome.inputs > 10, outcome.crashes, outcome.wrong) == (True, 0, 0), outcome


class Deaf(Session):
    """Goes by declared costs, whatever time has passed."""

    def elapsed(self, amount: int) -> None:
        pass


class Stingy(Session):
    """Takes a sensor that costs less than declared at its word, and one that costs more not."""

    def elapsed(self, amount: int) -> None:
        super().elapsed(min(amount, self._spent) if amount else 0)


@pytest.mark.parametrize("wrong", [Deaf, Stingy])
def test_a_session_that_counts_otherwise_is_found(wrong: type[Session]) -> None:
    class Mistaken(Machine):
        def session(self, **settings: Any) -> Session:
            return wrong(self, **settings)

    rng = random.Random(3)
    for seed in range(60):
        program = hybrid(seed, n=2)
        costs = Meter(program, 3).sensor_costs
        times = {k: rng.choice([c // 2, c, 2 * c]) for k, c in enumerate(costs)}
        budget = rng.choice([sum(times.values()), max(costs), sum(costs)])
        if difference(program, World([1.0, 1.0], budget=budget, size=3, times=times), Mistaken(program)):
            return
    raise AssertionError("no case finds it")


def test_an_any_time_program_is_never_late_and_always_answers_whichever_extractor_fails_or_hangs() -> None:
    routes: Counter[int] = Counter()
    for seed in range(8):
        program = hybrid(seed)
        rng = random.Random(seed)
        costs = Meter(program, 5).sensor_costs
        budget = (0, min(costs), sum(costs) // 2, 2 * sum(costs))[seed % 4]
        readings = random_readings(rng, program, 0.0)
        for broken in (None, *range(len(costs))):
            for is_hanging in (False, True):
                times = {k: rng.randint(c // 2, 2 * c) for k, c in enumerate(costs)}
                failing = frozenset() if broken is None or is_hanging else frozenset({broken})
                if broken is not None and is_hanging:
                    times[broken] = 10**15
                case = World(readings, failing, budget=budget, size=5, times=times)
                clock = Clock(program, case)
                decision = clock.run()
                assert as_tuple(decision) == by_the_pages(program, case)
                assert decision.cost <= budget
                assert clock.given_up <= 1, "nothing is begun when the time is over"
                routes[len(decision.sensors)] += 1
    assert set(routes) == {0, 1, 2, 3}, "budgets for nothing to all of them were tried"


def test_what_takes_less_than_declared_leaves_time_for_more_and_what_takes_more_leaves_less() -> None:
    program = hybrid(1, n=3, max_item_size=1)
    costs = Meter(program, 1).sensor_costs
    most = 2 * sum(costs) // 3
    bought = [
        Clock(program, World([1.0] * 3, budget=most, times={k: c * share // 8 for k, c in enumerate(costs)})).run()
        for share in (1, 8, 16)
    ]
    assert [len(d.sensors) for d in bought] == [3, 2, 1]


def test_times_as_declared_decide_as_without_the_clock() -> None:
    for seed in range(10):
        program = hybrid(seed)
        costs = Meter(program, 7).sensor_costs
        for budget in (0, costs[0], sum(costs) // 2, sum(costs)):
            case = World([1.0, -1.0, 0.5], budget=budget, size=7, times=dict(enumerate(costs)))
            row = decide_row(open_machine(program), [1.0, -1.0, 0.5], budget=budget, item_size=7)
            assert Clock(program, case).run() == row


def small() -> Session:
    """Sensor 0 (10), then sensor 1 (5) with a request (100); the answer at any time is class 0."""
    program = Program(
        features=(),
        sensors=(Sensor((), (10,)), Sensor((), (5,))),
        uplink=Uplink(),
        columns=(),
        scorers=(Polynomial((), (), 1, ((0,),), ((1,), (0,)), (0, 0)),),
        nodes=(Acquire((0,), 1, 2), Acquire((0, 1), 2, 2), Answer(Slice(0, 0, 2), confidences=(9,))),
        n_classes=2,
    )
    verify(program)
    return open_machine(program).session(budget=20)


def test_a_reading_that_came_in_time_is_used_although_the_time_is_over_when_it_is_fed() -> None:
    session = small()
    session.next_action()
    session.feed({0: []})
    session.elapsed(21)
    assert session.next_action() == Decision(0, 9, "local", 21, (0,), (0, 1, 2), unpaid=(1,))


def test_a_request_that_no_longer_fits_after_its_readings_is_not_sent() -> None:
    program = hybrid(0, n=2)
    length = request_bytes(["f32", "f32"])
    forward = Program(
        features=program.features, sensors=(Sensor((0,), (10,)), Sensor((1,), (10,))),
        uplink=Uplink(length, (0, 1)), costs=Costs(100), columns=(),
        scorers=(Polynomial((), (), 1, ((0,),), ((1,), (0,)), (0, 0)),),
        nodes=(Forward((0, 1), 1), Answer(Slice(0, 0, 2), confidences=(9,))), n_classes=2,
    )  # fmt: skip
    verify(forward)
    session = open_machine(forward).session(budget=130)
    assert session.next_action() == NeedSensors((0, 1))
    session.feed({0: [1.0], 1: [1.0]})
    session.elapsed(31)
    assert session.next_action() == Decision(0, 9, "local", 31, (0, 1), (0, 1))


def test_what_is_saved_before_the_clock_is_read_is_not_counted_twice() -> None:
    session = small()
    session.next_action()
    session.feed({0: []}, costs={0: 1})
    session.elapsed(3)
    assert session.next_action() == NeedSensors((1,))
    session.feed({1: []})
    assert session.next_action().cost == 3 + 5


@pytest.mark.parametrize("amount", [-1, 2**62 + 1, 10**30, 1.5, True, None, "3"], ids=repr)
def test_a_time_that_is_none_is_refused_and_changes_nothing(amount: Any) -> None:
    session = small()
    session.next_action()
    session.feed({0: []})
    with pytest.raises(SessionError, match="was reported as spent; report 0 to"):
        session.elapsed(amount)
    assert session.next_action() == NeedSensors((1,))


def test_a_session_that_has_ended_takes_no_time() -> None:
    session = small()
    session.elapsed(2**62)
    assert session.next_action() == Decision(0, 9, "local", 2**62, (), (0, 2), unpaid=(0,))
    with pytest.raises(SessionError, match="before the decision"):
        session.elapsed(0)


@pytest.mark.parametrize("seed", [2523979402, 3965300471])
def test_a_sensor_that_was_only_beyond_the_budget_is_not_wanted_in_vain_when_it_fails_later(seed: int) -> None:
    program = random_program(seed, seed % 6)
    case = random_case(program, seed + 1)
    case.failing -= {s for s, sensor in enumerate(program.sensors) if not sensor.features}
    assert difference(program, case) == ""
