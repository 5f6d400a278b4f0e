# SPDX-License-Identifier: Apache-2.0
"""What Poly-Dom's programs ship: the sets on a skyline of some size, and no other one that was trained."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hardcase_edge.program.definition import Sensor
from hardcase_train.methods.polydom.bank import LinearBank
from hardcase_train.methods.polydom.indexed import PolyDom
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.subset_search import SubsetSearch
from tests.helpers.train.problems import BRIEF, make_problem

COSTS = ((1, 2), (10,), (5, 1))  # the first is cheapest for small items, the second for large ones, the third for none
ACCURACY = (0.5, 0.7, 0.8, 0.9, 0.6, 0.7, 0.8, 0.9)  # by bit mask: the third tells least, and nothing beside another


def test_a_candidate_that_is_best_for_no_size_is_not_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of the others is nowhere dearer than the third, but at each size one is no dearer."""
    problem = make_problem(n=60, effort=BRIEF)
    sensors = tuple(Sensor(s.features, cost) for s, cost in zip(problem.sensors, COSTS, strict=True))
    monkeypatch.setattr(LinearBank, "accuracy", lambda bank, mask: ACCURACY[mask])
    search = SubsetSearch(Judge(replace(problem, sensors=sensors, max_item_size=9), is_alone=True), 1)
    (params,) = PolyDom.grid(search)
    points = PolyDom.run(search, params)
    assert points[0].params["sets"] == 3, "the first two, and both together"
