# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of drift monitors on any readings, and the suspects and windows that come of it."""

from __future__ import annotations

import random
from math import inf, isnan, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardcase_edge.bundle.monitors import MAX_BINS, Histogram
from hardcase_edge.more.drift.arithmetic import below, columns, judged
from hardcase_edge.more.drift.columns import Columns
from hardcase_edge.more.drift.residuals import Residuals
from hardcase_edge.more.drift.stability import WINDOW, Stability
from tests.edge.drift.test_monitors import MONITORS, PROGRAM

ODD = st.sampled_from((nan, inf, -inf, 0.0, -0.0, 1e308, -1e308, 5e-324, 1.0))
NUMBERS = st.one_of(st.floats(-10, 10), ODD)
READINGS = st.one_of(st.none(), NUMBERS, st.integers(-(2**31), 2**31), st.integers(-(10**300), 10**300))
VALUES_OF_A_SENSOR = st.one_of(st.none(), st.lists(READINGS, min_size=2, max_size=2))
ROWS = st.lists(st.dictionaries(st.integers(0, 2), VALUES_OF_A_SENSOR), max_size=40)
POSITIVE = st.floats(2.0**-60, 1e9)


@given(ROWS)
def test_a_column_has_a_number_or_nan_for_each_decision(rows: list[Any]) -> None:
    for sensor in range(4):
        for k, column in enumerate(columns(rows, sensor, 2)):
            for row, x in zip(rows, column, strict=True):
                reading = None if row.get(sensor) is None else row[sensor][k]
                assert isnan(x) if reading is None or reading != reading else x == float(reading)


@st.composite
def judgements(draw: st.DrawFn) -> tuple[Any, ...]:
    n = draw(st.integers(1, 40))
    column = st.lists(NUMBERS, min_size=n, max_size=n)
    term = st.tuples(column, NUMBERS)
    expectation = st.tuples(column, NUMBERS, st.lists(term, max_size=4).map(tuple), POSITIVE, POSITIVE, NUMBERS)
    reading = st.one_of(st.none(), st.lists(st.sampled_from((None, 1, 1.0, 2.0, nan)), max_size=2))
    readings = draw(st.one_of(st.just(()), st.lists(reading, min_size=n + 1, max_size=n + 1)))
    return draw(st.floats(0, 10)), n, readings, draw(st.lists(expectation, max_size=4))


@given(judgements())
def test_a_judgement_says_yes_no_or_unknown_of_each_decision(arguments: tuple[Any, ...]) -> None:
    average, n, readings, expectations = arguments
    beyond, repeats, last, misses = judged(*arguments)
    assert (len(beyond), len(repeats), len(last)) == (n, n if readings else 0, len(expectations))
    assert {*beyond, *repeats} <= {-1.0, 0.0, 1.0}
    assert 0 <= misses <= 10
    assert misses == average or set(beyond) != {-1.0}


EDGES = st.one_of(st.integers(-9, 9), st.sampled_from((2**53, -(2**53))), st.floats(-9, 9))


@given(st.lists(st.one_of(st.floats(allow_nan=False), ODD.filter(lambda x: x == x)), max_size=60),
       st.lists(EDGES, unique=True, max_size=MAX_BINS - 1))  # fmt: skip
def test_counts_are_those_of_the_values_below_each_edge(values: list[float], edges: list[float]) -> None:
    assert below(values, sorted(edges)) == [sum(x < edge for x in values) for edge in sorted(edges)]


@pytest.mark.parametrize("kind", ["sound", "bias", "stuck"])
@pytest.mark.parametrize("seed", range(3))
def test_the_sensor_that_fails_is_the_suspect(kind: str, seed: int) -> None:
    draw, rows = random.Random(seed), list[dict[int, list[float | None] | None]]()
    residuals = Residuals(MONITORS, PROGRAM.sensor_of)
    for k in range(1_000):
        truth, failed = draw.uniform(-1, 1), k > 400 and kind != "sound"
        values = [truth + draw.gauss(0, 0.1) for _ in range(3)]
        values[seed] = values[seed] + 0.8 * failed if kind == "bias" else 0.1 if failed else values[seed]
        rows.append({s: [x if draw.random() < 0.9 else None] for s, x in enumerate(values) if draw.random() < 0.9})
        if len(rows) == residuals.may_wait:
            residuals.see(Columns(rows, PROGRAM), k + 2 - len(rows))
            rows = []
    assert list(residuals.suspects) == ([] if kind == "sound" else [seed])


def test_values_may_come_in_any_number_at_once() -> None:
    draw, reference = random.Random(1), Histogram((-0.5, 0.0, 0.5), (10, 20, 30, 40))
    one, other = Stability(reference), Stability(reference)
    for _ in range(2 * WINDOW // 32):
        values = [draw.gauss(0, 1) for _ in range(32)]
        one.see(values)
        for value in values:
            other.see([value])
        assert one.index == other.index
    assert one.index is not None
