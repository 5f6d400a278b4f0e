# SPDX-License-Identifier: Apache-2.0
"""Golden cases of several parts: recorded items that a device replays before a joint bundle goes live.

docs/SPEC-joint-v1.md section 7 defines the bytes of the tensors ``items.words`` and ``items.readings``.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from ..base.record import record
from ..errors import BundleError
from ..program.definition import CODE_MAX, MISSING, Program
from ..program.format import Tensor, are_held
from ..program.readings import Reading
from ..session.session import CLOUD, DEGRADED, LOCAL
from .definition import Joint
from .drive import drive_joint
from .format import narrowest
from .session import JointDecision, JointMachine, PartDecision

__all__ = ["JointCase", "check_items", "decode_items", "encode_items", "run_item"]

ROUTES = (LOCAL, CLOUD, DEGRADED)
MAX_ITEMS = 4096
MAX_NUMBERS = 2**20  # words, and readings
NO_BUDGET, BITS = -1, 15
NAN = float("nan")


@record(frozen=True, slots=True)
class JointCase:
    """All inputs of one item, and the decision that must come of them."""

    rows: tuple[tuple[Reading, ...], ...]  # (parts, features of sensors that are not inner, in order); None: missing
    failed: tuple[tuple[int, ...], ...]  # of each part, the sensors that fail when they are read
    budget: int | None  # micro-units; None: no limit
    item_size: int
    cloud: bool
    replies: tuple[tuple[int, int] | None, ...]  # of each part
    expected: JointDecision  # but for the sensors wanted in vain


def outer_features(part: Program, joint: Joint) -> list[int]:
    """The features of the sensors that are not inner, in order."""
    inner = {f for s in joint.inner(part) for f in part.sensors[s].features}
    return [f for f in range(len(part.features)) if f not in inner]


def run_item(machine: JointMachine, case: JointCase) -> JointDecision:
    """The decision that this machine makes on the inputs of a case, without the sensors wanted in vain."""
    place = {f: k for k, f in enumerate(outer_features(machine.program, machine.joint))}
    sensors = machine.program.sensors

    def read(asked: tuple[tuple[int, int], ...]) -> dict[tuple[int, int], Sequence[Reading] | None]:
        return {
            (p, s): None if s in case.failed[p] else [case.rows[p][place[f]] for f in sensors[s].features]
            for p, s in asked
        }

    session = machine.session(len(case.rows), budget=case.budget, item_size=case.item_size, cloud=case.cloud)
    d = drive_joint(session, read, lambda part, _: case.replies[part])
    parts = [PartDecision(p.label, p.confidence, p.route, p.cost, p.sensors, p.trace) for p in d.parts]
    return JointDecision(tuple(parts), d.confidence, d.route, d.cost, d.rounds)


def check_items(machine: JointMachine, cases: Sequence[JointCase]) -> None:
    """Replay all cases on a machine.

    Raises
    ------
    BundleError
        A decision differs from the expected one: this runtime does not compute what the exporter computed.
    """
    for k, case in enumerate(cases):
        decision = run_item(machine, case)
        if decision != case.expected:
            raise BundleError(
                f"golden item {k} gives {decision}, expected {case.expected}; do not use this bundle on this machine"
            )


# ---------------------------------------------------------------- bytes


def encode_items(cases: Sequence[JointCase], part: Program) -> dict[str, array]:  # type: ignore[type-arg]
    """The tensors of these cases, each of the narrowest type that holds its numbers; none of no cases.

    Raises
    ------
    BundleError
        A number does not fit its field.
    """
    if not cases:
        return {}
    words, readings, n = [len(cases)], list[float](), len(part.sensors)
    for case in cases:
        d = case.expected
        words += [NO_BUDGET if case.budget is None else case.budget, case.item_size, int(case.cloud), len(case.rows)]
        for failed, reply in zip(case.failed, case.replies, strict=True):
            words += [int(reply is not None), *(reply or (0, 0)), *_bits(failed, n)]
        words += [ROUTES.index(d.route), d.confidence, d.cost, d.rounds]
        for p in d.parts:
            words += [p.label, p.confidence, ROUTES.index(p.route), p.cost, *_bits(p.sensors, n)]
            words += [len(p.trace), *p.trace]
        readings += [NAN if x is None else x for row in case.rows for x in row]
    return {"items.words": narrowest(words, "hiq", "a golden item"), "items.readings": _narrow(readings)}


def _bits(sensors: Sequence[int], n_sensors: int) -> list[int]:
    return [sum(1 << s - first for s in sensors if first <= s < first + BITS) for first in range(0, n_sensors, BITS)]


def _narrow(readings: Sequence[float]) -> array:  # type: ignore[type-arg]
    """I16 with -32768 for missing if all are whole and small, else F32 if that is exact, else F64."""
    if all(x != x or (x == x // 1 and abs(x) <= CODE_MAX) for x in readings):
        return array("h", [MISSING if x != x else int(x) for x in readings])
    is_f32 = are_held([x for x in readings if x == x], "f32")
    return array("f" if is_f32 else "d", readings)


def decode_items(words: Tensor, readings: Tensor, part: Program, joint: Joint) -> tuple[JointCase, ...]:
    """The cases in these tensors.

    Raises
    ------
    BundleError
        A number is out of range, or there are too few or too many.
    """
    reader = _Words(words, part, joint)
    features = outer_features(part, joint)
    are_i32 = [part.features[f].dtype == "i32" for f in features]
    if len(readings) > MAX_NUMBERS:
        raise BundleError(f"the golden items have {len(readings)} readings, at most {MAX_NUMBERS} are allowed")
    is_i16 = readings.itemsize == 2
    cases, at = [], 0
    for _ in range(reader.one(1, MAX_ITEMS)):
        budget, size, cloud = reader.one(NO_BUDGET), reader.one(1, part.max_item_size), reader.one(0, 1)
        n = reader.one(1, joint.max_parts)
        inputs = [reader.input() for _ in range(n)]
        route, confidence, cost, rounds = reader.one(0, 2), reader.one(0, 10_000), reader.one(0), reader.one(0)
        parts = tuple([reader.part() for _ in range(n)])
        width = len(features)
        if len(readings) < at + n * width:
            raise BundleError("the golden items have too few readings; export the bundle again")
        rows = []
        for _ in range(n):
            row = readings[at : at + width].tolist()
            rows.append(_typed([NAN if is_i16 and x == MISSING else x for x in row], are_i32))
            at += width
        cases.append(
            JointCase(
                tuple(rows),
                tuple([failed for failed, _ in inputs]),
                None if budget == NO_BUDGET else budget,
                size,
                cloud == 1,
                tuple([reply for _, reply in inputs]),
                JointDecision(parts, confidence, ROUTES[route], cost, rounds),
            )
        )
    if not reader.is_done or at != len(readings):
        raise BundleError("the golden items have words or readings too many; export the bundle again")
    return tuple(cases)


def _typed(row: Sequence[float], are_i32: Sequence[bool]) -> tuple[Reading, ...]:
    pairs = zip(row, are_i32, strict=True)
    return tuple([None if x != x else int(x) if is_i32 and x == x // 1 else x for x, is_i32 in pairs])


class _Words:
    """The words one after the other, each checked against its range."""

    def __init__(self, words: Tensor, part: Program, joint: Joint) -> None:
        if len(words) > MAX_NUMBERS:
            raise BundleError(f"the golden items have {len(words)} words, at most {MAX_NUMBERS} are allowed")
        self._words, self._at = words, 0
        self._n_sensors, self._n_nodes, self._labels = len(part.sensors), len(part.nodes), joint.chain.labels

    @property
    def is_done(self) -> bool:
        return self._at == len(self._words)

    def one(self, low: int, high: int = 2**62) -> int:
        if self.is_done:
            raise BundleError("the golden items have too few words; export the bundle again")
        word = int(self._words[self._at])
        self._at += 1
        if not low <= word <= high:
            raise BundleError(f"word {self._at - 1} of the golden items is {word}, outside {low} to {high}")
        return word

    def sensors(self) -> tuple[int, ...]:
        found = []
        for first in range(0, self._n_sensors, BITS):
            word = self.one(0, 2 ** min(BITS, self._n_sensors - first) - 1)
            found += [first + k for k in range(BITS) if word >> k & 1]
        return tuple(found)

    def input(self) -> tuple[tuple[int, ...], tuple[int, int] | None]:
        has_reply, result, confidence = self.one(0, 1), self.one(0, self._labels - 1), self.one(0, 10_000)
        if not has_reply and (result or confidence):
            raise BundleError("a golden item has a reply that does not come; export the bundle again")
        return self.sensors(), (result, confidence) if has_reply else None

    def part(self) -> PartDecision:
        label, confidence, route = self.one(0, self._labels - 1), self.one(0, 10_000), self.one(0, 2)
        cost, sensors = self.one(0), self.sensors()
        trace = tuple([self.one(0, self._n_nodes - 1) for _ in range(self.one(0, self._n_nodes))])
        return PartDecision(label, confidence, ROUTES[route], cost, sensors, trace)
