# SPDX-License-Identifier: Apache-2.0
"""Random programs that the verifier must accept, and readings to feed them: one seed, one program.

Programs are built backwards: a node is made after all it leads to, so that any finished node may be led to again
(graphs, not just trees). Each finished node carries what it needs: sensors tried, sensors at hand.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from hypothesis import strategies as st

from hardcase_edge.program import definition as d
from hardcase_edge.program.readings import request_bytes

seeds = st.integers(0, 2**32 - 1)
GARBAGE = ["12", "nan", "", b"1.0", None, float("nan"), float("inf"), float("-inf"), 10**400, [1.0], {}, object(), 1j]


def programs(max_size: int = 4, *, with_opaque: bool = False) -> st.SearchStrategy[d.Program]:
    """Random verified programs; larger sizes have longer paths."""
    return st.builds(lambda size, seed: random_program(seed, size, with_opaque), st.integers(0, max_size), seeds)


def round_f32(x: float) -> float:
    """The nearest float32, as a float."""
    return float(struct.unpack("<f", struct.pack("<f", x))[0])


# ---------------------------------------------------------------- tables


def random_program(seed: int, size: int = 3, with_opaque: bool = False) -> d.Program:
    """The program of this seed."""
    rng = random.Random(seed)
    n_classes = rng.choice([0, 2, 2, 3, 4])
    features = tuple(
        d.Feature(rng.choice(["i32", "f32", "f64"]), rng.random() < 0.3) for _ in range(rng.randint(1, 3 + size))
    )
    sensors = _sensors(rng, len(features))
    carried = rng.sample(range(len(features)), rng.randint(0, len(features)))
    length = request_bytes([features[f].dtype for f in carried]) if carried else 0
    uplink = d.Uplink(length, tuple(carried))
    costs = d.Costs(rng.randint(0, 10**6), rng.randint(0, 100), rng.choice([0, 7]))
    columns = tuple(
        d.Column(f, _affine(rng) if rng.random() < 0.4 else _rank(rng, features[f].dtype))
        for f in range(len(features))
        for _ in range(rng.randint(0, 2))
    )
    shell = d.Program(features, sensors, uplink, columns, (), (), n_classes, rng.choice([1, 1, 9, 1000]), costs)
    scorers: list[d.Scorer] = [_constant(rng, max(2, n_classes))]
    for _ in range(rng.randint(1, 2 + size)):
        scorers.append(_scorer(rng, shell, scorers))
    if with_opaque:
        wanted = tuple(f for f, feature in enumerate(features) if not feature.nullable)
        scorers.append(d.Opaque(wanted, rng.randbytes(rng.randint(0, 20)), (-5, 0), (5, 2**40)))
    nodes = _Graph(rng, replace(shell, scorers=tuple(scorers))).nodes(size)
    costs = replace(shell.costs, per_decision=rng.choice([0, 0, 1, rng.randint(1, 10**6)]))
    return replace(shell, scorers=tuple(scorers), nodes=nodes, costs=costs)


def _sensors(rng: random.Random, n_features: int) -> tuple[d.Sensor, ...]:
    groups: list[list[int]] = [[] for _ in range(rng.randint(1, n_features + 1))]  # one may give nothing at all
    for f in range(n_features):
        rng.choice(groups).append(f)
    return tuple(d.Sensor(tuple(g), tuple(rng.randint(0, 10**6) for _ in range(rng.randint(1, 3)))) for g in groups)


def _affine(rng: random.Random) -> d.Affine:
    low, high = sorted(rng.choice([rng.randint(-d.CODE_MAX, d.CODE_MAX), -127, 127]) for _ in range(2))
    return d.Affine(
        rng.choice([0, 8, 16, -4, 64, -64, rng.randint(-64, 64)]),
        rng.choice([1, rng.randint(-(2**31) + 1, 2**31 - 1)]), rng.randint(-(2**40), 2**40),
        rng.choice([0, 8, 16, 62, rng.randint(0, 62)]), low, high,
    )  # fmt: skip


def _rank(rng: random.Random, dtype: str) -> d.Rank:
    return d.Rank(tuple(sorted({random_reading(rng, dtype) for _ in range(rng.randint(0, 8))})))


# ---------------------------------------------------------------- scorers


def _constant(rng: random.Random, width: int) -> d.Polynomial:
    """A scorer that reads nothing, so that every node can answer."""
    weights = tuple((rng.randint(-100, 100),) for _ in range(width))
    return d.Polynomial((), (), rng.randint(-9, 9), ((0,),), weights, tuple(rng.randint(-99, 99) for _ in range(width)))


def _scorer(rng: random.Random, p: d.Program, before: list[d.Scorer]) -> d.Scorer:
    ensembles = [k for k, s in enumerate(before) if isinstance(s, d.Trees) and any(t.width == 1 for t in s.trees)]
    n_columns = len(p.columns)
    columns = tuple(rng.sample(range(n_columns), rng.randint(0, n_columns)))
    kind = rng.random()
    if seen := _network(rng, p):
        return seen
    if ensembles and kind < 0.25:
        return _stack(rng, rng.choice(ensembles), before)
    return _polynomial(rng, p, columns) if kind < 0.5 or not columns else _trees(rng, columns)


def _polynomial(rng: random.Random, p: d.Program, columns: tuple[int, ...]) -> d.Polynomial:
    degree, bits, width = rng.randint(1, 3), rng.choice([8, 16]), rng.randint(1, 4)
    if degree == 1 and rng.random() < 0.5:
        terms = tuple((k,) for k in range(len(columns) + 1))
    else:
        terms = tuple(tuple(rng.randint(0, len(columns)) for _ in range(degree)) for _ in range(rng.randint(0, 4)))
    top = min(2 ** (bits - 1) - 1, 10_000 if degree == 3 else 2**15)
    return d.Polynomial(
        columns,
        tuple(
            rng.randint(-d.CODE_MAX, d.CODE_MAX)
            if p.features[p.columns[c].feature].nullable or rng.random() < 0.6
            else None
            for c in columns
        ),
        rng.choice([1, 127, rng.randint(-d.CODE_MAX, d.CODE_MAX)]),
        terms,
        tuple(tuple(rng.randint(-top, top) for _ in terms) for _ in range(width)),
        tuple(rng.randint(-(2**50), 2**50) for _ in range(width)),
        bits,
    )


def _network(rng: random.Random, p: d.Program) -> d.Network | None:
    """A network of up to 4 layers over columns of int8 codes, some of them read twice; None: there are no such."""
    rules = [column.rule for column in p.columns]
    able = [c for c, r in enumerate(rules) if isinstance(r, d.Affine) and -128 <= r.low <= r.high <= 127]
    if not able or rng.random() < 0.6:
        return None
    shape = rng.randint(1, 4), rng.randint(1, 3), rng.randint(1, 3)
    columns = tuple(rng.choice(able) for _ in range(math.prod(shape)))
    substitutes = tuple(
        rng.randint(-128, 127) if p.features[p.columns[c].feature].nullable or rng.random() < 0.6 else None
        for c in columns
    )
    zero_point, layers = rng.choice([-128, 0, rng.randint(-128, 127)]), list[d.Layer]()
    for _ in range(rng.randint(1, 4)):
        before = layers[-1] if layers else None
        taken, zero = (before.shape, before.zero_point) if before else (shape, zero_point)
        layers.append(_layer(rng, taken, zero))
    if layers[-1].kind in ("conv", "depthwise"):
        layers[-1] = replace(layers[-1], low=-rng.randint(0, 2**30), high=rng.randint(1, 2**30))
    return d.Network(columns, substitutes, shape, zero_point, tuple(layers))


def _layer(rng: random.Random, shape: tuple[int, int, int], zero_point: int) -> d.Layer:
    kind = rng.choice(["conv", "conv", "depthwise", "average", "max"])
    window = shape[:2] if rng.random() < 0.3 else (rng.randint(1, 3), rng.randint(1, 3))
    stride = rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2])
    padding = tuple(rng.randint(0, n - 1) for n in window)
    ends = [rng.randint(1, -(-(n + p) // s)) for n, p, s in zip(shape, padding, stride, strict=False)]
    low, high = sorted(rng.choice([-128, 127, rng.randint(-128, 127)]) for _ in range(2))
    if kind in ("average", "max"):
        return d.Layer(kind, window, stride, padding, (*ends, shape[2]), zero_point, low, high)
    n = rng.randint(1, 9) if kind == "conv" else shape[2]
    per_output = math.prod(window) * (shape[2] if kind == "conv" else 1)
    return d.Layer(
        kind, window, stride, padding, (*ends, n), rng.randint(-128, 127), low, high,
        tuple(rng.choice([0, -128, 127, rng.randint(-128, 127)]) for _ in range(n * per_output)),
        tuple(rng.choice([0, rng.randint(-(10**5), 10**5), rng.randint(-(2**30), 2**30)]) for _ in range(n)),
        tuple(rng.choice([0, 2**31 - 1, rng.randint(2**30, 2**31 - 1)]) for _ in range(n)),
        tuple(rng.choice([1, 62, rng.randint(31, 45), rng.randint(36, 41)]) for _ in range(n)),
    )  # fmt: skip


def _trees(rng: random.Random, columns: tuple[int, ...]) -> d.Trees:
    width = rng.randint(1, 5)
    return d.Trees(
        columns,
        tuple(rng.randint(-(10**6), 10**6) for _ in range(width)),
        tuple(_tree(rng, len(columns), width) for _ in range(rng.randint(0, 5))),
    )


def _tree(rng: random.Random, n_columns: int, n_outputs: int) -> d.Tree:
    output = rng.randrange(n_outputs)
    width = rng.choice([1, rng.randint(1, n_outputs - output)])
    if rng.random() < 0.5:
        n, children = 2 ** rng.randint(0, 3) - 1, ()
    else:
        children = _leafwise(rng, rng.randint(0, 9))
        n = len(children)
    thresholds = [
        rng.choice([rng.randint(-d.CODE_MAX, d.CODE_MAX - 1), -d.CODE_MAX + rng.randint(0, 8)]) for _ in range(n)
    ]
    missing_left = [rng.random() < 0.5 for _ in range(n)]
    return d.Tree(
        output,
        width,
        tuple(rng.randrange(n_columns) for _ in range(n)),
        tuple(
            d.CODE_MAX if left and rng.random() < 0.1 else t for t, left in zip(thresholds, missing_left, strict=True)
        ),
        tuple(missing_left),
        children,
        tuple(rng.randint(-d.CODE_MAX, d.CODE_MAX) for _ in range((n + 1) * width)),
    )


def _leafwise(rng: random.Random, n: int) -> tuple[tuple[int, int], ...]:
    """A tree of n nodes grown at a random leaf, as leaf-wise learners do."""
    pairs: list[list[int]] = []
    leaf_places: list[tuple[int, int]] = []
    for i in range(n):
        if leaf_places:
            parent, side = leaf_places.pop(rng.randrange(len(leaf_places)))
            pairs[parent][side] = i
        pairs.append([0, 0])
        leaf_places += [(i, 0), (i, 1)]
    for leaf, (parent, side) in enumerate(leaf_places):
        pairs[parent][side] = -1 - leaf
    return tuple((a, b) for a, b in pairs)


def _stack(rng: random.Random, below: int, before: list[d.Scorer]) -> d.Stack:
    trees = before[below]
    assert isinstance(trees, d.Trees)
    narrow = [m for m, tree in enumerate(trees.trees) if tree.width == 1]
    members, width = rng.sample(narrow, rng.randint(0, len(narrow))), rng.randint(1, 4)
    return d.Stack(
        below,
        tuple(members),
        tuple(tuple(rng.randint(-d.CODE_MAX, d.CODE_MAX) for _ in members) for _ in range(width)),
        tuple(rng.randint(-(2**50), 2**50) for _ in range(width)),
    )


# ---------------------------------------------------------------- nodes


@dataclass(frozen=True)
class _Made:
    """A finished node: its place counted from the last, and what must hold where it is entered."""

    place: int
    tried: frozenset[int]
    at_hand: frozenset[int]
    forwards: bool


class _Graph:
    def __init__(self, rng: random.Random, program: d.Program) -> None:
        self.rng = rng
        self.p = program
        self.made: list[_Made] = []
        self.drafts: list[Any] = []  # nodes whose targets are places
        owner = {f: s for s, sensor in enumerate(program.sensors) for f in sensor.features}
        self.reads: list[tuple[frozenset[int], frozenset[int]]] = []
        self.everywhere: list[frozenset[int]] = []  # what every path must have tried: for trees nothing
        for s in program.scorers:
            if isinstance(s, d.Stack):
                below = program.scorers[s.trees]
                positions = {k for m in s.members for k in below.trees[m].splits}
                split = frozenset(owner[program.columns[below.columns[k]].feature] for k in positions)
                self.reads.append((split, frozenset()))
            elif isinstance(s, d.Opaque):
                wanted = frozenset(owner[f] for f in s.features)
                self.reads.append((wanted, wanted))
            else:
                sensors = [owner[program.columns[c].feature] for c in s.columns]
                must = s.substitutes if isinstance(s, d.Polynomial | d.Network) else [0] * len(sensors)
                needed = frozenset(k for k, sub in zip(sensors, must, strict=True) if sub is None)
                self.reads.append((frozenset(sensors), needed))
            self.everywhere.append(frozenset() if isinstance(s, d.Stack | d.Trees) else self.reads[-1][0])

    def nodes(self, size: int) -> tuple[d.Node, ...]:
        self.build(frozenset(), frozenset(), can_forward=bool(self.p.uplink.features), depth=size)
        last = len(self.drafts) - 1
        return tuple(retargeted(node, lambda place: last - place) for node in reversed(self.drafts))

    def build(self, tried: frozenset[int], at_hand: frozenset[int], can_forward: bool, depth: int) -> _Made:
        rng = self.rng
        again = [m for m in self.made if m.tried <= tried and m.at_hand <= at_hand and (can_forward or not m.forwards)]
        if again and rng.random() < 0.25:
            return rng.choice(again)
        kinds = ["acquire"] * 4 + ["branch"] * 4 + ["select", "answer"] + ["forward"] * (2 if can_forward else 0)
        kind = rng.choice(kinds) if depth > 0 and len(self.made) < 60 else "answer"
        return getattr(self, f"_{kind}")(tried, at_hand, can_forward, depth)

    def _finish(self, node: Any, tried: Iterable[int], at_hand: Iterable[int], forwards: bool) -> _Made:
        self.drafts.append(node)
        one = _Made(len(self.drafts) - 1, frozenset(tried), frozenset(at_hand), forwards)
        self.made.append(one)
        return one

    def _acquire(self, tried: frozenset[int], at_hand: frozenset[int], can_forward: bool, depth: int) -> _Made:
        n = len(self.p.sensors)
        bought = frozenset(self.rng.sample(range(n), self.rng.randint(1, n)))
        otherwise = self.build(tried | bought, at_hand, can_forward, depth - 1)
        then = self.build(tried | bought, at_hand | bought, can_forward, depth - 1)
        sure = frozenset() if then.place == otherwise.place else bought
        return self._finish(
            d.Acquire(tuple(self.rng.sample(sorted(bought), len(bought))), then.place, otherwise.place),
            (then.tried | otherwise.tried) - bought,
            (then.at_hand - sure) | otherwise.at_hand,
            then.forwards or otherwise.forwards,
        )

    def _scores(self, tried: frozenset[int], at_hand: frozenset[int], width: int | None) -> d.Slice:
        able = []
        for k, s in enumerate(self.p.scorers):
            n = len(d.offsets_of(s))
            reads, needs = self.reads[k]
            if reads <= tried and needs <= at_hand and n >= (width or 1):
                able.append((k, n))
        k, n = self.rng.choice(able)
        width = width or self.rng.randint(1, n)
        start = self.rng.randint(0, n - width)
        return d.Slice(k, start, start + width)

    def _branch(self, tried: frozenset[int], at_hand: frozenset[int], can_forward: bool, depth: int) -> _Made:
        rng = self.rng
        rule = rng.choice(["threshold", "margin", "argmax", "tournament"])
        scores = self._scores(tried, at_hand, 1 if rule == "threshold" else None)
        width = scores.stop - scores.start
        n = width + 1 if rule == "tournament" else 2 if rule != "argmax" or width == 1 else width
        targets = [self.build(tried, at_hand, can_forward, depth - 1) for _ in range(n)]
        bracket = []
        if rule == "tournament":
            free = list(range(n))
            for match in range(n - 1):
                pair = rng.sample(free, 2)
                bracket.append((pair[0], pair[1]))
                free = [k for k in free if k not in pair] + [n + match]
        threshold = rng.choice([0, rng.randint(-(10**5), 10**5), rng.randint(-(2**55), 2**55)])
        _, needs = self.reads[scores.scorer]
        return self._finish(
            d.Branch(scores, rule, tuple(t.place for t in targets), threshold, tuple(bracket)),
            self.everywhere[scores.scorer].union(*[t.tried for t in targets]),
            needs.union(*[t.at_hand for t in targets]),
            any(t.forwards for t in targets),
        )

    def _select(self, tried: frozenset[int], at_hand: frozenset[int], can_forward: bool, depth: int) -> _Made:
        rng = self.rng
        targets = [self.build(tried, at_hand, can_forward, depth - 1) for _ in range(rng.randint(2, 4))]
        candidates = tuple(
            d.Candidate(
                rng.choice([1, 5, 1000, 2**31 - 1]),
                tuple(rng.randint(0, 10**6) for _ in range(rng.randint(1, 2))),
                t.place,
            )
            for t in targets[1:]
        )
        return self._finish(
            d.Select(candidates, targets[0].place),
            frozenset().union(*[t.tried for t in targets]),
            frozenset().union(*[t.at_hand for t in targets]),
            any(t.forwards for t in targets),
        )

    def _answer(self, tried: frozenset[int], at_hand: frozenset[int], can_forward: bool, depth: int) -> _Made:
        rng, n = self.rng, self.p.n_classes
        scores = self._scores(tried, at_hand, 1 if n == 0 or (n == 2 and rng.random() < 0.5) else n)
        steps = [rng.randint(1, 10**6) for _ in range(rng.randint(0, 4))]
        margins = tuple(accumulate(steps))
        confidences = tuple(rng.randint(0, 10_000) for _ in range(len(margins) + 1))
        tried, at_hand = self.everywhere[scores.scorer], self.reads[scores.scorer][1]
        if n:
            return self._finish(d.Answer(scores, "class", margins, confidences), tried, at_hand, False)
        is_small = isinstance(self.p.scorers[scores.scorer], d.Trees)
        shift = rng.choice(
            [0, -1, -rng.randint(2, 12), -rng.randint(13, 62), *([rng.randint(1, 30)] if is_small else [])]
        )
        return self._finish(d.Answer(scores, "value", margins, confidences, shift), tried, at_hand, False)

    def _forward(self, tried: frozenset[int], at_hand: frozenset[int], can_forward: bool, depth: int) -> _Made:
        n = len(self.p.sensors)
        bought = frozenset(self.rng.sample(range(n), self.rng.randint(0, n)))
        fallback = self.build(tried | bought, at_hand, False, depth - 1)
        return self._finish(
            d.Forward(tuple(sorted(bought)), fallback.place), fallback.tried - bought, fallback.at_hand, True
        )


def retargeted(node: d.Node, to: Callable[[int], int]) -> d.Node:
    """A node whose targets are other ones."""
    if isinstance(node, d.Acquire):
        return replace(node, then=to(node.then), otherwise=to(node.otherwise))
    if isinstance(node, d.Branch):
        return replace(node, targets=tuple(map(to, node.targets)))
    if isinstance(node, d.Select):
        candidates = tuple(replace(c, target=to(c.target)) for c in node.candidates)
        return replace(node, candidates=candidates, otherwise=to(node.otherwise))
    return replace(node, fallback=to(node.fallback)) if isinstance(node, d.Forward) else node


# ---------------------------------------------------------------- readings


def random_reading(rng: random.Random, dtype: str) -> Any:
    """A number that this type holds exactly, extremes among them."""
    if dtype == "i32":
        return rng.choice([rng.randint(-5, 5), rng.randint(-(2**31) + 1, 2**31 - 1), 2**31 - 1, 1 - 2**31, 0])
    tiny, huge = (2.0**-149, 3.4028234663852886e38) if dtype == "f32" else (5e-324, 1.7976931348623157e308)
    x = rng.choice([rng.gauss(0, 1), rng.gauss(0, 1e6), float(rng.randint(-5, 5)), tiny, -tiny, huge, -huge, 0.0])
    return round_f32(x) if dtype == "f32" else x


def random_readings(rng: random.Random, p: d.Program, garbage: float = 0.0) -> list[Any]:
    """One reading per feature: values, thresholds themselves, missing ones, and garbage as often as asked."""
    out: list[Any] = [random_reading(rng, f.dtype) for f in p.features]
    for column in p.columns:
        if isinstance(column.rule, d.Rank) and column.rule.thresholds and rng.random() < 0.5:
            out[column.feature] = rng.choice(column.rule.thresholds)
    for f, feature in enumerate(p.features):
        if feature.nullable and rng.random() < 0.3:
            out[f] = rng.choice([None, float("nan")])
        if rng.random() < garbage:
            out[f] = rng.choice(GARBAGE)
    return out


# ---------------------------------------------------------------- drafts


def as_draft(p: d.Program, rng: random.Random) -> d.Program:
    """The program with floats where a draft has them."""

    def floats(values: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(float(v) + rng.random() for v in values)

    def scorer(s: d.Scorer) -> d.Scorer:
        if isinstance(s, d.Polynomial | d.Stack):
            return replace(s, weights=tuple(floats(w) for w in s.weights), bias=floats(s.bias))
        if isinstance(s, d.Trees):
            trees = tuple(replace(t, leaves=floats(t.leaves)) for t in s.trees)
            return replace(s, base=floats(s.base), trees=trees)
        return s

    def node(n: d.Node) -> d.Node:
        if isinstance(n, d.Branch):
            return replace(n, threshold=float(n.threshold))
        return replace(n, margins=floats(n.margins), shift=0) if isinstance(n, d.Answer) else n

    return replace(p, scorers=tuple(map(scorer, p.scorers)), nodes=tuple(map(node, p.nodes)))
