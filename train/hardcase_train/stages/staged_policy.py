"""Staged policies (early exit): nested sensor sets, each with a model of its own, and cuts that say where a row leaves.

Stage k buys what its set lacks. It answers if the margin of its low-cost model is wide enough, or if its gate (where
it has one) calls the row easy; otherwise the next stage goes on, and behind the last is the cloud. The confidence
cascade, graphs of nested sets and ADAPT in stages are all this: they differ in how the models of their stages are
trained and in the rule by which a stage answers (``rules``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from hardcase_edge.program.definition import MARGIN, THRESHOLD, Acquire, Answer, Branch, Forward, Node, Slice

from ..data.problem import Subset
from ..policy.acquire import buy, n_nodes
from ..policy.answers import NEVER, answer_node
from ..policy.batch import Outcome
from ..policy.compile import compile_program, policy_of
from ..policy.error_model import chance_wrong, cloud_chance, met_margins
from ..policy.front import Point
from ..policy.losses import class_outputs
from ..policy.selection import Judge, Trained
from .thresholds import Choices, Cut, Cuts, Meeting, expected

__all__ = ["StagedPolicy"]


Rated = tuple[float, float, dict[str, Any], Cuts]


class StagedPolicy:
    """Stages run once on the judged rows: what becomes of a row that ends at each of them, or is forwarded.

    Parameters
    ----------
    chain : sensor sets, smaller ones first, none twice; those of a policy's cuts nested
    models : one per set: class scores first, then the gate's score if it has a gate

    Attributes
    ----------
    stops : per stage, the outcome of all rows that end there
    forwarded : the outcome of all rows in the cloud
    gates : per stage, the gate's scores (n,), or None
    """

    def __init__(
        self,
        judge: Judge,
        chain: Sequence[Subset],
        models: Sequence[Trained],
    ) -> None:
        self.judge, self.chain, self.models = judge, list(chain), list(models)
        self.width = class_outputs(judge.problem.n_classes)
        everything = tuple(sorted({s for subset in chain for s in subset}))
        start: list[Node] = [Acquire(everything, 1, 1), Answer(self._classes(0))]
        self._parts = tuple(m.part for m in models)
        batch = judge.batch(compile_program(judge.problem, self._parts, start), models)
        self.stops: list[Outcome] = []
        self.gates: list[np.ndarray | None] = []
        for k, (subset, model) in enumerate(zip(chain, models, strict=True)):
            stop, bought = batch.walk(judge.hpc_label, [Acquire(subset, 1, 1), Answer(self._classes(k))])
            self.stops.append(stop)
            has_gate = model.scores.shape[1] > self.width
            self.gates.append(batch.scores(k, np.arange(len(judge.y)), bought)[:, self.width] if has_gate else None)
        cloud: list[Node] = [Forward(judge.problem.hpc_sensors, 1), Answer(self._classes(0))]
        self.forwarded = batch.run(judge.hpc_label, cloud)

    @cached_property
    def choices(self) -> Choices:
        """What the judged rows meet at each stage, with calibrated chances of an error.

        A stage's chances know its gate's score and the margins of the smaller sets: a row comes to a stage because
        those before it were not sure. docs/math.md (64).
        """
        judge = self.judge
        meetings = []
        for k, (stop, gate) in enumerate(zip(self.stops, self.gates, strict=True)):
            right = stop.label == judge.y
            smaller = [t for t in range(k) if set(self.chain[t]) < set(self.chain[k])]
            known = [part for part in (gate, self._margins(smaller, right)) if part is not None]
            wrong = chance_wrong(stop.margin, np.column_stack(known) if known else None, right, judge.weight)
            meetings.append(Meeting(stop.margin, gate, wrong, stop.cost))
        every = self._margins(range(len(self.chain)), judge.hpc_label == judge.y)
        cloud = cloud_chance(judge.hpc, judge.y, judge.weight, every)
        return Choices(meetings, cloud, self.forwarded.cost, judge.weight)

    def ends(self, k: int, cut: Cut) -> np.ndarray:
        """Which rows end at this stage if they come to it, (n,) bool."""
        return self.choices.stages[k].ends(cut)

    def outcome(self, cuts: Cuts) -> Outcome:
        """What becomes of the judged rows under these cuts; its nodes say nothing."""
        outcome = self.forwarded
        for k in sorted(cuts, reverse=True):
            outcome = self.stops[k].where(self.ends(k, cuts[k]), outcome)
        return outcome

    def point(self, method: str, params: dict[str, Any], cuts: Cuts) -> Point:
        """A policy's figures on the judged rows; no nodes yet."""
        return Point(method, {**params, "cuts": cuts}, self.judge.summary(self.outcome(cuts)), {}, None)

    def best(self, method: str, policies: Iterable[tuple[dict[str, Any], Cuts]]) -> list[Point]:
        """Those that no other is both cheaper and surer than, by calibrated chances, with figures and nodes.

        Chances and not counted errors: of many policies on the same rows, the best by count is often the luckiest.
        """
        rated = sorted(((*expected(self.choices, cuts), said, cuts) for said, cuts in policies), key=_cost_then_chance)
        out: list[Point] = []
        least = np.inf
        for chance, _, said, cuts in rated:
            if chance < least:
                least = chance
                out.append(self.finish(self.point(method, said, cuts)))
        return out

    def finish(self, point: Point) -> Point:
        """The point's policy: its nodes over the stages' models."""
        kept = sorted(point.params["cuts"])
        cuts = [point.params["cuts"][k] for k in kept]
        params = {
            **point.params,
            "stages": [list(self.chain[k]) for k in kept],
            "cuts": [{"margin": c.margin, "gate": c.gate} for c in cuts],
        }
        nodes = [*self._body(kept, cuts), *self._answers(kept, cuts)]
        return replace(point, params=params, policy=policy_of(self.judge.problem, self._parts, nodes))

    def _margins(self, stages: Sequence[int], right: np.ndarray) -> np.ndarray | None:
        return met_margins([self.stops[t].margin for t in stages if self.chain[t]], int((~right).sum()))

    def _classes(self, scorer: int) -> Slice:
        return Slice(scorer, 0, self.width)

    def _body(self, kept: list[int], cuts: list[Cut]) -> list[Node]:
        """Per stage: buy what is new, then branch on the margin, then on the gate. Answers stand behind it all."""
        owned = [set(self.chain[k]) for k in kept]
        new = [sorted(mine - before) for before, mine in zip([set(), *owned], owned, strict=False)]
        gated = [self.gates[k] is not None and c.gate > -NEVER for k, c in zip(kept, cuts, strict=True)]
        sizes = [n_nodes(s) + (0 if c.is_last else 1 + g) for s, c, g in zip(new, cuts, gated, strict=True)]
        first = sum(sizes) + (not cuts[-1].is_last)  # the first answer's place
        nodes: list[Node] = []
        for i, cut in enumerate(cuts):
            if cut.is_last:
                return nodes + buy(new[i], len(nodes), first + i)
            nodes += buy(new[i], len(nodes))
            nodes.append(Branch(self._classes(kept[i]), MARGIN, (len(nodes) + 1, first + i), cut.margin))
            if gated[i]:
                gate = Slice(kept[i], self.width, self.width + 1)
                nodes.append(Branch(gate, THRESHOLD, (first + i, len(nodes) + 1), cut.gate))
        return [*nodes, Forward(self.judge.problem.hpc_sensors, first + len(cuts) - 1)]

    def _answers(self, kept: list[int], cuts: list[Cut]) -> list[Node]:
        """An answer per stage, its confidences from the judged rows that end there."""
        judge, out = self.judge, []
        on = np.ones(len(judge.y), dtype=bool)
        for k, cut in zip(kept, cuts, strict=True):
            here, stop = on & self.ends(k, cut), self.stops[k]
            on &= ~here
            right = stop.label == judge.y
            out.append(answer_node(Answer(self._classes(k)), stop.margin[here], right[here], judge.weight[here]))
        return list(out)


def _cost_then_chance(rated: Rated) -> tuple[float, float]:
    return rated[1], rated[0]
