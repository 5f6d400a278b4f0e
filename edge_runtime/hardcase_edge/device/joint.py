# SPDX-License-Identifier: Apache-2.0
"""The device's loop for items of several parts: the same loop, in which one decision is a joint session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ..bundle.evidence import is_above
from ..errors import InputError
from ..joint.drive import drive_joint
from ..joint.session import JointDecision, JointMachine, JointSession, PartDecision
from ..link.wire import OK
from ..program.cost import to_unit
from ..program.definition import Answer
from ..program.readings import Reading
from ..session.session import CLOUD, DEGRADED, LOCAL
from ..settings.config import RunConfig
from .device import Device, Record

if TYPE_CHECKING:
    from .parts import PartBank

__all__ = ["REFUSED", "JointDevice", "check_flags"]

REFUSED = "refused"  # the route of an item that has too many parts


def check_flags(config: RunConfig) -> None:
    """Refuse the flags of a run that items of several parts do not have, and say why.

    Raises
    ------
    InputError
        One of them is set.
    """
    pace = "a running budget paces decisions of one part"
    flags = {
        "--audit": (config.audit, "an audit holds the readings of one part"),
        "--record senml": (config.record == "senml", "a pack of SenML has one answer"),
        "--home-assistant": (config.home_assistant, "Home Assistant shows one answer"),
        "--drift": (config.drift, "its monitors and its promise are about decisions of one part"),
        "--budget-per-hour": (config.budget_per_hour, pace),
        "--battery": (config.battery, pace),
        "--max-forward-rate": (config.max_forward_rate, pace),
    }
    if named := [(flag, why) for flag, (value, why) in flags.items() if value is not None and value is not False]:
        flag, why = named[0]
        raise InputError(f"this bundle decides items of several parts: leave out {flag}, because {why}")


class JointDevice(Device):
    """Makes one decision per item; the parameters are those of ``Device``, of a joint bundle and a ``PartBank``.

    ``counters`` has ``refused`` beside the others: items of too many parts, which are not among ``asked``.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        assert self._loaded.joint is not None
        self._machine: JointMachine = self._loaded.joint
        self.counters[REFUSED] = 0

    def decide(self) -> Record:
        """The record of one item, ready for JSON; ``record_keys`` lists its keys."""
        began, bank = self._monotonic(), cast("PartBank", self._bank)
        item, parts, most = bank.item, bank.parts, self._machine.joint.max_parts
        fault = "" if item is None else item.fault
        if fault or not 1 <= parts <= most:
            return self._refused(fault or f"an item has {parts} parts; this bundle decides 1 to {most}")
        session = self._machine.session(
            parts,
            budget=self._budget if item is None or item.budget is None else item.budget,
            item_size=self._config.item_size if item is None or item.size is None else item.size,
            dead=bank.dead,
            cloud=self._link is not None and self._link.can_ask,
        )
        self.counters["asked"] += 1
        outside: list[str] = []
        decision = drive_joint(session, partial(self._read_parts, outside), partial(self._ask_part, session))
        record = self._record_of_item(decision, outside, self._monotonic() - began)
        self.counters[record["route"]] += 1
        return record

    def _refused(self, why: str) -> Record:
        self.counters[REFUSED] += 1
        self._tell(f"{why} (the item is refused)")
        nothing = {"cost": 0.0, "failed": {}, "latency_ms": 0.0}
        return {"t": round(self._now(), 3), "labels": None, "confidence": None, "route": REFUSED, "why": why, **nothing}

    def _read_parts(
        self, outside: list[str], asked: Sequence[tuple[int, int]]
    ) -> dict[tuple[int, int], Sequence[Reading] | None]:
        """One part after the other, and all sensors of a part at once."""
        sensors: dict[int, list[int]] = {}
        for part, sensor in asked:
            sensors.setdefault(part, []).append(sensor)
        readings: dict[tuple[int, int], Sequence[Reading] | None] = {}
        for part, of_part in sensors.items():
            cast("PartBank", self._bank).select(part)
            names: list[str] = []
            readings |= {(part, s): values for s, values in self._read(of_part, names, None).items()}
            outside += [name for name in names if name not in outside]
        return readings

    def _ask_part(self, session: JointSession, part: int, readings: tuple[Reading, ...]) -> tuple[int, int] | None:
        assert self._link is not None  # a session without a cloud never asks
        reply = self._link.ask(readings, self._config.deadline_ms / 1000, partial(session.resend, part))
        return None if reply is None or reply.status != OK else (reply.result, reply.confidence)

    def _record_of_item(self, d: JointDecision, outside: list[str], elapsed_s: float) -> Record:
        manifest = self._loaded.manifest
        routes, confidences = zip(*[self._reported(p) for p in d.parts], strict=True)
        unpaid = _by_sensor(manifest.sensors, [p.unpaid for p in d.parts])
        above = [is_above(p.trace, self._machine.program, manifest.atypical) for p in d.parts]
        confidence = min([d.confidence, *[self._confidence(p) for p, a in zip(d.parts, above, strict=True) if a]])
        return {
            "t": round(self._now(), 3),
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
            "out_of_range": outside,
            **({} if set(above) == {None} else {"atypical": [p for p, a in enumerate(above) if a]}),
            "latency_ms": round(elapsed_s * 1000, 3),
        }

    def _reported(self, part: PartDecision) -> tuple[str, float | None]:
        """The route and the confidence of a part; without a sensor that it wanted, nobody has measured the latter."""
        lacked = {*part.failed, *part.unpaid}
        if part.route != CLOUD and lacked:
            return DEGRADED, None
        return part.route, self._confidence(part) / 10_000 if lacked.isdisjoint(self._lines.sent) else None

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
