# SPDX-License-Identifier: Apache-2.0
"""Which nodes a tree has: pruned, grown, and what of it answers; and which weights fine-tuning fits again."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import Mock, patch

import numpy as np
import pytest

from hardcase_edge.program.definition import Forward
from hardcase_train.methods.cstc import program, structure
from hardcase_train.methods.cstc.columns import readings
from hardcase_train.methods.cstc.cost_tree import CostSensitiveTree
from hardcase_train.methods.cstc.descent import DESCENTS, first_weights
from hardcase_train.methods.cstc.fit import Learner
from hardcase_train.methods.cstc.greedy_tree import GreedyTree
from hardcase_train.methods.cstc.objective import Objective, Rule, Weights, payers_of
from hardcase_train.methods.cstc.shape import EXIT, Shape, chain, tree
from hardcase_train.methods.cstc.structure import answers_of, grown, pruned
from hardcase_train.policy.confidences import NEVER
from hardcase_train.policy.losses import ClassLoss, SquaredLoss
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.thresholds import Cut
from tests.helpers.train.problems import BRIEF, make_problem


def two_kinks(n: int = 200) -> Objective:
    """A value whose slope turns at -1 and at 1: one linear node does not fit it, three sides do."""
    x = np.random.default_rng(0).uniform(-3, 3, n)
    y = np.where(x > 1, 6 - 2 * x, np.where(x < -1, -6 - 2 * x, 4 * x))
    loss = SquaredLoss(y, np.ones(n))
    return Objective(x[:, None], loss, tree(2), payers_of([(0,)], np.ones(1)), Rule(l2=1e-9))


def quality(made: Objective, shape: Shape, weights: Weights) -> float:
    return -float(np.square(answers_of(shape, weights, made.Z, 1)[:, 0] - made.loss.y).mean())


def test_pruning_keeps_the_quality_and_removes_nodes_that_add_nothing() -> None:
    made = two_kinks()
    weights = first_weights(made, np.ones((7, 1), dtype=bool))
    weights.coef[3:] = np.repeat(weights.coef[1:3], 2, axis=0)  # leaves that answer as their parents do
    shape = pruned(made.shape, weights, lambda shape, weights: quality(made, shape, weights))
    assert len(shape) < 7
    kept = pruned(made.shape, weights, lambda shape, weights: float(sum(len(set(p) - {EXIT}) for p in shape.children)))
    assert kept == made.shape  # each node adds to this quality


def test_of_one_side_pruned_the_node_itself_answers() -> None:
    coef = np.array([[[0.0], [1.0]], [[0.0], [2.0]]])
    lopsided = Shape(((EXIT, 1), (EXIT, EXIT)))
    at = Weights(coef, np.array([0.5, 0.0]))
    at.coef[0] = [[1.0], [0.0]]
    assert answers_of(lopsided, at, np.array([[0.2], [0.9]]), 1).tolist() == [[0.2], [2.0]]


def test_growing_adds_nodes_while_validation_rows_gain_and_no_deeper_than_the_bound() -> None:
    made = two_kinks()
    free, rate = np.ones((7, 1), dtype=bool), lambda shape, weights: quality(made, shape, weights)
    shape = grown(made, free, rate, made.Z, np.ones(200))
    assert 3 <= len(shape) <= 7
    assert all(child == EXIT or child > k for k, pair in enumerate(shape.children) for child in pair)
    assert len(grown(replace(made, shape=tree(0)), free[:1], rate, made.Z, np.ones(200))) == 1
    assert len(grown(made, free, lambda shape, weights: 0.0, made.Z, np.ones(200))) == 1  # no gain, no node


def test_fine_tuning_keeps_the_zeros_that_it_is_given() -> None:
    problem = make_problem(2, n=90, effort=BRIEF)
    learner, columns = Learner(problem, chain(2), Rule(), "linear"), readings(problem)
    has, used = np.ones((2, 3), dtype=bool), np.ones((2, 6), dtype=bool)
    used[0, 2:] = used[1, :2] = False
    kept = learner.fit(columns, has, np.arange(90), None, used).weights.coef[:, :-1, 0] != 0
    assert kept.tolist() == used.tolist()
    assert (learner.fit(columns, has, np.arange(90), None).weights.coef[:, :-1] != 0).all()


@pytest.mark.parametrize(
    "params",
    [{"structure": "pruned"}, {"structure": "grown"}, {"tuning": "zeros", "l1": 0.01}, {"descent": "nodes"}],
)
def test_each_way_gives_points_with_the_cost_of_its_paths(params: dict[str, str]) -> None:
    problem = make_problem(3, n=90, effort=BRIEF)
    judge = Judge(problem, is_alone=True)
    points = CostSensitiveTree(depth=2, n_steps=2, **params).points(judge)  # type: ignore[arg-type]
    costs = problem.sensor_costs()
    assert points
    for point in points:
        assert all(0 <= cost <= costs.sum() for cost in point.params["path_costs"])


@pytest.mark.parametrize("name", DESCENTS)
def test_a_descent_is_that_of_its_name(name: str) -> None:
    """Algorithm 1 is asked for by name."""
    judge, called = Judge(make_problem(2, n=60, effort=BRIEF), is_alone=True), Mock(side_effect=DESCENTS[name])
    with patch.dict(DESCENTS, {name: called}):
        CostSensitiveTree(depth=1, n_steps=2, descent=name).points(judge)
    assert called.call_count == judge.problem.effort.n_tree_prices


@pytest.mark.parametrize(("name", "first"), [("structure", "full"), ("descent", "together")])
def test_an_unknown_way_is_refused(name: str, first: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} of CostSensitiveTree is 'bushy'; expected one of \('{first}'"):
        CostSensitiveTree(**{name: "bushy"}).points(Judge(make_problem(2, n=40, effort=BRIEF), is_alone=True))  # type: ignore


def test_half_of_the_validation_rows_that_come_to_a_new_node_take_each_side() -> None:
    rng = np.random.default_rng(0)
    y = rng.choice(3, size=300, p=(0.6, 0.3, 0.1))
    Z = rng.normal(size=(300, 1)) + y[:, None]
    made = Objective(Z, ClassLoss(y, 3, np.ones(300)), tree(0), payers_of([(0,)], np.ones(1)), Rule(l2=1e-3))
    valid = Z + 1.0  # in training, their halves are others
    node = structure._node(made, made.zero(), np.ones((1, 1), dtype=bool), valid, np.ones(300))
    assert np.mean(node.scores(valid)[:, 0, -1] > node.theta[0]) == pytest.approx(0.5, abs=0.02)


def test_where_f0_is_worth_its_price_for_no_row_an_exit_has_no_node_that_asks_it() -> None:
    made = []
    costly = [Cut(-NEVER)]
    with (
        patch.object(program, "priced_cuts", lambda choices, price: costly),
        patch.object(program, "best_points", lambda points: made.extend(points) or points),
    ):
        GreedyTree(depth=1).points(Judge(make_problem(2, n=90, effort=BRIEF), is_alone=True))
    assert [p for p in made if "forward_price" in p.params]
    assert not [node for p in made for node in p.program.nodes if isinstance(node, Forward)]
