# SPDX-License-Identifier: Apache-2.0
"""The two policies of esphome.yaml: the golden program with a feature of texts, and as it is with costs of the YAML."""

from __future__ import annotations

from dataclasses import replace

from hardcase_edge.bundle.golden import GoldenCase, run_case
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.program.definition import Column, Feature, Program, Rank, Sensor, Uplink
from hardcase_edge.session.session import Machine
from tests.golden.make_golden import cases_of, golden_program, manifest_of

TEXTS = tuple(f"mode{k}" for k in range(20))
MODE = 4  # the feature that is a text
ORIGINS = {"sensors": {"sensor 0": "measured", "sensor 1": "modelled"}, "uplink": "declared", "cloud": "declared"}


def golden_with_a_text() -> tuple[Program, Manifest, tuple[GoldenCase, ...]]:
    """The golden program, which has every node and type, with a feature of texts; a negative code is another text."""
    p = golden_program()
    program = replace(
        p,
        features=(*p.features, Feature("i32", nullable=True)),
        sensors=(Sensor((0, MODE), (1_000_000,)), *p.sensors[1:]),
        uplink=Uplink(56 + 8 + 4 * 4, (3, 0, 1, 2, MODE)),
        columns=(*p.columns[:3], Column(MODE, Rank((1, 5, 12)))),
    )
    machine, cases = Machine(program), []
    for case in cases_of(program, 64):
        mode = case.readings[MODE]
        given = replace(case, readings=(*case.readings[:MODE], None if mode is None or mode < 0 else mode))
        cases.append(replace(given, expected=run_case(machine, given)))
    return program, replace(manifest_of(program), categories={f"feature {MODE}": TEXTS}), tuple(cases)


def golden_with_costs() -> tuple[Program, tuple[GoldenCase, ...], tuple[GoldenCase, ...]]:
    """The golden program, its cases, and these as they are decided with the costs of esphome.yaml."""
    program = golden_program()
    first, second, third = program.sensors
    other = replace(first, cost=(3_000_000,)), second, replace(third, cost=(150_000_000,))
    machine, cases = Machine(replace(program, sensors=other)), cases_of(program, 64)
    return program, cases, tuple(replace(case, expected=run_case(machine, case)) for case in cases)


PROGRAM, MANIFEST, CASES = golden_with_a_text()
OTHER, AS_TRAINED, AS_DECLARED = golden_with_costs()
OTHER_MANIFEST = replace(manifest_of(OTHER), claims={"costs": ORIGINS})
