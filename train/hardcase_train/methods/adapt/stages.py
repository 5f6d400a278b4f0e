"""The method ``adapt-gbrt``: ADAPT-GBRT in one stage, and in several on nested sensor sets.

Nan and Saligrama (2017), Algorithm 2 and Remark 2: the composite of later stages is what an earlier one approximates.
Stages are trained backwards from f0 (``stages.nested_sets``): the last gate and low-cost model against f0, the one
before against that composite, and so on to the smallest set. Forwarding to a composite costs what the composite will
still buy, so the step over q weighs its loss and that cost at a price. Which rows end where is then cut for many prices
(``stages.rules``), and the judged rows keep the best. docs/math.md (26) to (28).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...data.problem import Problem, Subset
from ...estimator import Limits, MethodClassifier
from ...method import Method, Params
from ...policy.front import Point, best_points
from ...policy.losses import FLOOR, sigmoid
from ...policy.prices import prices
from ...policy.selection import Judge, Trained
from ...stages.nested_sets import Chains
from ...stages.rules import price_cuts
from ...stages.staged_policy import StagedPolicy
from ...stages.subset_search import SubsetSearch
from ...trees.binning import make_bins
from ...trees.boosting import TreeSettings
from ...trees.size import size_of
from .gbrt import AdaptGBRT

__all__ = ["StagedAdaptGBRT", "adapt_chain", "gammas"]

LEAST_PRICE, MOST_PRICE = 0.003, 3.0  # errors for the cost unit
LEAST_GAMMA, MOST_GAMMA = 0.3, 100.0  # mean loss for the cost unit
TRAIN_PRICE = 0.5  # mean log loss for the cost unit, while stages with gates are trained


def gammas(problem: Problem) -> list[float]:
    """Penalties on sensors, none first: mean loss for a unit of cost."""
    return [0.0, *prices(problem, max(1, problem.effort.n_gammas - 1), LEAST_GAMMA, MOST_GAMMA)]


@dataclass(eq=False, repr=False)
class StagedAdaptGBRT(MethodClassifier):
    """ADAPT-GBRT with up to a dozen stages; as a method, also with one.

    Parameters
    ----------
    n_rounds : int >= 1
        Alternations between q and a stage's gate and model.
    settings : TreeSettings, the problem's size unless given
    n_jobs : int or None, threads; None is one
    others : those of ``PolicyClassifier``, by name
    """

    n_rounds: int = 1
    settings: TreeSettings | None = None
    n_jobs: int | None = None
    method: ClassVar[Method] = Method(
        name="adapt-gbrt", work=3, colour="#c0392b", auto="always", runners=slice(1, None, 4), searches_subsets=True
    )
    _limits: ClassVar[Limits] = {"n_rounds": (1, np.inf)}

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """Several stages with gates; one stage, for every gamma and bound of the share that is forwarded."""
        effort = search.problem.effort
        chain = [list(subset) for subset in search.once(Chains).climbed]
        single = {"n_rounds": effort.gate_rounds, "trees_per_round": effort.gate_trees}
        pairs = [(gamma, p_full) for gamma in gammas(search.problem) for p_full in effort.p_fulls]
        return [{"chain": chain, "rounds": 1}, *({"gamma": g, "p_full": p, **single} for g, p in pairs)]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """The points of one model, or of a chain of them over prices."""
        if "chain" not in params:
            return AdaptGBRT(**params).points(search.judge)
        return _staged(search, [tuple(subset) for subset in params["chain"]], params["rounds"])

    def points(self, judge: Judge) -> list[Point]:
        """Policies in several stages, over prices."""
        search = SubsetSearch(judge, self.n_jobs or 1)
        return _staged(search, search.once(Chains).climbed, self.n_rounds, self.settings)


def _staged(
    search: SubsetSearch, chain: Sequence[Subset], n_rounds: int, settings: TreeSettings | None = None
) -> list[Point]:
    """The points that the judged rows keep over all prices, each with its program."""
    problem = search.problem
    staged = StagedPolicy(search.judge, chain, adapt_chain(search.judge, chain, n_rounds, settings))
    tried = price_cuts(staged, prices(problem, problem.effort.n_gate_prices, LEAST_PRICE, MOST_PRICE))
    name = StagedAdaptGBRT.method.name
    return best_points(staged.best(name, [({"rounds": n_rounds, **what}, cuts) for what, cuts in tried]))


def adapt_chain(
    judge: Judge, chain: Sequence[Subset], n_rounds: int, settings: TreeSettings | None = None
) -> list[Trained]:
    """A gate and low-cost model per set of the chain, trained from the last to the first."""
    problem, size = judge.problem, size_of(judge.problem)
    rows, n = problem.train, len(problem.train.y)
    settings = settings or size.model
    bins = make_bins(rows.X, problem.dtypes, settings.max_bins)
    costs = problem.sensor_costs()
    (price,) = prices(problem, 1, TRAIN_PRICE, TRAIN_PRICE)
    loss = -np.log(np.maximum(rows.hpc[np.arange(n), rows.y], FLOOR))
    cost = np.full(n, problem.forward_cost)
    each = max(1, size.n_trees // (1 + n_rounds))
    out: list[Trained] = []
    for subset in reversed(chain):
        spent = costs[list(subset)].sum()
        learner = AdaptGBRT(p_full=1.0, n_rounds=n_rounds, trees_per_round=each, settings=settings)
        learner.learn(judge, bins, within=subset, forward=loss + price * (cost - spent))
        out.append(learner.trained_)
        q = sigmoid(learner.unseen_[:, -1])
        loss = (1 - q) * learner.answer_loss_ + q * loss
        cost = (1 - q) * spent + q * cost
    return out[::-1]
