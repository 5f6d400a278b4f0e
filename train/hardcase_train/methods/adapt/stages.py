"""ADAPT-GBRT with several stages: the composite of later stages is what an earlier one approximates.

Nan and Saligrama (2017), Remark 2. Stages are trained backwards from f0 on nested sensor sets (``chains``): the last
gate and low-cost model against f0, the one before against that composite, and so on to the smallest set. Forwarding
to a composite costs what the composite will still buy, so the step over q weighs its loss and that cost at a price.
Which rows end where is then cut for many prices (``cuts``), and the judged rows keep the best. Without alternations a
stage has no gate of its own: the cut on its model's margin is the gate. docs/math.md (26) to (28).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hardcase_edge.program.cost import to_unit

from ...data.problem import Subset
from ...estimator import Limits, PolicyClassifier
from ...policy.answers import NEVER
from ...policy.front import Point, best_points
from ...policy.losses import FLOOR, sigmoid
from ...policy.selection import Judge, Trained
from ...stages.nested_sets import Chains
from ...stages.staged_policy import Staged
from ...stages.subset_search import SubsetSearch
from ...stages.thresholds import Cut, priced_cuts
from ...trees.binning import make_bins
from ...trees.boosting import TreeSettings
from ...trees.size import size_of
from .gbrt import AdaptGBRT

__all__ = ["PRICES", "StagedAdaptGBRT", "adapt_chain", "staged_points"]

PRICES = tuple(np.geomspace(0.003, 3.0, 28).tolist())  # error for the price of forwarding
TRAIN_PRICE = 0.5  # mean log loss for the same, while stages with gates are trained


@dataclass(eq=False, repr=False)
class StagedAdaptGBRT(PolicyClassifier):
    """ADAPT-GBRT with up to a dozen stages.

    Parameters
    ----------
    n_rounds : int >= 0
        Alternations between q and a stage's gate and model; with 0 a stage's gate is the cut on its model's margin.
    settings : TreeSettings, the problem's size unless given
    n_jobs : int or None, threads; None is one
    others : those of ``PolicyClassifier``, by name
    """

    n_rounds: int = 0
    settings: TreeSettings | None = None
    n_jobs: int | None = None
    _limits: ClassVar[Limits] = {"n_rounds": (0, np.inf)}

    def points(self, judge: Judge) -> list[Point]:
        """Policies over prices."""
        search = SubsetSearch(judge, self.n_jobs or 1)
        return staged_points(search, search.once(Chains).climbed, self.n_rounds, self.settings)


def staged_points(
    search: SubsetSearch, chain: Sequence[Subset], n_rounds: int, settings: TreeSettings | None = None
) -> list[Point]:
    """The points that the judged rows keep over all prices, each with its program.

    Parameters
    ----------
    chain : nested sensor sets, smallest first
    n_rounds : alternations between q and a stage's gate and model; 0: no gates
    """
    judge = search.judge
    models = search.models(chain) if n_rounds == 0 else adapt_chain(judge, chain, n_rounds, settings)
    staged = Staged(judge, chain, models)
    cloud = judge.problem.forward_cost or 1.0
    answers = {len(chain) - 1: Cut(-NEVER)}  # where forwarding always wins: f0 alone is no policy
    prices = [price / cloud for price in PRICES]
    policies = [({"rounds": n_rounds, "price": p}, priced_cuts(staged.choices, p) or answers) for p in prices]
    return best_points(staged.best("adapt-gbrt", policies))


def adapt_chain(
    judge: Judge, chain: Sequence[Subset], n_rounds: int, settings: TreeSettings | None = None
) -> list[Trained]:
    """A gate and low-cost model per set of the chain, trained from the last to the first."""
    problem, size = judge.problem, size_of(judge.problem)
    rows, n = problem.train, len(problem.train.y)
    settings = settings or size.model
    bins = make_bins(rows.X, problem.dtypes, settings.max_bins)
    costs = np.array([to_unit(s.cost[0]) for s in problem.sensors])
    price = TRAIN_PRICE / (problem.forward_cost or 1.0)
    loss = -np.log(np.maximum(rows.hpc[np.arange(n), rows.y], FLOOR))
    cost = np.full(n, problem.forward_cost)
    each = max(1, size.n_trees // (1 + n_rounds))
    out: list[Trained] = []
    for subset in reversed(chain):
        mine = costs[list(subset)].sum()
        learner = AdaptGBRT(p_full=1.0, n_rounds=n_rounds, trees_per_round=each, settings=settings)
        learner.learn(judge, bins, within=subset, forward=loss + price * (cost - mine))
        out.append(learner.trained_)
        q = sigmoid(learner.unseen_[:, -1])
        loss = (1 - q) * learner.answer_loss_ + q * loss
        cost = (1 - q) * mine + q * cost
    return out[::-1]
