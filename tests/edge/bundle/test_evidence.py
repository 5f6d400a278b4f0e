# SPDX-License-Identifier: Apache-2.0
"""The manifest's optional keys: confidences without sensors and ranges of readings, in one form or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hardcase_edge.bundle.evidence import is_above, reported, sensors_sent, unpaid_that_count
from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import BundleError
from hardcase_edge.program import definition as d
from hardcase_edge.program.kinds import CLASS
from hardcase_edge.program.reads import indices_of, read_by_scorers
from hardcase_edge.session.session import Decision
from tests.golden.make_golden import cases_of, golden_program, manifest_of

PROGRAM = golden_program()  # 4 features, 3 sensors
A, B = 9, 10  # its Answer nodes
ALL = frozenset({0, 1, 2})
GOLDEN_MANIFEST = manifest_of(PROGRAM)
WITHOUT = {(0,): {A: (9_000, None), B: (0, 10_000)}, (0, 1, 2): {B: (None, 5_000)}, (2,): {A: (1, 1)}}
RANGES = ((-1.5, 2.0), None, (-7, 12), (0.0, 0.0))


def loaded(**more: Any) -> Manifest:
    """The manifest as a device reads it, with these further JSON values."""
    manifest = {**GOLDEN_MANIFEST.to_json(), **more}
    return load_bytes(pack_bundle(Bundle(manifest, PROGRAM, cases_of(PROGRAM, 3)))).manifest


@pytest.mark.parametrize("more", [{}, {"without": WITHOUT}, {"ranges": RANGES}, {"without": WITHOUT, "ranges": RANGES}])
def test_a_key_is_there_only_for_a_value_and_is_read_as_it_was_written(more: dict[str, Any]) -> None:
    manifest = replace(GOLDEN_MANIFEST, **more)
    assert set(manifest.to_json()) == set(GOLDEN_MANIFEST.to_json()) | set(more)
    assert loaded(**{key: manifest.to_json()[key] for key in more}) == manifest


def test_confidences_are_written_in_order() -> None:
    assert replace(GOLDEN_MANIFEST, without=WITHOUT).to_json()["without"] == [
        [[0], [A, 9_000, None], [B, 0, 10_000]], [[0, 1, 2], [B, None, 5_000]], [[2], [A, 1, 1]],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [
        [], {}, None, 3, [3], [[]], [[[0]]], [[[], [A, 1, 1]]], [[[0], [A]]], [[[0], [A, 1]]], [[[0], [A, 1, 1, 1]]],
        [[[0], [A, None, None]]], [[[0], [A, 10_001, None]]], [[[0], [A, -1, 3]]], [[[0], [A, 0.5, 3]]],
        [[[0], [A, True, 3]]], [[[0], [0, 1, 1]]], [[[0], [-1, 1, 1]]], [[[0], [99, 1, 1]]], [[[0], [10**30, 1, 1]]],
        [[[0], [float(A), 1, 1]]], [[[0], ["9", 1, 1]]], [[[99], [A, 1, 1]]], [[[-1], [A, 1, 1]]],
        [[[True], [A, 1, 1]]], [[[1, 0], [A, 1, 1]]], [[[0, 0], [A, 1, 1]]], [[[0], [A, 1, 1], [A, 2, 2]]],
        [[[0], [B, 1, 1], [A, 2, 2]]], [[[1], [A, 1, 1]], [[0], [A, 1, 1]]], [[[0], [A, 1, 1]], [[0], [B, 1, 1]]],
        [[[0], [A, 1, 1], None]], [[[0], [A, 1, 1]], 3], [[0, [A, 1, 1]]], [[["0"], [A, 1, 1]]],
    ],
)  # fmt: skip
def test_confidences_without_sensors_in_any_other_form_are_refused(value: Any) -> None:
    with pytest.raises(BundleError, match="the manifest's without does not list"):
        loaded(without=value)


@pytest.mark.parametrize("value", [[], {}, None, 3, [None], [None] * 5, [[1, 2]] * 3])
def test_ranges_of_another_number_of_features_are_refused(value: Any) -> None:
    with pytest.raises(BundleError, match="the manifest's ranges are not a list of 4 pairs"):
        loaded(ranges=value)


@pytest.mark.parametrize("pair", [3, "12", [1], [2, 1], [1, "2"], [True, 2], [1, 2, 3], {}, [None, 1], [10**400, 1]])
def test_a_range_that_is_none_is_refused(pair: Any) -> None:
    with pytest.raises(BundleError, match="a range in the manifest is not a lowest and a highest reading"):
        loaded(ranges=[pair, None, None, None])


def test_a_range_may_be_of_any_two_numbers() -> None:
    assert loaded(ranges=[[-1e308, 10**400], [0, 0.0], None, [-5, 2.5]]).ranges[0] == (-1e308, 10**400)


@pytest.mark.parametrize(
    ("route", "failed", "expected"),
    [
        ("local", (), ("local", 7_777)),
        ("cloud", (0,), ("cloud", 7_777)),  # which no request carries
        ("cloud", (0, 1), ("cloud", None)),
        ("local", (0,), ("degraded", 9_000)),
        ("degraded", (0,), ("degraded", None)),
        ("degraded", (0, 1, 2), ("degraded", None)),
        ("local", (1,), ("degraded", None)),
        ("degraded", (2,), ("degraded", 1)),
    ],
)
def test_a_decision_is_reported_with_the_confidence_of_its_own_path(route: str, failed: Any, expected: Any) -> None:
    assert reported(Decision(1, 7_777, route, 0, (), (0, A), failed), WITHOUT, {}, (1,)) == expected


@pytest.mark.parametrize(
    ("route", "failed", "unpaid", "counting", "expected"),
    [
        ("local", (), (0,), {A: ALL}, ("degraded", 9_000)),
        ("local", (), (1,), {A: ALL}, ("degraded", None)),
        ("local", (0,), (1, 2), {A: ALL}, ("degraded", None)),
        ("local", (), (0,), {B: ALL}, ("local", 7_777)),
        ("local", (2,), (0,), {B: ALL}, ("degraded", 1)),
        ("cloud", (), (0,), {A: ALL}, ("cloud", 7_777)),
        ("cloud", (), (1,), {B: ALL}, ("cloud", None)),
        ("degraded", (), (2,), {A: ALL}, ("degraded", 1)),
        ("local", (), (0,), {A: {0}}, ("degraded", 9_000)),
        ("local", (), (0,), {A: {1}}, ("local", 7_777)),
    ],
)
def test_a_sensor_that_was_too_dear_counts_where_the_confidence_does_not_hold_without_it(
    route: str, failed: Any, unpaid: Any, counting: Any, expected: Any
) -> None:
    decision = Decision(1, 7_777, route, 0, (), (0, A), failed, unpaid)
    assert reported(decision, WITHOUT, counting, (1,)) == expected


def test_an_unpaid_sensor_counts_at_answers_that_read_it_and_all_do_where_branches_sort_cases() -> None:
    part, other = d.Slice(0, 0, 1), d.Slice(1, 0, 1)
    answers = [d.Answer(p, CLASS.answer, (), (9_000,)) for p in (part, other, part, other)]
    nodes = (
        d.Select((d.Candidate(1, (5,), 1),), 7), d.Acquire((0,), 2, 5), d.Branch(part, d.THRESHOLD, (3, 4), 0),
        d.Acquire((1,), 6, 7), *answers,
    )  # fmt: skip
    program = replace(PROGRAM, nodes=nodes)
    own = frozenset(indices_of(read_by_scorers(program)[1]))
    assert own < ALL
    assert unpaid_that_count(program) == {4: ALL, 5: own, 6: ALL, 7: own}, "5 and 7 are for what the budget allowed"
    behind = (
        d.Branch(part, d.THRESHOLD, (1, 2), 0), d.Select((d.Candidate(1, (5,), 4),), 5), d.Acquire((1,), 3, 7),
        d.Forward((), 6), *[d.Answer(other, CLASS.answer, (), (9_000,))] * 4,
    )  # fmt: skip
    assert unpaid_that_count(replace(PROGRAM, nodes=behind)) == {4: ALL, 5: ALL, 6: ALL, 7: own}


@pytest.mark.parametrize(
    ("trace", "branches", "expected"),
    [
        ((0, 2), {0}, True), ((0, 1, 2), {0}, False), ((0, 1, 3), {0, 1}, True), ((0, 1, 2), {0, 1}, False),
        ((0, 1, 3), {0}, False), ((0, 2), {1}, None),
    ],
)  # fmt: skip
def test_a_decision_was_above_the_threshold_of_the_last_branch_that_counts(
    trace: Any, branches: Any, expected: bool | None
) -> None:
    part = d.Slice(0, 0, 1)
    answers = [d.Answer(part, CLASS.answer, (), (9_000,))] * 2
    nodes = (d.Branch(part, d.THRESHOLD, (1, 2), 0), d.Branch(part, d.THRESHOLD, (2, 3), 0), *answers)
    assert is_above(trace, replace(PROGRAM, nodes=nodes), branches) is expected


def test_a_request_carries_the_sensors_of_its_features() -> None:
    features, sensors = (d.Feature("f32"),) * 4, (d.Sensor((0, 2), (0,)), d.Sensor((1,), (0,)), d.Sensor((3,), (0,)))
    uplink = d.Uplink(features=(2, 3))
    assert sensors_sent(replace(PROGRAM, features=features, sensors=sensors, uplink=uplink)) == {0, 2}
