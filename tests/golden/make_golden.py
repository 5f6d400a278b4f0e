# SPDX-License-Identifier: Apache-2.0
"""Makes ``v1.hcb``: run ``python -m tests.golden.make_golden`` from the repository's root when format 1 is extended.

A test regenerates the bytes and compares: a change of the format is always a visible change of this file.
"""

from __future__ import annotations

import random
from pathlib import Path

from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.golden import GoldenCase, run_case
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.program.definition import (
    Acquire,
    Affine,
    Answer,
    Branch,
    Candidate,
    Column,
    Costs,
    Feature,
    Forward,
    Polynomial,
    Program,
    Rank,
    Select,
    Sensor,
    Slice,
    Stack,
    Tree,
    Trees,
    Uplink,
)
from hardcase_edge.session.session import Decision, Machine

GOLDEN = Path(__file__).with_name("v1.hcb")


def golden_program() -> Program:
    """A program with every node, rule, scorer, tree layout, column rule and reading type."""
    gate = Tree(2, 1, (1,), (-32766,), (True,), (), (-90, 120))
    classes = Tree(0, 2, (0, 2, 1), (3, -32765, -32767), (False, True, True), (), (9, -9, 5, -5, -4, 4, -8, 8))
    leafwise = Tree(0, 1, (0, 2), (-100, -32766), (True, False), ((1, -1), (-2, -3)), (11, -7, 2))
    return Program(
        features=(Feature("f64"), Feature("f32", nullable=True), Feature("i32"), Feature("f32")),
        sensors=(
            Sensor((0,), (1_000_000,)),
            Sensor((1, 2), (2_000_000, 500_000)),
            Sensor((3,), (250_000, 0, 10_000)),
        ),
        uplink=Uplink(56 + 8 + 4 + 4 + 4, (3, 0, 1, 2)),
        columns=(
            Column(0, Affine(16, 3, 1 << 15, 16, -127, 127)),
            Column(1, Rank((-1.5, 0.0, 0.25))),
            Column(2, Rank((-7, 0, 12))),
            Column(0, Rank((-1e-300, 0.1, 1e300))),
        ),
        scorers=(
            Polynomial((0, 3), (None, 0), 64, ((0, 0), (0, 2), (1, 2)), ((1, -2, 3),), (-5,), 8),
            Trees((0, 1, 2), (1, 0, -10), (gate, classes, leafwise)),
            Stack(1, (0, 2), ((3, -1), (1, 1)), (40, -40)),
            Polynomial((), (), 1, ((0,),), ((2,), (1,)), (0, 0)),
        ),
        nodes=(
            Select((Candidate(4, (1_000_000, 250_000), 1), Candidate(9, (500_000,), 10)), 10),
            Acquire((0,), 2, 10),
            Branch(Slice(0, 0, 1), "threshold", (3, 4), -6_291_000),
            Acquire((2, 1), 5, 8),
            Acquire((1,), 6, 8),
            Branch(Slice(1, 0, 3), "tournament", (7, 8, 9, 7), bracket=((0, 1), (3, 2), (4, 5))),
            Branch(Slice(1, 0, 2), "margin", (9, 7), 12),
            Forward((0, 1, 2), 9),
            Branch(Slice(2, 0, 2), "argmax", (9, 10)),
            Answer(Slice(1, 0, 2), margins=(5, 20), confidences=(5100, 8000, 9900)),
            Answer(Slice(3, 0, 2), confidences=(5000,)),
        ),
        n_classes=2,
        costs=Costs(100_000_000, 20_000),
        max_item_size=9,
    )


def manifest_of(program: Program) -> Manifest:
    """Plain names for a program's parts."""
    return Manifest(
        name="golden",
        unit="mJ",
        features=tuple(f"feature {k}" for k in range(len(program.features))),
        sensors=tuple(f"sensor {k}" for k in range(len(program.sensors))),
        classes=tuple(["low", "high", 2, 3.5][: program.n_classes]),
        hpc="0123456789abcdef" * 4,
        claims={"test": {"accuracy": 0.5, "cost": 12.25, "forward_rate": 0.0}},
        trained={"seed": 0},
    )


def cases_of(program: Program, count: int) -> tuple[GoldenCase, ...]:
    """Cases of every kind, always the same; readings are quarters, so that every type and machine holds them."""
    rng = random.Random(count)
    machine = Machine(program)
    cases = []
    for k in range(count):
        readings = tuple(
            None
            if feature.nullable and rng.randrange(4) == 0
            else rng.randrange(-20, 20)
            if feature.dtype == "i32"
            else rng.randrange(-16, 16) / 4
            for feature in program.features
        )
        case = GoldenCase(
            readings=readings,
            failed=tuple(s for s in range(len(program.sensors)) if rng.randrange(6) == 0),
            budget=None if k % 2 == 0 else rng.randrange(0, 2**28),
            item_size=rng.randrange(program.max_item_size) + 1,
            cloud=k % 5 != 4,
            reply=None if k % 8 == 2 else (rng.randrange(program.n_classes or 9), rng.randrange(10_001)),
            expected=Decision(0, 0, "local", 0, (), ()),
        )
        values = [getattr(case, name) for name in GoldenCase.__slots__[:-1]]
        cases.append(GoldenCase(*values, expected=run_case(machine, case)))
    return tuple(cases)


def golden_bundle() -> bytes:
    """The bytes of ``v1.hcb``."""
    program = golden_program()
    return pack_bundle(Bundle(manifest_of(program).to_json(), program, cases_of(program, 64)))


if __name__ == "__main__":
    GOLDEN.write_bytes(golden_bundle())
