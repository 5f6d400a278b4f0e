# SPDX-License-Identifier: Apache-2.0
"""Golden cases: recorded decisions that a device replays to prove that it computes what the exporter computed.

A case fixes everything that a session depends on (raw readings, failed sensors, budget, item size, cloud and the
HPC's reply) and holds the whole decision that must come of it, trace included. docs/SPEC-bundle-v1.md section 4
defines the bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..base.record import record
from ..errors import BundleError
from ..program.cost import start_of
from ..program.definition import Program
from ..program.format import Tensor
from ..program.readings import Reading
from ..session.actions import Decision
from ..session.drive import drive
from ..session.recorded import (
    MAX_CASES,
    MAX_NUMBERS,
    NO_BUDGET,
    ROUTES,
    Words,
    narrowest,
    numbers_of,
    readings_tensor,
    sensor_words,
    typed_row,
)

if TYPE_CHECKING:
    from ..kernel.compiled import CompiledMachine
    from ..session.session import Machine

CASES = "the golden cases"


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
        A case has a negative budget, or a number beyond 64 bits.
    """
    if not cases:
        return {}
    words, readings, n_sensors = [len(cases)], list[float](), len(program.sensors)
    for k, c in enumerate(cases):
        d = c.expected
        if c.budget is not None and c.budget < 0:
            raise BundleError(f"golden case {k} has a budget of {c.budget}; use 0 or more, or None for no limit")
        words += [NO_BUDGET if c.budget is None else c.budget, c.item_size, int(c.cloud)]
        words += [int(c.reply is not None), *(c.reply or (0, 0)), *sensor_words(c.failed, n_sensors)]
        words += [ROUTES.index(d.route), int(d.result), d.confidence, d.cost]
        words += [*sensor_words(d.sensors, n_sensors), len(d.trace), *d.trace]
        readings += [float("nan") if x is None else x for x in c.readings]
    return {"golden.words": narrowest(words, "hiq", CASES), "golden.readings": readings_tensor(readings)}


def decode_golden(tensors: Mapping[str, Tensor], program: Program) -> tuple[GoldenCase, ...]:
    """The cases in these tensors; none if ``golden.words`` is not among them.

    Raises
    ------
    BundleError
        The tensors are truncated, have the wrong shape, or hold too many cases.
    """
    if "golden.words" not in tensors:
        return ()
    words = Words(tensors["golden.words"], len(program.sensors), CASES)
    readings = numbers_of(tensors.get("golden.readings", array("h")), CASES)
    count, width = words.one("their number"), len(program.features)
    if count * (width + len(program.sensors)) > MAX_NUMBERS:
        raise BundleError(
            f"{count} golden cases of {width} readings are more than the {MAX_NUMBERS} numbers that are replayed at "
            "most; export the bundle again"
        )
    if not 0 < count <= MAX_CASES or len(readings) != count * width:
        raise BundleError(
            f"{count} golden cases of {width} readings do not fit {len(readings)} numbers; export the bundle again"
        )
    are_i32 = [f.dtype == "i32" for f in program.features]
    rows = [typed_row(readings[k * width : (k + 1) * width], are_i32) for k in range(count)]
    cases = tuple([_case(words, row, program) for row in rows])
    words.end()
    return cases


def _case(words: Words, row: tuple[Reading, ...], program: Program) -> GoldenCase:
    """The next case in these words."""
    budget, item_size = words.budget(start_of(program.costs)), words.one("item size", 1, program.max_item_size)
    cloud, reply = words.one("a flag", 0, 1), words.reply(program.n_classes - 1 if program.n_classes else None)
    failed = words.sensors()
    route, answer = words.one("route", 0, len(ROUTES) - 1), words.one("result")
    confidence, cost, sensors = words.one("confidence", 0, 10_000), words.one("cost", 0), words.sensors()
    trace = words.run("node", words.one("the length of a trace", 0), 0)
    expected = Decision(answer, confidence, ROUTES[route], cost, sensors, trace)
    return GoldenCase(row, failed, budget, item_size, cloud == 1, reply, expected)
