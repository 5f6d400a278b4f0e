"""Few sensor sets that together answer most rows: what a DAG over their unions stands on.

Wang, Trapeznikov and Saligrama, *Efficient Learning by Directed Acyclic Graph* (2015), section 3: a row's reward is
that of the best set for it, and sets are found greedily. A reward needs no label: whatever says how well a set serves
each row will do. Two ways: ``grow`` builds sets sensor by sensor (their Algorithm 2), ``cover`` picks from sets that
are there, with a guarantee. docs/math.md (39) to (43).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import numpy as np

from ..data.problem import Subset
from .least_squares import quick_rewards
from .subset_search import SubsetSearch

__all__ = ["COUNT", "Reward", "cover", "find_subsets", "grow", "total_reward"]

COUNT = 7  # and the set of all sensors beside them, as in the paper
SLACK = 1e-9  # of the budget: costs are floats
FREE = 1e-9  # a sensor without a cost counts as this much

Reward = Callable[[Subset], np.ndarray]  # from a set to each row's reward, (n,), from 0 to 1


def find_subsets(search: SubsetSearch, count: int = COUNT, budget: float | None = None) -> list[Subset]:
    """At most ``count`` sets, cheapest first, and last the set of all sensors; on the rows the search has probed.

    Parameters
    ----------
    budget : of the sets' costs together, in the user's unit; None for the cost of all sensors
    """
    everything = tuple(range(len(search.costs)))
    budget = search.cost(everything) if budget is None else budget
    weight = search.judge.weight[search.probed]
    asked: dict[Subset, np.ndarray] = {}
    ask = quick_rewards(search)

    def reward(subset: Subset) -> np.ndarray:
        if subset not in asked:
            asked[subset] = ask(subset)
        return asked[subset]

    grown = [s for s in grow(reward, search.costs, count, budget, weight) if s]
    pool = sorted(s for s in asked if s)
    said = np.array([asked[s] for s in pool]).reshape(len(pool), len(weight))
    prices = np.array([search.cost(s) for s in pool])
    picked = [pool[k] for k in cover(said, weight, costs=prices, budget=budget, count=count)]
    best = max((grown, picked), key=lambda sets: _worth(sets, asked, weight))
    return [*sorted({*best} - {everything}, key=lambda s: (search.cost(s), s)), everything]


def _worth(sets: Sequence[Subset], asked: dict[Subset, np.ndarray], weight: np.ndarray) -> float:
    return total_reward([asked[s] for s in sets], weight)


def total_reward(rewards: Sequence[np.ndarray] | np.ndarray, weight: np.ndarray) -> float:
    """Weighted mean over rows of the best reward, 0 where there is no set: docs/math.md (39)."""
    best = np.max(rewards, axis=0) if len(rewards) else np.zeros(len(weight))
    return float(best @ weight / weight.sum())


# ---------------------------------------------------------------- sets that grow


def grow(reward: Reward, costs: np.ndarray, count: int, budget: float, weight: np.ndarray) -> list[Subset]:
    """Algorithm 2: ``count`` sets from nothing, each step the sensor and set of the largest gain per cost.

    Sets may stay empty; no set comes twice but the empty one. It ends where nothing fits the budget or gains.

    Parameters
    ----------
    costs : (n_sensors,) from 0
    budget : of the sets' costs together
    weight : (n,) of the rows
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
    """The first of equal sets: what one gains, the other would."""
    return [i for i, s in enumerate(sets) if s not in sets[:i]]


# ---------------------------------------------------------------- sets that are there


def cover(
    rewards: np.ndarray,
    weight: np.ndarray,
    *,
    count: int | None = None,
    costs: np.ndarray | None = None,
    budget: float | None = None,
    is_lazy: bool = True,
) -> list[int]:
    """Which sets to take, in the order taken: the best of greedy by gain, by gain per cost, and one set alone.

    With a count alone the reward is at least 1 - 1/e of the best possible (Nemhauser, Wolsey and Fisher 1978); with a
    budget alone at least (1 - 1/e) / 2 (Leskovec et al. 2007). With both it keeps both, without a guarantee.

    Parameters
    ----------
    rewards : (n_sets, n) each row's reward by each set, from 0
    weight : (n,) of the rows
    count : sets at most
    costs, budget : (n_sets,) from 0, and what those taken may cost together
    is_lazy : gains are computed only where an older, larger gain asks for it; the sets are the same
    """
    prices = np.zeros(len(rewards)) if costs is None else np.asarray(costs, dtype=np.float64)
    most = np.inf if budget is None else budget * (1 + SLACK)
    count = len(rewards) if count is None else count
    walk = _lazy if is_lazy else _plain
    tried = [walk(rewards, weight, np.ones(len(rewards)), prices, most, count)]
    if costs is not None:
        tried.append(walk(rewards, weight, np.maximum(prices, FREE), prices, most, count))
        fits = [k for k in range(len(rewards)) if prices[k] <= most]
        if fits and count:
            tried.append([max(fits, key=lambda k: float(rewards[k] @ weight))])
    return max(tried, key=lambda picked: total_reward(rewards[picked], weight))


def _gain(rewards: np.ndarray, weight: np.ndarray, k: int, best: np.ndarray) -> float:
    return float((weight * np.maximum(rewards[k] - best, 0.0)).sum())


def _plain(
    rewards: np.ndarray, weight: np.ndarray, per: np.ndarray, prices: np.ndarray, left: float, count: int
) -> list[int]:
    """Greedy with every gain computed at every step."""
    best, picked = np.zeros(len(weight)), list[int]()
    while len(picked) < count:
        options = [
            (_gain(rewards, weight, k, best) / per[k], -k)
            for k in range(len(rewards))
            if k not in picked and prices[k] <= left
        ]
        value, k = max(options, default=(0.0, 0))
        if value <= 0:
            break
        picked.append(-k)
        best = np.maximum(best, rewards[-k])
        left -= prices[-k]
    return picked


def _lazy(
    rewards: np.ndarray, weight: np.ndarray, per: np.ndarray, prices: np.ndarray, left: float, count: int
) -> list[int]:
    """The same sets with few gains: a gain only falls as sets are added, so an old one bounds the new (Minoux 1978)."""
    best, picked = np.zeros(len(weight)), list[int]()
    heap = [(-_gain(rewards, weight, k, best) / per[k], k, 0) for k in range(len(rewards))]
    heapq.heapify(heap)
    while heap and len(picked) < count:
        value, k, when = heapq.heappop(heap)
        if value >= 0:
            break
        if prices[k] > left:
            continue  # the budget left only falls
        if when < len(picked):
            heapq.heappush(heap, (-_gain(rewards, weight, k, best) / per[k], k, len(picked)))
            continue
        picked.append(k)
        best = np.maximum(best, rewards[k])
        left -= prices[k]
    return picked
