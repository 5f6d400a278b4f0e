# SPDX-License-Identifier: Apache-2.0
"""Staged policies (early exit): nested sensor sets, each with its own model and a cut at which rows exit.

Stage k acquires the sensors that its set adds. It answers if the margin of its low-cost model is wide enough, or if its
gate (if it has one) calls the row easy. Otherwise the next stage continues, and the last stage forwards to the cloud.
The confidence cascade, graphs of nested sets and ADAPT in stages are staged policies: they differ in how the models of
their stages are trained and in the rule by which a stage answers (``rules``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from hardcase_edge.kernel.image import KERNEL_BYTES
from hardcase_edge.more.batch.evaluate import Outcome
from hardcase_edge.program.definition import THRESHOLD, Acquire, Branch, Forward, Node, Slice

from ..data.problem import Subset
from ..policy.answers import answer_node, bare_answer
from ..policy.compile import buy, compile_program, n_nodes, policy_of
from ..policy.confidences import NEVER, confidence_table, margin_at
from ..policy.front import Point
from ..policy.kinds import learned
from ..policy.selection import Judge, Trained
from .kept import device_needs
from .thresholds import FORBIDDEN, Choices, Cut, Cuts, Meeting, expected, priced_cuts

TOLLS = (0.0, 0.03, 0.1, 0.3)  # errors that a forward counts more, for cuts that forward less

Rated = tuple[float, float, dict[str, Any], Cuts]  # expected loss, mean cost, parameters, cuts
NEAR = 8  # further prices on either side, for which the stages of a price's cuts are cut again
Tried = tuple[dict[str, Any], Cuts]  # the point's parameters, and the cuts


class StagedPolicy:
    """Stages, evaluated once on the judged rows: the outcome of each row if it exits at each stage or is forwarded.

    Parameters
    ----------
    chain : distinct sensor sets, smaller ones first; the stages of a policy's cuts must be nested
    models : one for each set: class scores first, then the gate's score if it has a gate

    Attributes
    ----------
    stops : for each stage, the outcome if all rows exit there
    sures : for each stage, what its cut is a threshold of, (n,): the margin; of values, minus the score of uncertainty
    forwarded : the outcome if all rows are forwarded
    gates : for each stage, the gate's scores (n,); None without a gate
    """

    def __init__(self, judge: Judge, chain: Sequence[Subset], models: Sequence[Trained]) -> None:
        self.judge, self.chain, self.models = judge, list(chain), list(models)
        self.width = judge.problem.n_outputs
        self._kind = learned(judge.problem)
        everything = tuple(sorted({s for subset in chain for s in subset}))
        start: list[Node] = [Acquire(everything, 1, 1), bare_answer(judge.problem, 0)]
        self._parts = tuple(m.part for m in models)
        batch = judge.batch(compile_program(judge.problem, self._parts, start), models)
        self.stops: list[Outcome] = []
        self.sures: list[np.ndarray] = []
        self.gates: list[np.ndarray | None] = []
        for k, subset in enumerate(chain):
            stop, acquired = batch.walk(judge.hpc_label, [Acquire(subset, 1, 1), bare_answer(judge.problem, k)])
            self.stops.append(replace(stop, node=np.full(len(judge.y), k)))
            scores = batch.scores(k, np.arange(len(judge.y)), acquired)
            self.sures.append(self._kind.sureness(stop.margin, scores))
            self.gates.append(self._gate(k, scores))
        cloud: list[Node] = [Forward(judge.problem.hpc_sensors, 1), bare_answer(judge.problem, 0)]
        self.forwarded = batch.run(judge.hpc_label, cloud)

    @cached_property
    def choices(self) -> Choices:
        """The judged rows at each stage, with the expected losses of their answers.

        The features of a stage's error model are what its cut sorts by, its gate's score and what the cuts of smaller
        sets sort by: rows reach a stage because earlier ones were not sure of them. docs/math.md (64).
        """
        judge, meetings = self.judge, []
        for k, (stop, sure, gate) in enumerate(zip(self.stops, self.sures, self.gates, strict=True)):
            met = [self.sures[t] for t in range(k) if self.chain[t] and set(self.chain[t]) < set(self.chain[k])]
            own = gate if self._has_gate(k) else None
            wrong = self._kind.expected(sure, own, met, stop.label, judge.y, judge.weight)
            meetings.append(Meeting(sure, gate, wrong, stop.cost))
        met = [sure for sure, sensors in zip(self.sures, self.chain, strict=True) if sensors]
        cloud = self._kind.cloud(judge.stakes, met, judge.y, judge.weight)
        cloud = cloud + FORBIDDEN * (not judge.problem.may_forward())
        return Choices(meetings, cloud, self.forwarded.cost, judge.weight)

    def within(self, cuts: Cuts) -> Cuts | None:
        """These cuts within the limits of every row: the last stage answers if no forward fits; None if no cuts do.

        Where more rows would be forwarded than may be, the last stage answers the surest of them, too. Where the models
        of all stages are too large or slow together, the stages at which the fewest rows exit are left out.
        """
        small = self._small(cuts)
        if small is None:
            return None
        problem, cuts, last = self.judge.problem, small, max(small)
        bought = {s for k in cuts for s in self.chain[k]}
        if not problem.is_affordable(bought):
            return None
        if cuts[last].is_last:
            return cuts
        if not problem.may_forward(bought):
            return {**cuts, last: Cut(-NEVER)}
        is_asked = ~np.logical_or.reduce([self.ends(k, cut) for k, cut in cuts.items()])
        weight = np.where(is_asked, self.judge.weight, 0.0) / self.judge.weight.sum()
        if weight.sum() <= self.judge.most_forwarded:
            return cuts
        return {**cuts, last: replace(cuts[last], margin=self._bound(last, weight))}

    def _small(self, cuts: Cuts) -> Cuts | None:
        """These cuts without the stages that the limits of bytes and time have no room for, by each stage alone."""
        limits, cuts = self.judge.problem.limits, dict(cuts)
        if limits.max_bytes is None and limits.max_ms is None:
            return cuts
        most = np.array([np.inf if limits.max_bytes is None else limits.max_bytes - KERNEL_BYTES,
                         np.inf if limits.max_ms is None else limits.max_ms])  # fmt: skip
        while (np.sum([self._needs[k] for k in cuts], axis=0) > most).any():
            if len(cuts) == 1:
                return None
            left, exits = np.ones(len(self.judge.y), dtype=bool), dict[int, float]()
            for k in sorted(cuts)[:-1]:
                ends = left & self.ends(k, cuts[k])
                exits[k], left = float(self.judge.weight[ends].sum()), left & ~ends
            del cuts[min(exits, key=lambda k: exits[k])]
        return cuts

    @cached_property
    def _needs(self) -> list[tuple[float, float]]:
        """What each stage's policy alone needs of a device."""
        p = self.judge.problem
        programs = (
            compile_program(p, [part], [*buy(s, 0), bare_answer(p, 0)])
            for s, part in zip(self.chain, self._parts, strict=True)
        )
        return [device_needs(program) for program in programs]

    def _bound(self, stage: int, weight: np.ndarray) -> float:
        """The highest margin of a stage below which the weights (n,) are those that may be forwarded; or -NEVER."""
        margin = self.choices.stages[stage].margin
        values, row = np.unique(margin, return_inverse=True)
        below = np.cumsum(np.bincount(row, weights=weight))  # up to each value and with it
        n = int(np.searchsorted(below, self.judge.most_forwarded, side="right"))
        return -NEVER if n == 0 else float(values[n - 1] + values[min(n, len(values) - 1)]) / 2

    @property
    def learned_on(self) -> list[Choices]:
        """What cuts are learned on: the choices; where forwards have a limit, also with tolls that make them fewer."""
        tolls = TOLLS if 0 < self.judge.most_forwarded < 1 else TOLLS[:1]
        return [replace(self.choices, cloud_wrong=self.choices.cloud_wrong + toll) for toll in tolls]

    def ends(self, k: int, cut: Cut) -> np.ndarray:
        """The rows that exit at this stage if they reach it, (n,) bool."""
        return self.choices.stages[k].ends(cut)

    def outcome(self, cuts: Cuts) -> Outcome:
        """The outcome of the judged rows under these cuts; its ``node`` is the stage."""
        outcome = self.forwarded
        for k in sorted(cuts, reverse=True):
            outcome = self.stops[k].where(self.ends(k, cuts[k]), outcome)
        return outcome

    def point(self, method: str, params: dict[str, Any], cuts: Cuts) -> Point:
        """A point with figures on the judged rows, still without a policy; ``finish`` adds it."""
        return Point(method, {**params, "cuts": cuts}, self.judge.summary(self.outcome(cuts)), None, None)

    def best(self, method: str, policies: Iterable[tuple[dict[str, Any], Cuts]]) -> list[Point]:
        """The Pareto front of policies by mean cost and expected loss, as finished points.

        Errors are not counted for this: of many policies on the same rows, the one with the fewest errors is often only
        the luckiest.
        """
        fitting = ((params, within) for params, cuts in policies if (within := self.within(cuts)) is not None)
        rated = sorted(
            ((*expected(self.choices, cuts), params, cuts) for params, cuts in fitting), key=_cost_then_chance
        )
        front: list[Point] = []
        least = np.inf
        for chance, _, params, cuts in rated:
            if chance < least:
                least = chance
                front.append(self.finish(self.point(method, params, cuts)))
        return front

    def finish(self, point: Point) -> Point:
        """The point with its policy: nodes over the stages' models."""
        stages = sorted(point.params["cuts"])
        cuts = [point.params["cuts"][k] for k in stages]
        params = {
            **point.params,
            "stages": [list(self.chain[k]) for k in stages],
            "cuts": [{"margin": c.margin, "gate": c.gate} for c in cuts],
        }
        nodes = [*self._body(stages, cuts), *self._answers(stages, cuts)]
        return replace(point, params=params, policy=policy_of(self.judge.problem, self._parts, nodes))

    def _has_gate(self, stage: int) -> bool:
        return bool(self.models[stage].scores.shape[1] > self.width)

    def _gate(self, stage: int, scores: np.ndarray) -> np.ndarray | None:
        """The score by which easy rows leave a stage, (n,), low where it is easy; None if margins alone decide.

        It is the gate's, of a model that has one. If one of two classes has the dearer misses, answers of the other
        class are safe at narrower margins, so its own score is the gate.
        """
        own = self._kind.gate(scores)
        if own is not None:
            return own
        return None if self._sign is None else np.asarray(self._sign * scores[:, 0])

    @cached_property
    def _sign(self) -> float | None:
        """1 if class 1 has the dearer misses, -1 if class 0 has, None if they cost the same or there are more."""
        errors = self.judge.problem.errors
        if errors is None or len(errors) != 2 or errors[0, 1] == errors[1, 0]:
            return None
        return 1.0 if errors[1, 0] > errors[0, 1] else -1.0

    def _gate_node(self, stage: int, gate: float, answer: int, onward: int) -> Node:
        """The node that sends rows with a gate score of at most ``gate`` to ``answer``."""
        if self._has_gate(stage):
            return Branch(Slice(stage, self.width, self.width + 1), THRESHOLD, (answer, onward), gate)
        if self._sign == 1.0:
            return Branch(self._classes(stage), THRESHOLD, (answer, onward), gate)
        return Branch(self._classes(stage), THRESHOLD, (onward, answer), -gate)

    def _classes(self, scorer: int) -> Slice:
        return Slice(scorer, 0, self.width)

    def _body(self, stages: list[int], cuts: list[Cut]) -> list[Node]:
        """For each stage: acquire new sensors, branch on the margin, then on the gate. Answers come last."""
        sets = [set(self.chain[k]) for k in stages]
        new = [sorted(sensors - before) for before, sensors in zip([set(), *sets], sets, strict=False)]
        gated = [self.gates[k] is not None and c.gate > -NEVER for k, c in zip(stages, cuts, strict=True)]
        sizes = [n_nodes(s) + (0 if c.is_last else 1 + g) for s, c, g in zip(new, cuts, gated, strict=True)]
        first = sum(sizes) + (not cuts[-1].is_last)  # index of the first answer
        nodes: list[Node] = []
        for i, cut in enumerate(cuts):
            if cut.is_last:
                return nodes + buy(new[i], len(nodes), first + i)
            nodes += buy(new[i], len(nodes))
            nodes.append(self._kind.cut_node(stages[i], cut.margin, first + i, len(nodes) + 1))
            if gated[i]:
                nodes.append(self._gate_node(stages[i], cut.gate, first + i, len(nodes) + 1))
        return [*nodes, Forward(self.judge.problem.hpc_sensors, first + len(cuts) - 1)]

    def _answers(self, stages: list[int], cuts: list[Cut]) -> list[Node]:
        """An answer for each stage, with a confidence table from the judged rows that exit there."""
        judge, answers = self.judge, list[Node]()
        is_active = np.ones(len(judge.y), dtype=bool)
        for k, cut in zip(stages, cuts, strict=True):
            exits, stop = is_active & self.ends(k, cut), self.stops[k]
            is_active &= ~exits
            right, node = judge.right(stop.label), bare_answer(judge.problem, k)
            answers.append(answer_node(node, stop.margin[exits], right[exits], judge.weight[exits]))
        return answers


def _cost_then_chance(rated: Rated) -> tuple[float, float]:
    return rated[1], rated[0]


# The exit rules of staged policies (level, price, gate), each of which gives cuts to try.
#
# level   all stages answer from the same confidence on: the confidence cascade
# price   a stage answers if the errors that going on would avoid are worth less than its cost: graphs of nested sets
# gate    as price, and a stage also answers the rows that its gate calls easy: ADAPT in stages
#
# Price and gate share one computation (``thresholds.priced_cuts``), which uses the gates of those stages that have one.


def level_cuts(staged: StagedPolicy, levels: Sequence[float]) -> list[Tried]:
    """Cuts at one confidence in all stages, for each level (0 to 1), first stage and last stage.

    The last stage forwards the rows below the level, or answers them too ("end"). One stage that only answers is a
    static subset, and is there where nothing else is.
    """
    judge, stages = staged.judge, range(len(staged.chain))
    stakes = (
        judge.weight if judge.problem.targets is None else judge.weight * judge.problem.targets.sum(axis=1)[judge.y]
    )
    sures = staged.sures
    tables = [
        confidence_table(sure, judge.right(stop.label), stakes) for sure, stop in zip(sures, staged.stops, strict=True)
    ]
    margins = {(k, level): margin_at(tables[k], level) for k, level in product(stages, levels)}
    candidates = []
    ends = ("forward", "answer") if judge.problem.may_forward() else ("answer",)
    for first, last, end, level in product(stages, stages, ends, levels):
        if last < first or (end == "answer" and first == last):
            continue  # no stages, or a static subset
        cuts = {k: Cut(margins[k, level]) for k in range(first, last + 1)}
        if end == "answer":
            cuts[last] = Cut(-NEVER)
        candidates.append(({"end": end, "level": level}, cuts))
    return candidates or [({"end": "answer"}, {k: Cut(-NEVER)}) for k in stages]


def price_cuts(staged: StagedPolicy, prices: Sequence[float]) -> list[Tried]:
    """The best cuts for each price; if forwarding is always better, the last stage answers all rows.

    Parameters
    ----------
    prices : errors per unit of cost
    """
    answers = {len(staged.chain) - 1: Cut(-NEVER)}  # f0 alone is not a policy
    return [({"price": p}, priced_cuts(c, p) or answers) for c in staged.learned_on for p in prices]


def shortened_cuts(cuts: Cuts) -> list[Cuts]:
    """These cuts, and for each stage the cuts shortened to end there: policies between those of two prices."""
    stages = sorted(cuts)
    ends = [{**{k: cuts[k] for k in stages[:n]}, last: Cut(-NEVER)} for n, last in enumerate(stages)]
    return [cuts, *ends] if cuts else []


def near_cuts(choices: Choices, prices: Sequence[float], chains: Sequence[Cuts]) -> list[tuple[float, Cuts]]:
    """The stages of each price's cuts, cut again for the neighbouring prices.

    Near a switch of path both paths are kept, so the front has no gap there.
    """
    places_of: dict[tuple[int, ...], list[int]] = {}
    for i, cuts in enumerate(chains):
        places_of.setdefault(tuple(sorted(cuts)), []).append(i)
    neighbours = []
    for stages, places in places_of.items():
        own = replace(choices, stages=[choices.stages[k] for k in stages])
        for price in prices[max(places[0] - NEAR, 0) : places[-1] + NEAR + 1]:
            cuts = {stages[k]: cut for k, cut in priced_cuts(own, price).items()}
            neighbours += [(price, cuts)] if cuts else []
    return neighbours
