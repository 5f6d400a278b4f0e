# SPDX-License-Identifier: Apache-2.0
"""Readings become codes exactly as docs/SPEC-program-v1.md sections 2 and 3 say."""

from __future__ import annotations

import math
import random
from array import array
from dataclasses import astuple
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_edge.kernel.machine import KERNEL, open_machine
from hardcase_edge.program import definition as d
from hardcase_edge.program.format import are_held, from_keys, to_key
from hardcase_edge.program.readings import fixed, make_coder, normalise
from hardcase_edge.session.session import NeedReply, NeedSensors
from tests.helpers.edge.evaluators import needs_kernel
from tests.helpers.edge.from_spec import affine_code, held, key, rank_code
from tests.helpers.edge.strategies import random_reading, round_f32

many = settings(max_examples=200)
f32 = st.floats(width=32, allow_nan=False)
f64 = st.floats(allow_nan=False)
TINY32, HUGE32 = 2.0**-149, 3.4028234663852886e38
LADDER = [-math.inf, -HUGE32, -1.0, -(2.0**-126), -TINY32, 0.0, TINY32, 2.0**-126, 1.0, HUGE32, math.inf]

NO_NUMBERS = ["1.5", "", b"1", bytearray(b"2"), memoryview(b"3"), [1.0], (), {}, 1j, object()]

# ---------------------------------------------------------------- keys


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_keys_climb_with_the_readings(dtype: str) -> None:
    keys = [to_key(x, dtype) for x in LADDER]
    assert all(a < b for a, b in pairwise(keys))
    assert to_key(-0.0, dtype) == to_key(0.0, dtype) == 0


def test_neighbouring_floats_have_neighbouring_keys() -> None:
    for x in (0.0, TINY32, 1.0, -1.0, -TINY32):
        above = float(np.nextafter(np.float32(x), np.float32(math.inf)))
        gap = 2 if above == 0 else 1  # minus zero's key, between the smallest negative number and zero, is not used
        assert to_key(above, "f32") - to_key(x, "f32") == gap
    assert to_key(math.nextafter(1.0, 2.0), "f64") == to_key(1.0, "f64") + 1


@given(f64, f64)
@many
def test_keys_of_doubles_order_as_the_doubles(a: float, b: float) -> None:
    assert (to_key(a, "f64") < to_key(b, "f64")) == (a < b)
    assert from_keys([to_key(a, "f64"), to_key(b, "f64")], "f64") == (a, b)
    assert to_key(a, "f64") == key(a, "f64")


@given(f32, f32)
@many
def test_keys_of_floats_order_as_the_floats(a: float, b: float) -> None:
    assert (to_key(a, "f32") < to_key(b, "f32")) == (a < b)
    assert from_keys([to_key(a, "f32"), to_key(b, "f32")], "f32") == (a, b)
    assert to_key(a, "f32") == key(a, "f32")


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (0.5, "f32", True), (0.1, "f32", False), (0.1, "f64", True), (TINY32, "f32", True),
        (TINY32 / 2, "f32", False), (1e39, "f32", False), (2**53 + 1, "f64", False), (10**400, "f64", False),
        (3, "i32", True), (2.5, "i32", False), (2**31 - 1, "i32", True), (2**31, "i32", False),
        (-(2**31), "i32", False), (math.inf, "i32", False), (math.nan, "f64", False),
    ],
)  # fmt: skip
def test_a_type_holds_a_number_or_it_does_not(value: Any, dtype: str, expected: bool) -> None:
    assert are_held([value], dtype) is expected
    assert are_held([0, value, 1], dtype) is expected
    assert are_held([], dtype)


# ---------------------------------------------------------------- readings


NEAR_TIE = 17030583100112897  # just above the middle of two floats; as a double it is the middle, which rounds down


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("kind", [int, np.int64])
def test_an_integer_is_rounded_once(sign: int, kind: Any) -> None:
    (held,) = normalise([kind(sign * NEAR_TIE)], ["f32"])
    assert held == sign * 17030583636983808.0
    assert array("f", [float(NEAR_TIE)])[0] == 17030582563241984.0, "rounded twice, it would be the other float"


@given(st.integers(0, 2**24), st.integers(0, 120), st.integers(-2, 2), st.sampled_from(["f32", "f64"]))
@many
def test_integers_near_a_tie_are_the_nearest_that_the_type_holds(n: int, shift: int, away: int, dtype: str) -> None:
    value = ((2 * n + 1) << shift) + away
    assert normalise([value, -value], [dtype] * 2) == [held(value, dtype), held(-value, dtype)]


@needs_kernel
@given(st.integers(2**23, 2**24), st.integers(30, 105), st.integers(-1, 1))
@settings(max_examples=100)
def test_the_kernel_sends_the_nearest_float_of_an_integer(n: int, shift: int, away: int) -> None:
    value = ((2 * n + 1) << shift) + away
    uplink = d.Uplink(request_bytes=60, features=(0,))
    end = d.Polynomial((), (), 1, ((0,),), ((0,),), (0,))
    nodes = (d.Forward((0,), 1), d.Answer(d.Slice(0, 0, 1), "value"))
    program = d.Program((d.Feature("f32"),), (d.Sensor((0,), (0,)),), uplink, (), (end,), nodes, 0)
    session = open_machine(program, KERNEL).session()
    assert session.next_action() == NeedSensors((0,))
    session.feed({0: [value]})
    assert session.next_action() == NeedReply((held(value, "f32"),))


def test_yes_is_one_and_no_is_zero() -> None:
    for dtype in ("i32", "f32", "f64"):
        assert normalise([True, False], [dtype] * 2) == [1, 0]


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        pytest.param(None, "f64", None, id="none"),
        pytest.param(math.nan, "f32", None, id="nan"),
        pytest.param(math.inf, "f64", None, id="inf"),
        pytest.param(-math.inf, "i32", None, id="minus-inf"),
        pytest.param(0.1, "f32", 0.10000000149011612, id="rounds-to-f32"),
        pytest.param(1e39, "f32", None, id="too-large-for-f32"),
        pytest.param(3.4028235677973366e38, "f32", None, id="rounds-to-infinity"),
        pytest.param(1e-46, "f32", 0.0, id="too-small-for-f32"),
        pytest.param(5, "i32", 5, id="int"),
        pytest.param(5.0, "i32", 5, id="whole-float"),
        pytest.param(5.5, "i32", None, id="fraction-for-i32"),
        pytest.param(2**31 - 1, "i32", 2**31 - 1, id="largest-i32"),
        pytest.param(2**31, "i32", None, id="too-large-for-i32"),
        pytest.param(-(2**31), "i32", None, id="the-mark-for-missing"),
        pytest.param(1 - 2**31, "i32", 1 - 2**31, id="smallest-i32"),
        pytest.param(10**400, "f64", None, id="huge-int"),
        pytest.param(10**400, "i32", None, id="huge-int-for-i32"),
        pytest.param(True, "i32", 1, id="true"),
        pytest.param(False, "f32", 0.0, id="false"),
        pytest.param(np.float32(0.1), "f64", 0.10000000149011612, id="numpy-float32"),
        pytest.param(np.int16(-7), "i32", -7, id="numpy-int16"),
        pytest.param(np.float64("nan"), "f32", None, id="numpy-nan"),
        pytest.param(np.bool_(True), "f64", 1.0, id="numpy-bool"),
        pytest.param(Decimal("2.5"), "f64", 2.5, id="decimal"),
        pytest.param(Fraction(6, 2), "i32", 3, id="fraction"),
    ],
)
def test_a_reading_is_held_as_its_type_holds_it(value: Any, dtype: str, expected: Any) -> None:
    (held,) = normalise([value], [dtype])
    assert held == expected
    assert type(held) in (float, int, type(None)), "nothing foreign goes on"


@pytest.mark.parametrize("dtype", ["i32", "f32", "f64"])
def test_minus_zero_is_zero(dtype: str) -> None:
    (held,) = normalise([-0.0], [dtype])
    assert str(held) in ("0", "0.0")


@pytest.mark.parametrize("values", [*([value] for value in NO_NUMBERS), [], [1.0, 2.0]])
@pytest.mark.parametrize("dtype", ["i32", "f64"])
def test_what_is_no_number_or_not_one_is_refused(values: list[Any], dtype: str) -> None:
    with pytest.raises((TypeError, ValueError), match=None if len(values) == 1 else "argument"):
        normalise(values, [dtype])


@given(f64)
@many
def test_f32_readings_round_to_nearest_even_as_the_hardware_does(x: float) -> None:
    with np.errstate(over="ignore"):
        expected = float(np.float32(x))
    (held,) = normalise([x], ["f32"])
    assert held == (expected if math.isfinite(expected) else None)


# ---------------------------------------------------------------- rank


@pytest.mark.parametrize("dtype", ["i32", "f32", "f64"])
@pytest.mark.parametrize("seed", range(20))
def test_a_rank_counts_the_thresholds_strictly_below(dtype: str, seed: int) -> None:
    rng = random.Random(seed)
    thresholds = tuple(sorted({random_reading(rng, dtype) for _ in range(rng.randint(0, 40))}))
    code, keys = make_coder(d.Column(0, d.Rank(thresholds))), [key(t, dtype) for t in thresholds]
    for x in [*thresholds, *[random_reading(rng, dtype) for _ in range(50)]]:
        assert code(x) == sum(t < x for t in thresholds) - d.CODE_MAX == rank_code(keys, key(x, dtype))


def test_ranks_fill_the_codes_from_end_to_end() -> None:
    code = make_coder(d.Column(0, d.Rank(tuple(range(65_534)))))
    assert (code(-1), code(0), code(1), code(2**31 - 1)) == (-32767, -32767, -32766, 32767)


# ---------------------------------------------------------------- affine

affine = st.builds(
    lambda frac, mul, add, shift, a, b: d.Affine(frac, mul, add, shift, min(a, b), max(a, b)),
    st.integers(-64, 64),
    st.integers(-(2**31) + 1, 2**31 - 1),
    st.integers(-(2**62) + 1, 2**62 - 1),
    st.integers(0, 62),
    st.integers(-d.CODE_MAX, d.CODE_MAX),
    st.integers(-d.CODE_MAX, d.CODE_MAX),
)


@given(affine, f64.filter(math.isfinite) | st.integers(-(2**31) + 1, 2**31 - 1))
@settings(max_examples=300)
def test_an_affine_code_is_exact_integer_arithmetic(rule: d.Affine, x: float) -> None:
    code = make_coder(d.Column(0, rule))(x)
    assert code == affine_code(astuple(rule), Fraction(x))
    assert rule.low <= code <= rule.high


@given(f64.filter(math.isfinite), st.integers(-64, 64))
@many
def test_a_fixed_point_number_rounds_down_and_stays_in_32_bits(x: float, frac: int) -> None:
    value = fixed(x, frac)
    exact = Fraction(x) * Fraction(2) ** frac
    assert value == max(-(2**31), min(2**31 - 1, math.floor(exact)))


@given(affine)
@many
def test_no_step_of_an_affine_rule_leaves_64_bits(rule: d.Affine) -> None:
    for x in (-(2**31), 2**31 - 1):
        assert abs(x * rule.mul) < 2**63
        assert abs(x * rule.mul + rule.add) < 2**63


@pytest.mark.parametrize(
    ("rule", "x", "expected"),
    [
        (d.Affine(8, 1, 0, 0), 1.5, 384),
        (d.Affine(8, 1, 0, 0), -1.501953125, -385),
        (d.Affine(0, 3, 10, 1), 7, 15),
        (d.Affine(0, 3, 10, 1), -7, -6),
        (d.Affine(16, 1, 1 << 15, 16, -127, 127), 2.5, 3),
        (d.Affine(16, 1, 1 << 15, 16, -127, 127), 1e9, 127),
        (d.Affine(-64, 1, 0, 0), 1.7976931348623157e308, 32767),
        (d.Affine(64, 1, 0, 62, -5, 5), -1e-300, -1),
    ],
)
def test_worked_examples_of_affine_codes(rule: d.Affine, x: float, expected: int) -> None:
    assert make_coder(d.Column(0, rule))(x) == expected


def test_the_helper_rounds_as_the_edge_does() -> None:
    assert round_f32(0.1) == normalise([0.1], ["f32"])[0]
