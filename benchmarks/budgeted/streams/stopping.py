# SPDX-License-Identifier: Apache-2.0
"""Methods that read a window until they stop: CALIMERA and ECONOMY-gamma, written anew, and two that need no paper.

All have the same classifiers, a forest for each prefix of the window, and the same chances out of fold. Each makes
rules for a range of prices of time (errors for the whole window) from two thirds of the rows, the other third measures
what they cost and how often they are right, and a coin mixes two neighbours on the hull of these points.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression

from benchmarks.budgeted import peers
from benchmarks.budgeted.frugal import drawn_by_coin, upper_hull
from benchmarks.budgeted.problem import Problem, Session
from benchmarks.budgeted.streams.windows import DRIFTS

PRICES = (0.0, *np.geomspace(0.01, 2.0, 11))  # of the whole window, in errors
GROUPS = (1, 2, 3, 5, 8, 12, 16, 20)  # of ECONOMY-gamma, whose paper tries 1 to 20
CUTS = 60
JUDGED = 3  # one row of so many measures rules


class Rule(Protocol):
    """When to stop."""

    def ends(self, t: int, p: np.ndarray) -> np.ndarray:
        """(n,) whether rows stop after segment t from 0, by the chances (n, n_classes) there."""


def stops(rule: Rule, p: np.ndarray) -> np.ndarray:
    """(n,) the segment after which each row stops, of chances (n_steps, n, n_classes); the last one at the latest."""
    out = np.full(p.shape[1], len(p) - 1)
    for t in range(len(p) - 2, -1, -1):
        out[rule.ends(t, p[t])] = t
    return out


class Early(ABC):
    """A rule for each of some prices, on the chances of all prefixes."""

    grid: tuple[float, ...] = PRICES

    @abstractmethod
    def rule(self, p: np.ndarray, y: np.ndarray, price: float) -> Rule:
        """From chances (n_steps, n, n_classes) that were given out of fold."""

    def fit(self, problem: Problem) -> None:
        """Forests, rules and the hull of their points."""
        p, y, points = self._chances(problem), problem.y, list[tuple[float, float]]()
        judge = np.random.default_rng(problem.seed).permutation(len(y)) % JUDGED == 0
        rules = [self.rule(p[:, ~judge], y[~judge], price) for price in self.grid]
        for rule in rules:
            end = stops(rule, p[:, judge])
            said = p[:, judge][end, np.arange(len(end))].argmax(axis=1)
            points.append((float((end + 1.0).mean()), float((said == y[judge]).mean())))
        hull = upper_hull(points)
        self.costs, self.rules = [points[k][0] for k in hull], [rules[k] for k in hull]

    def _chances(self, problem: Problem) -> np.ndarray:
        """(n_steps, n, n_classes) out of fold; and the models of all rows."""
        steps, self.models = range(1, len(problem.sensors) + 1), []
        out = []
        for k in steps:
            X = peers.filled(problem.X[:, problem.columns(range(k))])
            out.append(
                peers.out_of_fold(lambda: peers.forest(problem.seed), X, problem.y, problem.n_classes, problem.seed)
            )
            self.models.append(peers.forest(problem.seed).fit(X, problem.y))
        return np.array(out)

    def at(self, t: int, X: np.ndarray, n_classes: int) -> np.ndarray:
        """Chances by the segments up to t."""
        return peers.chances(self.models[t], peers.filled(X), n_classes)

    def decide(self, session: Session) -> np.ndarray:
        """Segment by segment."""
        answer = np.empty(session.n, dtype=np.int64)
        for k, rows in drawn_by_coin(self.costs, session):
            at, X = rows, np.empty((len(rows), 0))
            for t in range(len(session.problem.sensors)):
                if not len(at):
                    break
                X = np.hstack([X, session.read(t, at)])
                p = self.at(t, X, session.problem.n_classes)
                answer[at] = p.argmax(axis=1)
                is_on = ~self.rules[k].ends(t, p) if t + 1 < len(session.problem.sensors) else np.zeros(len(at), bool)
                at, X = at[is_on], X[is_on]
        return answer


# ---------------------------------------------------------------- rules that need no paper


class Until:
    """Stop after one segment, whatever was read."""

    def __init__(self, last: float) -> None:
        self.last = last

    def ends(self, t: int, p: np.ndarray) -> np.ndarray:
        """All or none."""
        return np.full(len(p), t + 1 >= self.last)


class Sure:
    """Stop where the largest chance reaches a cut."""

    def __init__(self, cut: float) -> None:
        self.cut = cut

    def ends(self, t: int, p: np.ndarray) -> np.ndarray:
        """By the largest chance."""
        return np.asarray(p.max(axis=1) >= self.cut)


class FixedPrefix(Early):
    """As many segments for each row; two numbers are mixed."""

    def fit(self, problem: Problem) -> None:
        """The grid is the numbers of segments."""
        self.grid = tuple(range(1, len(problem.sensors) + 1))
        super().fit(problem)

    def rule(self, p: np.ndarray, y: np.ndarray, price: float) -> Rule:
        """Nothing is learned."""
        return Until(price)


class ConfidenceCut(Early):
    """One cut of the largest chance for all segments."""

    grid = tuple(np.linspace(0.3, 1.001, CUTS))

    def rule(self, p: np.ndarray, y: np.ndarray, price: float) -> Rule:
        """Nothing is learned."""
        return Sure(price)


class PosteriorByHand(ConfidenceCut):
    """For the drift alone: it is told how readings are drawn, and has the true chances instead of forests."""

    grid = tuple(1 - np.geomspace(0.5, 1e-4, CUTS))

    def _chances(self, problem: Problem) -> np.ndarray:
        return np.array([self.at(t, problem.X[:, : t + 1], 2) for t in range(problem.X.shape[1])])

    def at(self, t: int, X: np.ndarray, n_classes: int) -> np.ndarray:
        """By Bayes' rule over both classes and both kinds of rows."""
        means = np.array([-d for d in DRIFTS] + [*DRIFTS])
        logs = X.sum(axis=1)[:, None] * means - (t + 1) * means**2 / 2
        each = np.exp(logs - logs.max(axis=1, keepdims=True)).reshape(len(X), 2, -1).sum(axis=2)
        return np.asarray(each / each.sum(axis=1, keepdims=True))


# ---------------------------------------------------------------- CALIMERA


class Waiting:
    """Stop where waiting is expected to cost more than it saves."""

    def __init__(self, regressors: list[KernelRidge]) -> None:
        self.regressors = regressors

    def ends(self, t: int, p: np.ndarray) -> np.ndarray:
        """By the segment's regressor."""
        return np.asarray(self.regressors[t].predict(signs(p)) > 0)


def signs(p: np.ndarray) -> np.ndarray:
    """What regressors read: the chances, how far the first is ahead of the second, and the first."""
    ordered = np.sort(p, axis=1)
    return np.column_stack([p, ordered[:, -1] - ordered[:, -2], ordered[:, -1]])


def calibrated(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Chances (n, n_classes) by a sigmoid of each class's chance, in sum 1."""
    out = np.empty(p.shape)
    for k in range(p.shape[1]):
        own = (y == k).astype(int)
        is_flat = own.min() == own.max()
        out[:, k] = own[0] if is_flat else LogisticRegression(C=1e3).fit(p[:, [k]], own).predict_proba(p[:, [k]])[:, 1]
    return out / np.maximum(out.sum(axis=1, keepdims=True), 1e-12)


def waiting_costs(costs: np.ndarray, features: list[np.ndarray]) -> list[KernelRidge]:
    """A regressor for each step but the last of what waiting costs, (n_steps, n) the cost of stopping at each.

    From the last step but one to the first, it learns the cost of the next step less that of this one. Rows for which
    it says that waiting pays take the next step's cost as their own.
    """
    costs, out = costs.copy(), list[KernelRidge]()
    for t in range(len(costs) - 2, -1, -1):
        model = KernelRidge(kernel="rbf").fit(features[t], costs[t + 1] - costs[t])
        waits = model.predict(features[t]) < 0
        costs[t, waits] = costs[t + 1, waits]
        out.insert(0, model)
    return out


class Calimera(Early):
    """CALIMERA (Bilski and Jastrzebska, Information Processing and Management 60 (5), 2023), written anew.

    The cost of stopping after t of T segments is the calibrated chance of an error and the price of time t / T. Kernel
    ridge regressions say for each step what waiting costs beyond stopping, learned from the last step to the first.
    Here a forest gives the chances out of fold, in place of the paper's ridge on random convolutions.
    """

    def rule(self, p: np.ndarray, y: np.ndarray, price: float) -> Rule:
        """Regressors."""
        time = price * np.arange(1, len(p) + 1) / len(p)
        costs = np.array([1 - calibrated(q, y).max(axis=1) for q in p]) + time[:, None]
        return Waiting(waiting_costs(costs, [signs(q) for q in p]))


# ---------------------------------------------------------------- ECONOMY-gamma


class Groups:
    """Rows are grouped by their confidence at each step, and move between groups as a Markov chain.

    Attributes
    ----------
    edges : (n_steps, n_groups - 1) of confidence, quantiles
    is_end : (n_steps, n_groups) whether no later step is expected to cost less
    """

    def __init__(self, p: np.ndarray, y: np.ndarray, price: float, n_groups: int) -> None:
        c = confidence(p)
        self.edges = np.quantile(c, np.linspace(0, 1, n_groups + 1)[1:-1], axis=1).T.reshape(len(p), -1)
        group = np.array([self.group(t, q) for t, q in enumerate(p)])
        wrong = (p.argmax(axis=2) != y).astype(float)
        moves, costs = [], []
        for t in range(len(p)):
            member = group[t] == np.arange(n_groups)[:, None]  # (n_groups, n)
            n = np.maximum(member.sum(axis=1), 1)
            costs.append(np.where(member.any(axis=1), member @ wrong[t] / n, 0.5) + price * (t + 1) / len(p))
            if t + 1 < len(p):
                to = np.stack([(member & (group[t + 1] == k)).sum(axis=1) for k in range(n_groups)], axis=1)
                moves.append(np.where(member.any(axis=1)[:, None], to / n[:, None], 1 / n_groups))
        self.is_end = never_less(np.array(costs), moves)

    def group(self, t: int, p: np.ndarray) -> np.ndarray:
        """(n,) numbers of groups."""
        return np.searchsorted(self.edges[t], confidence(p), side="right")

    def ends(self, t: int, p: np.ndarray) -> np.ndarray:
        """By the group."""
        return self.is_end[t, self.group(t, p)]


def confidence(p: np.ndarray) -> np.ndarray:
    """The first class's chance of two classes, else the largest chance."""
    return p[..., 0] if p.shape[-1] == 2 else p.max(axis=-1)


def never_less(costs: np.ndarray, moves: list[np.ndarray]) -> np.ndarray:
    """(n_steps, n_groups): whether the cost now is at most that expected at every later step.

    costs : (n_steps, n_groups) of stopping; moves : of each step but the last, (n_groups, n_groups) chances
    """
    out = np.ones(costs.shape, dtype=bool)
    for t in range(len(costs)):
        reach = np.eye(costs.shape[1])
        for later in range(t + 1, len(costs)):
            reach = reach @ moves[later - 1]
            out[t] &= costs[t] <= reach @ costs[later]
    return out


class Economy(Early):
    """ECONOMY-gamma (Achenchabe, Bondu, Cornuejols and Dachraoui, Machine Learning 110, 2021), written anew.

    A row's group at step t is an interval of its classifier's confidence: the chance of one class, or the largest
    chance of more than two (Zafar et al., DSAA 2021). The cost expected at step t + tau is the mean, over the groups
    that the Markov chain leads to in tau steps, of the share of errors there, plus the price of t + tau of T segments;
    a row stops where tau = 0 is least. The number of groups is the one of least mean cost.
    """

    def rule(self, p: np.ndarray, y: np.ndarray, price: float) -> Rule:
        """The best of some numbers of groups."""
        every = np.arange(len(y))

        def cost(rule: Groups) -> float:
            end = stops(rule, p)
            return float((p[end, every].argmax(axis=1) != y).mean() + price * (end + 1).mean() / len(p))

        return min((Groups(p, y, price, k) for k in GROUPS), key=cost)
