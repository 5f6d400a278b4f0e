# SPDX-License-Identifier: Apache-2.0
"""Which objective a shape trains: that of CSTC, CSCC or Cronus, worked out by hand for rows that are all alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hardcase_train.methods.cstc import cost_tree, fit
from hardcase_train.methods.cstc.cost_tree import CostSensitiveTree
from hardcase_train.methods.cstc.objective import Objective, Weights
from hardcase_train.policy.losses import SquaredLoss
from hardcase_train.policy.selection import Judge
from tests.helpers.train.problems import BRIEF, make_problem

ONE, THREE_QUARTERS_HIGH = 1.0, -np.log(3.0)  # every label; the threshold at which a score of 0 is high by 3/4


def objectives(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> tuple[Objective, Objective]:
    """What is minimised for the sensors, and then for the weights, if these settings are trained."""
    priced: list[Objective] = []
    refitted: list[Objective] = []
    along, jointly = cost_tree.follow_prices, fit.solve_jointly
    monkeypatch.setattr(cost_tree, "follow_prices", lambda made, *rest: (priced.append(made), along(made, *rest))[1])
    monkeypatch.setattr(
        fit, "solve_jointly", lambda made, *rest, **how: (refitted.append(made), jointly(made, *rest, **how))[1]
    )
    model = CostSensitiveTree(depth=1, l2=0.0, n_steps=1, **settings)
    assert model.points(Judge(make_problem(2, n=40, effort=BRIEF), is_alone=True))
    return priced[0], refitted[0]


def value(made: Objective, price: float, biases: list[float], weights: list[float]) -> float:
    """The objective if all readings are 0, all labels 1, and each node has one weight, of the dearest sensor (20)."""
    n, (column, *_) = len(made.Z), np.flatnonzero(made.payers.uses.toarray()[-1])
    alike = replace(made, Z=np.zeros_like(made.Z), loss=SquaredLoss(np.full(n, ONE), np.full(n, 2.0)))
    coef, theta = alike.zero().coef, np.zeros(len(biases))
    coef[:, column, 0], coef[:, -1, 0], theta[0] = weights, biases, THREE_QUARTERS_HIGH / made.rule.slope
    return replace(alike, rule=replace(made.rule, price=price))(Weights(coef, theta))[0]


@pytest.mark.parametrize("shape", ["cascade", "cronus"])
def test_a_cascade_loses_where_a_row_exits(monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    """XKW14 (19): the first node answers a quarter of each row and loses 1, the second the rest and loses (3 - 1)^2.

    By (6), CSTC's, the first node would lose by the whole row, and all would be 4.
    """
    for made in objectives(monkeypatch, shape=shape):
        assert value(made, 0.0, [0.0, 3.0], [0.0, 0.0]) == pytest.approx(1 / 4 * 1 + 3 / 4 * 4)


def test_a_tree_loses_wherever_a_row_passes_and_inner_nodes_by_their_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """XKW14 (6): the root loses 1 by the whole row, the low leaf nothing by a quarter, the high leaf 4 by the rest."""
    for interior in (1.0, 0.1, 0.0):
        for made in objectives(monkeypatch, shape="tree", interior=interior, slope=2.0):
            assert value(made, 0.0, [0.0, 1.0, 3.0], [0.0] * 3) == pytest.approx(interior * 1 + 3 / 4 * 4)


def test_a_path_of_a_cascade_pays_a_norm_of_its_own_and_all_nodes_of_cronus_share_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both nodes read the sensor that costs 20, with weights 3 and 4, and a row gets to the second by 3/4.

    XKW14 (22): a quarter leaves by a path of the norm 3, the rest by one of the norm 5.
    Cronus, 4.1: one norm of 1 * 3 and 3/4 * 4.
    """
    for shape, norm in (("cascade", 1 / 4 * 3 + 3 / 4 * 5), ("cronus", np.sqrt(3**2 + 3**2))):
        made, _ = objectives(monkeypatch, shape=shape)
        loss, both = (value(made, price, [0.0, 3.0], [3.0, 4.0]) for price in (0.0, 0.5))
        assert both - loss == pytest.approx(0.5 * 20 * norm, abs=0.01)
