# SPDX-License-Identifier: Apache-2.0
"""What a session promises for every verified program, whatever it is fed."""

from __future__ import annotations

import random
from fractions import Fraction
from math import floor
from typing import Any

import pytest
from hypothesis import given, settings

from hardcase_edge.errors import SessionError
from hardcase_edge.kernel.machine import open_machine
from hardcase_edge.program import definition as d
from hardcase_edge.program.cost import Meter
from hardcase_edge.program.readings import request_bytes
from hardcase_edge.session.drive import drive
from hardcase_edge.session.session import Decision, NeedReply, NeedSensors, Session
from hardcase_edge.verifier.verify import verify
from tests.helpers.edge.evaluators import evaluator  # noqa: F401
from tests.helpers.edge.strategies import GARBAGE, programs, random_readings, seeds
from tests.helpers.edge.worlds import paying


def type_name(value: object) -> str:
    return type(value).__name__


many = settings(max_examples=150)


class Driver:
    """Plays a session to its end, in a random world, and checks each promise as it goes."""

    def __init__(self, program: d.Program, seed: int, garbage: float = 0.0) -> None:
        rng = random.Random(seed)
        n = len(program.sensors)
        self.program, self.rng, self.report = program, rng, verify(program)
        self.size = rng.randint(1, program.max_item_size)
        self.readings = random_readings(rng, program, garbage)
        self.failing = frozenset(s for s in range(n) if rng.random() < 0.2)
        self.dead = frozenset(s for s in range(n) if rng.random() < 0.1)
        self.budget = paying(program, rng.choice([None, None, 0, rng.randint(0, max(1, 2 * self.report.worst_cost))]))
        self.cloud = rng.random() < 0.8
        self.reply = (rng.randrange(program.n_classes or 1000), rng.randint(0, 10_000)) if rng.random() < 0.6 else None
        self.asked: list[int] = []
        self.requests = 0

    def run(self) -> Decision:
        session = open_machine(self.program).session(
            budget=self.budget, item_size=self.size, dead=self.dead, cloud=self.cloud
        )
        for _ in range(3 * len(self.program.nodes) + 3):
            action = session.next_action()
            assert session.next_action() == action, "asking again changes nothing"
            if isinstance(action, Decision):
                return action
            if isinstance(action, NeedSensors):
                self._feed(session, action)
            else:
                self._answer(session, action)
        raise AssertionError("the session does not end")

    def _feed(self, session: Session, action: NeedSensors) -> None:
        assert action.sensors, "it asks for something"
        assert not set(action.sensors) & (set(self.asked) | self.dead), "never twice, never the dead"
        self.asked += action.sensors
        session.feed({s: self._values(s) for s in action.sensors})

    def _values(self, sensor: int) -> list[Any] | None:
        if sensor in self.failing:
            return self.rng.choice([None, "failed", 3.0, [], b"", [1.0] * 99, {0: 1.0}])
        return [self.readings[f] for f in self.program.sensors[sensor].features]

    def _answer(self, session: Session, action: NeedReply) -> None:
        assert self.cloud, "no request without a cloud"
        self.requests += 1
        assert len(action.readings) == len(self.program.uplink.features)
        while self.rng.random() < 0.5:
            self.requests += session.resend()
        if self.reply is None:
            session.no_reply()
        else:
            session.reply(*self.reply)


@given(programs(5), seeds)
@many
def test_every_session_ends_within_its_budget_and_its_report(program: d.Program, seed: int) -> None:
    world = Driver(program, seed, garbage=0.05)
    decision = world.run()
    meter = Meter(program, world.size)
    assert decision.cost == meter.total(decision.sensors, world.requests)
    assert decision.sensors == tuple(sorted(world.asked))
    assert world.budget is None or decision.cost <= world.budget
    assert decision.cost <= world.report.worst_cost + max(0, world.requests - 1) * meter.request_cost
    assert list(decision.trace) == sorted(set(decision.trace)), "nodes only ever lie ahead"
    assert decision.trace[0] == 0
    assert len(decision.trace) <= world.report.longest_path
    assert 0 <= decision.confidence <= 10_000
    assert not program.n_classes or 0 <= decision.result < program.n_classes


@given(programs(5), seeds)
@many
def test_the_route_says_what_happened(program: d.Program, seed: int) -> None:
    world = Driver(program, seed)
    decision = world.run()
    met_forward = any(isinstance(program.nodes[k], d.Forward) for k in decision.trace)
    if decision.route == "cloud":
        assert world.requests >= 1
        assert (decision.result, decision.confidence) == world.reply
        assert isinstance(program.nodes[decision.trace[-1]], d.Forward)
    elif decision.route == "degraded":
        assert met_forward
        assert not world.cloud or (world.requests >= 1 and world.reply is None)
    else:
        assert decision.route == "local"
        assert world.requests == 0
        assert world.cloud or not met_forward


@given(programs(5), seeds)
@many
def test_a_healthy_decision_costs_at_least_the_best_and_at_most_the_worst(program: d.Program, seed: int) -> None:
    world = Driver(program, seed)
    world.failing = world.dead = frozenset()
    world.budget, world.cloud = None, True
    world.reply = world.reply or (0, 0)
    world.readings = [x if x is not None and x == x else 0 for x in world.readings]
    decision = world.run()
    extra = max(0, world.requests - 1) * Meter(program, world.size).request_cost
    assert world.report.best_cost <= decision.cost - extra <= world.report.worst_cost


@given(programs(4), seeds)
def test_one_machine_serves_sessions_that_run_side_by_side(program: d.Program, seed: int) -> None:
    machine = open_machine(program)
    worlds = [Driver(program, seed + k) for k in range(3)]
    alone = [Driver(program, seed + k).run() for k in range(3)]
    sessions = [machine.session(budget=w.budget, item_size=w.size, dead=w.dead, cloud=w.cloud) for w in worlds]
    done: dict[int, Decision] = {}
    while len(done) < 3:
        for k, (world, session) in enumerate(zip(worlds, sessions, strict=True)):
            action = session.next_action()
            if isinstance(action, Decision):
                done[k] = action
            elif isinstance(action, NeedSensors):
                world._feed(session, action)
            else:
                world._answer(session, action)
    assert [done[k] for k in range(3)] == alone


# ---------------------------------------------------------------- one small program, by hand


def small(nullable: bool = False) -> Any:
    """Sensor 0 (10) is tried; with it a request (100) may follow, with its sensor 1 (5); else the answer is class 0."""
    answer = d.Polynomial((), (), 1, ((0,),), ((1,), (0,)), (0, 0))
    program = d.Program(
        features=(d.Feature("f64", nullable), d.Feature("i32")),
        sensors=(d.Sensor((0,), (10,)), d.Sensor((1,), (5,))),
        uplink=d.Uplink(request_bytes(["f64", "i32"]), (0, 1)),
        costs=d.Costs(100),
        columns=(),
        scorers=(answer,),
        nodes=(d.Acquire((0,), 1, 2), d.Forward((0, 1), 2), d.Answer(d.Slice(0, 0, 2), confidences=(9,))),
        n_classes=2,
    )
    verify(program)
    return open_machine(program)


@pytest.mark.parametrize("value", [*GARBAGE, "12.5", True + 0.5j, [[1.0]]], ids=type_name)
def test_garbage_is_a_failed_sensor_that_was_paid_for(value: Any) -> None:
    session = small().session()
    session.next_action()
    session.feed({0: [value]})
    decision = session.next_action()
    assert decision == Decision(0, 9, "local", 10, (0,), (0, 2), failed=(0,))


@pytest.mark.parametrize("values", [None, [], [1.0, 2.0], "1", b"1", {0: 1.0}, {1.0}, 1.0, object()], ids=type_name)
def test_the_wrong_shape_is_a_failed_sensor(values: Any) -> None:
    session = small().session()
    session.next_action()
    session.feed({0: values})
    assert session.next_action().route == "local"


def test_a_reading_that_raises_is_a_failed_sensor() -> None:
    class Broken:
        def __float__(self) -> float:
            raise RuntimeError("no contact")

    session = small().session()
    session.next_action()
    session.feed({0: [Broken()]})
    assert session.next_action() == Decision(0, 9, "local", 10, (0,), (0, 2), failed=(0,))


def test_a_nullable_feature_may_be_missing_though_its_sensor_works() -> None:
    session = small(nullable=True).session()
    session.next_action()
    session.feed({0: [None]})
    assert session.next_action() == NeedSensors((1,))
    session.feed({1: [7]})
    assert session.next_action() == NeedReply((None, 7))


def test_a_failed_read_of_a_forward_is_charged_and_travels_as_missing() -> None:
    session = small().session()
    session.next_action()
    session.feed({0: [2.5]})
    assert session.next_action() == NeedSensors((1,))
    session.feed({1: None})
    assert session.next_action() == NeedReply((2.5, None))
    session.reply(1, 8000)
    assert session.next_action() == Decision(1, 8000, "cloud", 115, (0, 1), (0, 1), failed=(1,))


def test_a_dead_sensor_is_not_asked_and_not_charged() -> None:
    session = small().session(dead=[0])
    assert session.next_action() == Decision(0, 9, "local", 0, (), (0, 2), failed=(0,))


@pytest.mark.parametrize(
    ("budget", "cloud", "expected"),
    [
        pytest.param(9, True, Decision(0, 9, "local", 0, (), (0, 2), unpaid=(0,)), id="cannot-buy"),
        pytest.param(114, True, Decision(0, 9, "local", 10, (0,), (0, 1, 2)), id="cannot-ask"),
        pytest.param(115, True, NeedSensors((1,)), id="just-enough"),
        pytest.param(None, False, Decision(0, 9, "degraded", 10, (0,), (0, 1, 2)), id="no-cloud"),
        pytest.param(10, False, Decision(0, 9, "degraded", 10, (0,), (0, 1, 2)), id="no-cloud-and-no-money"),
        pytest.param(-1, True, Decision(0, 9, "local", 0, (), (0, 2), unpaid=(0,)), id="less-than-nothing"),
    ],
)
def test_the_budget_and_the_cloud_decide_what_is_bought(budget: int | None, cloud: bool, expected: Any) -> None:
    session = small().session(budget=budget, cloud=cloud)
    action = session.next_action()
    if isinstance(action, NeedSensors):
        session.feed({0: [1.0]})
        action = session.next_action()
    assert action == expected


def waiting_for_reply(budget: int | None = None) -> Session:
    session = small().session(budget=budget)
    session.next_action()
    session.feed({0: [1.0]})
    session.next_action()
    session.feed({1: [1]})
    session.next_action()
    return session


def test_a_request_is_sent_again_only_while_the_budget_lasts() -> None:
    session = waiting_for_reply(budget=320)
    assert [session.resend() for _ in range(4)] == [True, True, False, False]
    session.no_reply()
    assert session.next_action() == Decision(0, 9, "degraded", 315, (0, 1), (0, 1, 2))


@pytest.mark.parametrize(
    ("said", "cost"), [(3, 3), (0, 0), (10, 10), (11, 10), (-1, 10), (float("nan"), 10), ("3", 10)]
)
def test_a_sensor_may_say_that_it_cost_less_never_more(said: Any, cost: int) -> None:
    session = small().session()
    session.next_action()
    session.feed({0: None}, costs={0: said})
    assert session.next_action().cost == cost


# ---------------------------------------------------------------- misuse


@pytest.mark.parametrize(
    "misuse",
    [
        pytest.param(lambda s: s.feed({0: [1.0]}), id="feed-before-asking"),
        pytest.param(lambda s: s.reply(0, 0), id="reply-before-asking"),
        pytest.param(lambda s: s.no_reply(), id="no-reply-before-asking"),
        pytest.param(lambda s: s.resend(), id="resend-before-asking"),
        pytest.param(lambda s: (s.next_action(), s.feed({})), id="feed-too-few"),
        pytest.param(lambda s: (s.next_action(), s.feed({0: [1.0], 1: [1]})), id="feed-too-many"),
        pytest.param(lambda s: (s.next_action(), s.feed({1: [1]})), id="feed-another"),
        pytest.param(lambda s: (s.next_action(), s.reply(0, 0)), id="reply-instead-of-readings"),
        pytest.param(lambda s: (s.next_action(), s.feed({0: None}), s.feed({0: None})), id="feed-twice"),
    ],
)
def test_a_driver_that_breaks_the_protocol_is_told(misuse: Any) -> None:
    with pytest.raises(SessionError):
        misuse(small().session())


@pytest.mark.parametrize("reply", [(-1, 0), (2, 0), (0, -1), (0, 10_001), (10**30, 0)])
def test_a_reply_that_no_hpc_of_this_program_gives_is_refused(reply: tuple[int, int]) -> None:
    session = waiting_for_reply()
    with pytest.raises(SessionError, match="2 classes"):
        session.reply(*reply)
    session.reply(1, 1)
    with pytest.raises(SessionError, match="did not ask"):
        session.reply(1, 1)


@pytest.mark.parametrize("value", [-(2**63), 2**63 - 1, -(2**63) - 1, 2**63])
def test_a_reply_of_a_value_has_64_bits(value: int) -> None:
    sensor, up = d.Sensor((0,), (1,)), d.Uplink(request_bytes(["f32"]), (0,))
    scorers, nodes = (d.Trees((), (0,), ()),), (d.Forward((0,), 1), d.Answer(d.Slice(0, 0, 1), "value"))
    session = open_machine(d.Program((d.Feature("f32"),), (sensor,), up, (), scorers, nodes, 0)).session()
    session.next_action()
    session.feed({0: [1.0]})
    session.next_action()
    if -(2**63) <= value < 2**63:
        session.reply(value, 5)
        assert session.next_action().result == value
    else:
        with pytest.raises(SessionError):
            session.reply(value, 5)


@pytest.mark.parametrize("size", [0, -1, 2, 10**9])
def test_an_item_size_outside_the_programs_is_refused(size: int) -> None:
    with pytest.raises(SessionError, match="item size"):
        small().session(item_size=size)


def test_a_cost_polynomial_follows_the_item_size() -> None:
    nodes = (d.Acquire((0,), 1, 1), d.Answer(d.Slice(0, 0, 2)))
    scorer = d.Polynomial((), (), 1, ((0,),), ((1,), (0,)), (0, 0))
    program = d.Program((), (d.Sensor((), (7, 2, 3)),), d.Uplink(), (), (scorer,), nodes, 2, max_item_size=10)
    assert verify(program).worst_cost == 7 + 2 * 10 + 3 * 100
    assert verify(program).best_cost == 7 + 2 + 3
    session = open_machine(program).session(item_size=5)
    session.next_action()
    session.feed({0: []})
    assert session.next_action().cost == 7 + 2 * 5 + 3 * 25


# ---------------------------------------------------------------- rules at their edges


def constants(*scores: int) -> d.Polynomial:
    return d.Polynomial((), (), 1, ((0,),), ((0,),) * len(scores), scores)


def chosen(scores: tuple[int, ...], rule: str, n: int, threshold: int = 0, bracket: Any = ()) -> int:
    """Which of n targets, each an answer of its own confidence, a rule chooses."""
    part = d.Slice(0, 0, len(scores))
    answers = tuple(d.Answer(d.Slice(1, 0, 2), confidences=(k,)) for k in range(n))
    branch = d.Branch(part, rule, tuple(range(1, n + 1)), threshold, bracket)
    program = d.Program((), (), d.Uplink(), (), (constants(*scores), constants(0, 0)), (branch, *answers), 2)
    verify(program)
    decision = open_machine(program).session().next_action()
    assert isinstance(decision, Decision)
    return decision.confidence


@pytest.mark.parametrize(
    ("scores", "rule", "n", "threshold", "bracket", "expected"),
    [
        pytest.param((5,), "threshold", 2, 5, (), 0, id="threshold-is-not-above-itself"),
        pytest.param((6,), "threshold", 2, 5, (), 1, id="threshold-above"),
        pytest.param((9, 4), "margin", 2, 5, (), 1, id="margin-reaches"),
        pytest.param((8, 4), "margin", 2, 5, (), 0, id="margin-below"),
        pytest.param((3, 9, 9, 1), "margin", 2, 1, (), 0, id="margin-of-equals-is-nothing"),
        pytest.param((-5,), "margin", 2, 5, (), 1, id="margin-of-one-is-its-distance-from-zero"),
        pytest.param((1, 7, 7), "argmax", 3, 0, (), 1, id="argmax-first-of-equals"),
        pytest.param((0,), "argmax", 2, 0, (), 0, id="argmax-of-one-score-at-zero"),
        pytest.param((1,), "argmax", 2, 0, (), 1, id="argmax-of-one-score"),
        pytest.param((0,), "tournament", 2, 0, ((0, 1),), 0, id="a-match-at-zero-is-won-by-the-first"),
        pytest.param((1,), "tournament", 2, 0, ((0, 1),), 1, id="a-match-above-zero-is-won-by-the-second"),
        pytest.param((0,), "tournament", 2, 0, ((1, 0),), 1, id="a-match-goes-by-its-own-order"),
        pytest.param((1, 1), "tournament", 3, 0, ((0, 1), (3, 2)), 2, id="the-winner-of-the-last-match"),
        pytest.param((1, 0), "tournament", 3, 0, ((0, 1), (3, 2)), 1, id="the-winner-of-a-match-plays-on"),
    ],
)
def test_a_rule_at_its_edge(scores: Any, rule: str, n: int, threshold: int, bracket: Any, expected: int) -> None:
    assert chosen(scores, rule, n, threshold, bracket) == expected


@pytest.mark.parametrize(
    ("dead", "budget", "expected"),
    [
        pytest.param((), None, 2, id="the-best"),
        pytest.param((2,), None, 1, id="the-next-best-where-its-sensor-is-dead"),
        pytest.param((), 19, 1, id="the-next-best-where-it-is-too-dear"),
        pytest.param((1, 2), None, 0, id="the-last"),
        pytest.param((0, 1, 2), None, 2, id="the-rules-own-where-none-can-be-had"),
    ],
)
def test_targets_that_cannot_be_had_are_passed_over(dead: Any, budget: int | None, expected: int) -> None:
    sensors = (d.Sensor((), (1,)), d.Sensor((), (10,)), d.Sensor((), (20,)))
    for rule, scores, bracket in (("argmax", (1, 2, 3), ()), ("tournament", (1, 1), ((0, 1), (3, 2)))):
        nodes = (
            d.Branch(d.Slice(0, 0, len(scores)), rule, (1, 2, 3), bracket=bracket),
            *[d.Acquire((k,), 4, 4) for k in range(3)],
            d.Answer(d.Slice(1, 0, 2)),
        )
        program = d.Program((), sensors, d.Uplink(), (), (constants(*scores), constants(0, 0)), nodes, 2)
        verify(program)
        session = open_machine(program).session(dead=dead, budget=budget)
        while not isinstance(action := session.next_action(), Decision):
            session.feed({s: [] for s in action.sensors})
        assert action.trace == (0, 1 + expected, 4)


def test_a_score_is_computed_again_when_its_sensor_is_bought_after_all() -> None:
    scorer = d.Polynomial((0,), (-1,), 1, ((0,),), ((1,),), (0,))
    nodes = (
        d.Acquire((0, 1), 1, 1),  # sensor 1 is dead: buys nothing, sensor 0 counts as tried
        d.Branch(d.Slice(0, 0, 1), "threshold", (2, 3)),
        d.Acquire((0,), 3, 3),
        d.Answer(d.Slice(0, 0, 1), "value"),
    )
    column = d.Column(0, d.Affine(0, 1, 0, 0))
    sensors = (d.Sensor((0,), (1,)), d.Sensor((), (1,)))
    program = d.Program((d.Feature("i32"),), sensors, d.Uplink(), (column,), (scorer,), nodes, 0)
    verify(program)
    session = open_machine(program).session(dead=[1])
    assert session.next_action() == NeedSensors((0,))
    session.feed({0: [42]})
    assert session.next_action().result == 42


@pytest.mark.parametrize("shift", [-62, -3, -2, -1, 0, 1, 40])
def test_a_value_is_rounded_to_its_scale_with_halves_up(shift: int) -> None:
    scorer = d.Polynomial((0,), (0,), 1, ((0,),), ((1,),), (0,))
    nodes = (d.Acquire((0,), 1, 1), d.Answer(d.Slice(0, 0, 1), "value", (3,), (1, 2), shift))
    column = d.Column(0, d.Affine(0, 1, 0, 0, -20, 20))
    program = d.Program((d.Feature("i32"),), (d.Sensor((0,), (1,)),), d.Uplink(), (column,), (scorer,), nodes, 0)
    verify(program)
    machine = open_machine(program)
    for x in range(-13, 14):
        decision = drive(machine.session(), lambda _, x=x: {0: [x]}, lambda _: None)  # type: ignore[misc]
        assert decision.result == floor(Fraction(x) * Fraction(2) ** shift + Fraction(1, 2))
        assert decision.confidence == 1 + (x >= 3)


def test_the_meter_counts_each_sensor_once_and_each_request() -> None:
    meter = Meter(small().program)
    assert meter.total([0, 1, 0], 2) == 10 + 5 + 2 * 100
    assert meter.total([], 0) == 0
