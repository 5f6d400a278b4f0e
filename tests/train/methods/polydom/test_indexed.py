# SPDX-License-Identifier: Apache-2.0
"""What Poly-Dom's programs ship: the sets on a skyline of some size, and no other one that was trained."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hardcase_edge.program.definition import Sensor
from hardcase_train.methods.polydom import indexed
from hardcase_train.methods.polydom.bank import LinearBank
from hardcase_train.methods.polydom.indexed import Greedy, PolyDom
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


def test_the_classifier_of_two_classes_has_one_output() -> None:
    """Its weight is that of one class against the other, so it takes half of the bytes."""
    two, three = (LinearBank(Judge(make_problem(n, n=60, effort=BRIEF), is_alone=True)) for n in (2, 3))
    assert two.trained(0b11).scores.shape[1] == 1
    assert (two.n_bytes(0b11), three.n_bytes(0b11)) == (2 * 4 + 8, 3 * (2 * 4 + 8))


def test_sequences_made_for_a_size_serve_items_up_to_halfway_to_the_next_size(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(n=60, effort=BRIEF)
    train = replace(problem.train, sizes=np.resize([1, 5, 8], 60))
    sized = replace(problem, train=train, max_item_size=9)
    seen = []
    plan = indexed.sequence_nodes
    monkeypatch.setattr(indexed, "sequence_nodes", lambda *a: seen.append([end for end, _ in a[1]]) or plan(*a))
    Greedy.run(SubsetSearch(Judge(sized, is_alone=True), 1), {"per_size": True})
    assert seen[0] == [3, 6, 9]
