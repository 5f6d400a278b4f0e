# SPDX-License-Identifier: Apache-2.0
"""The points that a front keeps: cheaper, more accurate or surer than any other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hardcase_edge.more.fronts.front import Judged
from hardcase_train.policy.front import Point, best_points


def point(cost, quality, se=0.0):
    return Point("m", {}, Judged(quality, cost, 0.0, se), None, None)


def test_a_point_that_is_no_more_accurate_but_surer_stays():
    cheap, sure, neither = point(1.0, 0.95, 0.02), point(2.0, 0.95, 0.01), point(3.0, 0.94, 0.005)
    assert best_points([neither, sure, cheap]) == [cheap, sure]


def test_a_dearer_point_that_is_neither_more_accurate_nor_surer_goes():
    cheap, dear = point(1.0, 0.95, 0.01), point(2.0, 0.95, 0.01)
    assert best_points([dear, cheap]) == [cheap]


POINTS = st.lists(
    st.builds(point, *(st.sampled_from([k / 8 for k in range(9)]) for _ in range(3))), min_size=1, max_size=12
)


@given(POINTS)
def test_whatever_is_asked_for_the_front_has_the_cheapest(points):
    front = best_points(points)
    assert [p.valid.cost for p in front] == sorted(p.valid.cost for p in front)
    for spare in (0.0, 1.0):

        def said(p, spare=spare):
            return p.valid.quality - spare * p.valid.loss_se

        for floor in {said(p) for p in points}:
            cheapest = min(p.valid.cost for p in points if said(p) >= floor)
            assert min(p.valid.cost for p in front if said(p) >= floor) == cheapest
