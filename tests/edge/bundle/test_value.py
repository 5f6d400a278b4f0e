# SPDX-License-Identifier: Apache-2.0
"""Values: one scale for all results of a program, the interval of each end, and the manifest's key in one form."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.bundle.value import MAX_RESULT, Value, steps_for, to_result
from hardcase_edge.device.device import Device
from hardcase_edge.errors import BundleError
from hardcase_edge.link.wire import OK, Reply
from hardcase_edge.program.definition import Answer, Program
from hardcase_edge.session.session import Decision
from tests.helpers.edge.device import HPC, FakeBank, FakeLink, make_manifest, make_program

FORWARD, FALLBACK, EASY = 2, 3, 4  # nodes
INTERVAL = {FORWARD: ((-0.5, 0.25), None), FALLBACK: ((-1.0, 1.0), (-4, 8.5)), EASY: ((0.0, 0.0), None)}
VALUE = Value("kWh", 10, INTERVAL)


def make_values() -> Program:
    """The small program, which answers its score times a quarter as a value."""
    program = make_program()
    nodes = [replace(n, kind="value", shift=-2) if isinstance(n, Answer) else n for n in program.nodes]
    return replace(program, nodes=tuple(nodes), n_classes=0)


def loaded(**more: Any) -> Any:
    manifest = {**replace(make_manifest(), classes=()).to_json(), **more}
    return load_bytes(pack_bundle(Bundle(manifest, make_values(), ())))


# ---------------------------------------------------------------- the scale


@given(st.floats(-1e9, 1e9), st.integers(-20, 20))
def test_a_result_is_the_nearest_step_with_halves_to_even(value: float, steps: int) -> None:
    exact = round(Fraction(value) * Fraction(2) ** steps)
    assert to_result(value, steps) == max(-MAX_RESULT, min(MAX_RESULT, exact))


@given(st.floats(min_value=1e-60, max_value=1e60))
def test_the_finest_scale_leaves_room_for_four_times_the_largest_value(largest: float) -> None:
    steps = steps_for(largest)
    assert 4 * largest * 2.0**steps <= 2.0**31 < 16 * largest * 2.0**steps
    assert to_result(3.99 * largest, steps) < MAX_RESULT


@pytest.mark.parametrize(("largest", "steps"), [(0.0, 0), (1e300, -256), (1e-300, 256), (5e-324, 256)])
def test_the_scale_of_an_extreme_target_is_bounded(largest: float, steps: int) -> None:
    assert steps_for(largest) == steps


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_a_number_has_no_result(value: float) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        to_result(value, 0)


@given(st.integers(-(2**31), 2**31), st.integers(-40, 40))
def test_a_printed_value_tells_its_result(result: int, steps: int) -> None:
    value = Value("", steps).of(result)
    assert abs(Fraction(value) * Fraction(2) ** steps - result) <= Fraction(1, 10)


# ---------------------------------------------------------------- what a device prints


@pytest.mark.parametrize(
    ("route", "node", "failed", "expected"),
    [
        ("local", EASY, (), (20.8125, 20.8125)),
        ("local", FALLBACK, (), (19.8125, 21.8125)),
        ("degraded", FALLBACK, (), (16.8125, 29.3125)),
        ("degraded", EASY, (), None),
        ("cloud", FORWARD, (), (20.3125, 21.0625)),
        ("cloud", FORWARD, (1,), (20.3125, 21.0625)),
        ("local", FALLBACK, (1,), None),
        ("local", 0, (), None),
    ],
)
def test_an_interval_is_that_of_the_decisions_own_end(route: str, node: int, failed: Any, expected: Any) -> None:
    decision = Decision(round(20.8125 * 2**10), 0, route, 0, (), (0, node), failed)
    assert VALUE.interval_of(decision) == expected


def record_of(manifest: dict[str, Any], x: float, link: FakeLink | None = None) -> dict[str, Any]:
    (record,) = Device(loaded(**manifest), FakeBank([x]), link).run()
    return {key: value for key, value in record.items() if key in ("label", "value", "interval")}


def test_a_device_prints_the_value_in_its_unit_and_the_interval() -> None:
    value = VALUE.to_json()
    assert record_of({"value": value}, 3.0) == {"value": 3.0 * 256 / 4 / 1024, "interval": [0.1875, 0.1875]}
    assert record_of({"value": value}, 0.25)["interval"] == [-3.98438, 8.51562]  # hard, and there is no cloud
    replied = FakeLink([Reply(bytes(16), HPC, OK, -2048, 0)])
    assert record_of({"value": value}, 0.25, replied) == {"value": -2.0, "interval": [-2.5, -1.75]}
    assert record_of({"value": Value("", 10).to_json()}, 3.0) == {"value": 0.1875, "interval": None}
    assert record_of({}, 3.0) == {"label": 192}  # an older bundle


# ---------------------------------------------------------------- the manifest's key


def test_the_key_is_read_as_it_was_written_and_absent_from_older_bundles() -> None:
    manifest = replace(make_manifest(), classes=(), value=VALUE)
    assert manifest.to_json()["value"] == {
        "unit": "kWh",
        "steps": 10,
        "interval": [[2, [-0.5, 0.25], None], [3, [-1.0, 1.0], [-4, 8.5]], [4, [0.0, 0.0], None]],
    }
    assert loaded(value=manifest.to_json()["value"]).manifest == manifest
    assert loaded().manifest.value is None
    assert "value" not in loaded().manifest.to_json()


@pytest.mark.parametrize(
    "value",
    [
        None, {}, [], 3, {"unit": "", "steps": 1}, {"unit": "", "steps": 1, "interval": [], "scale": 2},
        *[{"unit": unit, "steps": 1, "interval": []} for unit in (None, 3, "x" * 201)],
        *[{"unit": "", "steps": steps, "interval": []} for steps in (None, 1.0, True, "1", 257, -257, 10**400)],
    ],
)  # fmt: skip
def test_a_scale_in_any_other_form_is_refused(value: Any) -> None:
    with pytest.raises(BundleError, match="the manifest's value"):
        loaded(value=value)


@pytest.mark.parametrize(
    "interval",
    [
        None, {}, 3, [None], [3], [[]], [[4]], [[4, [0, 1]]], [[4, [0, 1], None, None]], [[4, None, None]],
        [[4, [1, 0], None]], [[4, [0], None]], [[4, [0, 1, 2], None]], [[4, [0, None], None]], [[4, [0, "1"], None]],
        [[4, [0, True], None]], [[4, 3, None]], [[4, {}, None]], [[4, [0, 10**400], None]], [[4, [-1e308, 0], None]],
        [[0, [0, 1], None]], [[1, [0, 1], None]], [[-1, [0, 1], None]], [[5, [0, 1], None]], [["4", [0, 1], None]],
        [[4.0, [0, 1], None]], [[True, [0, 1], None]], [[10**30, [0, 1], None]], [[2, [0, 1], [0, 1]]],
        [[4, [0, 1], None], [3, [0, 1], None]], [[4, [0, 1], None], [4, [0, 1], None]], [[4, [0, 1], None]] * 6,
    ],
)  # fmt: skip
def test_an_interval_in_any_other_form_is_refused(interval: Any) -> None:
    with pytest.raises(BundleError, match="the interval of the manifest's value does not list"):
        loaded(value={"unit": "", "steps": 0, "interval": interval})


def test_a_program_of_classes_has_no_scale() -> None:
    data = {**make_manifest().to_json(), "value": VALUE.to_json()}
    with pytest.raises(BundleError, match="states a scale of values, but the program answers classes"):
        Manifest.from_json(data, make_program())
