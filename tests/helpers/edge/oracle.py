# SPDX-License-Identifier: Apache-2.0
"""A second reading of docs/SPEC-program-v1.md: slow, literal, no shared code with the session it is compared with.

Readings become codes by exact fractions and integer keys, trees are walked one node at a time on the codes
themselves, and a decision is a plain recursion over nodes.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from hardcase_edge.program import definition as d

__all__ = ["Case", "affine_code", "decide", "held", "key", "rank_code", "scores_of", "walk_tree"]

MISSING = -32768


# ---------------------------------------------------------------- section 2 and 3: readings and columns


def held(value: Any, dtype: str) -> Any:
    """What a type keeps of a number, None if it cannot."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if dtype == "i32":
        return int(value) if value == int(value) and abs(value) < 2**31 else None
    if abs(value) > Fraction(1.7976931348623157e308):
        return None
    if dtype == "f64":
        return float(value) if value != 0 else 0.0
    x = nearest_f32(value)
    return x if abs(x) < 2**128 else None


def nearest_f32(value: Any) -> float:
    """The nearest multiple of the last place that a float of this size has, ties to even; exact until then."""
    exact = Fraction(value)
    size = max(-126, math.frexp(float(exact))[1] - 1)
    place = Fraction(2) ** (size - 23)
    return float(round(exact / place) * place)


def key(value: Any, dtype: str) -> int:
    """A reading's bits as an integer that orders as readings do."""
    if dtype == "i32":
        return int(value)
    size = 4 if dtype == "f32" else 8
    raw = int.from_bytes(struct.pack("<f" if size == 4 else "<d", value), "little")
    top = 1 << (8 * size - 1)
    return -(raw - top) - 1 if raw & top and raw != top else raw % top  # negative numbers order backwards


def affine_code(rule: d.Affine, x: Any) -> int:
    """The affine rule in exact fractions."""
    held_in_32 = max(-(2**31), min(2**31 - 1, math.floor(Fraction(x) * Fraction(2) ** rule.frac)))
    return max(rule.low, min(rule.high, math.floor(Fraction(held_in_32 * rule.mul + rule.add, 2**rule.shift))))


def rank_code(column: d.Column, x: Any, dtype: str) -> int:
    """Thresholds strictly below, counted one by one on integer keys."""
    return sum(key(t, dtype) < key(x, dtype) for t in column.rule.thresholds) - 32767


# ---------------------------------------------------------------- section 4: scorers


def walk_tree(tree: d.Tree, columns: Sequence[int], codes: Sequence[int]) -> list[int]:
    """The values of the leaf that these codes reach."""
    node = 0
    n = len(tree.splits)
    while 0 <= node < n:
        code = codes[columns[tree.splits[node]]]
        left = tree.missing_left[node] if code == MISSING else code <= tree.thresholds[node]
        heap = 2 * node + (1 if left else 2)
        node = tree.children[node][0 if left else 1] if tree.children else heap
    leaf = node - n if not tree.children else -1 - node
    return list(tree.leaves[leaf * tree.width : (leaf + 1) * tree.width])


def scores_of(program: d.Program, index: int, codes: Sequence[int]) -> list[int]:
    """All outputs of a scorer."""
    s = program.scorers[index]
    if isinstance(s, d.Polynomial):
        x = [sub if codes[c] == MISSING else codes[c] for c, sub in zip(s.columns, s.substitutes, strict=True)]
        x.append(s.constant)
        return [
            b + sum(w * math.prod(x[k] for k in term) for w, term in zip(row, s.terms, strict=True))
            for row, b in zip(s.weights, s.bias, strict=True)
        ]
    if isinstance(s, d.Trees):
        out = list(s.base)
        for tree in s.trees:
            for j, value in enumerate(walk_tree(tree, s.columns, codes)):
                out[tree.output + j] += value
        return out
    if isinstance(s, d.Network):
        return _network(s, codes)
    assert isinstance(s, d.Stack)
    below = program.scorers[s.trees]
    z = [walk_tree(below.trees[m], below.columns, codes)[0] for m in s.members]
    return [b + sum(w * q for w, q in zip(row, z, strict=True)) for row, b in zip(s.weights, s.bias, strict=True)]


def _network(s: d.Network, codes: Sequence[int]) -> list[int]:
    """Every place of every window is looked at, and left out if it lies outside."""
    given = [sub if codes[c] == MISSING else codes[c] for c, sub in zip(s.columns, s.substitutes, strict=True)]
    shape, zero = s.shape, s.zero_point
    for layer in s.layers:
        height, width, channels = shape
        out: list[int] = []
        for row, column, o in itertools.product(*map(range, layer.shape)):
            inside = []  # place in the window, and in the input
            for i, j in itertools.product(*map(range, layer.window)):
                y = row * layer.stride[0] - layer.padding[0] + i
                x = column * layer.stride[1] - layer.padding[1] + j
                if 0 <= y < height and 0 <= x < width:
                    inside.append((i * layer.window[1] + j, (y * width + x) * channels))
            if layer.kind == "max":
                value = max(given[at + o] for _, at in inside)
            elif layer.kind == "average":
                mean = Fraction(sum(given[at + o] for _, at in inside), len(inside))
                value = math.floor(abs(mean) + Fraction(1, 2)) * (1 if mean > 0 else -1)
            else:
                total = layer.bias[o]
                for place, at in inside:
                    if layer.kind == "depthwise":
                        total += layer.weights[place * channels + o] * (given[at + o] - zero)
                        continue
                    first = (o * math.prod(layer.window) + place) * channels
                    total += sum(layer.weights[first + k] * (given[at + k] - zero) for k in range(channels))
                exact = Fraction(total * layer.multipliers[o], 2 ** layer.shifts[o])
                value = layer.zero_point + math.floor(exact + Fraction(1, 2))
            out.append(max(layer.low, min(layer.high, value)))
        given, shape, zero = out, layer.shape, layer.zero_point
    return [y - zero for y in given]


# ---------------------------------------------------------------- section 4: a decision


def start_of(program: d.Program) -> int:
    return program.costs.per_decision


@dataclass
class Case:
    """Everything one decision depends on, and what it has done so far."""

    program: d.Program
    readings: Sequence[Any]  # raw, one per feature
    failing: frozenset[int] = frozenset()
    dead: frozenset[int] = frozenset()
    budget: int | None = None
    size: int = 1
    cloud: bool = True
    reply: tuple[int, int] | None = None
    times: dict[int, int] | None = None  # by the clock: what each sensor really takes, and -1: the wait for a reply
    bought: list[int] = field(default_factory=list)
    failed: set[int] = field(default_factory=set)
    wanted: set[int] = field(default_factory=set)
    owed: set[int] = field(default_factory=set)
    codes: list[int] = field(default_factory=list)
    spent: int = 0
    degraded: bool = False
    trace: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.failed = set(self.dead)
        self.codes = [MISSING] * len(self.program.columns)
        self.spent = self.start()

    def start(self) -> int:
        return start_of(self.program)

    def price(self, polynomial: Sequence[int]) -> int:
        return sum(c * self.size**k for k, c in enumerate(polynomial))

    def request(self) -> int:
        costs, n_bytes = self.program.costs, self.program.uplink.request_bytes
        return costs.per_request + costs.per_byte * n_bytes + costs.cloud_per_request

    def fits(self, more: int) -> bool:
        return self.budget is None or self.spent + more <= self.budget

    def can_buy(self, sensors: Sequence[int]) -> bool:
        return not sensors or self.fits(self.cost_of(sensors))

    def cost_of(self, sensors: Sequence[int]) -> int:
        return sum(self.price(self.program.sensors[s].cost) for s in sensors)

    def passes(self, what: int, declared: int) -> bool:
        """Spend what a sensor or the wait for a reply takes; False if it is given up when the time is over."""
        took = declared if self.times is None else self.times[what]
        in_time = self.budget is None or self.spent + took <= self.budget
        self.spent = self.spent + took if in_time else max(self.spent, self.budget or 0)
        return in_time

    def buy(self, sensors: Sequence[int]) -> None:
        p = self.program
        for s in sensors:
            self.bought.append(s)
            in_time = self.passes(s, self.cost_of([s]))
            features = p.sensors[s].features
            values = [held(self.readings[f], p.features[f].dtype) for f in features]
            gone = any(v is None and not p.features[f].nullable for v, f in zip(values, features, strict=True))
            if s in self.failing or gone or not in_time:
                self.failed.add(s)
                continue
            for c, column in enumerate(p.columns):
                if column.feature in features and (x := values[features.index(column.feature)]) is not None:
                    dtype = p.features[column.feature].dtype
                    rule = column.rule
                    self.codes[c] = affine_code(rule, x) if isinstance(rule, d.Affine) else rank_code(column, x, dtype)


Decided = tuple[int, int, str, int, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def decide(case: Case, at: int = 0) -> Decided:
    """Result, confidence, route, cost, sensors, trace, the sensors that it wanted in vain, and those unpaid."""
    case.trace.append(at)
    node = case.program.nodes[at]
    if isinstance(node, d.Acquire):
        new = [s for s in node.sensors if s not in case.bought]
        is_bought = not set(node.sensors) & case.failed and case.can_buy(new)
        case.owed |= set() if case.can_buy(new) else set(new)
        if is_bought:
            case.buy(new)
        case.wanted |= set(node.sensors) & case.failed
        if not is_bought:
            return decide(case, node.otherwise)
        return decide(case, node.otherwise if set(node.sensors) & case.failed else node.then)
    if isinstance(node, d.Select):
        for c in node.candidates:
            if case.size <= c.max_size and case.fits(case.price(c.cost)):
                return decide(case, c.target)
        return decide(case, node.otherwise)
    if isinstance(node, d.Forward):
        return _forward(case, node)
    scores = scores_of(case.program, node.scores.scorer, case.codes)[node.scores.start : node.scores.stop]
    if isinstance(node, d.Branch):
        had_none_failed = case.program.nodes[_choose(case, node, scores, frozenset())]
        if isinstance(had_none_failed, d.Acquire):
            case.wanted |= set(had_none_failed.sensors) & case.failed
        liked = case.program.nodes[_choose(case, node, scores, None)]
        if isinstance(liked, d.Acquire):
            new = [s for s in liked.sensors if s not in case.bought]
            case.owed |= set() if case.can_buy(new) else set(new)
        return decide(case, _choose(case, node, scores, frozenset(case.failed)))
    return _answer(case, node, scores)


def _end(case: Case, result: int, confidence: int, route: str) -> Any:
    in_vain = tuple(sorted(case.wanted & case.failed))
    unpaid = tuple(sorted(case.owed - set(case.bought)))
    return result, confidence, route, case.spent, tuple(sorted(case.bought)), tuple(case.trace), in_vain, unpaid


def _forward(case: Case, node: d.Forward) -> Any:
    new = [s for s in node.sensors if s not in case.bought and s not in case.failed]
    if not case.cloud:
        case.degraded = True
    elif case.fits(case.cost_of(new) + case.request()):
        case.buy(new)
        if not case.fits(case.request()):  # by the clock: the readings took too long
            return decide(case, node.fallback)
        case.wanted |= set(node.sensors)
        if case.passes(-1, case.request()) and case.reply is not None:
            return _end(case, *case.reply, "cloud")
        case.degraded = True
    return decide(case, node.fallback)


def _answer(case: Case, node: d.Answer, scores: list[int]) -> Any:
    result = margin = scores[0]
    if node.kind == "class":
        pair = scores if len(scores) > 1 else [0, scores[0]]
        best = max(pair)
        result = pair.index(best)
        margin = best - max(pair[:result] + pair[result + 1 :])
    said = 0
    for k, m in enumerate(node.margins, start=1):
        if margin >= m:
            said = k
    if node.kind == "value":
        result = math.floor(Fraction(result) * Fraction(2) ** node.shift + Fraction(1, 2))
    return _end(case, result, node.confidences[said], "degraded" if case.degraded else "local")


def _choose(case: Case, node: d.Branch, scores: list[int], failed: frozenset[int] | None) -> int:
    """The rule's choice among what can be had without these sensors; None: among everything."""

    def can(k: int) -> bool:
        target = case.program.nodes[node.targets[k]]
        if isinstance(target, d.Acquire) and failed is not None:
            new = [s for s in target.sensors if s not in case.bought]
            return not set(target.sensors) & failed and case.can_buy(new)
        if isinstance(target, d.Forward) and failed is not None:
            new = [s for s in target.sensors if s not in case.bought and s not in case.failed]
            return case.fits(case.cost_of(new) + case.request())
        return True

    able = [k for k in range(len(node.targets)) if can(k)] or list(range(len(node.targets)))
    pair = scores if len(scores) > 1 else [0, scores[0]]
    if node.rule == "tournament":
        return node.targets[_champion(node, scores, able)]
    if node.rule == "threshold":
        wanted = [int(scores[0] > node.threshold)]
    elif node.rule == "margin":
        first, second = sorted(pair, reverse=True)[:2]
        wanted = [int(first - second >= node.threshold)]
    else:
        wanted = [k for _, k in sorted((-s, k) for k, s in enumerate(pair))]
    return node.targets[next((k for k in [*wanted, *able] if k in able), wanted[0])]


def _champion(node: d.Branch, scores: list[int], able: list[int]) -> int:
    n = len(node.targets)

    def winner(entrant: int) -> int | None:
        if entrant < n:
            return entrant if entrant in able else None
        a, b = (winner(e) for e in node.bracket[entrant - n])
        if a is None or b is None:
            return b if a is None else a
        return b if scores[entrant - n] > 0 else a

    champion = winner(2 * n - 2)
    assert champion is not None
    return champion
