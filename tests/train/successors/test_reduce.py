# SPDX-License-Identifier: Apache-2.0
"""Graph reduce reaches what no policy beats, comes nearer with more rows, and needs nothing but losses and costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hardcase_train.linear.logistic import Design, logistic
from hardcase_train.methods.graph.filter_tree import bracket_of, learn_matches
from hardcase_train.successors.reduce import Graph, all_subsets, graph_reduce, inclusion, reach_of, unions

# a policy: None to stop, or a sensor and the policies behind its two values
Tree = tuple[int, Any, Any] | None


def table_learner(graph: Graph, X: np.ndarray):
    """Exact on features of few values: rows that look alike in a state decide a match together."""

    def learn(s: int, costs: np.ndarray):
        state = list(graph.states[s])
        cell = np.unique(X[:, state], axis=0, return_inverse=True)[1].ravel() if state else np.zeros(len(X), dtype=int)

        def matches(numbers, label, weight):
            votes = [np.bincount(cell, w * (2 * y - 1)) for y, w in zip(label, weight, strict=True)]
            return np.array([v[cell] for v in votes])

        return None, learn_matches(costs, np.ones(len(X)), bracket_of(costs.shape[1]), matches)

    return learn


def every_policy(bought: frozenset[int], n: int) -> Iterator[Tree]:
    """All decision trees over sensors of two values."""
    yield None
    for s in set(range(n)) - bought:
        behind = list(every_policy(bought | {s}, n))
        for low in behind:
            for high in behind:
                yield s, low, high


def walk(tree: Tree, X: np.ndarray, graph: Graph, losses: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """What each row costs under a policy."""
    place = {frozenset(s): k for k, s in enumerate(graph.states)}
    out = np.zeros(len(X))

    def go(tree: Tree, rows: np.ndarray, bought: frozenset[int]) -> None:
        here = place[bought]
        if tree is None:
            out[rows] += losses[rows, here]
            return
        after = bought | {tree[0]}
        edge = graph.first_edge[here] + graph.edges[here].index(place[after])
        out[rows] += costs[rows, edge]
        for value, below in enumerate(tree[1:]):
            go(below, rows[X[rows, tree[0]] == value], after)

    go(tree, np.arange(len(X)), frozenset())
    return out


def toy(seed: int, n: int = 60) -> tuple[np.ndarray, Graph, np.ndarray, np.ndarray]:
    """Three sensors of two values; losses and costs of each row drawn at will."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, (n, 3))
    graph = all_subsets(3)
    looks = X @ (1, 2, 4)  # what all sensors say: rows that look alike share most of their losses
    losses = rng.random((8, 8))[looks] * np.linspace(1.5, 0.5, 8) + 0.2 * rng.random((n, 8))
    costs = rng.random((n, graph.first_edge[-1])) * 0.1
    return X, graph, losses, costs


@pytest.mark.parametrize("seed", range(5))
def test_with_an_exact_learner_no_policy_costs_less(seed):
    X, graph, losses, costs = toy(seed)
    _, _, value = graph_reduce(graph, losses, costs, table_learner(graph, X))
    policies = list(every_policy(frozenset(), 3))
    assert len(policies) == 1 + 3 * (1 + 2 * (1 + 1) ** 2) ** 2  # all that are possible
    least = min(walk(p, X, graph, losses, costs).mean() for p in policies)
    assert value[:, 0].mean() == pytest.approx(least, abs=1e-12)


def test_some_of_these_problems_are_not_settled_at_the_root():
    kinds = set()
    for seed in range(5):
        X, graph, losses, costs = toy(seed)
        _, choices, _ = graph_reduce(graph, losses, costs, table_learner(graph, X))
        kinds.add(int(reach_of(graph, choices).any(axis=0).sum()))
    assert max(kinds) > 3


def test_edges_cost_what_the_learned_policy_does_not_what_an_oracle_would():
    graph = all_subsets(1)
    losses = np.array([[0.4, 0.0], [0.4, 1.0]])  # with the sensor one row is right, one is wrong, and they look alike
    blind = np.zeros((2, 1), dtype=int)
    other = np.full((2, 2), 0.6)  # from the full state one may also stop so
    _, choices, value = graph_reduce(graph, losses, np.zeros(1), table_learner(graph, blind), other)
    assert choices[1].tolist() == [0, 0]  # 0.5 on the mean; an oracle would take 0.0 and 0.6, which are 0.3
    assert value[:, 1].tolist() == [0.0, 1.0]
    assert choices[0].tolist() == [0, 0]  # so stopping at 0.4 is better


def test_costs_may_rise_with_time():
    """The second purchase costs ten times the first: costs that depend on what has been bought before."""
    graph = all_subsets(2)
    n = 4
    losses = np.tile([1.0, 0.5, 0.5, 0.0], (n, 1))
    blind = np.zeros((n, 2), dtype=int)
    for later, ends in ((0.04, 3), (0.6, 1)):
        costs = np.array([0.05, 0.06, later, later])
        _, choices, _ = graph_reduce(graph, losses, costs, table_learner(graph, blind))
        reach = reach_of(graph, choices)
        assert reach[:, ends].all(), later
        assert reach[:, 3].any() == (ends == 3)


def test_costs_may_depend_on_the_row():
    X = np.array([[0], [0], [1], [1]])
    graph = unions([(0,), (1,)])
    values = np.hstack([X, X])
    losses = np.tile([1.0, 0.5, 0.3, 0.0], (4, 1))
    costs = np.zeros((4, graph.first_edge[-1]))
    second = graph.first_edge[1] + graph.edges[1].index(3)
    costs[:, second] = np.where(X[:, 0] == 1, 0.9, 0.1)  # the second sensor is dear where the first one says 1
    costs[:, 1] = 2.0  # not the second at first
    _, choices, _ = graph_reduce(graph, losses, costs, table_learner(graph, values))
    reach = reach_of(graph, choices)
    assert reach[:, 1].all()
    assert reach[:, 3].tolist() == [True, True, False, False]


def test_a_regression_is_learned_from_its_squared_errors():
    """The first sensor says the size of what the second would tell: no labels, no classes, only losses."""
    rng = np.random.default_rng(0)
    spread = rng.integers(0, 2, 400)
    target = spread * rng.normal(size=400)
    losses = np.column_stack(
        [target**2, target**2, np.zeros(400), np.zeros(400)]
    )  # of saying 0, or what sensor 1 reads
    graph = all_subsets(2)
    X = np.column_stack([spread, np.sign(target)])
    costs = np.array([0.05 if 0 in graph.states[t] else 0.5 for s in range(4) for t in graph.edges[s]])
    costs = np.array([0.05, 0.9, 0.3, 0.05])  # first; second at once; second behind first; first behind second
    _, choices, value = graph_reduce(graph, losses, costs, table_learner(graph, X))
    reach = reach_of(graph, choices)
    assert reach[:, 1].all()
    assert reach[:, 3].tolist() == (spread == 1).tolist()
    assert value[:, 0].mean() < min(losses[:, 0].mean(), 0.9)


# ---------------------------------------------------------------- consistency


def risk_of(n: int, seed: int) -> float:
    """Excess over the best policy's risk, on fresh rows, of policies learned from n rows by degree-2 polynomials.

    One sensor a in (-1, 1); with it the answer is wrong with chance a * a, without it with chance 0.25; a second way
    to stop is wrong with chance 0.1 and costs 0.2. It pays to buy a for 0.02, and to stop so where a * a > 0.3.
    """
    rng = np.random.default_rng(seed)
    graph = all_subsets(1)
    a, test = rng.uniform(-1, 1, n), rng.uniform(-1, 1, 20_000)

    def known(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        chance = np.column_stack([np.full(len(x), 0.25), x * x])
        return chance, np.full((len(x), 2), 0.3)

    chance, other = known(a)
    losses = (rng.random(chance.shape) < chance).astype(float)
    fresh, others = known(test)
    spent = np.empty(fresh.shape)

    def learn(s: int, costs: np.ndarray) -> tuple[Any, np.ndarray]:
        """On the rows that are learned from; what it does with fresh rows goes into ``spent``."""

        def values(x: np.ndarray) -> np.ndarray:
            return np.array([np.ones(len(x)), x, x * x] if s else [np.ones(len(x))], dtype=np.float32)

        design = Design(values(a), values(a) @ values(a).T / n)
        learned: dict[int, np.ndarray] = {}

        def matches(numbers, label, weight):
            coef = logistic(design, label, weight, 1, 1.0 / n)[:, 0]
            learned.update(zip(numbers, coef, strict=True))
            return coef @ design.values

        bracket = bracket_of(costs.shape[1])
        choice = learn_matches(costs, np.ones(n), bracket, matches)
        given = [fresh[:, s], *(0.02 + spent[:, t] for t in graph.edges[s]), others[:, s]]
        scores = np.array([learned[m] @ values(test) for m in range(len(bracket))])
        who = list(np.tile(np.arange(len(given))[:, None], len(test)))
        for m, (x, y) in enumerate(bracket):
            who.append(np.where(scores[m] > 0, who[y], who[x]))
        spent[:, s] = np.column_stack(given)[np.arange(len(test)), who[-1]]
        return None, choice

    graph_reduce(graph, losses, np.array([0.02]), learn, other)
    best = 0.02 + np.minimum(test**2, 0.3).mean()
    return float(spent[:, 0].mean() - best)


def test_the_excess_risk_falls_with_the_rows():
    excess = [np.mean([risk_of(n, seed) for seed in range(12)]) for n in (30, 300, 3000)]
    assert excess[0] > 2 * excess[1] > 4 * excess[2]
    assert 0 <= excess[2] < 0.003


# ---------------------------------------------------------------- graphs


def test_all_subsets_of_three_are_eight_states_and_twelve_edges():
    graph = all_subsets(3)
    assert graph.states == ((), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2))
    assert graph.edges[0] == (1, 2, 3)
    assert sum(map(len, graph.edges)) == 12
    assert graph.levels == [[7], [4, 5, 6], [1, 2, 3], [0]]


def test_unions_of_nested_subsets_are_a_chain_that_may_be_skipped_along():
    graph = unions([(2,), (2, 5), (2, 5, 1)])
    assert graph.states == ((), (2,), (2, 5), (1, 2, 5))
    assert graph.edges == ((1, 2, 3), (2, 3), (3,), ())


def test_no_edge_leads_to_its_own_level_and_none_back():
    rng = np.random.default_rng(1)
    graph = unions([tuple(rng.choice(20, 4, replace=False).tolist()) for _ in range(6)])
    level = {s: k for k, states in enumerate(graph.levels) for s in states}
    assert all(level[t] < level[s] and t > s for s, edges in enumerate(graph.edges) for t in edges)
    assert all(set(graph.states[s]) < set(graph.states[t]) for s, edges in enumerate(graph.edges) for t in edges)


def test_eight_subsets_are_allowed_and_nine_that_share_nothing_are_not():
    assert len(all_subsets(8).states) == 256
    with pytest.raises(ValueError, match="more than 256 states"):
        all_subsets(9)


def test_an_edge_of_inclusion_has_no_state_between():
    graph = inclusion([(0, 1), (1,), (0, 1, 2), (0, 2), (1,)])
    assert graph.states == ((), (1,), (0, 1), (0, 2), (0, 1, 2))
    assert graph.edges == ((1, 3), (2,), (4,), (4,), ())
    assert inclusion(all_subsets(3).states) == all_subsets(3)
