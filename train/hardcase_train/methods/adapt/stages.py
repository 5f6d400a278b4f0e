# SPDX-License-Identifier: Apache-2.0
"""The methods ``greedy-miser`` and ``adapt-gbrt``: boosted trees under costs, of one sensor set or in stages.

GreedyMiser uses one set of sensors for all cases and never forwards: Xu, Weinberger and Chapelle (2012), as described
by Nan and Saligrama (2017): ADAPT-GBRT when no row may be forwarded (Pfull = 0). Then q is zero, the gate is not
trained, and f1 is boosted under equation (1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from ...data.problem import Problem, Subset
from ...estimator import MethodClassifier
from ...method import Method, Params
from ...policy.answers import answer_point
from ...policy.front import Point, best_points
from ...policy.kinds import hpc_loss
from ...policy.losses import sigmoid
from ...policy.prices import prices
from ...policy.selection import Judge, Trained
from ...policy_estimator import Limits
from ...stages.nested_sets import Chains
from ...stages.staged_policy import StagedPolicy, price_cuts
from ...stages.subset_search import SubsetSearch
from ...trees.binning import Bins, make_bins
from ...trees.boosting import Ensemble, TreeSettings
from ...trees.size import size_of
from .gbrt import AdaptGBRT, Twin

FINER = 6  # gammas below those of ADAPT-GBRT, whose least one may buy a few sensors where none buys all of them
LEAST_PRICE, MOST_PRICE = 0.003, 3.0  # errors per cost unit
LEAST_GAMMA, MOST_GAMMA = 0.3, 100.0  # mean loss per cost unit
TRAIN_PRICE = 0.5  # mean log loss per cost unit, while stages with gates are trained


@dataclass(eq=False, repr=False)
class GreedyMiser(MethodClassifier):
    """A boosted low-cost model without a gate.

    Parameters
    ----------
    gamma : float >= 0
        Mean loss per unit of cost: a sensor is bought if it lowers the mean loss by more than that (equation (1)).
    n_trees : int
        The default is what ``AdaptGBRT`` grows in its first round and three alternations.
    settings : TreeSettings; None: by the problem's size
    others : those of ``PolicyClassifier``, by keyword

    Attributes
    ----------
    those of ``PolicyClassifier`` after ``fit``; after ``learn``
    trained_ : Trained, the ensemble and its scores on the judged rows
    sensors_ : list of int, the sensors that the trees read

    Examples
    --------
    >>> y = np.arange(200) % 2
    >>> X = np.column_stack([y, 1 - y, np.zeros(200)])
    >>> model = GreedyMiser(gamma=0.01, costs=[9.0, 1.0, 1.0], effort="quick", random_state=0)
    >>> model.fit(X, y).sensors_
    [1]
    """

    gamma: float = 0.0
    n_trees: int = 80
    settings: TreeSettings | None = None
    method: ClassVar[Method] = Method(
        name="greedy-miser", against="it forwards no case to f0", turn=9, colour="#27ae60", auto="raced",
        runners=slice(1, None, 2), takes_values=True,
    )  # fmt: skip
    _limits: ClassVar[Limits] = {"gamma": (0, np.inf), "n_trees": (1, np.inf)}

    @classmethod
    def n_settings(cls, problem: Problem) -> int:
        return problem.effort.n_gammas + FINER

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """The gammas of ADAPT-GBRT and halves of the least one, each with as many trees as that grows."""
        effort = search.problem.effort
        n_trees = effort.gate_trees * (1 + effort.gate_rounds)
        known = gammas(search.problem)
        least = min(gamma for gamma in known if gamma > 0)
        return [{"gamma": g, "n_trees": n_trees} for g in (*known, *(least / 2**k for k in range(1, FINER + 1)))]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """The point of one setting."""
        return cls(**params).points(search.judge)

    def points(self, judge: Judge) -> list[Point]:
        """One policy: buy the sensors that the trees read, and answer."""
        model = self.learn(judge)
        params = {"gamma": self.gamma, "sensors": model.sensors_}
        return [answer_point(judge, "greedy-miser", params, tuple(model.sensors_), model.trained_)]

    def learn(self, judge: Judge, bins: Bins | None = None) -> Self:
        """Learn from the training rows; f0 is not used."""
        problem, settings = judge.problem, self.settings or size_of(judge.problem).model
        bins = bins or make_bins(problem.train.X, problem.dtypes, settings.max_bins)
        codes = bins.transform(problem.train.X)
        prices = self.gamma * problem.sensor_costs()
        model = Twin(problem, bins, codes, np.arange(len(problem.train.y)), prices)
        model.boost(None, settings, self.n_trees)
        self.sensors_ = list(problem.affordable(model.ensemble.read()))
        if self.sensors_ != model.sensors():  # then the first that the trees have bought, as far as the budget goes
            model = Twin(problem, bins, codes, np.arange(len(problem.train.y)), prices)
            model.allow(self.sensors_)
            model.boost(None, settings, self.n_trees)
            self.sensors_ = model.sensors()

        def out_of_fold(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
            twin = Twin(problem, bins, codes, others, prices)
            twin.allow(self.sensors_)
            twin.boost(None, settings, self.n_trees)
            return twin.scores_of(codes[:, rows])[:, :-1]

        valid = model.scores_of(bins.transform(problem.valid.X))[:, :-1]
        whole = model.ensemble
        part = Ensemble(bins, whole.features, whole.base[:-1], whole.trees, whole.outputs)  # without the gate's score
        self.trained_ = judge.trained(part, valid, out_of_fold)
        return self


# ADAPT-GBRT in one stage, or in several on nested sensor sets.
#
# Nan and Saligrama (2017), Algorithm 2 and Remark 2: each stage approximates the composite of the stages after it.
# Stages are trained backwards from f0 (``stages.nested_sets``): the last gate and low-cost model against f0, the one
# before against that composite, and so on to the smallest set. Forwarding to a composite costs the sensors that the
# composite will buy, so the step over q adds that cost, at a price, to the loss. For each of many prices,
# ``stages.staged_policy`` then places the thresholds at which rows leave the stages; the points that are best on the
# judged rows are kept. docs/math.md (26) to (28).


def gammas(problem: Problem) -> list[float]:
    """Penalties on sensors, mean loss per unit of cost; the first is 0."""
    return [0.0, *prices(problem, max(1, problem.effort.n_gammas - 1), LEAST_GAMMA, MOST_GAMMA)]


@dataclass(eq=False, repr=False)
class StagedAdaptGBRT(MethodClassifier):
    """ADAPT-GBRT with up to a dozen stages; as a method, also with a single stage.

    Parameters
    ----------
    n_rounds : int >= 1
        Alternations between q and a stage's gate and model.
    settings : TreeSettings; None: by the problem's size
    n_jobs : int or None, threads; None: 1
    others : those of ``PolicyClassifier``, by keyword

    Examples
    --------
    >>> model = StagedAdaptGBRT(sensors=[[0, 1], [2]], costs=[1.0, 8.0], forward_cost=20.0, max_loss=0.005)
    >>> model.method.name, model.n_rounds
    ('adapt-gbrt', 1)
    """

    n_rounds: int = 1
    settings: TreeSettings | None = None
    n_jobs: int | None = None
    method: ClassVar[Method] = Method(
        name="adapt-gbrt", maturity="proven",
        against="its sets of sensors are nested, so no case skips one to reach a later one", turn=7,
        colour="#c0392b", auto="always", runners=slice(1, None, 4), searches_subsets=True, takes_values=True,
    )  # fmt: skip
    _limits: ClassVar[Limits] = {"n_rounds": (1, np.inf)}

    @classmethod
    def n_settings(cls, problem: Problem) -> int:
        return 1 + problem.effort.n_gammas * len(problem.effort.p_fulls)

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """Several stages with gates; and one stage for every gamma and bound of the forwarded fraction."""
        effort = search.problem.effort
        chain = [list(subset) for subset in search.once(Chains).climbed]
        single = {"n_rounds": effort.gate_rounds, "trees_per_round": effort.gate_trees}
        pairs = [(gamma, p_full) for gamma in gammas(search.problem) for p_full in effort.p_fulls]
        return [{"chain": chain, "rounds": 1}, *({"gamma": g, "p_full": p, **single} for g, p in pairs)]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """The points of a single stage, or of a chain of stages over prices."""
        if "chain" not in params:
            return AdaptGBRT(**params).points(search.judge)
        return _staged(search, [tuple(subset) for subset in params["chain"]], params["rounds"])

    def points(self, judge: Judge) -> list[Point]:
        """Points of several stages, over prices."""
        search = SubsetSearch(judge, self.n_jobs or 1)
        return _staged(search, search.once(Chains).climbed, self.n_rounds, self.settings)


def _staged(
    search: SubsetSearch, chain: Sequence[Subset], n_rounds: int, settings: TreeSettings | None = None
) -> list[Point]:
    """The points over all prices that are best on the judged rows, each with its program."""
    problem = search.problem
    staged = StagedPolicy(search.judge, chain, adapt_chain(search.judge, chain, n_rounds, settings))
    settings_and_cuts = price_cuts(staged, prices(problem, problem.effort.n_gate_prices, LEAST_PRICE, MOST_PRICE))
    name = StagedAdaptGBRT.method.name
    return best_points(staged.best(name, [({"rounds": n_rounds, **what}, cuts) for what, cuts in settings_and_cuts]))


def adapt_chain(
    judge: Judge, chain: Sequence[Subset], n_rounds: int, settings: TreeSettings | None = None
) -> list[Trained]:
    """A gate and low-cost model for each set of the chain, trained from the last set to the first."""
    problem, size = judge.problem, size_of(judge.problem)
    rows, n = problem.train, len(problem.train.y)
    settings = settings or size.model
    bins = make_bins(rows.X, problem.dtypes, settings.max_bins)
    costs = problem.row_costs(chain, rows.sizes)
    (price,) = prices(problem, 1, TRAIN_PRICE, TRAIN_PRICE)
    loss = hpc_loss(problem)
    cost = np.broadcast_to(problem.row_costs([problem.hpc_sensors], rows.sizes, 1)[:, 0], n)
    n_trees = max(1, size.n_trees // (1 + n_rounds))
    trained: list[Trained] = []
    for subset, spent in zip(reversed(chain), costs.T[::-1], strict=True):
        learner = AdaptGBRT(p_full=1.0, n_rounds=n_rounds, trees_per_round=n_trees, settings=settings)
        learner.learn(judge, bins, within=subset, forward=loss + price * (cost - spent))
        trained.append(learner.trained_)
        q = sigmoid(learner.unseen_[:, -1])
        loss = (1 - q) * learner.answer_loss_ + q * loss
        cost = (1 - q) * spent + q * cost
    return trained[::-1]
