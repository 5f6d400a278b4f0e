"""The method ``dag``: policies on a graph of sensor sets, over prices on cost.

States are all sets of a few sensors, or all unions of a few subsets of many (``sensor_subsets``). A price turns cost
into error, the bank says what it loses to stop in a state, and ``dag.graph_reduce`` learns every state's policy; to
forward is one more way to stop, at the chance that f0 is wrong and the price of asking it. docs/math.md (58) to (70).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hardcase_edge.program.cost import Meter, to_unit

from ...data.problem import Problem
from ...estimator import Limits, MethodClassifier
from ...linear.terms import n_terms
from ...method import Method, Params
from ...policy.front import Point, best_points
from ...policy.selection import Judge
from ...stages.nested_sets import Chains
from ...stages.subset_cover import find_subsets
from ...stages.subset_search import SubsetSearch
from ...trees.subset_classifier import classifier_kinds
from .nested import graph_prices, nested_points
from .program import dag_point
from .reduce import Graph, all_subsets, inclusion, learn_graph, unions
from .state_classifiers import KINDS, Classifier, cloud_losses, make_bank, stop_losses
from .state_policy import LEARNERS, StatePolicy, learn_state
from .state_rows import DagRows

__all__ = ["Dag", "DagClassifier", "graph_of", "has_few"]

STATES = ("greedy", "chains", "all")
FEW_SENSORS = 5  # of so many every set is a state
MAX_VALUES = 10**8  # of terms on training rows: 400 megabytes


@dataclass
class Dag:
    """A graph's bank and what learning its policies needs, for any price.

    Parameters
    ----------
    classifier : kind of the states' classifiers, one of ``state_classifiers.KINDS``
    learner : of the matches, one of ``state_policy.LEARNERS``
    is_plain : as in the paper: errors are counted, not their chances; no cut on a classifier's margin, and no tree
        gives way to one that sends all rows the same way
    n_passes : from the second on, rows count less in states that the pass before does not bring them to
    forwards : whether to ask f0 is an action
    known : a bank that is there already; None: it is made
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
        meter, states = Meter(p), rows.graph.states
        self.spent = spent = np.array([to_unit(meter.total(s, 0)) for s in states])
        self.costs = np.array([spent[t] - spent[s] for s, edges in enumerate(rows.graph.edges) for t in edges])
        asked = np.array([to_unit(meter.total({*s, *p.hpc_sensors}, 1)) for s in states]) - spent
        self.asked, self.cloud = asked, cloud_losses(rows, self.classifiers, self.is_plain)

    def learn(self, price: float) -> list[StatePolicy | None]:
        """All states' policies where a unit of cost is worth ``price`` errors."""
        rows = self.rows
        other = self.cloud + price * self.asked if self.forwards else None

        def learn(s: int, costs: np.ndarray, focus: np.ndarray) -> tuple[StatePolicy, np.ndarray]:
            return learn_state(rows, s, costs, self.margins[s], rows.weight * focus, self.learner, self.is_plain)

        return learn_graph(rows.graph, self.losses, price * self.costs, learn, other, self.n_passes, self.n_jobs)[0]

    def point(self, price: float, params: dict[str, Any]) -> Point:
        """The program that a price leads to, with its figures on the judged rows."""
        return dag_point(self.rows, self.classifiers, self.learn(price), {**params, "price": price})

    def points(self, params: Params, prices: Sequence[float]) -> list[Point]:
        """The points that the judged rows keep over prices."""
        return best_points([self.point(price, params) for price in prices])


def graph_of(search: SubsetSearch, how: str, count: int = 0) -> Graph:
    """States of a problem: "all" sets of its sensors, unions of ``count`` "greedy" ones (Algorithm 2), or "chains": the
    nested sets that the cascade and those that staged ADAPT stands on.

    States hold what costs nothing, and that is a state of its own; so is the set of all sensors. Where unions are more
    than 256, the last subsets are left out.

    Raises
    ------
    ValueError
        All sets are too many.
    """
    sensors = search.problem.sensors
    everything = tuple(range(len(sensors)))
    if how == "all":
        return all_subsets(len(sensors))
    free = tuple(s for s in everything if not any(sensors[s].cost))
    if how == "chains":
        chains = search.once(Chains)
        return inclusion([free, everything, *({*s, *free} for s in (*chains.greedy, *chains.climbed))])
    subsets = [free, everything, *({*s, *free} for s in find_subsets(search, count - 1))]
    while True:
        try:
            return unions(subsets)
        except ValueError:
            subsets = subsets[:-1]


@dataclass(eq=False, repr=False)
class DagClassifier(MethodClassifier):
    """A policy on a graph of sensor sets.

    Parameters
    ----------
    classifier : "polynomial", "trees", "forest" (size "auto", few rows), "shared" (one polynomial; a state has a part)
    learner : of the policies, "polynomial" or "trees"
    degree : of the polynomials, 1 to 3
    states : "greedy" subsets' unions, "all" sets of at most 8 sensors, or "chains": nested sensor sets, with cuts on
        margins of every kind of trees; ``classifier``, ``learner`` and ``degree`` then say nothing
    n_subsets : whose unions are states, 1 to 8
    n_passes : 1 as in the paper; with more, rows count less in states that they do not come to
    n_jobs : int or None, threads; None is one
    others : those of ``PolicyClassifier``, by name
    """

    classifier: str = "polynomial"
    learner: str = "polynomial"
    degree: int = 2
    states: str = "greedy"
    n_subsets: int = 4
    n_passes: int = 2
    n_jobs: int | None = None
    method: ClassVar[Method] = Method(name="dag", work=8, colour="#117a65", auto="always", searches_subsets=True)
    _limits: ClassVar[Limits] = {"degree": (1, 3), "n_subsets": (1, 8), "n_passes": (1, 10)}

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """States of chains with each kind of trees; of a few sensors, also every set with trees or polynomials."""
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
        kinds = [("trees", degrees[0]), *(("polynomial", degree) for degree in degrees)]
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
        """Policies over prices."""
        for name, known in (("classifier", KINDS), ("learner", tuple(LEARNERS)), ("states", STATES)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} of DagClassifier is {getattr(self, name)!r}, one of {known} is expected")
        return super().points(judge)

    def _settings(self, search: SubsetSearch) -> list[Params]:
        if self.states == "chains":
            return [params for params in self.grid(search) if params["subsets"] == "chains"]
        return [{"classifier": self.classifier, "learner": self.learner, "degree": self.degree, "subsets": self.states,
                 "count": self.n_subsets, "passes": self.n_passes}]  # fmt: skip


def has_few(problem: Problem) -> bool:
    """Whether sensors are so few that every set of them is a state."""
    return len(problem.sensors) <= FEW_SENSORS
