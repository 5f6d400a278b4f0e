# SPDX-License-Identifier: Apache-2.0
"""What waking up costs is spent before anything else, by every evaluator, and no budget below it is accepted."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardcase_edge.base.clock import Clock
from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.golden import GoldenCase, run_case
from hardcase_edge.bundle.load import Loaded, load_bytes
from hardcase_edge.device.device import Device, RuntimeConfig
from hardcase_edge.errors import BundleError, ImageError, InputError, ProgramError, SessionError
from hardcase_edge.joint.machine import open_joint
from hardcase_edge.joint.prove import verify_joint
from hardcase_edge.kernel.image import make_image
from hardcase_edge.kernel.layout import MORE, PARTS
from hardcase_edge.kernel.machine import KERNEL, decide, open_machine
from hardcase_edge.more.batch.evaluate import Batch
from hardcase_edge.more.servo.companion import budgets_of
from hardcase_edge.program.cost import start_of, with_start
from hardcase_edge.program.decode import decode
from hardcase_edge.program.definition import FREE, MICRO, Program
from hardcase_edge.program.encode import encode
from hardcase_edge.program.limits import SAFE
from hardcase_edge.session.session import Decision
from hardcase_edge.settings.config import RunConfig
from hardcase_edge.verifier.verify import verify
from tests.helpers.edge.device import EASY, HARD, make_manifest, make_program
from tests.helpers.edge.evaluators import evaluator, needs_kernel  # noqa: F401
from tests.helpers.edge.joint_programs import play, random_joint, random_world
from tests.helpers.edge.strategies import random_program
from tests.helpers.edge.worlds import paying

START = 3 * MICRO
PLAIN = make_program()
WAKING = replace(PLAIN, costs=with_start(PLAIN.costs, START))
ROW = [EASY, 0.0, 0.0, 0.0, 0.0]


def loaded(program: Program = WAKING, golden: tuple[GoldenCase, ...] = (), **manifest: Any) -> Loaded:
    return load_bytes(pack_bundle(Bundle(make_manifest(**manifest).to_json(), program, golden)))


def test_a_decision_costs_its_start_and_what_it_buys() -> None:
    machine = open_machine(WAKING)
    assert decide(machine, ROW).cost == START + MICRO  # the gate's sensor
    whole = [HARD, *ROW[1:]]
    asked = decide(open_machine(PLAIN), whole, (1, 9_000))
    assert asked.route == "cloud"
    assert decide(machine, whole, (1, 9_000)) == replace(asked, cost=asked.cost + START)


def test_the_report_and_rows_at_once_have_it_too() -> None:
    report, plain = verify(WAKING), verify(PLAIN)
    assert (report.worst_cost, report.best_cost) == (plain.worst_cost + START, plain.best_cost + START)
    rows, said = np.array([ROW, [HARD, *ROW[1:]]]), np.array([1, 1])
    one, other = (Batch(p, rows).run(said).cost for p in (WAKING, PLAIN))
    assert (one - other).tolist() == [START / MICRO] * 2


def test_what_is_left_of_a_budget_is_what_the_start_leaves() -> None:
    machine = open_machine(WAKING)
    assert decide(machine, ROW, budget=START) == Decision(0, 6_000, "local", START, (), (0, 3), unpaid=(0,))
    assert decide(machine, ROW, budget=START + MICRO).sensors == (0,)
    batch = Batch(WAKING, np.array([ROW]))
    assert batch.run(np.array([1]), budget=START).cost == START / MICRO


@pytest.mark.parametrize("budget", [0, 1, START - 1])
def test_a_budget_below_the_start_is_refused_in_one_line(budget: int) -> None:
    said = f"a budget of {budget} micro-units is less than each decision costs at its start, {START}; raise it"
    machine = open_machine(WAKING)
    for attempt in (
        lambda: machine.session(budget=budget),
        lambda: decide(machine, ROW, budget=budget),
        lambda: Batch(WAKING, np.array([ROW])).run(np.array([1]), budget=budget),
    ):
        with pytest.raises(SessionError) as caught:
            attempt()
        assert str(caught.value) == said


def test_devices_and_running_budgets_refuse_it_before_the_first_decision(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the budget is 2.5, but each decision costs 3 mJ before it reads anything"):
        Device(loaded(), None, None, RuntimeConfig(budget=2.5))  # type: ignore[arg-type]
    config = RunConfig(budget_per_hour=100.0, budget_file=str(tmp_path / "budget.json"))
    with pytest.raises(InputError, match="each decision of this bundle costs 3 mJ before it reads anything"):
        budgets_of(config, loaded(), Clock(), print)


def test_a_bundle_by_the_clock_or_with_a_golden_budget_below_it_is_refused() -> None:
    with pytest.raises(BundleError, match="a bundle by the clock starts when it is asked, at no cost"):
        loaded(unit="ms", clock=True)
    case = GoldenCase((*ROW,), (), START, 1, True, None, Decision(0, 0, "local", 0, (), ()))
    case = replace(case, expected=run_case(open_machine(WAKING), case))
    assert loaded(golden=(case,)).bundle.golden == (case,)
    with pytest.raises(BundleError, match=f"a budget of {START - 1} is below {START}, the cost of a start"):
        loaded(golden=(replace(case, budget=START - 1),))


def test_an_item_of_several_parts_pays_once() -> None:
    for seed in range(20):
        part, joint = random_joint(seed)
        free = replace(part, costs=with_start(part.costs, 0))
        waking = replace(part, costs=with_start(part.costs, START))
        worlds = [random_world(random.Random(seed), p, joint, 10 * MICRO) for p in (free, waking)]
        plain, item = (play(open_joint(p, joint), world) for p, world in zip((free, waking), worlds, strict=True))
        assert item == replace(plain, cost=plain.cost + START)
        assert verify_joint(waking, joint).worst_cost == verify_joint(free, joint).worst_cost + START
        with pytest.raises(SessionError, match="less than each decision costs at its start"):
            open_joint(waking, joint).session(1, budget=START - 1)


def test_random_programs_draw_it() -> None:
    drawn = [start_of(random_program(seed).costs) for seed in range(100)]
    assert 0 in drawn
    assert sum(start > 0 for start in drawn) >= 30
    assert paying(WAKING, 5) == START + 5


# ---------------------------------------------------------------- the format and the image


def test_a_program_without_it_has_the_bytes_that_it_always_had() -> None:
    words, more = encode(PLAIN)["program"], encode(WAKING)["program"]
    assert (words[13], more[13]) == (0, 1)  # a reader that does not know word 13 wants a zero there
    at = more[9]
    assert encode(WAKING)["i64"][at : at + 4].tolist() == [100 * MICRO, MICRO, 0, START]
    assert decode(encode(WAKING)) == (WAKING, False)
    plain, image = make_image(PLAIN), make_image(WAKING)
    assert (plain[:4], image[:4], len(image) - len(plain)) == (b"HCI1", b"HCI2", MORE.n_bytes - PARTS.n_bytes)


@pytest.mark.parametrize(
    ("count", "value", "said"),
    [
        (len(FREE.terms) - 2, START, "further costs, of which this version knows .; update it"),
        (-1, START, "has -1 further costs"),
        (1, 0, "the last of the program's further costs is 0"),
    ],
)
def test_further_costs_that_no_writer_makes_are_refused(count: int, value: int, said: str) -> None:
    tensors = {name: tensor[:] for name, tensor in encode(WAKING).items()}
    tensors["program"][13] = count
    tensors["i64"][tensors["program"][9] + 3] = value
    with pytest.raises(ProgramError, match=said):
        decode(tensors)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (-1, "the cost per_decision is -1"),
        (0.5, "the cost per_decision is 0.5"),
        (float("nan"), "the cost per_decision is nan"),
        (SAFE, "the cost per_decision is"),
        (SAFE - 1, "too large to add safely"),
    ],
)
def test_the_verifier_refuses_what_is_no_cost_or_overflows_the_sum(start: Any, said: str) -> None:
    with pytest.raises(ProgramError, match=said):
        verify(replace(PLAIN, costs=replace(PLAIN.costs, per_decision=start)))


@needs_kernel
@pytest.mark.parametrize("start", [0, -1, SAFE])
def test_the_kernel_refuses_an_image_whose_start_costs_nothing_or_too_much(
    start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = bytearray(make_image(WAKING))
    struct.pack_into("<q", image, MORE.at["start_cost"], start)
    monkeypatch.setattr("hardcase_edge.kernel.compiled.make_image", lambda *_: bytes(image))
    with pytest.raises(ImageError, match="the kernel refuses this program"):
        open_machine(WAKING, KERNEL)
