# SPDX-License-Identifier: Apache-2.0
"""Work is counted: what a bundle may cost to load, what a decision may cost, and one list of limits for all readers."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from hardcase_edge.bundle.file import unpack_bundle
from hardcase_edge.bundle.golden import GoldenCase
from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.errors import BundleError, ImageError, ProgramError
from hardcase_edge.kernel.image import Image
from hardcase_edge.kernel.machine import EVALUATORS, KERNEL, PYTHON, decide, name_of, open_machine
from hardcase_edge.kernel.sources import FOLDER
from hardcase_edge.program import limits
from hardcase_edge.program.decode import decode
from hardcase_edge.program.definition import Answer, Program
from hardcase_edge.program.encode import encode
from hardcase_edge.session.session import LOCAL, Decision
from hardcase_edge.verifier.verify import verify
from tests.golden.make_golden import golden_program
from tests.helpers.attack.crafted import decision_cost
from tests.helpers.attack.outcome import least_seconds
from tests.helpers.edge.bundles import bundle_of
from tests.helpers.edge.crafted import LONG_DECISIONS, LONG_PROOFS, branch_bomb, shared_margins, stacked, wide_branch
from tests.helpers.edge.evaluators import needs_kernel
from tests.helpers.edge.mutate import mutate
from tests.helpers.edge.strategies import programs, random_program, seeds

SECONDS_OF_WORK = 2.0 / limits.MAX_WORK  # of one step: at most two seconds for the largest program
SLACK = 2.0  # the machine of the tests does other things, too


# ---------------------------------------------------------------- one list of limits


def verified(program: Program) -> bool:
    try:
        verify(program)
    except ProgramError:
        return False
    return True


@needs_kernel
@given(programs(4), seeds)
@settings(max_examples=120)
def test_what_the_verifier_proves_has_an_image_that_the_kernel_runs(program: Program, seed: int) -> None:
    changed = mutate(program, random.Random(seed))
    if verified(changed):
        assert name_of(open_machine(changed, KERNEL)) == KERNEL


@given(programs(4), seeds)
@settings(max_examples=100)
def test_a_session_takes_no_more_memory_than_was_proved(program: Program, seed: int) -> None:
    changed = mutate(program, random.Random(seed))
    if verified(changed):
        image = Image(changed)
        image.pack()
        assert image.session_bytes <= verify(changed).session_bytes


@needs_kernel
@pytest.mark.parametrize("make", [lambda: shared_margins(200, 4_000), lambda: wide_branch(16_384)])
def test_a_program_at_a_limit_runs_in_the_kernel(make: Any) -> None:
    loaded = load_bytes(bundle_of(make()))
    assert name_of(loaded.machine) == KERNEL
    assert decide(loaded.machine, []) == decide(open_machine(loaded.bundle.program, PYTHON), [])


def test_the_kernels_limits_are_the_verifiers() -> None:
    code = (FOLDER / "hc_check.h").read_text(encoding="utf-8")
    names = {
        "SENSORS": "SENSORS", "NODES": "NODES", "TARGETS": "TARGETS", "SCORERS": "SCORERS", "CLASSES": "CLASSES",
        "RANKS": "RANKS", "CELLS": "CELLS", "COEFFICIENTS": "COEFFICIENTS", "SHIFT": "SHIFT",
    }  # fmt: skip
    in_c = {name: int(number) for name, number in re.findall(r"MOST_([A-Z]+) = (\d+)[,\s]", code) if name in names}
    assert in_c == {name: getattr(limits, f"MAX_{name}") for name in names}


@needs_kernel
def test_an_image_that_the_kernel_refuses_is_run_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("these bytes are no image that this kernel runs")

    monkeypatch.delenv("HARDCASE_EVALUATOR", raising=False)
    monkeypatch.setattr("hardcase_edge.kernel.compiled._kernel.Image", refuse)
    with pytest.raises(ImageError, match="the kernel refuses this program: these bytes are no image"):
        open_machine(random_program(0), KERNEL)
    assert name_of(open_machine(random_program(0))) == PYTHON


# ---------------------------------------------------------------- loading is bounded

SMALL = {
    "select_chain": 12, "empty_ensembles": 8, "stacked": 60, "columns_of_one_feature": 3_000, "many_scorers": 1_000,
    "many_trees": 3_000, "many_stumps": 3_000, "many_targets": 50, "shared_margins": 500, "wide_branch": 2_000,
    "wide_rank": 2,
}  # fmt: skip


def steps_of(program: Program) -> int:
    """The steps that the verifier counts of a whole program."""
    counted: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hardcase_edge.verifier.work.check_steps", counted.append)
        verify(program)
    return counted[-1]


def test_a_margin_takes_two_steps_as_the_page_says() -> None:
    def answering(n: int) -> Program:
        p = golden_program()
        at = next(k for k, node in enumerate(p.nodes) if isinstance(node, Answer))
        answer = replace(p.nodes[at], margins=tuple(range(n)), confidences=(5_000,) * (n + 1))
        return replace(p, nodes=(*p.nodes[:at], answer, *p.nodes[at + 1 :]))

    assert steps_of(answering(9)) - steps_of(answering(4)) == 2 * 5


def test_a_program_is_refused_before_all_of_it_is_proved() -> None:
    program = stacked(2_600)  # each stack stands on 500 trees
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hardcase_edge.verifier.verify.check_work", None)
        with pytest.raises(ProgramError, match="steps to prove"):
            verify(program)


@pytest.mark.parametrize("name", LONG_PROOFS)
def test_loading_takes_no_longer_than_its_counted_work(name: str) -> None:
    program = LONG_PROOFS[name](SMALL[name])
    data, allowed = bundle_of(program), 0.1 + SLACK * SECONDS_OF_WORK * steps_of(program)
    assert least_seconds(lambda: load_bytes(data), allowed) <= allowed


def test_a_reader_counts_records_before_it_reads_them() -> None:
    tensors = encode(random_program(0))
    tensors["program"].extend([0] * 1_000_000)
    for place in range(2, 7):
        before, tensors["program"][place] = tensors["program"][place], 700_000
        with pytest.raises(ProgramError, match="takes more than 5000000 steps"):
            decode(tensors)
        tensors["program"][place] = before


def case_of(program: Program) -> GoldenCase:
    n = len(program.features)
    return GoldenCase((0.0,) * n, (), None, 1, True, None, Decision(0, 0, LOCAL, 0, (), (0,)))


def test_golden_cases_are_counted_before_they_are_read() -> None:
    program = LONG_DECISIONS["features_of_one_sensor"](4_000)
    data = bundle_of(program, (case_of(program),) * 263)
    with pytest.raises(BundleError, match="there are 1052000 readings in the golden cases"):
        unpack_bundle(data)


# ---------------------------------------------------------------- a decision is bounded


@needs_kernel
@pytest.mark.parametrize("name", [*LONG_DECISIONS, "branch_bomb"])
def test_a_decision_takes_no_longer_than_its_proved_operations(name: str) -> None:
    program = branch_bomb(1, 100, 800) if name == "branch_bomb" else LONG_DECISIONS[name](50)
    operations = verify(program).operations
    for evaluator in EVALUATORS:
        ms = decision_cost(program, evaluator, operations, 3_000)
        assert ms <= SLACK * limits.worst_decision_ms(operations, evaluator)


def test_every_part_of_a_decision_counts() -> None:
    assert verify(branch_bomb(1, 100, 800)).operations > 2 * 100 * 800
    assert verify(LONG_DECISIONS["wide_argmax"](3)).operations > 3 * 1_000
    assert verify(LONG_DECISIONS["long_selects"](3)).operations > 3 * 100 * 8
    assert verify(LONG_DECISIONS["affine_columns"](500)).operations > 500
    assert verify(LONG_DECISIONS["shared_margins"](5)).operations > 400
