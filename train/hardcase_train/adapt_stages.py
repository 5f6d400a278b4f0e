"""ADAPT-GBRT with several stages: the composite of later stages is what an earlier one approximates.

Nan and Saligrama (2017), Remark 2. Stages are trained backwards from f0 on nested sensor sets: the last gate and
low-cost model against f0, the one before against that composite, and so on to the smallest set. Forwarding to a
composite costs what the composite will still buy, so the step over q weighs its loss and that cost at a price. Which
rows end where is then cut for many prices (``cuts``), and the judged rows keep the best.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hardcase_edge.meter import to_unit

from .adapt_gbrt import AdaptGBRT
from .binning import make_bins
from .boosting import FULL, TreeSettings
from .cuts import Choices, chance_wrong, priced_cuts
from .front import Point, best_points
from .judge import Judge, Trained
from .losses import FLOOR, sigmoid
from .staged import Staged
from .subsets import Subset

__all__ = ["PRICES", "adapt_chain", "choices", "staged_points"]

PRICES = tuple(np.geomspace(0.003, 3.0, 28))  # error for the price of all sensors together
TRAIN_PRICE = 0.5  # mean log loss for the same: of stages while they are trained


def choices(staged: Staged) -> Choices:
    """What the judged rows would meet at each stage, errors calibrated."""
    judge = staged.judge
    wrong = [
        chance_wrong(s.margin, gate, s.label == judge.y, judge.weight)
        for s, gate in zip(staged.stops, staged.gates, strict=True)
    ]
    top = np.clip(judge.hpc.max(axis=1), 1e-6, 1 - 1e-6)
    sure = np.log(top) - np.log1p(-top)
    return Choices(
        wrong=np.array(wrong),
        margin=np.array([s.margin for s in staged.stops]),
        gate=staged.gates,
        cost=np.array([s.cost for s in staged.stops]),
        cloud_wrong=chance_wrong(sure - sure.min(), None, judge.hpc_label == judge.y, judge.weight),
        cloud_cost=staged.forwarded.cost,
        weight=judge.weight,
    )


def staged_points(staged: Staged, method: str, said: dict[str, object]) -> list[Point]:
    """The points that the judged rows keep over all prices, each with its program."""
    judge = staged.judge
    total = sum(to_unit(s.cost[0]) for s in judge.problem.sensors) or 1.0
    met = choices(staged)
    points = []
    for price in PRICES:
        cuts = priced_cuts(met, price / total)
        if cuts:
            points.append(staged.point(method, {**said, "price": price / total}, cuts))
    return [staged.finish(p) for p in best_points(points)]


def adapt_chain(
    judge: Judge, chain: Sequence[Subset], n_rounds: int, trees_per_round: int, settings: TreeSettings | None = None
) -> list[Trained]:
    """A gate and low-cost model per set of the chain, trained from the last to the first."""
    problem = judge.problem
    rows, n = problem.train, len(problem.train.y)
    bins = make_bins(rows.X, problem.dtypes, (settings or FULL).max_bins)
    costs = np.array([to_unit(s.cost[0]) for s in problem.sensors])
    price = TRAIN_PRICE / (costs.sum() or 1.0)
    loss = -np.log(np.maximum(rows.hpc[np.arange(n), rows.y], FLOOR))
    cost = np.full(n, costs.sum())
    out: list[Trained] = []
    for subset in reversed(chain):
        mine = costs[list(subset)].sum()
        learner = AdaptGBRT(p_full=1.0, n_rounds=n_rounds, trees_per_round=trees_per_round, settings=settings)
        learner.learn(judge, bins, within=subset, forward=loss + price * (cost - mine))
        out.append(learner.trained_)
        p = sigmoid(learner.unseen_[:, -1])
        loss = (1 - p) * learner.answer_loss_ + p * loss
        cost = (1 - p) * mine + p * cost
    return out[::-1]
