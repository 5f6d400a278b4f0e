# SPDX-License-Identifier: Apache-2.0
"""The servo in C is that of Python, bit for bit: prices, what is left, thresholds."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hardcase_edge
from hardcase_edge.bundle.prices import LEVEL, MOST_THRESHOLD, Prices
from hardcase_edge.kernel.machine import KERNEL as COMPILED
from hardcase_edge.kernel.machine import PYTHON, decide, open_machine
from hardcase_edge.more.servo.bucket import MOST_AMOUNT, MOST_MS, MOST_STEPS, Bucket
from tests.helpers.edge.device import make_program
from tests.helpers.edge.evaluators import needs_kernel
from tests.helpers.tools import need

KERNEL = Path(hardcase_edge.__file__).parent / "kernel"
RECORD = """
#include <stdint.h>
int64_t moved[64];
int hc_move(void *image, uint32_t node, int64_t threshold);
int hc_move(void *image, uint32_t node, int64_t threshold) { (void)image; moved[node] = threshold; return node > 62; }
"""
I64, I32, U32 = ctypes.c_int64, ctypes.c_int32, ctypes.c_uint32


class CBucket(ctypes.Structure):
    _fields_ = (("rate", I64), ("burst", I64), ("left", I64), ("steps", I32), ("base", I32), ("carry", I32))


class CPrices(ctypes.Structure):
    _fields_ = (
        ("nodes", ctypes.POINTER(U32)), ("thresholds", ctypes.POINTER(I64)),
        ("n_nodes", I32), ("n_levels", I32), ("shipped", I32),
    )  # fmt: skip


@pytest.fixture(scope="module")
def servo(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    need("cc")
    folder = tmp_path_factory.mktemp("servo")
    (folder / "record.c").write_text(RECORD)
    flags = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fsanitize=undefined"]
    flags += ["-fno-sanitize-recover=all", "-fPIC", "-shared", f"-I{KERNEL}"]
    sources = [str(KERNEL / "hardcase_servo.c"), "record.c", "-o", "servo.so"]
    subprocess.run(["cc", *flags, *sources], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "servo.so"))


amounts = st.one_of(st.integers(0, MOST_AMOUNT), st.integers(0, 10**8), st.just(MOST_AMOUNT))
steps = st.one_of(st.integers(1, MOST_STEPS), st.just(16 * LEVEL))
events = st.tuples(
    st.one_of(st.integers(0, MOST_MS), st.integers(0, 20_000), st.just(1000)),
    st.one_of(st.integers(0, MOST_AMOUNT), st.integers(0, 10**6)),
)


@given(amounts, amounts, steps, st.integers(0, 1000), st.lists(events, max_size=30))
@settings(max_examples=40)
def test_a_bucket_in_c_is_that_of_python(servo, rate, burst, steps, begin, events) -> None:
    mine, theirs = Bucket(rate, max(burst, 1), steps, steps * begin // 1000), CBucket()
    servo.hc_bucket_open(ctypes.byref(theirs), I64(rate), I64(max(burst, 1)), I32(steps), I32(steps * begin // 1000))
    for ms, cost in events:
        mine.passed(ms)
        servo.hc_passed(ctypes.byref(theirs), U32(ms))
        assert (theirs.left, theirs.base) == mine.state
        mine.spent(cost)
        servo.hc_spent(ctypes.byref(theirs), I64(cost))
        assert (theirs.left, servo.hc_position(ctypes.byref(theirs))) == (mine.left, mine.position)


thresholds = st.one_of(st.integers(-MOST_THRESHOLD, MOST_THRESHOLD), st.integers(-1000, 1000))


@given(st.lists(st.tuples(thresholds, thresholds), min_size=2, max_size=9), st.integers(-(2**31), 2**31 - 1))
@settings(max_examples=40)
def test_thresholds_in_c_are_those_of_python(servo, levels, position) -> None:
    table = Prices((5, 9), tuple(levels), (), (), 0)
    flat = [t for level in levels for t in level]
    theirs = CPrices((U32 * 2)(5, 9), (I64 * len(flat))(*flat), 2, len(levels), 0)
    moved = (I64 * 64).in_dll(servo, "moved")
    for at in (position, position % (len(levels) * LEVEL)):
        assert servo.hc_set_price(None, ctypes.byref(theirs), I32(at)) == 0
        assert (moved[5], moved[9]) == table.at(at)


def test_a_table_of_another_image_is_told(servo) -> None:
    theirs = CPrices((U32 * 2)(63, 9), (I64 * 4)(1, 2, 3, 4), 2, 2, 0)
    assert servo.hc_set_price(None, ctypes.byref(theirs), I32(0)) != 0


@pytest.mark.parametrize(
    "numbers",
    [(-1, 1, 1, 0), (2**50 + 1, 1, 1, 0), (1, 0, 1, 0), (1, 2**50 + 1, 1, 0), (1, 1, 0, 0), (1, 1, 2**22 + 1, 0),
     (1, 1, 5, 6), (1, 1, 5, -1)],
)  # fmt: skip
def test_a_bucket_outside_its_ranges_is_refused(numbers: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="outside their ranges"):
        Bucket(*numbers)
    bucket = Bucket(1, 1, 1, 1)
    for rate in (-1, 2**50 + 1):
        with pytest.raises(ValueError, match="a rate is"):
            bucket.rate = rate


@needs_kernel
@given(st.lists(st.integers(-2000, 2000), min_size=2, max_size=9))
def test_a_table_moves_the_thresholds_of_both_machines_alike(levels: list[int]) -> None:
    table = Prices((1,), tuple([(level,) for level in levels]), (), (), 0)
    slow, fast = open_machine(make_program(), PYTHON), open_machine(make_program(), COMPILED, moved=[1])
    rows = [[x, 0, 0, 0, 0] for x in range(-20, 40, 3)]
    for position in [*range(0, table.last + 1, LEVEL // 3), table.last]:
        for machine in (slow, fast):
            machine.move(1, table.at(position)[0])
        assert [decide(fast, row) for row in rows] == [decide(slow, row) for row in rows]


@needs_kernel
def test_a_node_that_may_not_move_is_refused() -> None:
    machine = open_machine(make_program(), COMPILED, moved=[0, 1])
    with pytest.raises(ValueError, match="cannot be set there"):
        machine.move(2, 1)
    with pytest.raises(ValueError, match="no threshold"):
        machine.move(0, 1)


@needs_kernel
@pytest.mark.parametrize("threshold", [2**62 + 1, -(2**62) - 1, 2**63 - 1, -(2**63)])
def test_a_threshold_beyond_its_range_is_refused(threshold: int) -> None:
    machine = open_machine(make_program(), COMPILED, moved=(1,))
    machine.move(1, MOST_THRESHOLD)
    with pytest.raises(ValueError, match="cannot be set there"):
        machine.move(1, threshold)
