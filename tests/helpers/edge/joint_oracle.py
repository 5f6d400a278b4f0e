# SPDX-License-Identifier: Apache-2.0
"""A second reading of docs/SPEC-joint-v1.md: slow and literal; labels and gaps by trying all labels of all parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Any

from hardcase_edge.joint.definition import Chain, Joint
from hardcase_edge.program.definition import Program, Slice

from .from_spec import ASK, READ, Run, World
from .joint_programs import JointWorld
from .worlds import again

TOP = 2147483647


def score_of(chain: Chain, labels: Sequence[int], scores: Sequence[Sequence[int]]) -> int:
    """The score of these labels together."""
    total = chain.start[labels[0]] + chain.stop[labels[-1]]
    for part, label in enumerate(labels):
        total += scores[part][label] if scores[part] else 0
    for before, after in pairwise(labels):
        total += chain.transitions[chain.labels * before + after]
    return total


def all_labels(chain: Chain, n: int, fixed: dict[int, int]) -> Any:
    """All labels that an item may have."""
    return product(*[[fixed[p]] if p in fixed else range(chain.labels) for p in range(n)])


def unfixed(scores: Sequence[Sequence[int]], fixed: dict[int, int]) -> list[Sequence[int]]:
    return [() if p in fixed else row for p, row in enumerate(scores)]


def best_labels(chain: Chain, scores: Sequence[Sequence[int]], fixed: dict[int, int]) -> list[int]:
    """Of the best, those whose last label is the lowest; of these, those whose last but one is, and so on."""
    scores = unfixed(scores, fixed)
    ranked = [(-score_of(chain, y, scores), y[::-1]) for y in all_labels(chain, len(scores), fixed)]
    return list(min(ranked)[1][::-1])


def item_gaps(chain: Chain, scores: Sequence[Sequence[int]], fixed: dict[int, int]) -> list[int]:
    """Of each part: the best of all labels, minus the best of those that give the part another label than it."""
    free = unfixed(scores, fixed)
    everything = [(score_of(chain, y, free), y) for y in all_labels(chain, len(scores), fixed)]
    gaps = []
    for p in range(len(scores)):
        if p in fixed:
            gaps.append(TOP)
            continue
        best, labels = max(everything)
        gaps.append(min(TOP, best - max(s for s, y in everything if y[p] != labels[p])))
    return gaps


@dataclass
class Item:
    """What the parts share."""

    budget: int | None
    spent: int  # at its start
    parts: list[Part] = field(default_factory=list)

    @property
    def cost(self) -> int:
        return self.spent + sum(part.spent for part in self.parts)


class Part(Run):
    """A part's decision, whose budget is the item's."""

    def __init__(self, item: Item, *run: Any) -> None:
        super().__init__(*run)
        self.item, self.spent = item, 0

    def fits(self, amount: int) -> bool:
        return self.item.budget is None or self.item.cost + amount <= self.item.budget

    def row(self, labels: int, read: Sequence[int]) -> list[int]:
        """The scores of labels in this slice."""
        row = self.slice(read)
        return row if len(row) == labels else [0, *row]


def slice_of(scores: Slice) -> tuple[int, int, int]:
    return scores.scorer, scores.start, scores.stop


def decide_item(program: Program, joint: Joint, world: JointWorld) -> Any:
    """Labels, confidences and all else of the parts; confidence, route, cost and rounds of the item."""
    p_again, waits = again(program), {w.node: w for w in joint.waits}
    item = Item(world.budget, sum(p_again.costs()[3:]))
    inner = {s for w in joint.waits for s in program.nodes[w.node].sensors}
    n = len(world.rows)
    for p in range(n):
        failing = frozenset(s for q, s in world.failing if q == p)
        here = World(world.rows[p], failing, world.dead, size=world.size, cloud=world.cloud)
        item.parts.append(Part(item, p_again, here, waits))
    walks = [part.walk() for part in item.parts]
    wants: dict[int, Any] = {}
    ends: dict[int, Any] = {}
    rounds = 0

    def go_on(p: int, given: Any) -> None:
        try:
            wants[p] = walks[p].send(given)
        except StopIteration as end:
            wants.pop(p, None)
            ends[p] = end.value

    def fixed() -> dict[int, int]:
        return {p: end[0] for p, end in ends.items() if end[2] == "cloud"}

    def rows() -> list[list[int]]:
        given = []
        for p in range(n):
            at = item.parts[p].trace[-1]
            read = slice_of(waits[at].scores) if p in wants else p_again.nodes[at][1]
            given.append([] if p in fixed() else item.parts[p].row(joint.chain.labels, read))
        return given

    for p in range(n):
        go_on(p, None)
    while wants:
        reading = [p for p in range(n) if wants.get(p) == READ]
        asking = [p for p in range(n) if wants.get(p) == ASK]
        if reading:
            for p in reading:
                go_on(p, None)
        elif asking:
            for p in asking:
                go_on(p, world.replies.get(p))
        else:
            rounds += 1
            for p, given in _released(joint, item, wants, rows(), fixed(), rounds - 1):
                go_on(p, given)
    labels = best_labels(joint.chain, rows(), fixed())
    gaps = item_gaps(joint.chain, rows(), fixed())
    parts, of_item = [], []
    for p in range(n):
        _result, confidence, route, cost, bought, trace, failed, unpaid = ends[p]
        if p not in fixed():
            confidence = joint.confidences[len([m for m in joint.margins if gaps[p] >= m])]
        else:
            of_item.append(confidence)
        bought = tuple(s for s in bought if s not in inner)
        parts.append((labels[p], confidence, route, cost, bought, trace, failed, unpaid))
    if len(fixed()) < n:
        least = min(gaps[p] for p in range(n) if p not in fixed())
        of_item.append(joint.item_confidences[len([m for m in joint.item_margins if least >= m])])
    routes = [part[2] for part in parts]
    route = next(r for r in ("degraded", "cloud", "local") if r in routes)
    return tuple(parts), min(of_item), route, item.cost, rounds


def _released(
    joint: Joint, item: Item, wants: dict[int, Any], rows: list[list[int]], fixed: dict[int, int],
    before: int,
) -> list[tuple[int, list[Any]]]:  # fmt: skip
    """The parts that go on, with what their inner sensor gives."""
    labels, gaps = best_labels(joint.chain, rows, fixed), item_gaps(joint.chain, rows, fixed)
    free = [gap for p, gap in enumerate(gaps) if p not in fixed]
    waits = {w.node: w for w in joint.waits}
    given, tried = {}, []
    for p in sorted(wants):
        first, second = sorted(rows[p])[::-1][:2]
        given[p] = [
            gaps[p], gaps[max(0, p - 1)], gaps[min(p + 1, len(rows) - 1)], sum(free) // len(free), min(free),
            min(TOP, first - second), min(TOP, first - rows[p][labels[p]]), 1 if p == 0 else 0,
            1 if p + 1 == len(rows) else 0, len(rows), p, before,
        ]  # fmt: skip
        part, policy = item.parts[p], waits[wants[p]].policy
        (sensor,) = part.p.nodes[wants[p]][1]
        given[p] = given[p][: len(part.p.sensors[sensor][0])]
        if policy is not None:
            trial = Run(part.p, World(part.w.readings))
            trial.codes = list(part.codes)
            trial.give(sensor, given[p])
            trial.buy([sensor])
            tried.append((-trial.slice(slice_of(policy))[0], p))
    if tried and -min(tried)[0] > joint.threshold:
        return [(min(tried)[1], given[min(tried)[1]])]
    return list(given.items())
