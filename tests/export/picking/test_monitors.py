# SPDX-License-Identifier: Apache-2.0
"""What an export measures for drift monitors: histograms and predictions of the rows on which a sensor is bought."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hardcase_edge.bundle.monitors import MAX_BINS, Monitors, monitors_of
from hardcase_edge.program.definition import (
    MICRO,
    Acquire,
    Affine,
    Answer,
    Column,
    Feature,
    Polynomial,
    Program,
    Sensor,
    Slice,
    Uplink,
)
from hardcase_edge.verifier.verify import verify
from hardcase_export.drafts.rows import Rows
from hardcase_export.picking.monitors import KINDS, failed_readings, measure_monitors


def make_program() -> Program:
    """Sensor 0 decides; without it sensor 1 does, almost as well. Sensor 2 is bought with them, sensor 3 never."""
    affine = Affine(frac=8, mul=1, add=0, shift=0)
    return Program(
        features=(Feature("f32"),) * 4,
        sensors=tuple(Sensor((k,), (MICRO,)) for k in range(4)),
        uplink=Uplink(),
        columns=(Column(0, affine), Column(1, affine)),
        scorers=tuple(Polynomial((k,), (0,), 1, ((0,),), ((1,),), (0,)) for k in range(2)),
        nodes=(
            Acquire((1, 2), 1, 1),
            Acquire((0,), 2, 3),
            Answer(Slice(0, 0, 1), confidences=(9_000,)),
            Answer(Slice(1, 0, 1), confidences=(8_000,)),
        ),
        n_classes=2,
    )


@pytest.fixture(scope="module")
def rows() -> Rows:
    rng = np.random.default_rng(0)
    truth = rng.uniform(-1, 1, 300)
    X = np.column_stack([truth + 0.1 * rng.standard_normal(300) for _ in range(4)])
    y = (truth > 0).astype(np.int64)
    return Rows(X, y, y, np.full(300, 9_000))


@pytest.fixture(scope="module")
def monitors(rows: Rows) -> Monitors:
    return measure_monitors(make_program(), rows)


def test_only_sensors_that_are_bought_have_histograms_and_predictions(monitors: Monitors) -> None:
    verify(make_program())
    assert [f for f, _ in monitors.features] == [0, 1, 2]
    assert [r.sensor for r in monitors.residuals] == [0, 1, 2]
    assert monitors.forwarded == (300, 0)
    assert monitors_of(monitors.to_json(), make_program()) == monitors


def test_bins_hold_about_as_many_rows_each(monitors: Monitors) -> None:
    for _, histogram in monitors.features:
        assert len(histogram.counts) == MAX_BINS
        assert sum(histogram.counts) == 300
        assert 30 <= min(histogram.counts) <= max(histogram.counts) <= 45


def test_predictions_are_of_the_others_and_their_limits_hold_on_nearly_all_rows(monitors: Monitors) -> None:
    rng = np.random.default_rng(1)
    truth = rng.uniform(-1, 1, 2_000)
    X = np.column_stack([truth + 0.1 * rng.standard_normal(2_000) for _ in range(4)])
    for residual in monitors.residuals:
        (p,) = residual.predictions
        assert {f for f, _ in p.terms} == {0, 1, 2} - {residual.sensor}
        predicted = (p.bias + sum(weight * X[:, f] for f, weight in p.terms)) / 2**p.shift
        assert np.corrcoef(predicted, X[:, p.feature])[0, 1] > 0.95
        assert 0.002 < np.mean(np.abs(X[:, p.feature] - predicted) > p.limit / 2**p.shift) < 0.06
    assert len(monitors.pairs) == 3


def test_a_sensor_is_dead_where_the_program_does_better_without_it(monitors: Monitors) -> None:
    assert monitors.treat_as_dead == (0, 1, 2), "without 1 or 2 it decides as before"


def test_rows_count_by_their_weights_as_rows_of_a_retraining_stand_for_more_or_fewer_decisions(rows: Rows) -> None:
    easy = rows.X[:, 0] > 0
    even = measure_monitors(make_program(), replace(rows, weight=np.full(300, 0.02)))
    uneven = measure_monitors(make_program(), replace(rows, weight=np.where(easy, 1.0, 0.05)))
    assert even == measure_monitors(make_program(), rows)
    assert np.median(uneven.features[0][1].edges) > 0.4
    assert easy.sum() < uneven.forwarded[0] < easy.sum() + 20, "of all of them, as many as the weights are worth"


def test_few_rows_say_nothing(rows: Rows) -> None:
    few = Rows(rows.X[:20], rows.y[:20], rows.hpc[:20], rows.confidence[:20])
    assert measure_monitors(make_program(), few) == Monitors((), None, (20, 0), (), (), ())


def test_failures_change_the_sensor_alone(rows: Rows) -> None:
    for kind in KINDS:
        failed = failed_readings(rows.X, [1], kind, np.random.default_rng(0))
        assert (failed[:, [0, 2, 3]] == rows.X[:, [0, 2, 3]]).all()
        assert np.abs(failed[:, 1] - rows.X[:, 1]).mean() > 0.3
