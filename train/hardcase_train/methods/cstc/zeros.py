# SPDX-License-Identifier: Apache-2.0
"""Zeros by the exact objective: which sensors each node gives up, so that expected loss plus price times cost falls.

The relaxation leaves many small weights, each of which would buy its sensor. A threshold on them is chosen by the exact
objective (10) of Xu et al. (2014), not fixed; then single sensors go, from a node and all nodes below it, as long as
the objective falls. docs/math.md (93).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .objective import Objective, Weights

__all__ = ["sparse"]

N_THRESHOLDS = 24
NEXT_TO_ZERO = 1e-2  # of the largest norm of a sensor's weights
MAX_TRIES = 300  # single sensors that are tried, those of the least weight first


def sparse(objective: Objective, weights: Weights) -> Weights:
    """The weights with those at zero whose sensors are not worth their price; the exact objective never rises.

    The relaxation charges weights by their size, which depends on the columns' scale, so its price is not that of whole
    sensors: the exact price is the one at which the weights' own sensors cost in total what their sizes do.
    """
    fair = replace(objective, rule=replace(objective.rule, price=objective.rule.price * _size(objective, weights)))
    return _fewer(fair, _thresholded(fair, weights))


def _size(objective: Objective, weights: Weights) -> float:
    """The relaxed cost of the weights, relative to the exact cost of those that are not next to zero."""
    squares = objective.squares(weights.coef[:, :-1])
    used = squares > np.square(NEXT_TO_ZERO) * squares.max(initial=0.0)
    relaxed, exact = objective.costs(weights, used)
    return relaxed / exact if exact > 0 else 1.0


def _thresholded(objective: Objective, weights: Weights) -> Weights:
    norms = np.sqrt(objective.squares(weights.coef[:, :-1]))
    used = norms[norms > 0]
    if not len(used):
        return weights
    levels = np.geomspace(max(used.min(), used.max() * 1e-6), used.max() * 1.01, N_THRESHOLDS)
    tried = [weights, *(_without(objective, weights, norms < level) for level in levels)]
    return min(reversed(tried), key=objective.exact)


def _fewer(objective: Objective, weights: Weights) -> Weights:
    above = objective.shape.above
    squares = objective.squares(weights.coef[:, :-1])
    subtrees = above.T.astype(np.float64) @ squares  # by the node that a subtree hangs from
    candidates = np.argwhere((subtrees > 0) & (objective.payers.cost > 0))
    order = np.argsort(subtrees[tuple(candidates.T)], kind="stable")[:MAX_TRIES]
    value = objective.exact(weights)
    for k, payer in candidates[order]:
        gone = np.zeros(squares.shape, dtype=bool)
        gone[above[:, k], payer] = True
        new = _without(objective, weights, gone)
        new_value = objective.exact(new)
        if new_value < value:
            weights, value = new, new_value
    return weights


def _without(objective: Objective, weights: Weights, gone: np.ndarray) -> Weights:
    """The weights without those that need a payer that their node gives up; ``gone`` (n_nodes, n_payers) bool."""
    needs = (objective.payers.uses.T @ gone.T.astype(np.float64)).T > 0
    coef = weights.coef.copy()
    coef[:, :-1][needs] = 0.0
    return Weights(coef, weights.theta)
