# SPDX-License-Identifier: Apache-2.0
"""Subset cover: few sensor sets that together answer most rows, by greedy submodular maximisation.

A DAG policy uses their unions as states (Wang, Trapeznikov and Saligrama, *Efficient Learning by Directed Acyclic
Graph*, 2015, section 3). A row's reward is that of the best set for it, and sets are chosen greedily. There are two
algorithms: ``grow`` builds sets sensor by sensor (Algorithm 2 of the paper), and ``cover`` selects given sets, with a
guarantee. docs/math.md (39) to (43).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ..data.problem import Subset
from ..linear.part import make_standard
from .subset_search import SubsetSearch

COUNT = 7  # sets in addition to the set of all sensors, as in the paper
SLACK = 1e-9  # relative, of the budget: costs are floats
FREE = 1e-9  # cost that a free sensor counts as

Reward = Callable[[Subset], np.ndarray]  # from a set to the rewards of rows, (n,), from 0 to 1
MAX_SQUARED = 64  # features; with more, products are left out
REACH = 4.0  # deviations at which readings are clipped: products of outliers would dominate
RIDGE = 1e-2  # L2 penalty, relative to a standardised reading's mean square


def find_subsets(search: SubsetSearch, count: int = COUNT, budget: float | None = None) -> list[Subset]:
    """At most ``count`` sets, cheapest first, and last the set of all sensors; rewards are those of probed rows.

    Parameters
    ----------
    budget : for the sum of the sets' costs, in the user's unit; None for the cost of all sensors
    """
    everything = tuple(range(len(search.costs)))
    budget = search.cost(everything) if budget is None else budget
    weight = search.judge.weight[search.probed]
    rewards: dict[Subset, np.ndarray] = {}
    quick_reward = quick_rewards(search)

    def reward(subset: Subset) -> np.ndarray:
        if subset not in rewards:
            rewards[subset] = quick_reward(subset)
        return rewards[subset]

    grown = [s for s in grow(reward, search.costs, count, budget, weight) if s]
    pool = sorted(s for s in rewards if s)
    matrix = np.array([rewards[s] for s in pool]).reshape(len(pool), len(weight))
    costs = np.array([search.cost(s) for s in pool])
    covering = [pool[k] for k in cover(matrix, weight, costs=costs, budget=budget, count=count)]
    best = max((grown, covering), key=lambda sets: total_reward([rewards[s] for s in sets], weight))
    return [*sorted({*best} - {everything}, key=lambda s: (search.cost(s), s)), everything]


def total_reward(rewards: Sequence[np.ndarray] | np.ndarray, weight: np.ndarray) -> float:
    """Weighted mean over rows of the best reward, 0 without sets. docs/math.md (39).

    >>> total_reward(np.array([[1.0, 0.0], [0.5, 0.5]]), weight=np.array([1.0, 1.0]))
    0.75
    """
    best = np.max(rewards, axis=0) if len(rewards) else np.zeros(len(weight))
    return float(best @ weight / weight.sum())


# ---------------------------------------------------------------- growing sets


def grow(reward: Reward, costs: np.ndarray, count: int, budget: float, weight: np.ndarray) -> list[Subset]:
    """Algorithm 2: ``count`` sets, grown from empty ones by the sensor and set of the largest gain per cost.

    It ends when no sensor fits the budget or has a gain. Sets may stay empty; other sets are distinct.

    Parameters
    ----------
    costs : (n_sensors,) at least 0
    budget : for the sum of the sets' costs
    weight : (n,) row weights
    """
    sets: list[Subset] = [()] * count
    best = [reward(())] * count
    left = budget * (1 + SLACK)
    while True:
        options = []
        for i in _distinct(sets):
            others = np.max([best[k] for k in range(count) if k != i], axis=0) if count > 1 else np.zeros(len(weight))
            before = np.maximum(others, best[i])
            for j in range(len(costs)):
                new = tuple(sorted((*sets[i], j)))
                if j not in sets[i] and costs[j] <= left and new not in sets:
                    gain = float((np.maximum(others, reward(new)) - before) @ weight)
                    options.append((gain / max(costs[j], FREE), i, j, new))
        if not options:
            return sets
        value, i, j, new = max(options, key=lambda option: (option[0], -option[1], -option[2]))
        if value <= 0:
            return sets
        sets[i], best[i] = new, reward(new)
        left -= costs[j]


def _distinct(sets: Sequence[Subset]) -> list[int]:
    """The first of each group of equal sets, which have equal gains."""
    return [i for i, s in enumerate(sets) if s not in sets[:i]]


# ---------------------------------------------------------------- selecting from given sets


def cover(
    rewards: np.ndarray,
    weight: np.ndarray,
    *,
    count: int | None = None,
    costs: np.ndarray | None = None,
    budget: float | None = None,
    is_lazy: bool = True,
) -> list[int]:
    """Numbers of the selected sets, in order: the best of greedy by gain, greedy by gain per cost, and a single set.

    With only a count the reward is at least 1 - 1/e of the optimum (Nemhauser, Wolsey and Fisher 1978), with only a
    budget at least (1 - 1/e) / 2 (Leskovec et al. 2007). With both there is no guarantee.

    Parameters
    ----------
    rewards : (n_sets, n) reward of each row by each set, at least 0
    weight : (n,) row weights
    count : largest number of sets
    costs, budget : (n_sets,) at least 0, and the bound of the selected sets' total cost
    is_lazy : lazy greedy, which computes fewer gains and selects the same sets

    Examples
    --------
    >>> cover(np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.9]]), np.ones(3), count=2)
    [0, 1]
    """
    amounts = np.zeros(len(rewards)) if costs is None else np.asarray(costs, dtype=np.float64)
    limit = np.inf if budget is None else budget * (1 + SLACK)
    count = len(rewards) if count is None else count
    greedy = _lazy_greedy if is_lazy else _greedy
    selections = [greedy(rewards, weight, np.ones(len(rewards)), amounts, limit, count)]
    if costs is not None:
        selections.append(greedy(rewards, weight, np.maximum(amounts, FREE), amounts, limit, count))
        fits = [k for k in range(len(rewards)) if amounts[k] <= limit]
        if fits and count:
            selections.append([max(fits, key=lambda k: float(rewards[k] @ weight))])
    return max(selections, key=lambda sets: total_reward(rewards[sets], weight))


def _gain(rewards: np.ndarray, weight: np.ndarray, k: int, best: np.ndarray) -> float:
    return float((weight * np.maximum(rewards[k] - best, 0.0)).sum())


def _greedy(
    rewards: np.ndarray, weight: np.ndarray, per: np.ndarray, costs: np.ndarray, left: float, count: int
) -> list[int]:
    """Greedy selection by gain divided by ``per``, with all gains computed in each step."""
    best, chosen = np.zeros(len(weight)), list[int]()
    while len(chosen) < count:
        options = [
            (_gain(rewards, weight, k, best) / per[k], -k)
            for k in range(len(rewards))
            if k not in chosen and costs[k] <= left
        ]
        value, k = max(options, default=(0.0, 0))
        if value <= 0:
            break
        chosen.append(-k)
        best = np.maximum(best, rewards[-k])
        left -= costs[-k]
    return chosen


def _lazy_greedy(
    rewards: np.ndarray, weight: np.ndarray, per: np.ndarray, costs: np.ndarray, left: float, count: int
) -> list[int]:
    """Lazy greedy: gains only fall as sets are added, so an old gain bounds the new one (Minoux 1978)."""
    best, chosen = np.zeros(len(weight)), list[int]()
    heap = [(-_gain(rewards, weight, k, best) / per[k], k, 0) for k in range(len(rewards))]
    heapq.heapify(heap)
    while heap and len(chosen) < count:
        value, k, when = heapq.heappop(heap)
        if value >= 0:
            break
        if costs[k] > left:
            continue  # the remaining budget only falls
        if when < len(chosen):
            heapq.heappush(heap, (-_gain(rewards, weight, k, best) / per[k], k, len(chosen)))
            continue
        chosen.append(k)
        best = np.maximum(best, rewards[k])
        left -= costs[k]
    return chosen


# Least-squares classifiers for any sensor set, in about a millisecond, from one shared Gram matrix.
#
# The Gram matrix of standardised readings and their products is summed once over the rows on which probes train. The
# classifier of a set solves the submatrix of its features. It is a weak classifier, but each set has its own, and it is
# evaluated on rows that it has not seen. docs/math.md (43), (44).


def quick_rewards(search: SubsetSearch) -> Callable[[Subset], np.ndarray]:
    """A function of a sensor set that returns each probed row's reward by the set's classifier, (n,), from 0 to 1.

    It is the rise of the true class's probability over its share, relative to the largest possible rise. In the paper
    it is 1 where the classifier is right; then, with two classes, one set that always answers the first and one that
    always answers the second have together the full reward, although no policy can tell which is right.
    """
    problem, judge, rows = search.problem, search.judge, search.probe_train
    train = problem.train
    X, y, weight = train.X[rows], train.y[rows], train.weight[rows]
    standard = make_standard(X, weight)
    bank = QuickBank(standard.transform(X), y, problem.n_classes, weight, problem.sensor_of, problem.targets)
    expanded = bank.expand(standard.transform(judge.X[search.probed]))
    truth = judge.y[search.probed]
    share = bank.share[truth]

    def reward(subset: Subset) -> np.ndarray:
        proba = bank.chances(expanded, subset)
        rise = proba[np.arange(len(truth)), truth] - share
        return np.asarray(np.clip(rise / np.maximum(1 - share, RIDGE), 0.0, 1.0))

    return reward


class QuickBank:
    """Least-squares classifiers of one-hot labels, one per sensor set.

    Parameters
    ----------
    Z : (n, n_features) standardised readings, 0 for missing
    y : (n,) class index
    weight : (n,) row weights
    sensor_of : (n_features,) the sensor of each feature
    targets : (n_classes, n_classes) what answers are worth to cases of each class; None: 1 for the class itself, else 0

    Attributes
    ----------
    share : (n_classes,) share of each class in the total weight
    """

    def __init__(
        self,
        Z: np.ndarray,
        y: np.ndarray,
        n_classes: int,
        weight: np.ndarray,
        sensor_of: np.ndarray,
        targets: np.ndarray | None = None,
    ) -> None:
        if targets is not None:
            weight = weight * targets.sum(axis=1)[y]
            targets = targets / np.maximum(targets.sum(axis=1, keepdims=True), 1e-12)
        n_features = Z.shape[1]
        left, right = np.triu_indices(n_features) if n_features <= MAX_SQUARED else (np.zeros(0, int),) * 2
        self._pairs = left, right
        first = np.arange(n_features)
        self._needs = sensor_of[np.concatenate([first, left])], sensor_of[np.concatenate([first, right])]
        expanded = self.expand(Z)
        self._mean = np.average(expanded, axis=0, weights=weight)
        centred = (expanded - self._mean) * np.sqrt(weight)[:, None]
        target = (np.eye(n_classes) if targets is None else targets)[y]
        self.share = np.average(target, axis=0, weights=weight)
        self._gram = centred.T @ centred / weight.sum()
        self._gram[np.diag_indices_from(self._gram)] += RIDGE
        self._cross = centred.T @ ((target - self.share) * np.sqrt(weight)[:, None]) / weight.sum()

    def expand(self, Z: np.ndarray) -> np.ndarray:
        """Readings and their pairwise products, (n, n_terms)."""
        Z = np.clip(Z, -REACH, REACH)
        return np.hstack([Z, Z[:, self._pairs[0]] * Z[:, self._pairs[1]]])

    def chances(self, expanded: np.ndarray, subset: Subset) -> np.ndarray:
        """Least-squares estimates of class probabilities, (n, n_classes); they sum to 1 but may lie outside 0 to 1."""
        terms = np.flatnonzero(np.isin(self._needs[0], subset) & np.isin(self._needs[1], subset))
        if not len(terms):
            return np.tile(self.share, (len(expanded), 1))
        weights = cho_solve(cho_factor(self._gram[np.ix_(terms, terms)]), self._cross[terms])
        return np.asarray((expanded[:, terms] - self._mean[terms]) @ weights + self.share)
