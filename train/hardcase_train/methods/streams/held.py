# SPDX-License-Identifier: Apache-2.0
"""The method ``held``: hold the label of the last purchase, and buy again when it is probably wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hardcase_edge.batch.choices import classes_of
from hardcase_edge.program.definition import Program
from hardcase_edge.stream.layout import Layout

from ...data.memory import with_memory
from ...data.problem import N_FOLDS, Problem, Subset
from ...estimator import MethodClassifier
from ...method import Method, Params
from ...policy.answers import answer_point
from ...policy.compile import compile_bare
from ...policy.front import Point, best_points
from ...policy.losses import ClassLoss
from ...policy.selection import Judge, Trained
from ...stages.subset_search import SubsetSearch
from ...trees.binning import make_bins
from ...trees.boosting import Ensemble, TreeSettings, boost, ensemble_scores
from ...trees.subset_classifier import classifier_kinds
from .duty_cycle import full_sets, some
from .held_label import HeldLabel, TooOld
from .nodes import CASE, Holding, hold_nodes
from .states import LONGEST, States, random_states

__all__ = ["Held"]

SETTINGS = TreeSettings(learning_rate=0.1, max_leaves=16, max_depth=5, min_rows=100, l2=1.0, max_bins=64)
N_TREES = 80
SHARES = (0.02, 0.04, 0.06, 0.08, 0.11, 0.14, 0.18, 0.22, 0.27, 0.33, 0.4, 0.5, 0.65, 0.8)  # of states that would buy
MOST_CHEAP = 3
DEAR = 0.5  # of the cost of the whole set: what is watched in each window costs less


@dataclass(eq=False, repr=False)
class Held(MethodClassifier):
    """Watches cheap sensors in every window, and buys the others when the held label is probably wrong.

    A boosted model scores how probable that is from the cheap readings, how far they have moved since the last
    purchase, the held label and its age. It is trained on random gaps, with held labels of copies that have not seen
    the window, or, where validation rows alone are judged and there are no copies, with true ones. docs/math.md (136)
    to (138). Rows without an order have no window before them: ``fit`` then buys for each row.

    Parameters
    ----------
    n_jobs : int or None, threads; None: 1
    others : those of ``PolicyClassifier``, by keyword
    """

    n_jobs: int | None = None
    method: ClassVar[Method] = Method(
        name="held", colour="#0e6655", auto="always", is_halved=False, searches_subsets=True, needs_order=True, work=3
    )

    @classmethod
    def n_settings(cls, problem: Problem) -> int:
        return MOST_CHEAP * 4

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """One setting per set that answers anew and cheaper set below it that is watched."""
        kind, is_ordered = classifier_kinds(search.problem)[0], search.problem.is_ordered
        pairs = [(s, c) for s in full_sets(search) for c in (_watched(search, s) if is_ordered else [()])]
        return [{"sensors": list(s), "cheap": list(cheap), "classifier": kind} for s, cheap in pairs]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """Points over thresholds."""
        problem, judge = search.problem, search.judge
        bought, cheap = tuple(params["sensors"]), tuple(params["cheap"])
        (whole,) = search.models([bought], params["classifier"], are_cut=False)
        if not problem.is_ordered:
            return [answer_point(judge, cls.method.name, dict(params), bought, whole)]
        rest = tuple(s for s in bought if s not in cheap)
        watched = [f for s in cheap for f in problem.sensors[s].features]
        bare, memory = with_memory(problem, rest, watched)
        states, gain = _training(bare, memory, judge, whole)
        doubts = [_doubt(bare, memory, watched, states, gain, judge, k) for k in [*range(N_FOLDS), None]]
        held = HeldLabel(memory.held[0], problem.n_classes, problem.majority)
        old = TooOld(tuple(f for f, _ in memory.since), LONGEST)
        copies = doubts if judge.is_crossed else doubts[-1:]
        programs = [compile_bare(bare, (whole.part, held, old, doubt)) for doubt, _ in copies]
        parts = (whole.part, held, old, doubts[-1][0])
        holding = Holding(judge, whole, bare, memory, programs, parts)
        scores = np.concatenate([s for _, s in doubts[:-1]])
        cuts = dict.fromkeys(np.quantile(scores, [1 - share for share in some(SHARES, problem)]).tolist())
        points = [
            holding.point(
                cls.method.name,
                {**params, "threshold": cut},
                hold_nodes(problem, memory.sensor, cheap, rest, [(2, 0.0), (3, cut)], CASE + 1),
            )
            for cut in cuts
        ]
        return best_points(points)


def _watched(search: SubsetSearch, bought: Subset) -> list[Subset]:
    """Few cheap sets below this one: nothing, the cheapest sensor, and the promising ones."""
    below = {s for s in search.walked() if s and set(s) < set(bought)}
    if len(bought) > 1:
        below.add((min(bought, key=lambda s: (search.costs[s], s)),))
    fitting = [s for s in below if search.cost(s) <= DEAR * search.cost(bought)]
    return [(), *sorted(fitting, key=lambda s: (search.losses([s])[0], s))[:MOST_CHEAP]]


def _training(bare: Program, memory: Layout, judge: Judge, whole: Trained) -> tuple[States, np.ndarray]:
    """Random states of the training rows, and whether a purchase would right a wrong label in each, (n,)."""
    train = judge.problem.train
    labels = classes_of(whole.scores[: len(train.y)]) if judge.is_crossed else train.y
    states = random_states(bare, memory, train, labels, judge.problem.seed)
    truth = train.y[states.row]
    return states, ((states.held != truth) & (labels[states.row] == truth)).astype(np.int64)


def _doubt(
    bare: Program, memory: Layout, watched: Sequence[int], states: States, gain: np.ndarray, judge: Judge,
    fold: int | None,
) -> tuple[Ensemble, np.ndarray]:  # fmt: skip
    """The model of doubt without a fold's rows, and its scores of that fold's states; None: of all rows."""
    own = bare.sensors[memory.sensor].features
    features = np.array([*watched, *own[:2], *own[1 + len(memory.since) :]], dtype=np.int64)  # one count is enough
    in_fold = np.zeros(len(gain), dtype=bool) if fold is None else judge.fold[states.row] == fold
    X = states.X[:, features]
    bins = make_bins(X[~in_fold], tuple(bare.features[f].dtype for f in features), SETTINGS.max_bins)
    weight = judge.problem.train.weight[states.row]
    loss = ClassLoss(gain[~in_fold], 2, weight[~in_fold])
    ensemble = Ensemble(bins, features, loss.base())
    codes = bins.transform(X)
    scores = np.tile(loss.base(), (int((~in_fold).sum()), 1))
    part = np.ascontiguousarray(codes[:, ~in_fold])
    n_trees = max(1, round(N_TREES * judge.problem.effort.tree_share))
    boost(ensemble, loss, part, np.zeros(len(features), np.int64), scores, np.zeros(1), SETTINGS, n_trees)
    return ensemble, ensemble_scores(ensemble, codes[:, in_fold])[:, 0]
