# SPDX-License-Identifier: Apache-2.0
"""Streams of the benchmark of budgets: who reads a segment pays for all before it, and stopping rules by hand."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.budgeted import peers
from benchmarks.budgeted.ours import prefixes
from benchmarks.budgeted.problem import HARD, Meter, OverspentError, Problem, Session, Wish
from benchmarks.budgeted.streams import page, stopping, windows
from benchmarks.budgeted.streams.windows import drift, segments

WISHES = (Wish(2.0), Wish(5.0))


def window(wish: Wish) -> tuple[Problem, Meter, Session]:
    X = np.arange(24.0).reshape(4, 6)
    known = Problem("window", X, np.arange(4) % 2, segments(3, 2), (wish,), is_ordered=True)
    meter = Meter(known, wish, X)
    return known, meter, Session(known, wish, 4, meter.sell)


def test_a_segment_costs_all_that_come_before_it() -> None:
    _, meter, session = window(Wish(2.0))
    session.read(1, [0, 2])
    session.read(0)
    session.read(2, [0, 3])
    assert meter.spent.tolist() == [3.0, 1.0, 2.0, 3.0]
    assert session.spent.tolist() == meter.spent.tolist()
    with pytest.raises(OverspentError, match="t2 costs 3, and row 0 has 2 left"):
        window(Wish(2.0, HARD))[2].read(2)


def test_hardcase_is_told_of_prefixes_at_the_price_of_their_segments() -> None:
    known, _, _ = window(Wish(2.0))
    told = prefixes(known)
    assert told.costs.tolist() == [1.0, 2.0, 3.0]
    assert told.X[1, list(told.sensors[1].columns)].tolist() == known.X[1, :4].tolist()
    assert sum(len(s.columns) for s in told.sensors) == told.X.shape[1] == 12


def test_a_row_stops_where_no_later_step_is_expected_to_cost_less() -> None:
    costs = np.array([[0.5, 0.1], [0.2, 0.4], [0.45, 0.3]])
    moves = [np.array([[0.5, 0.5], [0.0, 1.0]]), np.array([[1.0, 0.0], [0.5, 0.5]])]
    # group 0 expects .5 * .2 + .5 * .4 = .3 of the next step; group 1 of step 1 expects .5 * .45 + .5 * .3 = .375
    assert stopping.never_less(costs, moves).tolist() == [[False, True], [True, False], [True, True]]


def test_the_groups_of_economy_count_errors_and_moves() -> None:
    y = np.array([0, 0, 1, 1])
    first, second = np.array([0.6, 0.4, 0.55, 0.3]), np.array([0.9, 0.8, 0.1, 0.2])  # chances of class 0
    p = np.array([np.column_stack([q, 1 - q]) for q in (first, second)])
    waits, stays = stopping.Groups(p, y, 0.1, 2), stopping.Groups(p, y, 2.0, 2)
    assert waits.group(0, p[0]).tolist() == [1, 0, 1, 0]
    # one of two errs in both groups at the first segment, and none at the second, which costs half of the price more
    assert stopping.stops(waits, p).tolist() == [1, 1, 1, 1]
    assert stopping.stops(stays, p).tolist() == [0, 0, 0, 0]


def test_calimera_learns_what_waiting_costs_from_the_last_step_to_the_first() -> None:
    features = [np.array([[0.0], [9.0]])] * 3  # so far apart that each row is fitted alone, and halved by the penalty
    costs = np.array([[0.5, 0.1], [0.7, 0.3], [0.1, 0.9]])
    found = [m.predict(features[0]) for m in stopping.waiting_costs(costs, features)]
    # row 0 waits at the second step, so that its cost there is that of the third, and pays to wait at the first, too
    assert np.allclose(found, [[-0.2, 0.1], [-0.3, 0.3]], atol=1e-9)


def test_calibrated_chances_follow_how_often_they_are_right() -> None:
    rng = np.random.default_rng(0)
    y = (rng.random(4_000) < 0.7).astype(np.int64)
    found = stopping.calibrated(np.tile([0.01, 0.99], (4_000, 1)) + rng.normal(0, 1e-3, (4_000, 1)) * [1, -1], y)
    assert np.allclose(found.sum(axis=1), 1)
    assert found[:, 1].mean() == pytest.approx(y.mean(), abs=0.01)


METHODS = (
    stopping.Calimera, stopping.Economy, stopping.ConfidenceCut, stopping.FixedPrefix, stopping.PosteriorByHand,
)  # fmt: skip


@pytest.mark.parametrize("kind", METHODS)
def test_methods_that_stop_spend_about_their_budget(
    kind: type[stopping.Early], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "N_TREES", 5)
    monkeypatch.setattr(windows, "ROWS", (400, 800))
    drawn, method = drift(0, WISHES), kind()
    method.fit(drawn.problem)
    for wish, least in zip(WISHES, (0.6, 0.7), strict=True):
        meter = Meter(drawn.problem, wish, drawn.X_test)
        right = method.decide(Session(drawn.problem, wish, 800, meter.sell)) == drawn.y_test
        assert meter.spent.mean() == pytest.approx(wish.budget, rel=0.25)
        assert right.mean() > least


def test_the_page_says_at_how_many_budgets_a_stream_is_behind() -> None:
    def of(accuracy: float) -> dict[str, object]:
        wishes = {f"mean {b}": {"accuracy": accuracy, "cost": b, "n": 10} for b in (2, 4)}
        return {str(s): {"seconds": 1.0, "wishes": wishes} for s in range(3)}

    results = {"stream-drift": {"hardcase": of(0.7), "CALIMERA": of(0.75), "fixed prefix": of(0.6)}}
    text = page.about(results)
    assert (
        "- CALIMERA: `hardcase` is less accurate at 2 and more accurate at 0 of 2 budgets (at least 3 seeds)." in text
    )
    assert "- fixed prefix: `hardcase` is less accurate at 0 and more accurate at 2 of 2 budgets" in text
    assert "- ECONOMY-gamma: not run" in text
    assert "at 2 of 2 budgets of 1 stream, by up to 0.050" in page.shortfall(results)
    assert page.shortfall({}) == ""
