# SPDX-License-Identifier: Apache-2.0
"""Window features are what numpy computes, and the same bits whoever computes them."""

from __future__ import annotations

import math
import random
import struct
from array import array

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_edge.program.window import WINDOW_FEATURES, window_features

many = settings(max_examples=120)
windows = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=200)


def by_numpy(samples: list[float]) -> tuple[float, ...]:
    x = np.asarray(samples, dtype=np.float64)
    slope = np.polynomial.polynomial.polyfit(np.arange(len(x)), x, 1)[1]
    return float(x.mean()), float(x.std()), float(slope), float(np.abs(np.diff(x)).mean())


def test_the_features_have_names() -> None:
    assert WINDOW_FEATURES == ("mean", "deviation", "slope", "roughness")


@given(windows)
@many
def test_window_features_are_numpys(samples: list[float]) -> None:
    scale = max(1.0, *map(abs, samples))
    for found, expected in zip(window_features(samples), by_numpy(samples), strict=True):
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-12 * scale)


@pytest.mark.parametrize("n", [2, 3, 60, 6000])
def test_a_noisy_line_has_its_slope(n: int) -> None:
    rng = random.Random(n)
    samples = [3.0 + 0.25 * k + rng.gauss(0, 1e-3) for k in range(n)]
    mean, deviation, slope, roughness = window_features(samples)
    assert (mean, deviation, slope, roughness) == pytest.approx(by_numpy(samples), rel=1e-12)
    assert slope == pytest.approx(0.25, abs=5e-3)


def test_worked_example() -> None:
    assert window_features([1.0, 3.0, 2.0, 6.0]) == (3.0, math.sqrt(3.5), 1.4, 7 / 3)


def test_a_window_of_constants_has_no_deviation_slope_or_roughness() -> None:
    assert window_features([2.5] * 60) == (2.5, 0.0, 0.0, 0.0)
    mean, deviation, slope, roughness = window_features([0.1] * 60)
    assert (mean, roughness) == (pytest.approx(0.1, rel=1e-15), 0.0)
    assert deviation < 1e-15
    assert abs(slope) < 1e-15


@pytest.mark.parametrize("samples", [[], [1.0]])
def test_a_window_too_short_is_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError, match=f"a window has {len(samples)} samples, at least 2"):
        window_features(samples)


@given(windows)
@many
def test_the_same_samples_give_the_same_bits_in_any_container(samples: list[float]) -> None:
    def bits(values: object) -> bytes:
        return struct.pack("<4d", *window_features(values))  # type: ignore[arg-type]

    expected = bits(samples)
    assert bits(list(samples)) == expected
    assert bits(tuple(samples)) == expected
    assert bits(array("d", samples)) == expected
    assert bits(np.array(samples)) == expected


def test_narrow_samples_are_summed_as_doubles() -> None:
    narrow = np.random.default_rng(0).normal(1e3, 1.0, 500).astype(np.float32)
    found = window_features(narrow)
    assert found == window_features([float(x) for x in narrow])
    assert all(type(x) is float for x in found)
    assert found == pytest.approx(by_numpy([float(x) for x in narrow]), rel=1e-12)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e308])
def test_what_cannot_be_summed_is_not_finite_so_that_the_sensor_fails(bad: float) -> None:
    assert not all(map(math.isfinite, window_features([bad, bad, bad, -1.0])))
