# SPDX-License-Identifier: Apache-2.0
"""An evaluator that was written from the pages alone decides as hardcase does, from the same bytes."""

from __future__ import annotations

import ast
import random
import sys

from hypothesis import given, settings

from hardcase_edge.bundle.file import unpack_bundle
from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.program.definition import Program
from hardcase_edge.verifier.verify import verify
from tests.golden.make_golden import GOLDEN
from tests.helpers.edge.bundles import bundle_of
from tests.helpers.edge.from_spec import decide, golden_of, read
from tests.helpers.edge.spec_examples import example_bundle
from tests.helpers.edge.strategies import programs, seeds
from tests.helpers.edge.worlds import differences, random_world
from tests.helpers.places import ROOT


def test_the_evaluator_from_the_pages_imports_nothing_of_hardcase() -> None:
    tree = ast.parse((ROOT / "tests/helpers/edge/from_spec.py").read_text(encoding="utf-8"))
    imported = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    imported += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    assert {str(name).split(".")[0] for name in imported} <= set(sys.stdlib_module_names) | {"__future__"}


def test_the_evaluator_from_the_pages_decides_golden_cases_as_they_say() -> None:
    for data in (GOLDEN.read_bytes(), example_bundle()):
        second = read(data)
        cases = golden_of(second)
        assert len(cases) == len(load_bytes(data).bundle.golden) > 0
        for world, said in cases:
            assert decide(second, world)[0][:6] == said


@given(programs(5), seeds)
@settings(max_examples=150)
def test_random_programs_decide_alike_from_their_bytes(program: Program, seed: int) -> None:
    data, rng = bundle_of(program), random.Random(seed)
    second, report = read(data), verify(program)
    first = unpack_bundle(data).program
    for _ in range(4):
        world = random_world(rng, program)
        assert differences(first, second, world, report.worst_cost) == []
