# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of drift monitors in C is that of Python, bit for bit, on any readings; so are the suspects."""

from __future__ import annotations

import random
import struct
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardcase_edge.base.change import Change, stakes
from hardcase_edge.bundle.monitors import MAX_BINS, Histogram
from hardcase_edge.drift.arithmetic import PYTHON, Arithmetic, arithmetic
from hardcase_edge.drift.columns import Columns
from hardcase_edge.drift.residuals import Residuals
from hardcase_edge.drift.stability import WINDOW, Stability
from hardcase_edge.kernel.machine import VARIABLE
from tests.edge.drift.test_monitors import MONITORS, PROGRAM
from tests.helpers.edge.evaluators import needs_kernel

ODD = st.sampled_from((nan, inf, -inf, 0.0, -0.0, 1e308, -1e308, 5e-324, 1.0))
NUMBERS = st.one_of(st.floats(-10, 10), ODD)
READINGS = st.one_of(st.none(), NUMBERS, st.integers(-(2**31), 2**31), st.integers(-(10**300), 10**300))
VALUES_OF_A_SENSOR = st.one_of(
    st.none(), st.lists(READINGS, min_size=2, max_size=2), st.tuples(READINGS, READINGS)
)  # fmt: skip
ROWS = st.lists(st.dictionaries(st.integers(0, 2), VALUES_OF_A_SENSOR), max_size=40)
POSITIVE = st.floats(2.0**-60, 1e9)


def same(a: Any, b: Any) -> bool:
    """Whether values are equal bit for bit, NaN being NaN whatever its bits are."""
    if isinstance(a, float) and isinstance(b, float):
        return (a != a and b != b) or struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@pytest.fixture(scope="module")
def in_c() -> Arithmetic:
    functions = arithmetic()
    assert functions is not PYTHON
    return functions


@needs_kernel
@given(ROWS)
def test_columns_are_the_same(in_c: Arithmetic, rows: list[Any]) -> None:
    assert all(same(in_c.columns(rows, s, 2), PYTHON.columns(rows, s, 2)) for s in range(4))


@st.composite
def judgements(draw: st.DrawFn) -> tuple[Any, ...]:
    n = draw(st.integers(1, 40))
    column = st.lists(NUMBERS, min_size=n, max_size=n)
    term = st.tuples(column, NUMBERS)
    expectation = st.tuples(column, NUMBERS, st.lists(term, max_size=4).map(tuple), POSITIVE, POSITIVE, NUMBERS)
    reading = st.one_of(st.none(), st.lists(st.sampled_from((None, 1, 1.0, 2.0, nan)), max_size=2))
    readings = draw(st.one_of(st.just(()), st.lists(reading, min_size=n + 1, max_size=n + 1)))
    return draw(st.floats(0, 10)), n, readings, draw(st.lists(expectation, max_size=4))


@needs_kernel
@given(judgements())
def test_judgements_are_the_same(in_c: Arithmetic, arguments: tuple[Any, ...]) -> None:
    assert same(in_c.judged(*arguments), PYTHON.judged(*arguments))


EDGES = st.one_of(st.integers(-9, 9), st.sampled_from((2**53, -(2**53))), st.floats(-9, 9))


@needs_kernel
@given(st.lists(st.one_of(st.floats(allow_nan=False), ODD.filter(lambda x: x == x)), max_size=60),
       st.lists(EDGES, unique=True, max_size=MAX_BINS - 1))  # fmt: skip
def test_counts_are_the_same(in_c: Arithmetic, values: list[float], edges: list[float]) -> None:
    steps = tuple(sorted(edges))
    assert in_c.below(values, steps) == PYTHON.below(values, steps)


VALUES = st.lists(st.one_of(st.sampled_from((-1.0, 0.0, 1.0)), st.floats(0, 1)), max_size=60)


@needs_kernel
@given(st.lists(VALUES, max_size=6), st.floats(0.0001, 0.99), st.sampled_from((0.5, 0.05, 0.001)))
def test_bets_are_the_same(in_c: Arithmetic, batches: list[list[float]], bound: float, delta: float) -> None:
    one, other, mark = Change(bound, delta), Change(bound, delta, in_c.bet), 0
    for values in batches:
        marks = list(range(mark, mark := mark + len(values)))
        assert one.see_all(values, marks) == other.see_all(values, marks)
        assert same(one.to_json(), other.to_json())


@needs_kernel
@pytest.mark.parametrize("kind", ["sound", "bias", "stuck"])
@pytest.mark.parametrize("seed", range(3))
def test_both_suspect_the_same_sensors_at_the_same_decisions(in_c: Arithmetic, kind: str, seed: int) -> None:
    draw, rows = random.Random(seed), list[dict[int, list[float | None] | None]]()
    both = [(functions, Residuals(MONITORS, PROGRAM.sensor_of, functions)) for functions in (PYTHON, in_c)]
    for k in range(1_000):
        truth, failed = draw.uniform(-1, 1), k > 400 and kind != "sound"
        values = [truth + draw.gauss(0, 0.1) for _ in range(3)]
        values[seed] = values[seed] + 0.8 * failed if kind == "bias" else 0.1 if failed else values[seed]
        rows.append({s: [x if draw.random() < 0.9 else None] for s, x in enumerate(values) if draw.random() < 0.9})
        if len(rows) == both[0][1].may_wait:
            for functions, residuals in both:
                residuals.see(Columns(rows, PROGRAM, functions), k + 2 - len(rows))
            assert both[0][1].suspects == both[1][1].suspects
            assert both[0][1].may_wait == both[1][1].may_wait
            rows = []
    assert list(both[0][1].suspects) == ([] if kind == "sound" else [seed])


@needs_kernel
def test_windows_are_the_same(in_c: Arithmetic) -> None:
    draw, reference = random.Random(1), Histogram((-0.5, 0.0, 0.5), (10, 20, 30, 40))
    one, other = Stability(reference), Stability(reference, in_c.below)
    for _ in range(2 * WINDOW // 32):
        values = [draw.gauss(0, 1) for _ in range(32)]
        one.see(values)
        other.see(values)
        assert one.index == other.index
    assert one.index is not None


SHARES = [0.1, *stakes(0.1)]
PURSE = [1.0] * (1 + len(SHARES))
WRONG = [
    ("columns", ((), 0, 1)),
    ("columns", ([None], 0, 1)),
    ("columns", ([{0: [1.0]}], 0, 2)),
    ("columns", ([{0: ["x"]}], 0, 1)),
    ("columns", ([{0: [10**400]}], 0, 1)),
    ("judged", (0.0, 0, (), [])),
    ("judged", (0.0, 1, [1], [([1.0], 0.0, (), 1.0, 0.0, 5.0)])),
    ("judged", (0.0, 2, (), [([1.0], 0.0, (), 1.0, 1.0, 1.0)])),
    ("judged", (0.0, 1, (), [([1], 0.0, (), 1.0, 1.0, 1.0)])),
    ("judged", (0.0, 1, (), [([1.0], 0.0, (([], 1.0),), 1.0, 1.0, 1.0)])),
    ("below", ([1], (1.0,))),
    ("below", ([1.0], ("x",))),
    ("bet", ([1.0], 0, [], [], [], 0.1, SHARES, 1.0)),
    ("bet", (PURSE, 0, [], [], [], 0.1, SHARES[1:], 1.0)),
    ("bet", (PURSE, 0, [1.0], [1], [], 0.1, SHARES, 1.0)),
    ("bet", (PURSE, 0, ["x"], [1], [0.5], 0.1, SHARES, 1.0)),
    ("bet", (PURSE, 0, [1.0], [1], ["x"], 0.1, SHARES, 1.0)),
]


@needs_kernel
@pytest.mark.parametrize(("name", "arguments"), WRONG)
def test_what_is_not_of_the_form_is_refused(in_c: Arithmetic, name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError, IndexError, OverflowError)):
        getattr(in_c, name)(*arguments)


@needs_kernel
@pytest.mark.parametrize("n", [1, 2])
def test_a_number_whose_conversion_changes_the_lists_does_no_harm(in_c: Arithmetic, n: int) -> None:
    class Odd:
        def __float__(self) -> float:
            expectations.clear()
            return 1.0

    expectations: list[Any] = []
    expectations += [([1.0], Odd(), (([1.0], 1.0),), 1.0, 1.0, 1.0) for _ in range(n)]
    if n == 1:
        assert in_c.judged(0.0, 1, (), expectations)[2] == [2.0]
    else:
        with pytest.raises(IndexError):
            in_c.judged(0.0, 1, (), expectations)
    with pytest.raises(TypeError, match="a float or an int"):
        in_c.bet(PURSE, 0, [Odd()], [1], [0.5], 0.1, SHARES, 1.0)


def test_the_environment_chooses_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "python")
    assert arithmetic() is PYTHON


def test_without_the_kernel_python_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hardcase_edge.kernel.machine._compiled", lambda: None)
    assert arithmetic() is PYTHON
