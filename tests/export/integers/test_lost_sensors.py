# SPDX-License-Identifier: Apache-2.0
"""Confidences without sensors are shares counted on rows, and ranges are those of the rows, rounded outwards."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.errors import InputError
from hardcase_edge.kernel.machine import decide, open_machine
from hardcase_edge.program.definition import Program
from hardcase_export.bundle import export_bundle
from hardcase_export.drafts.rows import Rows, read_rows
from hardcase_export.integers import sensor_claims as lost_sensors
from hardcase_export.integers.decide import readings_of
from hardcase_export.integers.quantise import quantise
from hardcase_export.integers.sensor_claims import _outwards, measure_without, ranges_of_rows
from tests.helpers.export.builds import MANIFEST, cascade_draft, make_build, make_rows, static_draft

N = 600
ANSWER = 4  # the cascade's: both of the rows that it is sure of and of those that it would forward


@pytest.fixture(scope="module")
def rows() -> Rows:
    X, y = make_rows(N, 7)
    return Rows(X, y, y, np.full(N, 9_000))


@pytest.fixture(scope="module")
def cascade() -> Program:
    return quantise(cascade_draft()).program


def counted(program: Program, rows: Rows, dead: tuple[int, ...], cloud: bool) -> dict[tuple[object, ...], list[bool]]:
    """Whether each row is right, by what it missed, its node and its route, one decision after another."""
    machine, out = open_machine(program), {}
    for row, truth in zip(readings_of(program, rows.X), rows.y.tolist(), strict=True):
        d = decide(machine, row, dead=dead, cloud=cloud)
        out.setdefault((d.failed, d.trace[-1], d.route), []).append(d.result == truth)
    return out


def share(right: list[bool]) -> int:
    return round(10_000 * (sum(right) + 1) / (len(right) + 2))


def test_each_confidence_is_the_share_of_right_answers_with_these_sensors_dead(cascade: Program, rows: Rows) -> None:
    without = measure_without(cascade, rows)
    for sensor in (0, 1):
        offline, silent = (counted(cascade, rows, (sensor,), cloud) for cloud in (False, True))
        local = offline[(sensor,), ANSWER, "local"]
        degraded = [share(some[(sensor,), ANSWER, "degraded"]) for some in (offline, silent)]
        assert without[sensor,][ANSWER] == (share(local), min(degraded))
    everything = counted(cascade, rows, (0, 1, 2), False)
    ((place, right),) = everything.items()  # without readings all rows go one way
    assert place == ((0, 1), ANSWER, "local")
    assert without[0, 1] == {ANSWER: (share(right), None)}


def test_a_sensor_that_only_a_request_wants_is_missed_only_by_requests(cascade: Program, rows: Rows) -> None:
    silent = counted(cascade, rows, (2,), True)
    assert measure_without(cascade, rows)[2,] == {ANSWER: (None, share(silent[(2,), ANSWER, "degraded"]))}


def test_what_few_rows_reach_has_no_confidence(cascade: Program, rows: Rows) -> None:
    few = Rows(rows.X[:29], rows.y[:29], rows.hpc[:29], rows.confidence[:29])
    assert measure_without(cascade, few) == {}
    program = quantise(static_draft((0,))).program
    enough = Rows(rows.X[:30], rows.y[:30], rows.hpc[:30], rows.confidence[:30])
    assert set(measure_without(program, enough)) == {(0,)}


def test_weights_count_and_rows_of_weight_0_do_not(rows: Rows) -> None:
    program = quantise(static_draft((2,))).program
    weight = np.where(np.arange(N) < 40, 3.0, 0.0)
    right = counted(program, rows, (2,), False)[(2,), 1, "local"][:40]
    expected = round(10_000 * (3 * sum(right) + 1) / (3 * 40 + 2))
    assert measure_without(program, replace(rows, weight=weight)) == {(2,): {1: (expected, None)}}
    assert measure_without(program, replace(rows, weight=np.where(np.arange(N) < 29, 1.0, 0.0))) == {}


def test_what_is_measured_is_bounded(cascade: Program, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    n_decisions: Counter[str] = Counter()

    def counting(*args: object, **settings: object) -> object:
        n_decisions["all"] += 1
        return decide(*args, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(lost_sensors, "decide", counting)
    monkeypatch.setattr(lost_sensors, "MAX_DECISIONS", 2_000)
    monkeypatch.setattr(lost_sensors, "LEAST_ROWS", 100)
    monkeypatch.setattr(lost_sensors, "MAX_PLACES", 1)
    without = measure_without(cascade, rows)
    assert sum(len(nodes) for nodes in without.values()) == 1
    assert n_decisions["all"] <= 2_000
    monkeypatch.setattr(lost_sensors, "MAX_SENSORS", 0)
    monkeypatch.setattr(lost_sensors, "MAX_PLACES", 99)
    assert set(measure_without(cascade, rows)) == {(0, 1)}, "all at once is tried in any case"


# ---------------------------------------------------------------- ranges


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_a_range_holds_every_number_that_its_type_rounds_to_one_seen(dtype: str) -> None:
    rng = np.random.default_rng(1)
    for scale in (1e-30, 1e-3, 1.0, 1e7, 1e30):
        for centre in (0.0, 1.0, -1e6):
            given = scale * (centre + rng.normal(size=50))  # as sensors give it
            seen = given.astype(np.float32).astype(np.float64) if dtype == "f32" else given
            low, high = _outwards(seen.min(), seen.max(), dtype)
            assert low <= min(given.min(), seen.min())
            assert high >= max(given.max(), seen.max())
            width = seen.max() - seen.min() + 4 * np.spacing(np.abs(seen.astype(dtype.replace("f", "float"))).max())
            assert high - low <= 1.003 * width
            assert len(repr(low)) <= 22


def test_the_largest_numbers_have_finite_ranges() -> None:
    largest = float(np.finfo(np.float32).max)
    assert _outwards(-largest, largest, "f32") == (-3.403e38, 3.403e38)
    assert _outwards(-1e308, 1e308, "f64") == (-1e308, 1e308)


def test_only_features_that_may_be_bought_have_a_range(cascade: Program) -> None:
    limits = np.array([[0.0, 1.0], [np.nan, np.nan], *[[-2.0, 3.0]] * 4])
    assert ranges_of_rows(cascade, None) == ()
    assert [pair is not None for pair in ranges_of_rows(cascade, limits)] == [True, False, True, True, True, True]
    near = quantise(static_draft((0,))).program
    assert [pair is not None for pair in ranges_of_rows(near, limits)] == [True] + [False] * 5
    assert ranges_of_rows(near, np.full((6, 2), np.nan)) == ()


# ---------------------------------------------------------------- from a build


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As training wrote one before: neither weights nor limits."""
    return make_build(tmp_path_factory.mktemp("lost") / "build")


def with_arrays(build: Path, folder: Path, **more: np.ndarray) -> Path:
    """A copy of a build whose validation rows have more arrays."""
    shutil.copytree(build, folder)
    with np.load(build / "valid.npz") as file:
        np.savez(folder / "valid.npz", **{k: file[k] for k in file.files}, **more)
    return folder


def test_a_bundle_carries_both_and_a_build_of_before_still_exports(build: Path, tmp_path: Path) -> None:
    export_bundle(build, tmp_path / "old.hcb", max_loss=0.5)
    manifest = load_bundle(tmp_path / "old.hcb").manifest
    assert manifest.ranges == ()
    assert manifest.without
    X = read_rows(build / "valid.npz", MANIFEST).X
    limits = np.stack([np.nanmin(X, axis=0), np.nanmax(X, axis=0)], axis=1)
    copy = with_arrays(build, tmp_path / "copy", weight=np.ones(len(X)), limits=limits)
    export_bundle(copy, tmp_path / "new.hcb", max_loss=0.5)
    new = load_bundle(tmp_path / "new.hcb").manifest
    assert new.without == manifest.without
    assert any(new.ranges)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"weight": np.ones(3)}, "weight has type float64 and shape"),
        ({"weight": -np.ones(300)}, "weight has values below 0"),
        ({"weight": np.full(300, np.nan)}, "weight has values below 0 or infinite ones"),
        ({"limits": np.zeros((6, 3))}, "limits has type float64 and shape"),
        ({"limits": np.zeros((6, 2), int)}, "limits has type int64 and shape"),
    ],
)
def test_damaged_weights_or_limits_are_refused(
    build: Path, tmp_path: Path, more: dict[str, np.ndarray], said: str
) -> None:
    copy = with_arrays(build, tmp_path / "copy", **more)
    with pytest.raises(InputError, match=said):
        read_rows(copy / "valid.npz", MANIFEST)
