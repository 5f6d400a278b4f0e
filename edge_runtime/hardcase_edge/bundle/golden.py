# SPDX-License-Identifier: Apache-2.0
"""Golden cases: recorded decisions that a device replays to prove that it computes what the exporter computed.

A case fixes everything that a session depends on (raw readings, failed sensors, budget, item size, cloud and the
HPC's reply) and holds the whole decision that must come of it, trace included. docs/SPEC-bundle-v1.md section 4
defines the bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from ..base.record import record
from ..errors import BundleError
from ..program.definition import CODE_MAX, MISSING, Program
from ..program.format import Tensor, are_held
from ..program.readings import Reading
from ..session.drive import drive
from ..session.session import CLOUD, DEGRADED, LOCAL, Decision, Machine

if TYPE_CHECKING:
    from ..kernel.compiled import CompiledMachine

__all__ = ["GoldenCase", "check_golden", "decode_golden", "encode_golden", "run_case"]

ROUTES = (LOCAL, CLOUD, DEGRADED)
MAX_GOLDEN_CASES = 4096
MAX_GOLDEN_NUMBERS = 2**20  # features and sensors of all cases, and words: 64 cases of 16,384 features
NO_BUDGET = -1
NAN = float("nan")


@record(frozen=True, slots=True)
class GoldenCase:
    """All inputs of one session, and the decision that must come of them."""

    readings: tuple[Reading, ...]  # one per feature of the program; None: missing
    failed: tuple[int, ...]  # sensors that fail when they are read, in order of index
    budget: int | None  # micro-units; None: no limit
    item_size: int
    cloud: bool  # False: the cloud cannot be reached
    reply: tuple[int, int] | None  # the HPC's class index (or value) and confidence; None: no reply comes
    expected: Decision  # but for its failed sensors, which format 1 does not hold


def run_case(machine: Machine | CompiledMachine, case: GoldenCase) -> Decision:
    """The decision that this machine makes on the inputs of a case, as a case holds it: with ``failed`` empty."""
    sensors = machine.program.sensors

    def read(asked: tuple[int, ...]) -> dict[int, Sequence[Reading] | None]:
        return {s: None if s in case.failed else [case.readings[f] for f in sensors[s].features] for s in asked}

    session = machine.session(budget=case.budget, item_size=case.item_size, cloud=case.cloud)
    d = drive(session, read, lambda _: case.reply)
    return Decision(d.result, d.confidence, d.route, d.cost, d.sensors, d.trace)


def check_golden(machine: Machine | CompiledMachine, cases: Sequence[GoldenCase]) -> None:
    """Replay all cases on a machine.

    Raises
    ------
    BundleError
        A decision differs from the expected one: this runtime does not compute what the exporter computed.
    """
    for k, case in enumerate(cases):
        decision = run_case(machine, case)
        if decision != case.expected:
            raise BundleError(
                f"golden case {k} gives {decision}, expected {case.expected}; do not use this bundle on this machine"
            )


# ---------------------------------------------------------------- bytes: SPEC-bundle-v1 section 4


def encode_golden(cases: Sequence[GoldenCase], program: Program) -> dict[str, array]:  # type: ignore[type-arg]
    """Tensors ``golden.words`` and ``golden.readings``, each of the narrowest type that holds its numbers.

    An empty sequence of cases gives no tensors.

    Raises
    ------
    BundleError
        A case has a negative budget.
    """
    if not cases:
        return {}
    words = [len(cases)]
    readings: list[float] = []
    for k, c in enumerate(cases):
        d = c.expected
        if c.budget is not None and c.budget < 0:
            raise BundleError(f"golden case {k} has a budget of {c.budget}; use 0 or more, or None for no limit")
        words.extend([NO_BUDGET if c.budget is None else c.budget, c.item_size, int(c.cloud), int(c.reply is not None)])
        words.extend(c.reply or (0, 0))
        words.extend(_masks(c.failed, len(program.sensors)))
        words.extend([ROUTES.index(d.route), int(d.result), d.confidence, d.cost])
        words.extend([*_masks(d.sensors, len(program.sensors)), len(d.trace), *d.trace])
        readings.extend(float("nan") if x is None else x for x in c.readings)
    return {"golden.words": array(_word_type(words), words), "golden.readings": _narrow(readings)}


def _masks(sensors: Sequence[int], n_sensors: int) -> list[int]:
    """A set of sensors as bits, 15 sensors to a word."""
    members = set(sensors)
    return [sum(1 << k for k in range(15) if first + k in members) for first in range(0, n_sensors, 15)]


def _unmasked(words: Sequence[int], n_sensors: int) -> tuple[int, ...]:
    """The sensors whose bits are set, in order of index."""
    sensors = tuple([s for s in range(n_sensors) if words[s // 15] >> s % 15 & 1])
    if min(words, default=0) < 0 or sum(map(int.bit_count, words)) != len(sensors):  # bits beyond the sensors
        raise BundleError(
            f"a golden case names sensors by the bits {list(words)}, but the program has {n_sensors}; export it again"
        )
    return sensors


def _is_reply(result: int, confidence: int, program: Program) -> bool:
    return 0 <= confidence <= 10_000 and (program.n_classes == 0 or 0 <= result < program.n_classes)


def _word_type(words: Sequence[int]) -> Literal["h", "i", "q"]:
    """The array type code of the narrowest integers that hold all words: 16, 32 or 64 bits."""
    largest = max(max(words, default=0), -1 - min(words, default=0))
    return "h" if largest < 2**15 else "i" if largest < 2**31 else "q"


def _narrow(readings: Sequence[float]) -> array:  # type: ignore[type-arg]
    """Readings as int16 if all are whole and fit, else as float32 if that is exact, else as float64."""
    if all(x != x or (-CODE_MAX <= x <= CODE_MAX and x == int(x)) for x in readings):
        return array("h", [MISSING if x != x else int(x) for x in readings])
    return array("f" if are_held([x for x in readings if x == x], "f32") else "d", readings)


def decode_golden(tensors: Mapping[str, Tensor], program: Program) -> tuple[GoldenCase, ...]:
    """The cases in these tensors; none if ``golden.words`` is not among them.

    Raises
    ------
    BundleError
        The tensors are truncated, have the wrong shape, or hold too many cases.
    """
    if "golden.words" not in tensors:
        return ()
    words, stored = memoryview(tensors["golden.words"]), memoryview(tensors.get("golden.readings", array("f")))
    count, width = words[0] if words else 0, len(program.features)
    if max(count * (width + len(program.sensors)), len(words), len(stored)) > MAX_GOLDEN_NUMBERS:
        raise BundleError(
            f"{count} golden cases of {width} readings are more than the {MAX_GOLDEN_NUMBERS} numbers that are "
            "replayed at most; export the bundle again"
        )
    readings: list[float] = list(map(float, stored.tolist()))
    if stored.format == "h":
        readings = [NAN if x == MISSING else x for x in readings]
    if (
        not 0 < count <= MAX_GOLDEN_CASES
        or len(readings) != count * width
        or words.format != _word_type(words)
        or stored.format != _narrow(readings).typecode
    ):
        raise BundleError(
            f"{count} golden cases of {width} readings do not fit {len(readings)} numbers of their type; "
            "export the bundle again"
        )
    at, n_sensors = 1, len(program.sensors)
    n_masks = -(-n_sensors // 15)

    def take(n: int) -> tuple[int, ...]:
        nonlocal at
        if not 0 <= n <= len(words) - at:
            raise BundleError("the golden cases are truncated; export the bundle again")
        at += n
        return tuple(words[at - n : at].tolist())

    are_i32 = [f.dtype == "i32" for f in program.features]
    cases = []
    for k in range(count):
        budget, item_size, cloud, has_reply, result, confidence = take(6)
        failed = _unmasked(take(n_masks), n_sensors)
        route, answer, answer_confidence, cost = take(4)
        sensors, trace = _unmasked(take(n_masks), n_sensors), take(take(1)[0])
        if not 0 <= route < len(ROUTES) or not 1 <= item_size <= program.max_item_size:
            raise BundleError(f"golden case {k} has route {route} or item size {item_size} out of range")
        if budget < NO_BUDGET or {cloud, has_reply} - {0, 1} or not _is_reply(result, confidence, program):
            raise BundleError(
                f"golden case {k} has a flag, budget {budget} or a reply of {result}, {confidence} out of range"
            )
        row = readings[k * width : (k + 1) * width]
        cases.append(
            GoldenCase(
                _typed(row, are_i32),
                failed,
                None if budget == NO_BUDGET else budget,
                item_size,
                cloud == 1,
                (result, confidence) if has_reply == 1 else None,
                Decision(answer, answer_confidence, ROUTES[route], cost, sensors, trace),
            )
        )
    if at != len(words):
        raise BundleError(f"the golden cases have {len(words) - at} words too many; export the bundle again")
    return tuple(cases)


def _typed(row: Sequence[float], are_i32: Sequence[bool]) -> tuple[Reading, ...]:
    """Readings in their features' types: None for NaN, an int for a whole i32 reading."""
    pairs = zip(row, are_i32, strict=True)
    return tuple([None if x != x else int(x) if is_i32 and x == x // 1 else x for x, is_i32 in pairs])
