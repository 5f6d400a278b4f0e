# SPDX-License-Identifier: Apache-2.0
"""The method ``held``: hold the label of the last purchase, and buy again when it is probably wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from hardcase_edge.more.batch.choices import classes_of
from hardcase_edge.program.definition import Program
from hardcase_edge.stream.layout import Layout

from ...data.problem import N_FOLDS, Problem, Subset, with_memory
from ...estimator import MethodClassifier
from ...method import Method, Params
from ...policy.answers import answer_point
from ...policy.compile import Part, compile_bare
from ...policy.front import Point, best_points
from ...policy.selection import Judge, Trained
from ...stages.subset_search import SubsetSearch
from ...trees.boosting import Ensemble
from ...trees.subset_classifier import classifier_kinds
from .duty_cycle import full_sets, some
from .held_label import HeldLabel, TooOld
from .nodes import CASE, Holding, hold_nodes
from .state_models import LONGEST, StateModels, random_states, together

SHARES = (0.02, 0.04, 0.06, 0.08, 0.11, 0.14, 0.18, 0.22, 0.27, 0.33, 0.4, 0.5, 0.65, 0.8)  # of states that would buy
MOST_CHEAP = 3
DEAR = 0.5  # of the cost of the whole set: what is watched in each window costs less


@dataclass(eq=False, repr=False)
class Held(MethodClassifier):
    """Watches cheap sensors in every window, and buys the others when the held label is probably wrong.

    A boosted model scores how probable that is from the cheap readings, how far they have moved since the last
    purchase, the held label and its age. It is trained on random gaps, with held labels of copies that have not seen
    the window, or, where validation rows alone are judged and there are no copies, with true ones. A purchase is
    answered by the readings, or by those and the label that was held before it; the judged rows decide at the middle
    threshold. docs/math.md (136) to (139). Rows without an order have no window before them: ``fit`` then buys for
    each row.

    Parameters
    ----------
    n_jobs : int or None, threads; None: 1
    others : those of ``PolicyClassifier``, by keyword
    """

    n_jobs: int | None = None
    method: ClassVar[Method] = Method(
        name="held",
        against="it needs rows in the order of time, and keeps a wrong label until it buys again",
        turn=22,
        colour="#0e6655",
        auto="always",
        is_halved=False,
        searches_subsets=True,
        needs_order=True,
        expected_failures={
            "check_the_number_of_settings_is_known_before": "rows without an order have no cheap sets to watch"
        },
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
        models, gain = _training(bare, memory, watched, judge, whole)
        if not models.are_enough:  # streams of one window each have none to hold
            return [answer_point(judge, cls.method.name, dict(params), bought, whole)]
        doubts = [models.doubt(gain, k) for k in [*range(N_FOLDS), None]]
        held = HeldLabel(memory.held[0], problem.n_classes, problem.majority)
        old = TooOld(tuple(f for f, _ in memory.since), LONGEST)
        scores = np.concatenate([s for _, s in doubts[:-1]])
        cuts = np.unique(np.quantile(scores, [1 - share for share in some(SHARES, problem)])).tolist()

        def point(design: Holding, cut: float) -> Point:
            nodes = hold_nodes(problem, memory.sensor, cheap, rest, [(2, 0.0), (3, cut)], CASE + 1)
            own = {**params, "corrected": design.is_corrected, "threshold": cut}
            return design.point(cls.method.name, own, nodes)

        designs = better(holdings(models, whole, [(held, old, doubt) for doubt, _ in doubts]), cuts, point)
        return best_points([point(design, cut) for design in designs for cut in cuts])


def better(designs: list[Holding], cuts: Sequence[float], point: Callable[[Holding, float], Point]) -> list[Holding]:
    """The design of better quality on judged rows, alone; all thresholds of each would take twice the walks."""
    middle = cuts[len(cuts) // 2]
    return [max(designs, key=lambda design: point(design, middle).valid.quality)] if len(designs) > 1 else designs


def _watched(search: SubsetSearch, bought: Subset) -> list[Subset]:
    """Few cheap sets below this one: nothing, the cheapest sensor, and the promising ones."""
    below = {s for s in search.walked() if s and set(s) < set(bought)}
    if len(bought) > 1:
        below.add((min(bought, key=lambda s: (search.costs[s], s)),))
    fitting = [s for s in below if search.cost(s) <= DEAR * search.cost(bought)]
    return [(), *sorted(fitting, key=lambda s: (search.losses([s])[0], s))[:MOST_CHEAP]]


def _training(
    bare: Program, memory: Layout, watched: Sequence[int], judge: Judge, whole: Trained
) -> tuple[StateModels, np.ndarray]:
    """Random states of the training rows, and whether a purchase would right a wrong label in each, (n_states,)."""
    train = judge.problem.train
    labels = classes_of(whole.scores[: len(train.y)]) if judge.is_crossed else train.y
    states = random_states(bare, memory, train, labels, judge.problem.seed)
    truth = train.y[states.row]
    gain = ((states.held != truth) & (labels[states.row] == truth)).astype(np.int64)
    return StateModels(judge, bare, memory, watched, states), gain


def holdings(models: StateModels, whole: Trained, asks: Sequence[tuple[Part, ...]]) -> list[Holding]:
    """Policies whose purchases the readings answer alone, and, where copies have not seen rows, corrected.

    ``asks``: the parts that ask the memory, of the copy without each fold, and last of all rows.
    """
    judge, bare, memory = models.judge, models.bare, models.memory
    if not judge.is_crossed:
        program = compile_bare(bare, (whole.part, *asks[-1]))
        return [Holding(judge, whole, bare, memory, [program], (whole.part, *asks[-1]))]
    corrections = models.corrections(whole)
    programs = [compile_bare(bare, (whole.part, *own, c)) for own, c in zip(asks, corrections, strict=True)]
    alone = Holding(judge, whole, bare, memory, programs, (whole.part, *asks[-1]))
    assert isinstance(whole.part, Ensemble)
    both = together(whole.part, corrections[-1])
    return [alone, replace(alone, parts=(both, *asks[-1]), is_corrected=True)]
