# SPDX-License-Identifier: Apache-2.0
"""How a device decides items of several parts: as any other, by a joint session."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..bundle.evidence import is_above
from ..joint.session import JointDecision, JointMachine, NeedParts, PartDecision
from ..program.cost import to_unit
from ..program.definition import Answer
from ..program.readings import Reading
from ..session.actions import CLOUD, DEGRADED, LOCAL
from .machine import NONE, Ask, Decider, Deciding, Read, Record
from .surroundings import Case

if TYPE_CHECKING:
    from ..sensors.items import Item
    from .surroundings import Companion, Inner

REFUSED = "refused"  # the route of an item that has too many parts


class JointDecider(Decider):
    """Decides items of several parts; the parameters are those of ``Decider``, of a joint bundle.

    ``counters`` has ``refused`` beside the others: items of too many parts, which are not among ``asked``.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        assert self._loaded.joint is not None
        self._machine: JointMachine = self._loaded.joint
        self.counters[REFUSED] = 0

    def decide(
        self, now: float, item: Item | None = None, parts: int = 0, dead: frozenset[int] = NONE, can_ask: bool = False,
        inner: Sequence[Inner] = (), companions: Sequence[Companion] = (), is_by_clock: bool = False,
    ) -> Deciding:  # fmt: skip
        """Decide one item of so many parts, which no inner sensor and no clock belong to."""
        case = self._case(now, item, can_ask)
        if not case.fault and not 1 <= parts <= self._machine.joint.max_parts:
            most = self._machine.joint.max_parts
            case.fault = f"an item has {parts} parts; this bundle decides 1 to {most}"
        if case.fault:
            return case
        case.accompany(companions)
        case.session = session = self._machine.session(
            parts, budget=case.limit, item_size=case.size, dead=dead, cloud=case.can_ask
        )
        self.counters["asked"] += 1
        while not isinstance(action := session.next_action(), JointDecision):
            if isinstance(action, NeedParts):
                session.feed((yield from self._read_parts(action.sensors, case.outside)))
                continue
            for part, readings in action.requests:
                _, answer = yield Ask(readings, self._config.deadline_ms / 1000, partial(session.resend, part))
                if answer is None:
                    session.no_reply(part)
                else:
                    session.reply(part, *answer)
        case.decision = action
        return case

    def _read_parts(
        self, asked: Sequence[tuple[int, int]], outside: list[str]
    ) -> Generator[Read, tuple[float, Any], dict[tuple[int, int], Sequence[Reading] | None]]:
        """One part after the other, and all sensors of a part at once."""
        sensors: dict[int, list[int]] = {}
        for part, sensor in asked:
            sensors.setdefault(part, []).append(sensor)
        readings: dict[tuple[int, int], Sequence[Reading] | None] = {}
        for part, of_part in sensors.items():
            _, values = yield Read(of_part, part=part)
            values = self.checked(of_part, values, outside) if self._ranges else values
            readings |= {(part, s): v for s, v in values.items()}
        return readings

    def _line(self, case: Case, elapsed_s: float) -> Record:
        if case.fault:
            self._tell(f"{case.fault} (the item is refused)")
            nothing = {"cost": 0.0, "failed": {}, "latency_ms": 0.0}
            return {"labels": None, "confidence": None, "route": REFUSED, "why": case.fault, **nothing}
        d: Any = case.decision
        manifest = self._loaded.manifest
        routes, confidences = zip(*[self._reported(p) for p in d.parts], strict=True)
        unpaid = _by_sensor(manifest.sensors, [p.unpaid for p in d.parts])
        above = [is_above(p.trace, self._machine.program, manifest.atypical) for p in d.parts]
        confidence = min([d.confidence, *[self._confidence(p) for p, a in zip(d.parts, above, strict=True) if a]])
        return {
            "labels": [manifest.classes[label] for label in d.labels],
            "confidence": None if None in confidences else confidence / 10_000,
            "confidences": list(confidences),
            "route": next(route for route in (DEGRADED, CLOUD, LOCAL) if route in routes),
            "routes": list(routes),
            "cost": to_unit(d.cost),
            "bought": _by_sensor(manifest.sensors, [p.sensors for p in d.parts]),
            "failed": _by_sensor(manifest.sensors, [p.failed for p in d.parts]),
            **({"unpaid": unpaid} if unpaid else {}),
            "rounds": d.rounds,
            "out_of_range": case.outside,
            **({} if set(above) == {None} else {"atypical": [p for p, a in enumerate(above) if a]}),
            "latency_ms": round(elapsed_s * 1000, 3),
        }

    def _reported(self, part: PartDecision) -> tuple[str, float | None]:
        """The route and the confidence of a part; without a sensor that it wanted, nobody has measured the latter."""
        lacked = {*part.failed, *part.unpaid}
        if part.route != CLOUD and lacked:
            return DEGRADED, None
        return part.route, self._confidence(part) / 10_000 if lacked.isdisjoint(self.lines.sent) else None

    def _confidence(self, part: PartDecision) -> int:
        """That of a part, in basis points; where the bundle knows atypical cases, at most that of its Answer."""
        node = self._machine.program.nodes[part.trace[-1]]
        if not self._loaded.manifest.atypical or part.route == CLOUD or not isinstance(node, Answer):
            return part.confidence
        return min(part.confidence, node.confidences[-1])


def _by_sensor(names: Sequence[str], of_parts: Sequence[Sequence[int]]) -> Mapping[str, list[int]]:
    """The parts, from 0, of which each sensor is named."""
    return {
        name: parts
        for s, name in enumerate(names)
        if (parts := [p for p, sensors in enumerate(of_parts) if s in sensors])
    }
