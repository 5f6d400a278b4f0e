# SPDX-License-Identifier: Apache-2.0
"""The joint session: one item of several parts as an automaton without I/O or a clock.

Each part is a session of the part program. The owner calls ``next_action``, does what it asks for, reports, repeats:

    state                next_action returns             the owner may call
    waiting for sensors  NeedParts(((part, sensor), ..)) feed({(part, sensor): readings or None})
    waiting for replies  NeedReplies(((part, readings))) reply(part, result, confidence), no_reply(part), resend(part)
    decided              JointDecision                   nothing

Parts go on in order, each as far as it can, and share one budget: what an earlier part has asked for is spent before a
later one looks. Where all parts stand at a barrier or have ended, the chain is decoded once, and the inner sensors of
all that stand there are fed, or of the best alone. A reply fixes the label of its part. When all parts have ended, the
chain gives all labels.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from operator import index, itemgetter
from typing import TYPE_CHECKING, Any

from ..base.record import record
from ..errors import SessionError
from ..program.cost import Meter
from ..program.definition import Answer, Program, Slice
from ..program.readings import Reading
from ..session.actions import CLOUD, DEGRADED, LOCAL, Decision, NeedReply, NeedSensors
from ..session.part import PartSession
from ..session.session import Machine
from .chain import ChainDecoder, gap_of
from .definition import ANYTIME, MAX_GAP, Joint

if TYPE_CHECKING:
    from ..kernel.compiled import CompiledMachine

Key = tuple[int, int]  # a part and a sensor


@record(frozen=True, slots=True)
class NeedParts:
    """Read these sensors of these parts, then call ``feed``."""

    sensors: tuple[Key, ...]


@record(frozen=True, slots=True)
class NeedReplies:
    """Send a request for each of these parts, then ``reply`` or ``no_reply`` for each, in any order."""

    requests: tuple[tuple[int, tuple[Reading, ...]], ...]


@record(frozen=True, slots=True)
class PartDecision:
    """What became of one part."""

    label: int
    confidence: int  # basis points
    route: str  # LOCAL, CLOUD or DEGRADED, of this part
    cost: int  # micro-units
    sensors: tuple[int, ...]  # bought, inner ones left out
    trace: tuple[int, ...]
    failed: tuple[int, ...] = ()  # wanted in vain: dead, or failed
    unpaid: tuple[int, ...] = ()  # wanted, and the item's budget did not allow them


@record(frozen=True, slots=True)
class JointDecision:
    """The end of an item."""

    parts: tuple[PartDecision, ...]
    confidence: int  # of all labels together, basis points
    route: str  # DEGRADED if a part is, else CLOUD if a part is, else LOCAL
    cost: int  # micro-units
    rounds: int  # releases

    @property
    def labels(self) -> tuple[int, ...]:
        """The label of each part."""
        return tuple([p.label for p in self.parts])


class JointMachine:
    """A verified joint program made ready to run; immutable, and shared by any number of sessions.

    Parameters
    ----------
    joint : Joint
    machine : of the part program, of either evaluator
    chain : decodes; None: ``ChainDecoder``, in Python
    program : of a part, with what an item costs at its start; None: that of ``machine``
    """

    def __init__(
        self, joint: Joint, machine: Machine | CompiledMachine, chain: Any = None, program: Program | None = None
    ) -> None:
        self.joint, self.machine = joint, machine
        self.program = machine.program if program is None else program
        self.chain = ChainDecoder(joint.chain) if chain is None else chain
        self.inner = joint.inner(self.program)
        self.waits = {w.node: w for w in joint.waits}
        self._meters: dict[int, Meter] = {}

    def session(self, parts: int, **settings: Any) -> JointSession:
        """A session of an item of so many parts; ``settings`` are those of ``JointSession``."""
        return JointSession(self, parts, **settings)

    def part(self, **settings: Any) -> PartSession:
        """A session of one part."""
        if isinstance(self.machine, Machine):
            return PartSession(self.machine, **settings)
        return self.machine.session(**settings)  # type: ignore[return-value]  # of C, with the same methods

    def meter(self, item_size: int) -> Meter:
        """The cost meter for parts of this size; the machine remembers only the last one."""
        if item_size not in self._meters:
            self._meters = {item_size: Meter(self.program, item_size)}
        return self._meters[item_size]


class JointSession:
    """One item.

    Parameters
    ----------
    machine : JointMachine
    parts : int from 1 to the program's ``max_parts``
    budget : int or None, hard limit of the declared cost of all parts together, in micro-units; None: no limit
    item_size : int from 1 to the part program's ``max_item_size``, the size of every part
    dead : iterable of int, sensors known not to work, of all parts
    cloud : bool, False if the cloud cannot be reached

    Raises
    ------
    SessionError
        The number of parts or the item's size is out of range.
    """

    def __init__(
        self,
        machine: JointMachine,
        parts: int,
        *,
        budget: int | None = None,
        item_size: int = 1,
        dead: Iterable[int] = (),
        cloud: bool = True,
    ) -> None:
        if not 1 <= parts <= machine.joint.max_parts:
            raise SessionError(f"an item of {parts} parts; this program decides 1 to {machine.joint.max_parts}")
        dead = [s for s in dead if s not in machine.inner]
        self._machine, self._budget = machine, budget
        meter = machine.meter(item_size)
        self._start, self._costs = meter.start(budget), meter.sensor_costs
        settings = {"budget": self._left_of(0), "item_size": item_size, "dead": dead, "cloud": cloud}
        self._parts = [machine.part(**settings) for _ in range(parts)]
        self._spent = [0] * parts
        self._reserved = 0  # declared, of what has been asked for and not yet been fed
        self._active: Sequence[int] = range(parts)
        self._asked: dict[int, tuple[int, ...]] = {}
        self._requests: dict[int, tuple[Reading, ...]] = {}
        self._waiting: dict[int, int] = {}  # node of each part at a barrier
        self._ends: dict[int, Decision] = {}
        self._fixed: dict[int, int] = {}
        self._final: dict[int, list[int]] = {}  # scores of parts that have ended
        self._rounds = 0
        self._action: NeedParts | NeedReplies | JointDecision | None = None

    # ------------------------------------------------------------ the protocol

    def next_action(self) -> NeedParts | NeedReplies | JointDecision:
        """What the owner must do next, or the decision; the same action again until the owner has reported."""
        while self._action is None:
            active, self._active = self._active, []
            for part in active:
                self._advance(part)
            if self._asked:
                self._action = NeedParts(tuple([(p, s) for p, sensors in self._asked.items() for s in sensors]))
            elif self._requests:
                self._action = NeedReplies(tuple(sorted(self._requests.items(), key=itemgetter(0))))
            elif self._waiting:
                self._release()
            else:
                self._action = self._decide()
        return self._action

    def feed(self, readings: Mapping[Key, Sequence[Reading] | None]) -> None:
        """Report the readings of every sensor asked for; None, too few or not numbers: that part's sensor has failed.

        Raises
        ------
        SessionError
            Other readings were asked for.
        """
        if not isinstance(self._action, NeedParts):
            raise SessionError("readings were fed, but the session did not ask for any; call next_action first")
        asked = self._action.sensors
        if len(readings) != len(asked) or not all(key in readings for key in asked):
            raise SessionError(f"readings of {sorted(readings)} were fed, {sorted(asked)} were asked for")
        for part, sensors in self._asked.items():
            self._parts[part].feed({s: readings[part, s] for s in sensors})
            self._spent[part] = self._parts[part].spent()
        self._active = list(self._asked)
        self._asked, self._reserved, self._action = {}, 0, None

    def reply(self, part: int, result: int, confidence: int) -> None:
        """Report the HPC's answer about a part: a class index, and a confidence in basis points.

        Raises
        ------
        SessionError
            No reply is due for this part, or it is not one of this program.
        """
        self._needs_reply(part).reply(result, confidence)
        self._fixed[part] = index(result)
        self._answered(part)

    def no_reply(self, part: int) -> None:
        """Report that no reply came in time: the part's fallback answers."""
        self._needs_reply(part).no_reply()
        self._answered(part)

    def resend(self, part: int) -> bool:
        """Charge one more transmission; returns False, and charges nothing, if the item's budget forbids it."""
        session = self._needs_reply(part)
        session.afford(self._left())
        may = session.resend()
        self._spent[part] = session.spent()
        return may

    # ------------------------------------------------------------ parts

    def _left(self) -> int | None:
        return self._left_of(sum(self._spent) + self._reserved)

    def _left_of(self, spent: int) -> int | None:
        """What is left when parts have spent this."""
        return None if self._budget is None else self._budget - self._start - spent

    def _advance(self, part: int) -> None:
        """Walk one part as far as it goes alone."""
        session = self._parts[part]
        if self._budget is not None:
            session.afford(self._left())
        action = session.next_action()
        if isinstance(action, NeedSensors):
            if action.sensors[0] in self._machine.inner:
                self._waiting[part] = session.node()
            else:
                self._asked[part] = action.sensors
                for s in action.sensors:
                    self._reserved += self._costs[s]
        elif isinstance(action, NeedReply):
            self._requests[part] = action.readings
            self._spent[part] = session.spent()
        else:
            self._ends[part] = action
            if part not in self._fixed:
                node = self._machine.program.nodes[action.trace[-1]]
                assert isinstance(node, Answer)
                self._final[part] = self._scores(part, node.scores)

    def _needs_reply(self, part: int) -> PartSession:
        if not isinstance(self._action, NeedReplies) or part not in self._requests:
            raise SessionError(f"a reply came for part {part}, but the session did not ask for one")
        return self._parts[part]

    def _answered(self, part: int) -> None:
        del self._requests[part]
        self._active = sorted([*self._active, part])
        if not self._requests:
            self._action = None

    def _scores(self, part: int, read: Slice) -> list[int]:
        """K scores of a part; one score stands for the pair (0, s)."""
        scores = self._parts[part].scores(read.scorer, read.start, read.stop)
        return [0, *scores] if len(scores) == 1 else scores  # type: ignore[return-value, list-item]  # no draft

    # ------------------------------------------------------------ the chain

    def _release(self) -> None:
        """Decode, and let those go on that the release names."""
        self._rounds += 1
        features = self._features()
        chosen = list(features)
        if self._machine.joint.release == ANYTIME:
            best = self._best(features)
            chosen = chosen if best is None else [best]
        for part in chosen:
            self._tell(self._parts[part], features[part])
            del self._waiting[part]
        self._active = chosen

    def _best(self, features: Mapping[int, list[int]]) -> int | None:
        """The part whose policy's score is highest, the first of equals; None if none is above the threshold."""
        best, highest = None, self._machine.joint.threshold
        for part, values in features.items():
            policy = self._machine.waits[self._waiting[part]].policy
            assert policy is not None  # proved: the release is anytime
            score = self._tried(part, values, policy)
            if score > highest:
                best, highest = part, score
        return best

    def _tried(self, part: int, values: list[int], policy: Slice) -> int:
        """The policy's score of a part that would be told these values: of a copy, one at a time (J9)."""
        trial = self._parts[part].fork()
        self._tell(trial, values)
        return trial.scores(policy.scorer, policy.start, policy.stop)[0]  # type: ignore[return-value]  # no draft

    def _tell(self, session: PartSession, values: list[int]) -> None:
        """Feed a part that waits the readings of its inner sensor, as many as the sensor has."""
        (sensor,) = session.next_action().sensors  # type: ignore[union-attr]
        session.feed({sensor: values[: len(self._machine.program.sensors[sensor].features)]})

    def _features(self) -> dict[int, list[int]]:
        """What the inner sensors of all waiting parts give; ``definition.FEATURES`` has their order."""
        waits = self._machine.waits
        own = {p: self._scores(p, waits[node].scores) for p, node in sorted(self._waiting.items())}
        n = len(self._parts)
        scores: list[Sequence[int]] = [own[p] if p in own else self._final.get(p, ()) for p in range(n)]
        labels, gaps = self._machine.chain.decode(scores, self._fixed)
        free = [gap for p, gap in enumerate(gaps) if p not in self._fixed]
        mean, least = sum(free) // len(free), min(free)
        return {
            p: [
                gaps[p],
                gaps[p - 1] if p else gaps[p],
                gaps[p + 1] if p + 1 < n else gaps[p],
                mean,
                least,
                gap_of(mine),
                min(max(mine) - mine[labels[p]], MAX_GAP),
                int(p == 0),
                int(p == n - 1),
                n,
                p,
                self._rounds - 1,
            ]
            for p, mine in own.items()
        }

    def _decide(self) -> JointDecision:
        joint, inner = self._machine.joint, self._machine.inner
        has_tables = bool(joint.margins or joint.item_margins)
        scores: list[Sequence[int]] = [self._final.get(p, ()) for p in range(len(self._parts))]
        labels, gaps = self._machine.chain.decode(scores, self._fixed, has_tables)
        gaps = gaps or [0] * len(labels)
        parts = []
        for p, label in enumerate(labels):
            end = self._ends[p]
            confidence = end.confidence if p in self._fixed else _confidence(joint.margins, joint.confidences, gaps[p])
            bought = tuple([s for s in end.sensors if s not in inner])
            parts.append(
                PartDecision(label, confidence, end.route, end.cost, bought, end.trace, end.failed, end.unpaid)
            )
        free = [gap for p, gap in enumerate(gaps) if p not in self._fixed]
        of_item = [parts[p].confidence for p in self._fixed]
        if free:
            of_item.append(_confidence(joint.item_margins, joint.item_confidences, min(free)))
        routes = {part.route for part in parts}
        route = DEGRADED if DEGRADED in routes else CLOUD if CLOUD in routes else LOCAL
        return JointDecision(
            tuple(parts), min(of_item), route, self._start + sum([p.cost for p in parts]), self._rounds
        )


def _confidence(margins: Sequence[int], confidences: Sequence[int], gap: int) -> int:
    return confidences[bisect_right(margins, gap)]
