# SPDX-License-Identifier: Apache-2.0
"""The monitors of a bundle: read whole or refused, quiet on what training saw, and each drift named by its sensor."""

from __future__ import annotations

import copy
import dataclasses
import json
import random
from typing import Any

import numpy as np
import pytest

from hardcase_edge.base.change import Change
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.bundle.monitors import MAX_FEATURES, Histogram, Monitors, Prediction, Residual, monitors_of
from hardcase_edge.errors import BundleError
from hardcase_edge.more.drift.columns import Columns
from hardcase_edge.more.drift.residuals import Residuals
from hardcase_edge.more.drift.stability import LARGE, WINDOW, Stability, limit_of, stability_index
from hardcase_edge.more.drift.watch import Watch
from hardcase_edge.program.definition import Feature, Program, Sensor
from tests.helpers.edge.device import make_manifest, make_program

ONE = 2**20
EVEN = Histogram((-0.5, 0.0, 0.5), (10, 10, 10, 10))


def miss(feature: int, source: int, weight: float = 1.0) -> Prediction:
    return Prediction(feature, 20, 0, round(0.35 * ONE), ((source, round(weight * ONE)),))


# three sensors of one feature each; all show one quantity and an error of their own
PROGRAM = Program(
    features=(Feature("f64"),) * 3, sensors=tuple(Sensor((k,), (1,)) for k in range(3)), uplink=None, columns=(),
    scorers=(), nodes=(), n_classes=2,
)  # fmt: skip
MONITORS = Monitors(
    features=((0, EVEN), (1, EVEN), (2, EVEN)),
    confidence=Histogram((5_000.0,), (10, 30)),
    forwarded=(40, 10),
    residuals=tuple(
        Residual(k, 40, 0, (Prediction(k, 20, 0, round(0.35 * ONE), tuple((j, ONE // 2) for j in range(3) if j != k)),))
        for k in range(3)
    ),
    pairs=(miss(0, 1), miss(1, 2), miss(0, 2)),
    treat_as_dead=(0, 2),
)
LOCAL = {"route": "local", "confidence": 0.9, "failed": []}


def watch(n: int, change=lambda k, values: values, seed: int = 0, stop: bool = True) -> Watch:
    """A watch after n decisions, or the first that names a suspect."""
    draw, it = random.Random(seed), Watch(MONITORS, PROGRAM)
    for k in range(n):
        truth = draw.uniform(-1, 1)
        values = change(k, [truth + draw.gauss(0, 0.1) for _ in range(3)])
        confidence = 0.9 if draw.random() < 0.75 else 0.4
        route = "local" if draw.random() < 0.75 else "cloud"
        it.decided({**LOCAL, "confidence": confidence, "route": route}, {s: [x] for s, x in enumerate(values)})
        if it.suspects and stop:
            break
    return it


def test_what_training_saw_moves_nothing_and_nobody():
    it = watch(2_500)
    assert it.facts("abc", "xyz", acts=True) == {"decisions": 2_500, "moved": {}, "together": [], "suspects": {}}
    assert it.dead == frozenset()


@pytest.mark.parametrize("sensor", [0, 1, 2])
@pytest.mark.parametrize("kind", ["bias", "noise", "stuck"])
def test_a_sensor_that_fails_slowly_is_named(sensor, kind):
    held: list[float] = []

    def fail(k: int, values: list[float]) -> list[float]:
        if k >= 300:
            held.append(values[sensor])
            other = {"bias": values[sensor] + 0.8, "noise": random.Random(k).gauss(0, 1.5), "stuck": held[0]}
            values[sensor] = other[kind]
        return values

    it = watch(1_000, fail, seed=sensor)
    assert list(it.suspects) == [sensor]
    assert it.n < 420
    why, since = it.suspects[sensor]
    assert why == ("stuck" if kind == "stuck" else "residual")
    assert 295 <= since <= 370
    assert it.dead == {sensor} & {0, 2}
    facts = it.facts("abc", "xyz", acts=True)["suspects"]
    assert facts == {"xyz"[sensor]: {"why": why, "since": since, "dead": sensor in (0, 2), "or": []}}


def lifted(k: int, values: list[float]) -> list[float]:
    return [values[0] + 0.8 * (k >= 300), *values[1:]]


def test_a_sensor_that_only_its_source_speaks_against_is_in_doubt_and_never_dead(monkeypatch):
    """The room's climate moves away from its light: the light's one source is judged by nobody else."""
    alone = dataclasses.replace(MONITORS, residuals=MONITORS.residuals[:1], pairs=())
    monkeypatch.setattr("tests.edge.drift.test_monitors.MONITORS", alone)
    it = watch(1_000, lifted)
    assert (list(it.suspects), it.doubts, it.dead) == ([0], {0: {1, 2}}, frozenset())
    facts = it.facts("abc", "xyz", acts=True)["suspects"]["x"]
    assert (facts["dead"], facts["or"]) == (False, ["y", "z"])


def test_a_sensor_whose_source_has_moved_is_in_doubt_and_never_dead():
    def moved(k: int, values: list[float]) -> list[float]:
        return [x + (k >= 200) for x in values] if k < 1_100 else [values[0] + 2, values[1] + 1, values[2] + 1]

    it = watch(1_400, moved)
    assert (list(it.suspects), it.doubts, it.dead) == ([0], {0: {1, 2}}, frozenset())


def test_a_third_sensor_that_misses_too_vouches_for_nobody():
    """Each of the three goes its own way: nothing says whose readings are right."""

    def apart(k: int, values: list[float]) -> list[float]:
        return values if k < 300 else [values[0], values[1] + 0.9, values[2] - 0.9]

    it = watch(1_000, apart)
    (suspect,) = it.suspects
    assert it.doubts[suspect] == {0, 1, 2} - {suspect}
    assert it.dead == frozenset()


def test_readings_that_nobody_moves_are_not_stuck():
    it = watch(500, lambda k, values: [0.3, 0.31, 0.29])
    assert it.suspects == {}


def test_readings_that_move_are_named_by_their_feature():
    moved = watch(2 * WINDOW, lambda k, values: [x + 1 for x in values], stop=False).facts("abc", "xyz", acts=False)
    assert set(moved["moved"]) == {"a", "b", "c"}
    assert min(moved["moved"].values()) > LARGE


def test_margins_and_forwarding_that_move_are_named():
    it = Watch(MONITORS, PROGRAM)
    for k in range(3 * WINDOW):
        it.decided({**LOCAL, "confidence": 0.4, "route": "cloud" if k % 8 else "local"}, {})
    assert set(it.facts("abc", "xyz", acts=False)["moved"]) == {"forwarded"}, "few answers: no whole window"
    for _ in range(WINDOW):
        it.decided({**LOCAL, "confidence": 0.4}, {})
    assert set(it.facts("abc", "xyz", acts=False)["moved"]) == {"confidence", "forwarded"}


@pytest.mark.parametrize(("price", "moved"), [(3.0, {"confidence", "forwarded"}), (2.999, set()), (8.1, set())])
def test_confidences_and_forwards_at_another_price_are_compared_with_nothing(price, moved):
    it = Watch(MONITORS, PROGRAM, 3)
    for _ in range(2 * WINDOW):
        it.decided({**LOCAL, "confidence": 0.4, "price": price}, {})
    assert set(it.facts("abc", "xyz", acts=False)["moved"]) == moved


def test_readings_at_another_price_are_compared():
    it = Watch(MONITORS, PROGRAM, 3)
    for _ in range(2 * WINDOW):
        it.decided({**LOCAL, "price": 8.1}, {0: [0.9], 1: [0.9], 2: [0.9]})
    assert set(it.facts("abc", "xyz", acts=False)["moved"]) == {"a", "b", "c"}


def test_readings_that_are_missing_or_not_there_count_for_nothing():
    it = Watch(MONITORS, PROGRAM)
    for _ in range(WINDOW):
        it.decided({**LOCAL, "confidence": None}, {0: [None], 1: None})
    assert (it.n, it.suspects) == (WINDOW, {})


def test_memory_is_bounded_whatever_the_readings_are():
    stability = Stability(EVEN)
    for x in (float("inf"), -float("inf"), 1e308, 0.0):
        for _ in range(WINDOW):
            stability.see([x])
        assert stability.index is not None
    it = watch(50, lambda k, values: [1e308, -1e308, 1e308], stop=False)
    assert it.n == 50


def test_monitors_go_through_the_manifest_unchanged():
    program = make_program()
    monitors = Monitors(((0, EVEN),), None, (4, 1), (Residual(0, 40, 0, (miss(0, 1), miss(0, 2))),), (), (0,))
    data = json.loads(json.dumps(make_manifest(monitors=monitors).to_json()))
    assert Manifest.from_json(data, program).monitors == monitors
    assert "monitors" not in make_manifest().to_json()


def mutate(path: list[Any], value: Any) -> dict[str, Any]:
    data: Any = copy.deepcopy(MONITORS.to_json())
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (["features"], [None, {}, [[0]], [[0, [0.0], [1, 1]]] * 2, [[0, [0.0], [1, 1]]] * (MAX_FEATURES + 1)]),
        (["features", 0, 0], [-1, 3, 1.0, True, "0"]),
        (
            ["features", 0, 1],
            [
                [], [0.0, 0.0, 1.0], [1.0, 0.0, 2.0], [0.0, float("nan"), 1.0], [0.0] * 9, [0.0, 1.0, 2**53 + 1],
                [10**400], "abc",
            ],
        ),
        (["features", 0, 2], [[10] * 3, [10, 10, 10, 0], [10, 10, 10, -1], [10, 10, 10, 10**12], [10, 10, 10, 1.0]]),
        (["confidence"], [3, [[0.0]], []]),
        (["forwarded"], [[1], [1, 2], [-1, -2], None]),
        (["residuals", 0, 0], [-1, 3, 1]),
        (["residuals", 0, 1], [-1, 1001, None]),
        (["residuals", 0, 2], [-1, 1001, 0.5]),
        (["residuals", 0, 3], [[], None, [[0, 20, 0, 1, [[1, 1]]]] * 5, [[0, 20, 0, 1, [[1, 1]], 0]]]),
        (["residuals", 0, 3, 0, 0], [1, 5]),
        (["residuals", 0, 3, 0, 1], [-1, 61, 1.0]),
        (["residuals", 0, 3, 0, 2], [2**53, 0.5, None]),
        (["residuals", 0, 3, 0, 3], [-1, 2**60]),
        (["residuals", 0, 3, 0, 4], [[], [[0, 1]], [[1, 1], [1, 1]], [[1, 2**53]], [[7, 1]], [[1]], [[1, 1]] * 5]),
        (["pairs"], [[[0, 20, 0, 1, [[1, 1], [2, 1]]]], [[0, 20, 0, 1, [[0, 1]]]], [[9, 20, 0, 1, [[1, 1]]]], 5]),
        (["treat_as_dead"], [[2, 0], [0, 0], [3], [-1], None]),
        (["more"], [1]),
    ],
)  # fmt: skip
def test_damaged_monitors_are_refused_in_one_line(path, values):
    assert monitors_of(MONITORS.to_json(), PROGRAM) == MONITORS
    for value in values:
        with pytest.raises(BundleError, match=r"monitors .*export the bundle again"):
            monitors_of(mutate(path, value), PROGRAM)


def test_a_suspect_must_be_watched_to_be_dead():
    with pytest.raises(BundleError, match="nothing suspects"):
        monitors_of({**MONITORS.to_json(), "residuals": [], "pairs": []}, PROGRAM)


def test_looking_at_decisions_together_names_whom_one_by_one_names():
    draw = random.Random(5)
    together, single = (Residuals(MONITORS, PROGRAM.sensor_of) for _ in range(2))
    waiting: list[dict[int, list[float] | None]] = []
    for mark in range(1, 900):
        truth = draw.uniform(-1, 1)
        values = [truth + draw.gauss(0, 0.1) + 0.8 * (mark > 300 and s == 1) for s in range(3)]
        waiting.append({s: [x] if draw.random() < 0.9 else None for s, x in enumerate(values)})
        single.see(Columns(waiting[-1:], PROGRAM), mark)
        if len(waiting) == together.may_wait:
            together.see(Columns(waiting, PROGRAM), mark - len(waiting) + 1)
            waiting = []
        assert together.suspects == single.suspects
    assert list(single.suspects) == [1]


def test_a_change_is_the_same_however_its_values_come():
    draw, whole, single = random.Random(3), Change(0.2, 0.001), Change(0.2, 0.001)
    values, marks = [draw.choice([0.0, 0.25, 1.0]) for _ in range(199)], list(range(1, 200))
    noticed = whole.see_all(values, marks)
    for value, mark in zip(values, marks, strict=True):
        single.see(value, mark)
    assert whole.to_json() == single.to_json()
    assert (noticed, whole.is_noticed) == (whole.n, True)


def test_independent_readings_pass_the_limit_in_one_window_of_100_000_however_few_rows_training_had():
    draw, n, beyond, large = np.random.default_rng(0), 2_000, 0, 0
    for rows in (20, 40, 60, 100, 200, 1_000):
        for shares in ([1 / 8] * 8, [0.02, 0.02, 0.06, 0.1, 0.1, 0.2, 0.2, 0.3], [0.95, 0.05], [0.7, 0.1, 0.1, 0.1]):
            references = np.maximum(draw.multinomial(rows, shares, size=n), 1)
            windows = draw.multinomial(WINDOW, shares, size=n)
            for reference, counts in zip(references.tolist(), windows.tolist(), strict=True):
                index = stability_index(counts, reference)
                beyond += index > limit_of(reference)
                large += index > LARGE
    assert beyond <= 3  # of 48,000; 0.5 are expected at most
    assert large > 3_000, "the usual limit alone would have been passed by one window in fifteen"


def test_a_shift_of_a_deviation_passes_the_limit_of_200_rows():
    draw, edges = np.random.default_rng(0), (-1.15, -0.67, -0.32, 0.0, 0.32, 0.67, 1.15)
    reference = np.histogram(draw.normal(size=200), [-9, *edges, 9])[0]
    stability = Stability(Histogram(edges, tuple(np.maximum(reference, 1).tolist())))
    stability.see(draw.normal(1.0, size=WINDOW).tolist())
    assert stability.has_moved


def test_three_sensors_that_change_together_are_one_cause_and_nothing_acts_on_them():
    six = tuple(Sensor((k,), (1,)) for k in range(6))
    program = dataclasses.replace(PROGRAM, features=(Feature("f64"),) * 6, sensors=six)
    residuals = tuple(Residual(k, 40, 0, (miss(k, k + 3),)) for k in range(3))
    monitors = Monitors((), None, (40, 10), residuals, tuple(miss(k, k + 3) for k in range(3)), (0, 1, 2))

    def after(n_changed: int) -> Watch:
        draw, it = random.Random(0), Watch(monitors, program)
        for k in range(600):
            truth = [draw.uniform(-1, 1) for _ in range(3)]
            bias = [2.0 if k >= 200 and s < n_changed else 0.0 for s in range(3)]
            values = [t + b for t, b in zip(truth, bias, strict=True)] + truth
            it.decided(LOCAL, {s: [x] for s, x in enumerate(values)})
        return it

    assert (set(after(2).suspects), after(2).together) == ({0, 1}, frozenset())
    it = after(3)
    assert it.together == {0, 1, 2}
    assert it.dead == frozenset()
    assert it.facts("abcdef", "uvwxyz", acts=True)["together"] == ["u", "v", "w"]
