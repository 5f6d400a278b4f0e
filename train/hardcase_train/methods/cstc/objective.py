# SPDX-License-Identifier: Apache-2.0
"""One objective for CSTC, CSCC and Cronus: expected loss of all nodes plus the price of the sensors that paths buy.

Xu et al. (2014): rows traverse softly (4), nodes lose by reach (6) or by exit (19), sensors cost by the relaxed mixed
norm of each path (12), (22) or by one norm over all nodes (4.1), or exactly (10). docs/math.md (85) to (90).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from ...policy.losses import AnswerLoss, sigmoid
from .shape import LOW_HIGH, Shape

SMOOTH = 1e-8  # under each root, so that it has a slope at 0


@dataclass(frozen=True)
class Payers:
    """What weights pay for: sensors, and trees of which each evaluation costs.

    uses : (n_payers, n_columns) 0 or 1, whether a column needs this payer (the paper's F)
    cost : (n_payers,)
    """

    uses: csr_array
    cost: np.ndarray

    def only(self, columns: np.ndarray) -> Payers:
        """What weights of some of the columns pay for."""
        return Payers(csr_array(self.uses[:, columns]), self.cost)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Which of the three systems it is, and what the paper leaves open; docs/math.md names each default.

    by_exit : a node's loss counts rows that exit there (CSCC, Cronus), not all that reach it (CSTC)
    one_bundle : one norm over all nodes, each times its reach (Cronus), not one for each path
    price : lambda, mean loss per unit of cost
    l1, l2 : rho, and a ridge that keeps weights finite
    slope : of the sigmoid of routing scores; 1 is the paper's
    interior : weight of the losses of nodes that are not leaves; 1 is the paper's
    n_steps : of L-BFGS between two rescalings
    """

    by_exit: bool = False
    one_bundle: bool = False
    price: float = 0.0
    l1: float = 0.0
    l2: float = 1e-4
    slope: float = 1.0
    interior: float = 1.0
    n_steps: int = 25


@dataclass(frozen=True)
class Weights:
    """Of all nodes; routing scores are the last output minus theta.

    coef : (n_nodes, n_columns + 1, n_outputs), biases in the last row
    theta : (n_nodes,)
    """

    coef: np.ndarray
    theta: np.ndarray

    def flat(self) -> np.ndarray:
        """All numbers as one vector."""
        return np.concatenate([self.coef.ravel(), self.theta])

    def like(self, flat: np.ndarray) -> Weights:
        """The weights of such a vector."""
        return Weights(flat[: self.coef.size].reshape(self.coef.shape), flat[self.coef.size :])

    def scores(self, Z: np.ndarray) -> np.ndarray:
        """(n, n_nodes, n_outputs) of rows (n, n_columns)."""
        n_nodes, _, n_outputs = self.coef.shape
        flat = (
            np.ascontiguousarray(self.coef[:, :-1].transpose(1, 0, 2)).reshape(-1, n_nodes * n_outputs).astype(Z.dtype)
        )
        product = (Z @ flat).reshape(len(Z), n_nodes, n_outputs)
        return np.asarray(product.astype(np.float64) + self.coef[:, -1])


@dataclass(frozen=True)
class Objective:
    """The objective of training rows.

    Z : (n, n_columns) rows
    loss : of the answers, row weights included; a node has its ``n_outputs`` scores and, beyond one, a routing score
    """

    Z: np.ndarray
    loss: AnswerLoss
    shape: Shape
    payers: Payers
    rule: Rule

    @property
    def n_outputs(self) -> int:
        """Scores of a node: those that answer, and a gate's if there is more than one of those."""
        return self.loss.n_outputs + (self.loss.n_outputs > 1)

    def zero(self) -> Weights:
        """Weights of 0, and biases that answer the mean."""
        coef = np.zeros((len(self.shape), self.Z.shape[1] + 1, self.n_outputs))
        coef[:, -1, : self.loss.n_outputs] = self.loss.base()
        return Weights(coef, np.zeros(len(self.shape)))

    def take(self, rows: np.ndarray) -> Objective:
        """The objective of some of the rows, by number."""
        return replace(self, Z=self.Z[rows], loss=self.loss.take(rows))

    # ------------------------------------------------------------ rows on their way

    def routing(self, scores: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How surely each row takes each node's high side, and how surely it reaches the node, (n, n_nodes) each."""
        high = sigmoid(self.rule.slope * (scores[:, :, -1] - theta))
        reach = np.ones(high.shape)
        for k, pair in enumerate(self.shape.children):
            for side, child in zip(LOW_HIGH, pair, strict=True):
                if child > 0:
                    reach[:, child] = reach[:, k] * (high[:, k] if side else 1 - high[:, k])
        return high, reach

    def leaving(self, high: np.ndarray, reach: np.ndarray) -> np.ndarray:
        """How surely each row leaves by each exit, (n, n_exits)."""
        ways = [reach[:, k] * _side(high[:, k], side) for k, side in self.shape.exits]
        return np.stack(ways, axis=1)

    @cached_property
    def share(self) -> np.ndarray:
        """(n,) each row's share of the total weight."""
        return np.asarray(self.loss.weight / self.loss.weight.sum())

    @cached_property
    def _unit(self) -> AnswerLoss:
        """The loss of each row at each node, row weights left out."""
        y = np.repeat(self.loss.y, len(self.shape))
        return replace(self.loss, y=y, weight=np.ones(len(y)))

    @cached_property
    def _kappa(self) -> np.ndarray:
        if self.rule.by_exit:
            return np.ones(len(self.shape))
        leaves = [self.shape.is_leaf(k) for k in range(len(self.shape))]
        return np.where(leaves, 1.0, self.rule.interior)

    # ------------------------------------------------------------ value and gradient

    def __call__(self, weights: Weights) -> tuple[float, Weights]:
        """The relaxed, smoothed objective and its gradient."""
        scores = weights.scores(self.Z)
        high, reach = self.routing(scores, weights.theta)
        losses, slopes = self._losses(scores)
        value, pull_reach, pull_high, counts = self._expected(losses, high, reach)
        penalty, by_coef, by_exit, by_reach = self._penalty(weights.coef[:, :-1], high, reach)
        share = self.share
        for e, (k, side) in enumerate(self.shape.exits):
            pull_reach[:, k] += share * by_exit[e] * _side(high[:, k], side)
            if side is not None:
                pull_high[:, k] += (1 if side else -1) * share * by_exit[e] * reach[:, k]
        pull_reach += share[:, None] * by_reach
        by_route = self._backwards(pull_reach, pull_high, high, reach)
        by_score = np.zeros(scores.shape)
        by_score[:, :, : self.loss.n_outputs] = counts[:, :, None] * slopes
        by_score[:, :, -1] += by_route
        flat = by_score.reshape(len(scores), -1)
        by_column = (self.Z.T @ flat.astype(self.Z.dtype)).reshape(-1, *scores.shape[1:]).transpose(1, 0, 2)
        gradient = np.concatenate([by_column + by_coef, by_score.sum(axis=0)[:, None]], axis=1)
        return value + penalty, Weights(gradient, -by_route.sum(axis=0))

    def _losses(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Each row's loss at each node, (n, n_nodes), and its slope by the scores that answer, row weights left out."""
        at, n_outputs = scores.shape[:2], self.loss.n_outputs
        own = np.ascontiguousarray(scores[:, :, :n_outputs]).reshape(-1, n_outputs)
        return self._unit.row_loss(own).reshape(at), self._unit.value_and_slope(own)[1].reshape(*at, n_outputs)

    def _expected(
        self, losses: np.ndarray, high: np.ndarray, reach: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """The expected loss, its slopes by reach and by high side, and what each row counts at each node."""
        worth = self.share[:, None] * self._kappa * losses
        stays, slope = np.ones(high.shape), np.zeros(high.shape)
        if self.rule.by_exit:
            stays[:] = 0.0
            for k, side in self.shape.exits:
                stays[:, k] += _side(high[:, k], side)
                slope[:, k] += 0.0 if side is None else (1.0 if side else -1.0)
        counts = self.share[:, None] * self._kappa * reach * stays
        return float((counts * losses).sum()), worth * stays, worth * reach * slope, counts

    def _backwards(
        self, pull_reach: np.ndarray, pull_high: np.ndarray, high: np.ndarray, reach: np.ndarray
    ) -> np.ndarray:
        """The slope by routing scores, (n, n_nodes): what a node's children pull, from the last node to the root."""
        for k in reversed(range(len(self.shape))):
            for side, child in zip(LOW_HIGH, self.shape.children[k], strict=True):
                if child > 0:
                    pull_reach[:, k] += pull_reach[:, child] * _side(high[:, k], side)
                    pull_high[:, k] += (1 if side else -1) * pull_reach[:, child] * reach[:, k]
        return np.asarray(pull_high * self.rule.slope * high * (1 - high))

    # ------------------------------------------------------------ what weights pay

    def _penalty(
        self, weights: np.ndarray, high: np.ndarray, reach: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """Price, l1 and ridge of weights (n_nodes, n_columns, n_outputs); slopes by weight, by exit, by reach."""
        size = np.sqrt(np.square(weights) + SMOOTH)
        value = self.rule.l1 * (size - np.sqrt(SMOOTH)).sum() + 0.5 * self.rule.l2 * np.square(weights).sum()
        of_exits, of_reach = np.zeros(len(self.shape.exits)), np.zeros(len(self.shape))
        if self.rule.price:
            cost, of_exits, of_reach = self._priced(self.squares(weights), high, reach)
            value += cost
        return float(value), self.curvature(weights, high, reach) * weights, of_exits, of_reach

    def squares(self, weights: np.ndarray) -> np.ndarray:
        """(n_nodes, n_payers) sum of squares of the weights that need each payer."""
        return np.asarray((self.payers.uses @ np.square(weights).sum(axis=-1).T).T)

    def _priced(self, squares: np.ndarray, high: np.ndarray, reach: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """The relaxed cost times the price, and its slopes by each exit's and each node's mean probability."""
        cost, price, nothing = self.payers.cost, self.rule.price, np.sqrt(SMOOTH) * self.payers.cost.sum()
        if self.rule.one_bundle:
            mean = self.share @ reach
            norm = np.sqrt(np.square(mean) @ squares + SMOOTH)
            by_reach = price * mean * (squares @ (cost / norm))
            return float(price * (norm @ cost - nothing)), np.zeros(len(self.shape.exits)), by_reach
        by_exit = price * (np.sqrt(self.shape.paths @ squares + SMOOTH) @ cost - nothing)
        return float(self.share @ self.leaving(high, reach) @ by_exit), by_exit, np.zeros(len(self.shape))

    def curvature(self, weights: np.ndarray, high: np.ndarray, reach: np.ndarray) -> np.ndarray:
        """The weights of Lemma 1's quadratic, of the weights' shape: the penalty's slope is this times the weight."""
        of_weight = self.rule.l1 / np.sqrt(np.square(weights) + SMOOTH) + self.rule.l2
        if not self.rule.price:
            return np.asarray(of_weight)
        squares, cost = self.squares(weights), self.rule.price * self.payers.cost
        if self.rule.one_bundle:
            mean = self.share @ reach
            auxiliary = np.square(mean)[:, None] * (cost / np.sqrt(np.square(mean) @ squares + SMOOTH))
        else:
            mean = self.share @ self.leaving(high, reach)
            auxiliary = self.shape.paths.T @ (mean[:, None] * cost / np.sqrt(self.shape.paths @ squares + SMOOTH))
        return np.asarray(of_weight + (self.payers.uses.T @ auxiliary.T).T[:, :, None])

    # ------------------------------------------------------------ exactly

    def exact(self, weights: Weights) -> float:
        """The objective with costs that are paid or not, (10): expected loss plus price times expected cost."""
        scores = weights.scores(self.Z)
        high, reach = self.routing(scores, weights.theta)
        return self.exact_of(scores, high, reach, self.squares(weights.coef[:, :-1]) > 0)

    def costs(self, weights: Weights, pays: np.ndarray) -> tuple[float, float]:
        """The expected cost of rows as the relaxation has it, and exactly; ``pays`` as of ``exact_of``."""
        high, reach = self.routing(weights.scores(self.Z), weights.theta)
        unit = replace(self, rule=replace(self.rule, price=1.0))
        relaxed = unit._priced(self.squares(weights.coef[:, :-1]), high, reach)[0]
        return relaxed, float(
            self.share @ self.leaving(high, reach) @ ((self.shape.paths @ pays > 0) @ self.payers.cost)
        )

    def exact_of(self, scores: np.ndarray, high: np.ndarray, reach: np.ndarray, pays: np.ndarray) -> float:
        """The objective (10) of given scores; ``pays`` (n_nodes, n_payers) says what each node needs."""
        value = self._expected(self._losses(scores)[0], high, reach)[0]
        costs = (self.shape.paths @ pays > 0) @ self.payers.cost
        return value + self.rule.price * float(self.share @ self.leaving(high, reach) @ costs)


def _side(high: np.ndarray, side: int | None) -> np.ndarray:
    """How surely a row takes a side, (n,); 1 where both sides lead to the same exit."""
    if side is None:
        return np.ones(len(high))
    return high if side else 1 - high


def payers_of(columns: Sequence[Sequence[int]], costs: np.ndarray, tree_cost: float = 0.0) -> Payers:
    """Payers of columns that need these sensors each; each column also costs ``tree_cost`` where that is above 0."""
    pairs = [(s, j) for j, sensors in enumerate(columns) for s in sensors]
    if tree_cost > 0:
        pairs += [(len(costs) + j, j) for j in range(len(columns))]
        costs = np.append(costs, np.full(len(columns), tree_cost))
    rows, numbers = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return Payers(csr_array((np.ones(len(rows)), (rows, numbers)), shape=(len(costs), len(columns))), costs)
