# SPDX-License-Identifier: Apache-2.0
"""The memory of a stream: what it says, what it forgets, and what a bundle may declare of it."""

from __future__ import annotations

import numpy as np
import pytest

from hardcase_edge.errors import BundleError
from hardcase_edge.more.batch.streams import remembered, walk
from hardcase_edge.program.definition import Feature, Sensor, Uplink
from hardcase_edge.program.inner import inner_sensors
from hardcase_edge.stream.layout import Layout, layout_of
from hardcase_edge.stream.memory import MOST_WINDOWS, Memory, difference
from tests.helpers.edge.streams import FEATURES, SENSORS, in_turn, layout, loaded, make_manifest, make_program, streams


def test_the_first_window_remembers_nothing() -> None:
    memory = Memory(make_program(), layout())
    memory.begin()
    memory.see({0: [1.5, 3]})
    assert memory.read() == [None] * 4


def test_a_memory_counts_windows_and_changes_since_the_purchase() -> None:
    memory = Memory(make_program(), layout())
    memory.begin()
    memory.see({0: [1.5, 3], 1: [0.25]})
    memory.end(2)
    memory.begin()
    memory.see({0: [1.0, None]})
    assert memory.read() == [2, 1, -0.5, None]
    memory.end(2)
    memory.begin(4)  # three windows were missed
    memory.see({0: [2.0, 5]})
    assert memory.read() == [2, 5, 0.5, 2]
    memory.end(0)
    memory.forget()
    memory.begin()
    assert memory.read() == [None] * 4


def test_a_sensor_that_failed_was_not_read() -> None:
    memory = Memory(make_program(), layout())
    for failed in (None, [], [None], ["text"], [1.0, 2.0], [float("nan")]):
        memory.begin()
        memory.see({0: [1.0, 1], 1: failed})
        memory.end(1)
    memory.begin()
    assert memory.read()[:2] == [1, None]


def test_counts_and_differences_stay_within_their_types() -> None:
    memory = Memory(make_program(), layout())
    memory.begin()
    memory.see({1: [0.0]})
    memory.end(1)
    for _ in range(3):
        memory.begin(MOST_WINDOWS - 1)
    assert memory.read()[1] == MOST_WINDOWS
    assert difference(2**31 - 1, -5, "i32") == 2**31 - 1
    assert difference(-(2**31) + 1, 5, "i32") == -(2**31) + 1
    assert difference(1.7e308, -1.7e308, "f64") is None


def test_rows_at_once_are_those_of_one_window_after_the_other() -> None:
    program = make_program()
    for seed in (0, 5):
        X, sequence = streams(seed)
        for budget, dead in ((None, ()), (1_000_000, ()), (500_000, ()), (None, (1,)), (None, (0,)), (None, (2,))):
            one_by_one, decisions = in_turn(program, X, sequence, budget, dead)
            filled, outcome = walk(program, layout(), X, sequence, budget=budget, dead=dead)
            assert outcome.label.tolist() == [d.result for d in decisions], (seed, budget, dead)
            assert outcome.cost.tolist() == [d.cost / 1e6 for d in decisions], (seed, budget, dead)
            read = np.array([2 in d.sensors for d in decisions])
            np.testing.assert_array_equal(filled[read, 3:], one_by_one[read, 3:], str((seed, budget, dead)))


def test_what_comes_later_changes_no_decision() -> None:
    program = make_program()
    X, _ = streams(1, n=80)
    sequence, rng = np.zeros(80, dtype=np.int64), np.random.default_rng(0)
    filled, outcome = walk(program, layout(), X, sequence)
    assert len(set(outcome.node.tolist())) == 2, "some windows hold, and some buy"
    for cut in (1, 40):
        other = np.concatenate([X[:cut], rng.permutation(X[cut:])])
        again, shuffled = walk(program, layout(), other, sequence)
        np.testing.assert_array_equal(again[:cut], filled[:cut])
        assert shuffled.label[:cut].tolist() == outcome.label[:cut].tolist()


def test_each_stream_begins_with_nothing() -> None:
    program = make_program()
    X, _ = streams(2, n=40)
    alone = remembered(program, layout(), X, np.arange(40))
    assert np.isnan(alone[:, 3:]).all()
    halves = remembered(program, layout(), X, np.repeat([0, 1], 20))
    np.testing.assert_array_equal(halves[20:], remembered(program, layout(), X[20:], np.zeros(20, dtype=np.int64)))
    assert remembered(program, layout(), X[:0], np.zeros(0, dtype=np.int64)).shape == (0, 7)


# ---------------------------------------------------------------- what a bundle declares


def test_a_sensor_of_another_bundle_may_be_called_memory() -> None:
    features = [f"free {k}" for k in range(7)]
    assert inner_sensors(make_program(), features, SENSORS) == {}
    assert layout_of(make_program(), features, SENSORS) is None
    assert layout() == Layout(2, (3,), ((4, 1),), ((5, 0), (6, 1)))


def _with(program, **changes):
    return type(program)(**{name: getattr(program, name) for name in program.__match_args__} | changes)


def test_an_inner_sensor_costs_nothing_and_is_never_sent() -> None:
    program = make_program()
    dear = _with(program, sensors=(*program.sensors[:2], Sensor((3, 4, 5, 6), (1,))))
    with pytest.raises(BundleError, match="the inner sensor 'memory' has a cost"):
        loaded(dear)
    with pytest.raises(BundleError, match="a request would carry the inner sensor 'memory'"):
        loaded(_with(program, uplink=Uplink(request_bytes=60, features=(3,))))


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("memory.future", "this runtime cannot fill the inner feature 'memory.future'"),
        ("memory.since.radar", "cannot fill the inner feature 'memory.since.radar'"),
        ("memory.since.memory", "about the memory itself"),
        ("memory.change.memory.held", "about the memory itself"),
    ],
)
def test_a_memory_that_cannot_be_filled_is_refused(name: str, complaint: str) -> None:
    features = tuple(name if f == "memory.since.gyro" else f for f in FEATURES)
    with pytest.raises(BundleError, match=complaint):
        loaded(features=features)  # so verify, a store and a reload refuse it, and not only the run


def test_a_memory_of_another_type_is_refused() -> None:
    program = make_program()
    wide = _with(program, features=(*program.features[:5], Feature("f64", nullable=True), program.features[6]))
    with pytest.raises(BundleError, match="is not a nullable f32"):
        loaded(wide)
    assert make_manifest().sensors == SENSORS
