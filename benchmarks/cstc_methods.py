# SPDX-License-Identifier: Apache-2.0
"""What ``benchmarks/cstc.py`` compares: trees of classifiers, their peers, and policies over nested sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from hardcase_train.data.problem import Problem
from hardcase_train.estimator import MethodClassifier
from hardcase_train.method import Params
from hardcase_train.methods.adapt.stages import GreedyMiser, gammas
from hardcase_train.methods.baselines.cascade import ConfidenceCascade
from hardcase_train.methods.baselines.static import StaticSubset
from hardcase_train.methods.boosted.adaboost_rs import ResampledAdaBoost
from hardcase_train.methods.boosted.stage_wise import StageWiseRegression
from hardcase_train.methods.cstc.and_or import AndOr
from hardcase_train.methods.cstc.cost_tree import CostSensitiveTree
from hardcase_train.methods.cstc.greedy_tree import GreedyTree
from hardcase_train.methods.graph.dag import DagClassifier, nested_points
from hardcase_train.policy.front import Point
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.nested_sets import Chains
from hardcase_train.stages.priced_sets import PricedSets
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.successors.reduce import inclusion
from hardcase_train.sweep.train import screen
from hardcase_train.trees.boosting import TreeSettings

LARGEST = 64  # sensors of a priced set that is trained
TREE_SHARES = (0.1, 0.25, 1.0)  # of the boosted trees of a model, where each tree costs
N_TREES = (5, 10, 20, 40, 80)  # of GreedyMiser, where each tree costs
N_SUBSETS = 6  # of a graph; the 8 of the paper give 121 states here, which take 22 s for each price
FEW_LEAVES = "greedy-miser, 8 leaves"  # where relevances are noisy, smaller trees than those of the problem's size
EIGHT = TreeSettings(learning_rate=0.2, max_leaves=8, max_depth=3, min_rows=20, l2=1.0, max_bins=64)
N_GAMMAS = 25  # of these

Run = Callable[[Problem, SubsetSearch], list[Point]]


def judge_like(search: SubsetSearch, problem: Problem) -> Judge:
    """Judges a problem by the rows by which the search is judged: crossed, or of validation alone."""
    return Judge(problem, is_alone=not search.judge.is_crossed)


def tree(**params: Any) -> Run:
    """A tree of classifiers on all sensors."""
    return lambda problem, search: CostSensitiveTree(**params).points(search.judge)


def on_trees(is_free: bool = False, l1s: tuple[float, ...] = (0.0,), **params: Any) -> Run:
    """A tree of classifiers on the outputs of boosted trees, zeros kept; ``is_free``: sensors seem free in training."""

    def run(problem: Problem, search: SubsetSearch) -> list[Point]:
        free = tuple(replace(sensor, cost=(0,)) for sensor in problem.sensors)
        own = replace(problem, sensors=free) if is_free else problem
        made = [CostSensitiveTree(depth=2, columns="trees", tuning="zeros", l1=l1, **params) for l1 in l1s]
        return [p for model in made for p in model.points(judge_like(search, own))]

    return run


def grid(method: type[MethodClassifier]) -> Run:
    """All settings of a method, as a sweep has them."""
    return lambda problem, search: [p for params in method.grid(search) for p in method.run(search, params)]


def shared(run: Run) -> Run:
    """The points of smaller and larger ensembles."""

    def runs(problem: Problem, search: SubsetSearch) -> list[Point]:
        points = []
        for share in TREE_SHARES if not problem.kind.has_classes or problem.train.group is not None else (1.0,):
            own = replace(problem, effort=replace(problem.effort, tree_share=share))
            points += run(own, SubsetSearch(judge_like(search, own), 1))
        return points

    return runs


def priced(search: SubsetSearch, name: str) -> list[tuple[int, ...]]:
    """The nested sets from prices that are small enough to be trained."""
    return [s for s in getattr(search.once(priced_sets), name) if len(s) <= LARGEST]


def priced_sets(search: SubsetSearch) -> PricedSets:
    """Also of fewer sensors than ``SubsetSearch.priced`` asks for."""
    return PricedSets(search.problem)


def static_sets(problem: Problem, search: SubsetSearch) -> list[Point]:
    """Boosted trees on each set from prices."""
    sets = [{"sensors": list(s), "classifier": "trees"} for s in priced(search, "plain")]
    return [p for params in sets for p in StaticSubset.run(search, params)]


def staged(name: str) -> Run:
    """Priced cuts over nested sets from prices; of values, without a stage that is sure of nothing."""

    def run(problem: Problem, search: SubsetSearch) -> list[Point]:
        chain = priced(search, name)
        states = [(), problem.offered, *chain] if len(problem.offered) <= LARGEST else [(), *chain]
        return nested_points(search, inclusion(list(dict.fromkeys(states))), {"classifier": "trees"})

    return run


def levels(problem: Problem, search: SubsetSearch) -> list[Point]:
    """The method ``cascade`` over the same sets: one confidence for all stages."""
    chain = [list(s) for s in priced(search, "plain")]
    return ConfidenceCascade.run(search, {"chain": chain, "classifier": "trees"})


def searched(problem: Problem, search: SubsetSearch) -> list[Point]:
    """The cascade over the sets of the greedy search, on the sensors that screening keeps."""
    kept, _ = screen(problem)
    own = SubsetSearch(judge_like(search, kept), 1)
    chain = [list(s) for s in own.once(Chains).greedy]
    return ConfidenceCascade.run(own, {"chain": chain, "classifier": "trees"})


def miser(problem: Problem, search: SubsetSearch) -> list[Point]:
    """GreedyMiser over its gammas and, where a tree costs, over numbers of trees."""
    settings: list[Params] = GreedyMiser.grid(search)
    if problem.train.group is not None:
        settings = [{**params, "n_trees": n} for params in settings for n in N_TREES]
    return [p for params in settings for p in GreedyMiser.run(search, params)]


def few_leaves(problem: Problem, search: SubsetSearch) -> list[Point]:
    """GreedyMiser with trees of 8 leaves, over more gammas."""
    known = gammas(replace(problem, effort=replace(problem.effort, n_gammas=N_GAMMAS)))
    models = [GreedyMiser(gamma=gamma, n_trees=n, settings=EIGHT) for gamma in known for n in N_TREES]
    return [p for model in models for p in model.points(search.judge)]


def graph(problem: Problem, search: SubsetSearch, **params: Any) -> list[Point]:
    """A graph of the unions of subsets by Algorithm 2 of Wang et al. (2015), and of all sensors, of degree 2."""
    kinds = {"classifier": "polynomial", "learner": "polynomial", "degree": 2}
    return DagClassifier.run(search, {**kinds, "subsets": "greedy", "count": N_SUBSETS, **params})


METHODS: dict[str, Run] = {
    "stage-wise": grid(StageWiseRegression),
    "single": tree(depth=0),
    "single, trees answer": shared(tree(depth=0, leaves="trees")),
    "cstc-1": tree(depth=1),
    "cstc-2": tree(depth=2),
    "cstc-2, interior 0.1": tree(depth=2, interior=0.1),
    "cstc-2, slope 3": tree(depth=2, slope=3.0),
    "cstc-2, node by node": tree(depth=2, descent="nodes"),
    "cstc-3, pruned": tree(depth=3, structure="pruned"),
    "cstc-3, grown": tree(depth=3, structure="grown"),
    "cstc-2, zeros kept": tree(depth=2, tuning="zeros"),
    "cstc-2, trees answer": shared(tree(depth=2, leaves="trees")),
    "cstc-2, on trees": on_trees(tree_cost=1.0),
    "cstc-2, on trees, sensors' cost only": on_trees(),
    "cstc-2, on trees, trees' cost only": on_trees(is_free=True, tree_cost=1.0),
    "cstc-2, on trees, no cost": on_trees(is_free=True, l1s=(0.0, 1e-4, 1e-3, 1e-2)),
    "cstc-2, on trees, other rho": on_trees(tree_cost=1.0, l1s=(1e-5, 1e-4, 1e-3, 1e-2)),
    "cscc-4": tree(shape="cascade", depth=3),
    "cronus-4": tree(shape="cronus", depth=3),
    "astc-2": grid(GreedyTree),
    "dag": grid(DagClassifier),
    "dag, unions of 6 sets": partial(graph, passes=2),
    "dag, unions of 6 sets, as in the paper": partial(graph, passes=1, plain=True),
    "and-or": grid(AndOr),
    "adaboost-rs": grid(ResampledAdaBoost),
    "static": shared(static_sets),
    "cascade": shared(levels),
    "staged": shared(staged("plain")),
    "staged, sets for the rows that come": shared(staged("onward")),
    "cascade, searched sets": searched,
    "greedy-miser": miser,
    FEW_LEAVES: few_leaves,
}
