# SPDX-License-Identifier: Apache-2.0
"""The session: one decision as an automaton without I/O or a clock, in the way that h11 treats HTTP.

The owner calls ``next_action``, does what the action asks for, reports back, and repeats until a ``Decision`` comes.
``next_action`` walks the program's nodes as far as it can and returns the same action until the owner has reported:

    state               next_action returns     the owner may call             and the session is then
    waiting for sensors NeedSensors(sensors)    feed(a value for each of them) walking on from the same node
    waiting for a reply NeedReply(readings)     reply(result, confidence)      decided, route CLOUD
                                                no_reply()                     walking on from the fallback, degraded
                                                resend()                       still waiting, one more request charged
    decided             Decision                nothing                        decided

``elapsed`` may be called in every state but the last, by an owner who goes by the clock: what has been spent is then
the time that has passed, and no longer the declared costs of what was bought until now.
Any other call raises a SessionError and changes nothing. A sensor fed with None, or with anything but the right number
of numbers, has failed; it is charged all the same. A walk ends at an Answer, with route LOCAL, or DEGRADED if a Forward
on the way found the cloud out of reach or silent. A Forward beyond the budget goes to its fallback and buys nothing.
A decision also names the sensors that the walk wanted and could not have: those that are dead or have failed, and those
for which the budget did not suffice.

Whatever it is fed, a session ends (targets lie ahead of their nodes), never asks for a sensor twice, and keeps declared
costs within the budget, requests sent again included. By the clock, it asks for nothing beyond what is left.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any

from ..errors import SessionError
from ..program.cost import Meter, evaluate_polynomial
from ..program.definition import (
    CODE_MAX,
    MISSING,
    Acquire,
    Answer,
    Branch,
    Forward,
    Node,
    Number,
    Opaque,
    Program,
    Select,
    Stack,
    shifter_of,
)
from ..program.kinds import VALUE
from ..program.readings import Reading, normalise, rank_or_coder
from ..program.reads import readers_of, shared_trees, trees_by_sensor
from .actions import CLOUD, DEGRADED, LOCAL, NOT_READINGS, Decision, NeedReply, NeedSensors
from .branching import choose, margin_of, moved
from .scoring import Leaves, ScoreFunction, prepare

MOST_ELAPSED = 2**62  # micro-units; with a nanosecond each, 146 years


class Machine:
    """A verified program made ready to run in Python, for any number of sessions; only ``move`` changes it."""

    def __init__(self, program: Program) -> None:
        self.program, self.shifted = program, shifter_of(program)
        self.nodes: list[Node] = list(program.nodes)
        roots: dict[int, list[Any]] = {}
        shared = {(k, m) for k, members in shared_trees(program).items() for m in members}
        self.score: list[ScoreFunction] = [prepare(program, k, roots, shared) for k in range(len(program.scorers))]
        self.is_stack = [isinstance(s, Stack) for s in program.scorers]
        self.shared_of = trees_by_sensor(program, shared)
        self.scorers_of = readers_of(program)
        self.missing_codes = [MISSING, -MISSING - 1] * len(program.columns)
        self.dtypes = [tuple(program.features[f].dtype for f in s.features) for s in program.sensors]
        self.nullable = [[program.features[f].nullable for f in s.features] for s in program.sensors]
        by_feature: dict[int, list[int]] = {}
        for c, column in enumerate(program.columns):
            by_feature.setdefault(column.feature, []).append(c)
        self.coders = [
            [
                (k, 2 * c, *rank_or_coder(program.columns[c]))
                for k, f in enumerate(sensor.features)
                for c in by_feature.get(f, [])
            ]
            for sensor in program.sensors
        ]
        self._meters: dict[int, Meter] = {}

    def session(self, **settings: Any) -> Session:
        """A session of this machine; ``settings`` are those of ``Session``."""
        return Session(self, **settings)

    def move(self, node: int, threshold: int) -> None:
        """Set a Branch's threshold, as ``branching.moved`` does, for all sessions; ``program`` stays as it was."""
        self.nodes[node] = moved(self.nodes[node], threshold)

    def meter(self, item_size: int) -> Meter:
        """The cost meter for items of this size; the machine remembers only the last one."""
        meter = self._meters.get(item_size)
        if meter is None:
            meter = Meter(self.program, item_size)
            self._meters = {item_size: meter}
        return meter


class Session:
    """One decision. The room's docstring (``hardcase_edge/session/__init__.py``) has an example.

    Parameters
    ----------
    machine : Machine
    budget : int or None, hard limit of the declared cost in micro-units; None: no limit
    item_size : int from 1 to the program's ``max_item_size``; sensor costs may depend on it
    dead : iterable of int, sensors known not to work: never asked for, never charged
    cloud : bool, False if the cloud cannot be reached: a Forward then buys nothing, and its fallback answers, degraded
    """

    def __init__(
        self,
        machine: Machine,
        *,
        budget: int | None = None,
        item_size: int = 1,
        dead: Iterable[int] = (),
        cloud: bool = True,
    ) -> None:
        if not 1 <= item_size <= machine.program.max_item_size:
            raise SessionError(f"item size {item_size} is outside 1 to {machine.program.max_item_size}")
        self._machine = machine
        self._meter = machine.meter(item_size)
        self._budget = budget
        self._item_size = item_size
        self._cloud = cloud
        self._codes = machine.missing_codes.copy()
        self._readings: dict[int, Reading] = {}
        self._bought: set[int] = set()
        self._failed = set(dead)
        self._lacked: set[int] = set()  # those of the failed that the walk wanted
        self._unpaid: set[int] = set()  # wanted, and too dear when they were
        self._scores: dict[int, list[Number]] = {}
        self._leaves: Leaves = {}
        self._spent = self._meter.start(budget)  # declared, in micro-units
        self._saved = 0  # declared minus actual, as sensors reported it
        self._degraded = False
        self._at = 0
        self._trace: list[int] = []
        self._waiting: NeedSensors | NeedReply | None = None
        self._decision: Decision | None = None

    # ------------------------------------------------------------ the protocol

    def next_action(self) -> NeedSensors | NeedReply | Decision:
        """What the owner must do next, or the decision; the same action again until the owner has reported."""
        while self._decision is None and self._waiting is None:
            node = self._machine.nodes[self._at]
            if not self._trace or self._trace[-1] != self._at:
                self._trace.append(self._at)
            if isinstance(node, Acquire):
                self._acquire(node)
            elif isinstance(node, Branch):
                self._branch(node)
            elif isinstance(node, Answer):
                self._answer(node)
            elif isinstance(node, Forward):
                self._forward(node)
            else:
                self._at = self._select(node)
        return self._decision or self._waiting  # type: ignore[return-value]  # the loop ends with one of them

    def feed(self, readings: Mapping[int, Sequence[Reading] | None], costs: Mapping[int, int] | None = None) -> None:
        """Report the readings of every sensor asked for; None, too few or not numbers: the sensor has failed.

        ``costs`` may give a sensor's actual cost, in micro-units, if it is less than declared. A value that is not an
        integer from 0 to the declared cost is ignored.
        """
        if not isinstance(self._waiting, NeedSensors):
            raise SessionError("readings were fed, but the session did not ask for any; call next_action first")
        asked = self._waiting.sensors
        if set(readings) != set(asked):
            raise SessionError(f"readings of sensors {sorted(readings)} were fed, {sorted(asked)} were asked for")
        for sensor in asked:
            declared = self._meter.sensor_costs[sensor]
            self._spent += declared
            self._bought.add(sensor)
            actual = declared if costs is None else costs.get(sensor, declared)
            if type(actual) is int and 0 <= actual < declared:
                self._saved += declared - actual
            if not self._take(sensor, readings[sensor]):
                self._failed.add(sensor)
        if self._scores:
            for sensor in asked:
                for scorer in self._machine.scorers_of[sensor]:
                    self._scores.pop(scorer, None)
                for tree in self._machine.shared_of[sensor]:
                    self._leaves.pop(tree, None)
        self._waiting = None

    def reply(self, result: Number, confidence: int) -> None:
        """Report the HPC's answer: a class index (a value, in a draft a float) and confidence in basis points."""
        self._needs_reply()
        n_classes, sure = self._machine.program.n_classes, index(confidence)
        said = result if isinstance(result, float) and not n_classes else index(result)  # type: ignore[arg-type]
        if not 0 <= sure <= 10_000 or not (0 <= said < n_classes if n_classes else -(2**63) <= said < 2**63):
            raise SessionError(f"a reply of class {result}, confidence {confidence}; there are {n_classes} classes")
        self._decide(said, sure, CLOUD)

    def no_reply(self) -> None:
        """Report that no reply came in time: the fallback answers, and the decision is marked degraded."""
        node = self._needs_reply()
        self._degraded = True
        self._at = node.fallback
        self._waiting = None

    def resend(self) -> bool:
        """Charge one more transmission of the request; returns False, and charges nothing, if the budget forbids it."""
        self._needs_reply()
        if not self._fits(self._meter.request_cost):
            return False
        self._spent += self._meter.request_cost
        return True

    def elapsed(self, amount: int) -> None:
        """Report what has really been spent until now, in micro-units, in place of declared costs.

        Raises
        ------
        SessionError
            It is not an integer from 0 to 2^62, or the decision has been made.
        """
        if type(amount) is not int or not 0 <= amount <= MOST_ELAPSED or self._decision is not None:
            raise SessionError(f"{amount!r} was reported as spent; report 0 to 2^62 micro-units, before the decision")
        self._spent, self._saved = amount, 0

    # ------------------------------------------------------------ nodes

    def _acquire(self, node: Acquire) -> None:
        missing = tuple([s for s in node.sensors if s not in self._bought])
        if not self._failed.isdisjoint(node.sensors) or not self._can_buy(missing):
            self._lack(node)
            self._owe(node)
            self._at = node.otherwise
        elif missing:
            self._waiting = NeedSensors(missing)  # after the feed, this node runs again with nothing missing
        else:
            self._at = node.then

    def _forward(self, node: Forward) -> None:
        missing = tuple([s for s in node.sensors if s not in self._bought and s not in self._failed])
        if not self._cloud:
            self._degraded = True
            self._at = node.fallback
        elif not self._fits(self._meter.buy(missing) + self._meter.request_cost):
            self._at = node.fallback
        elif missing:
            self._waiting = NeedSensors(missing)
        else:
            self._lack(node)
            self._spent += self._meter.request_cost
            reading_of = self._readings.get
            self._waiting = NeedReply(tuple(reading_of(f) for f in self._machine.program.uplink.features))

    def _select(self, node: Select) -> int:
        for candidate in node.candidates:
            if self._item_size <= candidate.max_size and self._fits(
                evaluate_polynomial(candidate.cost, self._item_size)
            ):
                return candidate.target
        return node.otherwise

    def _branch(self, node: Branch) -> None:
        scores = self.scores(node.scores.scorer, node.scores.start, node.scores.stop)
        self._at = choose(node, scores, self._can_have)
        if self._failed:
            wanted = self._machine.nodes[choose(node, scores, lambda k: self._can_have(k, had_none_failed=True))]
            if isinstance(wanted, Acquire):
                self._lack(wanted)
        if self._budget is not None:
            own = self._machine.nodes[choose(node, scores, lambda k: True)]
            if isinstance(own, Acquire):
                self._owe(own)

    def _answer(self, node: Answer) -> None:
        scores = self.scores(node.scores.scorer, node.scores.start, node.scores.stop)
        if node.kind == VALUE.answer:
            margin = scores[0]
            result = self._machine.shifted(margin, node.shift) if node.shift else margin
        else:
            if len(scores) == 1:
                scores = [0, scores[0]]
            result, margin = scores.index(max(scores)), margin_of(scores)
        confidence = node.confidences[sum(1 for m in node.margins if m <= margin)]
        self._decide(result, confidence, DEGRADED if self._degraded else LOCAL)

    # ------------------------------------------------------------ parts of nodes

    def _take(self, sensor: int, values: Sequence[Reading] | None) -> bool:
        """Store one sensor's readings and their codes; False if it failed."""
        machine, codes = self._machine, self._codes
        dtypes, nullable = machine.dtypes[sensor], machine.nullable[sensor]
        if values is None or (values.__class__ is not list and isinstance(values, NOT_READINGS)):
            return False
        try:
            readings = normalise(values, dtypes)
        except Exception:  # a foreign number may raise anything when it is read; then its sensor has failed
            return False
        if None in readings and any(x is None and not may for x, may in zip(readings, nullable, strict=True)):
            return False
        for k, slot, thresholds, code in machine.coders[sensor]:
            x = readings[k]
            if x is not None:
                codes[slot] = codes[slot + 1] = bisect_left(thresholds, x) - CODE_MAX if thresholds else code(x)
        self._readings.update(zip(machine.program.sensors[sensor].features, readings, strict=True))
        return True

    def scores(self, scorer: int, start: int, stop: int) -> list[Number]:
        """Outputs of a scorer, of what has been read so far; the caller has proved that they may be read."""
        return (self._scores.get(scorer) or self._compute(scorer))[start:stop]

    def _compute(self, number: int) -> list[Number]:
        machine, scorer = self._machine, self._machine.program.scorers[number]
        if isinstance(scorer, Opaque):
            scores = machine.score[number]([self._readings[f] for f in scorer.features])
        else:
            scores = machine.score[number](
                *((self._codes, self._leaves) if machine.is_stack[number] else (self._codes,))
            )
        self._scores[number] = scores
        return scores

    def _lack(self, node: Acquire | Forward) -> None:
        """Note the sensors of a node that the walk wanted and that have failed."""
        self._lacked |= self._failed.intersection(node.sensors)

    def _owe(self, node: Acquire) -> None:
        """Note the sensors of a node that the walk wanted, if the budget does not hold for them."""
        missing = [s for s in node.sensors if s not in self._bought]
        if not self._can_buy(missing):
            self._unpaid.update(missing)

    def _can_have(self, target: int, had_none_failed: bool = False) -> bool:
        node = self._machine.nodes[target]
        if isinstance(node, Acquire):
            if not had_none_failed and not self._failed.isdisjoint(node.sensors):
                return False
            return self._can_buy([s for s in node.sensors if s not in self._bought])
        if isinstance(node, Forward):
            missing = [s for s in node.sensors if s not in self._bought and s not in self._failed]
            return self._fits(self._meter.buy(missing) + self._meter.request_cost)
        return True

    def _can_buy(self, sensors: Sequence[int]) -> bool:
        """Whether the budget holds for these; what is there already may be used after the budget's time is over."""
        return not sensors or self._fits(self._meter.buy(sensors))

    def _fits(self, cost: int) -> bool:
        return self._budget is None or self._spent + cost <= self._budget

    def _needs_reply(self) -> Forward:
        node = self._machine.nodes[self._at]
        if not isinstance(self._waiting, NeedReply) or not isinstance(node, Forward):
            raise SessionError("a reply came, but the session did not ask for one; call next_action first")
        return node

    def _decide(self, result: Number, confidence: int, route: str) -> None:
        self._waiting = None
        cost, sensors, failed = self._spent - self._saved, tuple(sorted(self._bought)), tuple(sorted(self._lacked))
        unpaid = tuple(sorted(self._unpaid - self._bought))
        self._decision = Decision(result, confidence, route, cost, sensors, tuple(self._trace), failed, unpaid)
