# SPDX-License-Identifier: Apache-2.0
"""The method ``dag``: feature-acquisition policies on a graph of sensor subsets, over prices of cost.

The states are all subsets of a few sensors, or all unions of a few subsets of many (``stages.subset_cover``). A price
converts cost into errors, the classifier bank gives the loss of stopping in a state, and ``reduce.graph_reduce`` learns
the policy of every state. Forwarding is another way to stop; it costs the probability that f0 is wrong and the price of
a request. docs/math.md (58) to (70).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ...data.problem import Problem
from ...estimator import MethodClassifier
from ...linear.terms import n_terms
from ...method import Method, Params
from ...policy.confidences import NEVER
from ...policy.front import Point, best_points
from ...policy.kinds import learned
from ...policy.prices import over_prices, prices
from ...policy.selection import Judge
from ...policy_estimator import Limits
from ...stages.kept import Keeper
from ...stages.nested_sets import Chains
from ...stages.staged_policy import TOLLS, StagedPolicy, near_cuts, shortened_cuts
from ...stages.subset_cover import find_subsets
from ...stages.subset_search import SubsetSearch
from ...stages.thresholds import FORBIDDEN, Choices, Cut, Cuts, best_way
from ...successors.reduce import Graph, all_subsets, inclusion, learn_graph, restricted, unions
from ...trees.size import n_offered
from ...trees.subset_classifier import EBM, TREES, classifier_kinds
from .program import dag_point
from .state_classifiers import KINDS, Classifier, cloud_losses, make_bank, stop_losses
from .state_policy import LEARNERS, StatePolicy, learn_state
from .state_rows import DagRows

STATES = ("greedy", "chains", "all")
FEW_SENSORS = 5  # with at most so many sensors, every subset is a state
BARRED = 10.0  # times the largest loss, the loss of forwarding from a state where the budget does not allow it
MAX_VALUES = 10**8  # of terms on training rows: 400 megabytes
LEAST_PRICE = 0.01  # errors per cost of the most expensive case
MOST_PRICE = 0.5  # errors per cost of the cheapest state; few readings prevent more


@dataclass
class Dag:
    """The classifier bank of a graph, and the losses and costs from which policies are learned for any price.

    Parameters
    ----------
    classifier : kind of the states' classifiers, one of ``state_classifiers.KINDS``
    learner : learner of the matches, one of ``state_policy.LEARNERS``
    is_plain : as in the paper: errors are counted instead of estimating their probability, there is no threshold on a
        classifier's margin, and filter trees are never replaced by a constant choice
    n_passes : number of passes; from the second on, rows weigh less in states they did not reach before
    forwards : whether forwarding to f0 is an action
    known : an existing classifier bank; None: train one

    ``spent`` is the cost of each state for each training row, (n, n_states), or (1, n_states) if items have no sizes.
    """

    rows: DagRows
    classifier: str = "polynomial"
    learner: str = "polynomial"
    is_plain: bool = False
    n_passes: int = 2
    forwards: bool = True
    n_jobs: int = 1
    known: Sequence[Classifier] | None = None

    def __post_init__(self) -> None:
        rows, p = self.rows, self.rows.problem
        self.classifiers = self.known or make_bank(rows, self.classifier, self.n_jobs)
        rows.prepare(self.learner == "polynomial", self.learner == "trees")
        self.margins = [one.margin for one in self.classifiers]
        self.losses = stop_losses(rows, self.classifiers, self.is_plain)
        states, sizes = rows.graph.states, p.train.sizes
        self.spent = spent = p.row_costs(states, sizes)
        ends = np.array([(s, t) for s, edges in enumerate(rows.graph.edges) for t in edges], dtype=np.int64)
        self.costs = spent[:, ends[:, 1]] - spent[:, ends[:, 0]] if len(ends) else np.empty((1, 0))
        self.asked = p.row_costs([(*s, *p.hpc_sensors) for s in states], sizes, 1) - spent
        self.cloud = cloud_losses(rows, self.classifiers, self.is_plain)
        self.forwards = self.forwards and p.may_forward()
        barred = np.array([not p.may_forward(s) for s in states])
        self.cloud = self.cloud + barred * BARRED * (1 + self.losses.max(initial=0.0))

    def learn(self, price: float, toll: float = 0.0) -> list[StatePolicy | None]:
        """The policies of all states when a unit of cost is worth ``price`` errors, and a forward ``toll`` more."""
        rows = self.rows
        other = self.cloud + toll + price * self.asked if self.forwards else None

        def learn(s: int, costs: np.ndarray, focus: np.ndarray) -> tuple[StatePolicy, np.ndarray]:
            return learn_state(rows, s, costs, self.margins[s], rows.weight * focus, self.learner, self.is_plain)

        return learn_graph(rows.graph, self.losses, price * self.costs, learn, other, self.n_passes, self.n_jobs)[0]

    def point(self, price: float, params: dict[str, Any], toll: float = 0.0) -> Point:
        """The policy for a price, with its program and its figures on the judged rows."""
        return dag_point(self.rows, self.classifiers, self.learn(price, toll), {**params, "price": price})

    def points(self, params: Params, prices: Sequence[float]) -> list[Point]:
        """The points over prices that are best on the judged rows."""
        share = self.rows.problem.limits.max_forward
        tolls = TOLLS if self.forwards and share is not None else TOLLS[:1]
        points = [p for toll in tolls for p in over_prices(partial(self.point, params=params, toll=toll), prices)]
        return best_points(Keeper(self.rows.problem).kept(points))


def graph_of(search: SubsetSearch, how: str, count: int = 0) -> Graph:
    """The graph of a problem's states.

    Every state contains the free sensors and keeps the budget; the free sensors alone and all sensors are states.

    Parameters
    ----------
    how : "all": all subsets; "greedy": the unions of ``count`` subsets (Algorithm 2), the last of which are dropped if
        there are more than 256 unions; "chains": the nested subsets of the cascade and of staged ADAPT

    Raises
    ------
    ValueError
        There are more than 256 subsets, with "all".
    """
    sensors = search.problem.sensors
    everything = search.problem.offered
    keeps = search.problem.is_affordable
    if how == "all":
        return restricted(all_subsets(len(sensors)), keeps)
    free = tuple(s for s in everything if not any(sensors[s].cost))
    if how == "chains":
        chains = search.once(Chains)
        priced = [s for chain in search.priced() for s in chain]
        sets = [free, everything, *({*s, *free} for s in (*chains.greedy, *chains.climbed, *priced))]
        return inclusion([s for s in sets if keeps(s)])
    subsets = [free, everything, *({*s, *free} for s in find_subsets(search, count - 1))]
    while True:
        try:
            return restricted(unions(subsets), keeps)
        except ValueError:
            subsets = subsets[:-1]


@dataclass(eq=False, repr=False)
class DagClassifier(MethodClassifier):
    """A feature-acquisition policy on a directed acyclic graph of sensor subsets.

    Parameters
    ----------
    classifier : "polynomial", "trees", "forest" (with size "auto" and few rows), or "shared" (parts of one polynomial)
    learner : learner of the states' policies, "polynomial" or "trees"
    degree : degree of the polynomials, 1 to 3
    states : "greedy": unions of greedily chosen subsets; "all": all subsets of at most 8 sensors; "chains": nested
        sensor sets. "chains" requires tree banks; ``classifier``, ``learner`` and ``degree`` are then ignored
    n_subsets : number of subsets whose unions are the states, 1 to 8
    n_passes : 1 as in the paper; with more, rows weigh less in states that they do not reach
    n_jobs : int or None, threads; None: 1
    others : those of ``PolicyClassifier``, by keyword

    Examples
    --------
    >>> model = DagClassifier(classifier="trees", states="all", costs=[1.0, 3.0, 9.0], forward_cost=20.0)
    >>> model.set_params(states="greedy", n_subsets=3).n_subsets
    3
    """

    classifier: str = "polynomial"
    learner: str = "polynomial"
    degree: int = 2
    states: str = "greedy"
    n_subsets: int = 4
    n_passes: int = 2
    n_jobs: int | None = None
    method: ClassVar[Method] = Method(
        name="dag", maturity="proven",
        against="from six sensors on it knows the sets of two chains alone, and compares margins with thresholds",
        turn=5, colour="#117a65", auto="always", searches_subsets=True, takes_values=True,
    )  # fmt: skip
    _limits: ClassVar[Limits] = {"degree": (1, 3), "n_subsets": (1, 8), "n_passes": (1, 10)}

    @classmethod
    def n_settings(cls, problem: Problem) -> int:
        few = (n_offered(problem) + problem.effort.max_degree) * has_few(problem)
        return len(classifier_kinds(problem)) + few

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """Chains with each kind of trees; for a few sensors and classes, also all subsets with trees or polynomials."""
        p = search.problem
        chains = [{"classifier": kind, "subsets": "chains"} for kind in classifier_kinds(p)]
        if not has_few(p):
            return chains
        shape = {"learner": "polynomial", "subsets": "all", "count": 0, "passes": 2}
        degrees = [
            d
            for d in range(p.effort.max_degree, 0, -1)
            if d == 1 or n_terms(len(p.features), d) * len(p.train.y) <= MAX_VALUES
        ]
        trees = [kind for kind in classifier_kinds(p) if kind.startswith((TREES, EBM))]
        kinds = [*((kind, degrees[0]) for kind in trees), *(("polynomial", degree) for degree in degrees)]
        return [*chains, *({"classifier": kind, "degree": degree, **shape} for kind, degree in kinds)]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """The points of one setting over all prices."""
        if params["subsets"] == "chains":
            return nested_points(search, graph_of(search, "chains"), params)
        graph = graph_of(search, params["subsets"], params["count"])
        rows = DagRows(search.judge, graph, params["degree"])
        how = {"n_passes": params["passes"], "is_plain": params.get("plain", False)}
        dag = Dag(rows, params["classifier"], params["learner"], **how, n_jobs=search.n_jobs)
        return dag.points(params, graph_prices(search, graph, search.problem.effort.n_graph_prices))

    def points(self, judge: Judge) -> list[Point]:
        """Points over prices."""
        for name, choices in (("classifier", KINDS), ("learner", tuple(LEARNERS)), ("states", STATES)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} of DagClassifier is {getattr(self, name)!r}; expected one of {choices}")
        return super().points(judge)

    def _settings(self, search: SubsetSearch) -> list[Params]:
        if self.states == "chains":
            return [params for params in self.grid(search) if params["subsets"] == "chains"]
        return [{"classifier": self.classifier, "learner": self.learner, "degree": self.degree, "subsets": self.states,
                 "count": self.n_subsets, "passes": self.n_passes}]  # fmt: skip


def has_few(problem: Problem) -> bool:
    """Whether the sensors are so few that every subset of them is a state, whose answers have margins."""
    return len(problem.sensors) <= FEW_SENSORS and learned(problem).has_margins


# Policies on a graph of nested sensor subsets, with a threshold on the classifier's margin in each state.
#
# Graph reduce (``reduce``) over prices, where each state learns a cut: rows with a margin above it stop, and all others
# take the same action, to a larger state or to f0. So for each price the states that rows reach form a chain, and the
# policy is a ``StagedPolicy``. docs/math.md (71).


def graph_prices(search: SubsetSearch, graph: Graph, n: int) -> list[float]:
    """Prices, errors per unit of cost, from one that buys almost everything to one that buys nothing."""
    unit = search.problem.cost_unit
    spent = [cost for state in graph.states if (cost := search.problem.sensor_costs()[list(state)].sum()) > 0]
    highest = MOST_PRICE * unit / min(spent) if spent else LEAST_PRICE
    return prices(search.problem, n, LEAST_PRICE, max(highest, LEAST_PRICE))


def nested_points(search: SubsetSearch, graph: Graph, params: Params) -> list[Point]:
    """The points over prices that are best on the judged rows, on which the cuts are learned too.

    Parameters
    ----------
    params : a setting of ``dag``; its "classifier" is the kind of trees
    """
    staged = StagedPolicy(search.judge, graph.states, search.models(graph.states, params["classifier"]))
    grid = graph_prices(search, graph, search.problem.effort.n_prices)
    policies: list[tuple[float, Cuts]] = []
    for choices in staged.learned_on:
        chains = [priced_way(staged, graph, price, choices) for price in grid]
        policies += [(price, cuts) for price, chain in zip(grid, chains, strict=True) for cuts in shortened_cuts(chain)]
        policies += near_cuts(choices, grid, chains)
    return best_points(staged.best("dag", [({**params, "price": price}, cuts) for price, cuts in policies]))


def priced_way(staged: StagedPolicy, graph: Graph, price: float, choices: Choices | None = None) -> Cuts:
    """The cuts of the stages that rows reach when a unit of cost is worth ``price`` errors; empty if all forward."""
    choices = staged.choices if choices is None else choices
    losses = np.column_stack([stage.wrong for stage in choices.stages])
    cost = np.column_stack([stage.cost for stage in choices.stages])
    edges = [cost[:, t] - cost[:, s] for s, ends in enumerate(graph.edges) for t in ends]
    other = choices.cloud_wrong[:, None] + price * (choices.cloud_cost[:, None] - cost)
    other = other + FORBIDDEN * np.array([not staged.judge.problem.may_forward(s) for s in graph.states])

    def learn(s: int, costs: np.ndarray, focus: np.ndarray) -> tuple[tuple[float, int], np.ndarray]:
        margin = choices.stages[s].margin
        cut, action = best_way(costs, margin, choices.weight * focus)
        return (cut, action), np.where(margin >= cut, 0, action)

    steps = np.column_stack(edges) if edges else np.empty((len(cost), 0))
    ways, _ = learn_graph(graph, losses, price * steps, learn, other)
    return _followed(staged, graph, ways)


def _followed(staged: StagedPolicy, graph: Graph, ways: Sequence[tuple[float, int]]) -> Cuts:
    """The cuts of the states in which rows stop, following the chain from the first state."""
    cuts: Cuts = {}
    left, s = np.ones(len(staged.choices.weight), dtype=bool), 0
    while True:
        bound, action = ways[s]
        ends = left & staged.ends(s, Cut(bound))
        if ends.any():
            cuts[s] = Cut(bound)
        left &= ~ends
        if bound <= -NEVER or not 1 <= action <= len(graph.edges[s]):
            return cuts
        s = graph.edges[s][action - 1]
