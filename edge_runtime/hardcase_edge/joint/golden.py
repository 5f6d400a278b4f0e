# SPDX-License-Identifier: Apache-2.0
"""Golden cases of several parts: recorded items that a device replays before a joint bundle goes live.

docs/SPEC-joint-v1.md section 7 defines the bytes of the tensors ``items.words`` and ``items.readings``.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from ..base.record import record
from ..errors import BundleError
from ..program.cost import start_of
from ..program.definition import Program
from ..program.format import Tensor
from ..program.readings import Reading
from ..session.recorded import (
    MAX_CASES,
    NO_BUDGET,
    ROUTES,
    Words,
    narrowest,
    numbers_of,
    readings_tensor,
    sensor_words,
    typed_row,
)
from .definition import Joint
from .drive import drive_joint
from .session import JointDecision, JointMachine, PartDecision

ITEMS = "the golden items"


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


# ---------------------------------------------------------------- bytes: SPEC-joint-v1 section 7


def encode_items(cases: Sequence[JointCase], part: Program) -> dict[str, array]:  # type: ignore[type-arg]
    """The tensors of these cases, each of the narrowest type that holds its numbers; {} without cases.

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
            words += [int(reply is not None), *(reply or (0, 0)), *sensor_words(failed, n)]
        words += [ROUTES.index(d.route), d.confidence, d.cost, d.rounds]
        for p in d.parts:
            words += [p.label, p.confidence, ROUTES.index(p.route), p.cost, *sensor_words(p.sensors, n)]
            words += [len(p.trace), *p.trace]
        readings += [float("nan") if x is None else x for row in case.rows for x in row]
    return {"items.words": narrowest(words, "hiq", ITEMS), "items.readings": readings_tensor(readings)}


def decode_items(words: Tensor, readings: Tensor, part: Program, joint: Joint) -> tuple[JointCase, ...]:
    """The cases in these tensors.

    Raises
    ------
    BundleError
        A number is out of range, or there are too few or too many.
    """
    reader, numbers = Words(words, len(part.sensors), ITEMS), numbers_of(readings, ITEMS)
    are_i32 = [part.features[f].dtype == "i32" for f in outer_features(part, joint)]
    cases, at, width = [], 0, len(are_i32)
    for _ in range(reader.one("their number", 1, MAX_CASES)):
        budget, size = reader.budget(start_of(part.costs)), reader.one("item size", 1, part.max_item_size)
        cloud, n = reader.one("a flag", 0, 1), reader.one("the number of parts", 1, joint.max_parts)
        inputs = [(reader.reply(joint.chain.labels - 1), reader.sensors()) for _ in range(n)]
        route, confidence = reader.one("route", 0, len(ROUTES) - 1), reader.one("confidence", 0, 10_000)
        cost, rounds = reader.one("cost", 0), reader.one("the number of rounds", 0)
        parts = tuple([_part(reader, part, joint) for _ in range(n)])
        if len(numbers) < at + n * width:
            raise BundleError("the golden items have too few readings; export the bundle again")
        starts = range(at, at + n * width, width) if width else [at] * n
        at += n * width
        cases.append(
            JointCase(
                tuple([typed_row(numbers[start : start + width], are_i32) for start in starts]),
                tuple([failed for _, failed in inputs]),
                budget,
                size,
                cloud == 1,
                tuple([reply for reply, _ in inputs]),
                JointDecision(parts, confidence, ROUTES[route], cost, rounds),
            )
        )
    reader.end()
    if at != len(numbers):
        raise BundleError(f"the golden items have {len(numbers) - at} readings too many; export the bundle again")
    return tuple(cases)


def _part(words: Words, part: Program, joint: Joint) -> PartDecision:
    """The next decision of a part in these words."""
    label, confidence = words.one("label", 0, joint.chain.labels - 1), words.one("confidence", 0, 10_000)
    route, cost, sensors = words.one("route", 0, len(ROUTES) - 1), words.one("cost", 0), words.sensors()
    n_nodes = len(part.nodes)
    trace = words.run("node", words.one("the length of a trace", 0, n_nodes), 0, n_nodes - 1)
    return PartDecision(label, confidence, ROUTES[route], cost, sensors, trace)
