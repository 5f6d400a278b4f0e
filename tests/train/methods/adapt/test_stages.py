# SPDX-License-Identifier: Apache-2.0
"""ADAPT-GBRT in stages: what a stage approximates is the composite of those behind it, docs/math.md (26)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hardcase_edge.program.definition import THRESHOLD, Branch
from hardcase_train.data.from_arrays import make_problem as arrays_problem
from hardcase_train.methods.adapt.gbrt import AdaptGBRT
from hardcase_train.methods.adapt.stages import TRAIN_PRICE, StagedAdaptGBRT, adapt_chain
from hardcase_train.policy.confidences import NEVER
from hardcase_train.policy.losses import sigmoid
from hardcase_train.policy.selection import Judge
from tests.helpers.train.problems import BRIEF, is_front, make_problem

CHAIN = [(0,), (0, 2), (0, 1, 2)]  # cost 1, 21 and 26


def test_a_stages_f0_is_the_composite_of_those_behind_it_and_what_that_still_costs(monkeypatch):
    seen = []
    learn = AdaptGBRT.learn

    def watched(self, judge, bins, within, forward):
        learn(self, judge, bins, within, forward)
        seen.append((within, forward, sigmoid(self.unseen_[:, -1]), self.answer_loss_))

    monkeypatch.setattr(AdaptGBRT, "learn", watched)
    p = make_problem(3, effort=BRIEF)
    models = adapt_chain(Judge(p), CHAIN, 1)
    (third, b3, q3, a3), (second, b2, q2, a2), (first, b1, _, _) = seen
    assert [first, second, third] == CHAIN
    price, up = TRAIN_PRICE / p.forward_cost, p.forward_cost
    f0 = -np.log(p.train.hpc[np.arange(150), p.train.y])
    assert b3 == pytest.approx(f0 + price * (up - 26))
    loss, cost = (1 - q3) * a3 + q3 * f0, (1 - q3) * 26 + q3 * up
    assert b2 == pytest.approx(loss + price * (cost - 21))
    loss, cost = (1 - q2) * a2 + q2 * loss, (1 - q2) * 21 + q2 * cost
    assert b1 == pytest.approx(loss + price * (cost - 1))
    for subset, model in zip(CHAIN, models, strict=True):
        used = {int(f) // 2 for tree in model.part.trees for f in tree.features}
        assert used <= set(subset)
        assert model.scores.shape == (300, 4)


@pytest.mark.parametrize("n_rounds", [1, 2])
def test_stages_have_gates_and_points_are_a_front(n_rounds):
    problem = make_problem(3, effort=replace(BRIEF, n_gate_prices=12))
    points = StagedAdaptGBRT(n_rounds=n_rounds).points(Judge(problem))
    assert points
    assert {p.params["rounds"] for p in points} == {n_rounds}
    assert any(cut["gate"] > -NEVER for p in points for cut in p.params["cuts"])
    assert any(isinstance(n, Branch) and n.rule == THRESHOLD for p in points for n in p.program.nodes)
    assert is_front([p.valid for p in points])


def test_more_alternations_than_trees_leave_one_tree_each():
    (model,) = adapt_chain(Judge(make_problem(2, effort=BRIEF)), [(0, 1)], 14)  # of eleven trees
    assert len(model.part.trees) == 15


def test_where_forwarding_is_always_worth_it_the_last_stage_answers_all():
    """Forwarding costs what the only sensor does, and f0 is never wrong: no cut is worth anything."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    p = arrays_problem(rng.normal(size=(200, 1)), y, np.ones(200), 2, None, [1], 0.0, 0, effort=BRIEF)
    p = p.with_hpc(np.where(np.arange(2) == y[:, None], 0.99, 0.01))
    (point,) = StagedAdaptGBRT().points(Judge(p))
    assert point.params["cuts"] == [{"margin": -NEVER, "gate": -NEVER}]
    assert point.valid.forward_rate == 0.0
