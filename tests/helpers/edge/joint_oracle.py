# SPDX-License-Identifier: Apache-2.0
"""A second reading of docs/SPEC-joint-v1.md: slow and literal; labels and gaps by trying all labels of all parts."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Any

from hardcase_edge.joint.definition import Chain, Joint
from hardcase_edge.program.definition import Acquire, Answer, Branch, Program, Select

from .joint_programs import JointWorld
from .oracle import Case, _answer, _choose, _end, scores_of, start_of

__all__ = ["best_labels", "decide_item", "item_gaps"]

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
    start: int = 0
    parts: list[PartCase] = field(default_factory=list)

    def spent(self) -> int:
        return self.start + sum(p.spent for p in self.parts)


@dataclass
class PartCase(Case):
    """A case whose budget is the item's."""

    item: Item = field(default_factory=lambda: Item(None))

    def start(self) -> int:
        return 0  # the item pays it

    def fits(self, more: int) -> bool:
        return self.item.budget is None or self.item.spent() + more <= self.item.budget


def walk(case: PartCase, waits: set[int], at: int = 0) -> Generator[Any, Any, Any]:
    """A part's way: yields what it wants, "read", "ask" or the node of its barrier; returns its end."""
    case.trace.append(at)
    node = case.program.nodes[at]
    if isinstance(node, Acquire):
        new = [s for s in node.sensors if s not in case.bought]
        is_bought = not set(node.sensors) & case.failed and case.can_buy(new)
        case.owed |= set() if case.can_buy(new) else set(new)
        if is_bought and new:
            if at in waits:
                given = yield at
                for f, value in zip(case.program.sensors[new[0]].features, given, strict=True):
                    case.readings[f] = value
            else:
                case.buy(new)
                yield "read"
        if is_bought and at in waits:
            case.buy(new)
        case.wanted |= set(node.sensors) & case.failed
        gone = not is_bought or set(node.sensors) & case.failed
        return (yield from walk(case, waits, node.otherwise if gone else node.then))
    if isinstance(node, Select):
        for c in node.candidates:
            if case.size <= c.max_size and case.fits(case.price(c.cost)):
                return (yield from walk(case, waits, c.target))
        return (yield from walk(case, waits, node.otherwise))
    if isinstance(node, Branch | Answer):
        scores = scores_of(case.program, node.scores.scorer, case.codes)[node.scores.start : node.scores.stop]
        if isinstance(node, Answer):
            return _answer(case, node, scores)
        first = case.program.nodes[_choose(case, node, scores, frozenset())]
        if isinstance(first, Acquire):
            case.wanted |= set(first.sensors) & case.failed
        liked = case.program.nodes[_choose(case, node, scores, None)]
        if isinstance(liked, Acquire):
            dear = [s for s in liked.sensors if s not in case.bought]
            case.owed |= set() if case.can_buy(dear) else set(dear)
        return (yield from walk(case, waits, _choose(case, node, scores, frozenset(case.failed))))
    new = [s for s in node.sensors if s not in case.bought and s not in case.failed]
    if not case.cloud:
        case.degraded = True
    elif case.fits(case.cost_of(new) + case.request()):
        if new:
            case.buy(new)
            yield "read"
        if case.fits(case.request()):
            case.wanted |= set(node.sensors) & case.failed
            case.spent += case.request()
            reply = yield "ask"
            if reply is not None:
                return _end(case, *reply, "cloud")
            case.degraded = True
    return (yield from walk(case, waits, node.fallback))


def _own(case: PartCase, joint: Joint, read: Any) -> list[int]:
    row = scores_of(case.program, read.scorer, case.codes)[read.start : read.stop]
    return row if len(row) == joint.chain.labels else [0, *row]


def decide_item(program: Program, joint: Joint, world: JointWorld) -> Any:
    """Labels, confidences and all else of the parts; confidence, route, cost and rounds of the item."""
    item, waits = Item(world.budget, start_of(program)), {w.node: w for w in joint.waits}
    inner = {s for w in joint.waits for s in program.nodes[w.node].sensors}
    n = len(world.rows)
    for p in range(n):
        failing = frozenset(s for q, s in world.failing if q == p)
        item.parts.append(
            PartCase(program, list(world.rows[p]), failing, world.dead, size=world.size, cloud=world.cloud, item=item)
        )
    walks = [walk(case, set(waits)) for case in item.parts]
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
            read = waits[at].scores if p in wants else None if p in fixed() else program.nodes[at].scores
            given.append([] if read is None else _own(item.parts[p], joint, read))
        return given

    for p in range(n):
        go_on(p, None)
    while wants:
        reading = [p for p in range(n) if wants.get(p) == "read"]
        asking = [p for p in range(n) if wants.get(p) == "ask"]
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
    return tuple(parts), min(of_item), route, item.spent(), rounds


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
        (sensor,) = item.parts[p].program.nodes[wants[p]].sensors
        given[p] = given[p][: len(item.parts[p].program.sensors[sensor].features)]
        policy = waits[wants[p]].policy
        if policy is not None:
            trial = PartCase(item.parts[p].program, list(item.parts[p].readings))
            trial.codes = list(item.parts[p].codes)
            for f, value in zip(trial.program.sensors[sensor].features, given[p], strict=True):
                trial.readings[f] = value
            trial.buy([sensor])
            score = scores_of(trial.program, policy.scorer, trial.codes)[policy.start]
            tried.append((-score, p))
    if tried and -min(tried)[0] > joint.threshold:
        return [(min(tried)[1], given[min(tried)[1]])]
    return list(given.items())
