# SPDX-License-Identifier: Apache-2.0
"""FrugalML's optimiser (Chen, Zaharia and Zou, NeurIPS 2020), written anew from the paper, and single rented models.

A strategy calls one model for every row, its base; by the label that comes back, it may call a second one where the
confidence is low, and answers what that one says. The paper optimises over mixtures of such strategies. For each base
and label, the rules (which second model, up to which confidence) are points of cost and gain; a strategy takes one of
the upper hull of each label, best gain per cost first; and of all strategies of all bases, two neighbours on the hull
are mixed by a coin, so that the mean cost on training rows is the budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from benchmarks.budgeted.problem import Problem, Session, Wish

N_THRESHOLDS = 100  # per label: quantiles of the base's confidence
NEVER = -1


@dataclass(frozen=True)
class Strategy:
    """A base, and for each of its labels (second model or NEVER, largest confidence at which it is called)."""

    base: int
    rules: dict[int, tuple[int, float]]


@dataclass(frozen=True)
class _Vertex:
    cost: float
    gain: float
    second: int
    threshold: float


def upper_hull(points: list[tuple[float, float]]) -> list[int]:
    """Numbers of the points (cost, value) on the upper hull, of rising cost and rising value.

    >>> upper_hull([(0, 0), (1, 3), (2, 2), (3, 4), (2, 3.9)])
    [0, 1, 4, 3]
    """
    out: list[int] = []
    for k in sorted(range(len(points)), key=lambda k: (points[k][0], -points[k][1])):
        if out and points[k][1] <= points[out[-1]][1]:
            continue
        while len(out) > 1 and _slope(points[out[-2]], points[out[-1]]) <= _slope(points[out[-1]], points[k]):
            out.pop()
        out.append(k)
    return out


def _slope(a: tuple[float, float], b: tuple[float, float]) -> float:
    return (b[1] - a[1]) / max(b[0] - a[0], 1e-12)


class Frugal:
    """Sensors of two columns, a label and a confidence; an empty confidence counts as none."""

    def fit(self, problem: Problem) -> None:
        """The hull of all strategies."""
        self.points: list[tuple[float, float]] = []
        self.strategies: list[Strategy] = []
        for base in range(len(problem.sensors)):
            for cost, accuracy, rules in self._of_base(problem, base):
                self.points.append((cost, accuracy))
                self.strategies.append(Strategy(base, rules))
        order = upper_hull(self.points)
        self.points = [self.points[k] for k in order]
        self.strategies = [self.strategies[k] for k in order]

    def _of_base(self, problem: Problem, base: int) -> list[tuple[float, float, dict[int, tuple[int, float]]]]:
        """(mean cost, accuracy, rules) of the base alone, and then of one step more on a label's hull each."""
        labels, n = problem.X[:, 0::2], len(problem.y)
        right = labels == problem.y[:, None]
        own, sure = labels[:, base], np.nan_to_num(problem.X[:, 2 * base + 1], nan=0.0)
        steps: list[tuple[float, int, _Vertex, _Vertex]] = []
        for label in np.unique(own).astype(int).tolist():
            hull = _hull_of_label(right[own == label], sure[own == label], base, problem.costs)
            steps += [(_slope((a.cost, a.gain), (b.cost, b.gain)), label, a, b)
                      for a, b in pairwise(hull)]  # fmt: skip
        cost, accuracy, rules = problem.sensors[base].cost, float(right[:, base].mean()), dict[int, tuple[int, float]]()
        out = [(cost, accuracy, dict(rules))]
        for _, label, a, b in sorted(steps, key=lambda step: -step[0]):
            cost, accuracy = cost + (b.cost - a.cost) / n, accuracy + (b.gain - a.gain) / n
            rules[label] = (b.second, b.threshold)
            out.append((cost, accuracy, dict(rules)))
        return out

    def decide(self, session: Session) -> np.ndarray:
        """A coin for each row chooses its strategy."""
        answer = np.empty(session.n, dtype=np.int64)
        for k, rows in drawn_by_coin([c for c, _ in self.points], session):
            answer[rows] = _run(self.strategies[k], session, rows)
        return answer


def drawn_by_coin(costs: list[float], session: Session) -> list[tuple[int, np.ndarray]]:
    """Numbers of the two points of a hull that a coin mixes to meet a mean budget, and the rows of each.

    If nothing costs as little as the budget, the cheapest point has all rows.
    """
    budget, every = session.wish.budget, np.arange(session.n)
    k = int(np.searchsorted(costs, budget, side="right"))
    if k in (0, len(costs)):
        return [(min(k, len(costs) - 1), every)]
    share = (budget - costs[k - 1]) / (costs[k] - costs[k - 1])
    is_dear = np.random.default_rng([session.problem.seed, session.n]).random(session.n) < share
    return [(k - 1, every[~is_dear]), (k, every[is_dear])]


def _hull_of_label(right: np.ndarray, sure: np.ndarray, base: int, costs: np.ndarray) -> list[_Vertex]:
    """Of rows to which the base gives one label, what each rule costs and gains in all; only the upper hull."""
    order = np.argsort(sure, kind="stable")
    thresholds = np.unique(np.quantile(sure, np.linspace(0, 1, N_THRESHOLDS + 1), method="lower"))
    called = np.searchsorted(sure[order], thresholds, side="right")  # rows up to each threshold
    points = [_Vertex(0.0, 0.0, NEVER, -np.inf)]
    for second in range(right.shape[1]):
        if second != base:
            gained = np.cumsum(right[order, second].astype(float) - right[order, base])
            points += [_Vertex(n * costs[second], gained[n - 1], second, t)
                       for n, t in zip(called.tolist(), thresholds.tolist(), strict=True)]  # fmt: skip
    return [points[k] for k in upper_hull([(p.cost, p.gain) for p in points])]


def _run(strategy: Strategy, session: Session, rows: np.ndarray) -> np.ndarray:
    label, sure = session.read(strategy.base, rows).T
    answer, sure = label.astype(np.int64), np.nan_to_num(sure, nan=0.0)
    for own, (second, threshold) in strategy.rules.items():
        at = np.flatnonzero((label == own) & (sure <= threshold))
        answer[at] = session.read(second, rows[at])[:, 0].astype(np.int64)
    return answer


@dataclass(frozen=True)
class Panel:
    """APIs that are asked for every row; where their labels differ, the expert is asked, if there is one."""

    asked: tuple[int, ...]
    expert: int = NEVER


class AgreeingApis:
    """Agreement-based cascading of rented models (its rule is written anew from the paper's abstract).

    All panels of one to three APIs are tried, alone and before each expert. Labels that differ without an expert are
    answered by the member that is right most often. As with FrugalML, two panels next to each other on the hull of
    accuracy over cost are mixed by a coin.
    """

    def fit(self, problem: Problem) -> None:
        """The hull of all panels."""
        labels, k = problem.X[:, 0::2].astype(np.int64), len(problem.sensors)
        self.skill = (labels == problem.y[:, None]).mean(axis=0)
        panels = [Panel(asked, expert) for n in (1, 2, 3) for asked in combinations(range(k), n)
                  for expert in (NEVER, *range(k)) if expert not in asked and (n > 1 or expert == NEVER)]  # fmt: skip
        points = []
        for panel in panels:
            answer, differs = self._said(panel, labels)
            cost = problem.costs[list(panel.asked)].sum()
            if panel.expert != NEVER:
                answer = np.where(differs, labels[:, panel.expert], answer)
                cost += differs.mean() * problem.costs[panel.expert]
            points.append((float(cost), float((answer == problem.y).mean())))
        order = upper_hull(points)
        self.points, self.panels = [points[j] for j in order], [panels[j] for j in order]

    def _said(self, panel: Panel, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The label of the panel's best member, and whether the labels differ."""
        own = labels[:, panel.asked]
        best = max(range(len(panel.asked)), key=lambda j: self.skill[panel.asked[j]])
        return own[:, best], (own != own[:, :1]).any(axis=1)

    def decide(self, session: Session) -> np.ndarray:
        """A coin for each row chooses its panel."""
        answer = np.empty(session.n, dtype=np.int64)
        for k, rows in drawn_by_coin([c for c, _ in self.points], session):
            panel, labels = self.panels[k], np.zeros((len(rows), len(self.skill)), dtype=np.int64)
            for api in panel.asked:
                labels[:, api] = session.read(api, rows)[:, 0]
            answer[rows], differs = self._said(panel, labels)
            if panel.expert != NEVER:
                answer[rows[differs]] = session.read(panel.expert, rows[differs])[:, 0]
        return answer


class BestApi:
    """Of the models that the budget pays for every row, the one that is right most often on training rows."""

    def fit(self, problem: Problem) -> None:
        """Count right answers."""
        self.accuracy = (problem.X[:, 0::2] == problem.y[:, None]).mean(axis=0)
        self.costs = problem.costs

    def chosen(self, wish: Wish) -> int:
        """The cheapest one where none is within the budget."""
        paid = np.flatnonzero(self.costs <= wish.budget + 1e-9)
        return int(paid[np.argmax(self.accuracy[paid])]) if len(paid) else int(np.argmin(self.costs))

    def decide(self, session: Session) -> np.ndarray:
        """Its labels."""
        return session.read(self.chosen(session.wish))[:, 0].astype(np.int64)
