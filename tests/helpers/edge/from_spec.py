# SPDX-License-Identifier: Apache-2.0
"""A second reader and evaluator, written from docs/SPEC-bundle-v1.md and docs/SPEC-program-v1.md and from nothing else.

It imports nothing of hardcase: bytes of a bundle, or a program's tensors, in, decisions out. It trusts them.
Numbers are exact (integers and fractions), and a run-time check stands wherever the verifier claims to have proved
something: sums stay below 2^62 (ensembles: 2^31), and a scorer never lacks a reading that it has no substitute for.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

SIZES = {"F64": "d", "I64": "q", "F32": "f", "I32": "i", "I16": "h", "I8": "b"}
TYPES = ("i32", "f32", "f64")
MISSING = -32768
READ, ASK = "read", "ask"  # what a run wants
REPLY = -1  # among times


# ---------------------------------------------------------------- the bundle's bytes


@dataclass(frozen=True)
class Read:
    """What a bundle says, in the order and with the numbers of the pages."""

    manifest: dict[str, Any]
    pools: dict[str, tuple[Any, ...]]
    words: tuple[int, ...]
    features: list[tuple[str, bool]] = field(default_factory=list)
    sensors: list[tuple[Sequence[int], Sequence[int]]] = field(default_factory=list)
    columns: list[tuple[int, int, Sequence[int]]] = field(default_factory=list)  # feature, rule, numbers
    scorers: list[tuple[Any, ...]] = field(default_factory=list)
    nodes: list[tuple[Any, ...]] = field(default_factory=list)

    def run(self, pool: str, offset: int, count: int) -> tuple[Any, ...]:
        return self.pools.get(pool, ())[offset : offset + count]

    @property
    def classes(self) -> int:
        return self.words[7]

    def costs(self) -> tuple[int, ...]:
        """Per request, per byte, of the cloud, and per decision if it costs anything."""
        return self.run("i64", self.words[9], 3 + self.words[13])

    def request(self) -> tuple[int, tuple[int, ...]]:
        """The cost of a request, and the features that it carries."""
        per_request, per_byte, cloud, *_ = self.costs()
        return per_request + per_byte * self.words[10] + cloud, self.run("i32", self.words[11], self.words[12])


def read(data: bytes) -> Read:
    """Sections 1 and 2: the bundle in these bytes."""
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    meta = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        if name != "checksum":
            first, last = (8 + length + at for at in entry["data_offsets"])
            tensors[name] = struct.unpack(f"<{entry['shape'][0]}{SIZES[entry['dtype']]}", data[first:last])
    return read_program(tensors, json.loads(meta["manifest"]))


def read_program(tensors: Mapping[str, Sequence[Any]], manifest: dict[str, Any] | None = None) -> Read:
    """Section 6: the program in these tensors."""
    pools = {name: tuple(numbers) for name, numbers in tensors.items()}
    made = Read(manifest or {}, pools, pools["program"])
    at = 16

    def records(count: int, size: int) -> list[tuple[int, ...]]:
        nonlocal at
        rows = [made.words[at + k * size : at + (k + 1) * size] for k in range(count)]
        at += count * size
        return rows

    n_features, n_sensors, n_columns, n_scorers, n_nodes = made.words[2:7]
    made.features.extend((TYPES[w[0]], w[1] == 1) for w in records(n_features, 2))
    made.sensors.extend((made.run("i32", w[0], w[1]), made.run("i64", w[2], w[3])) for w in records(n_sensors, 4))
    for feature, rule, offset, count in records(n_columns, 4):
        pool = "i64" if rule == 0 or made.features[feature][0] == "f64" else "i32"
        made.columns.append((feature, rule, made.run(pool, offset, count)))
    made.scorers.extend(_scorer(made, w) for w in records(n_scorers, 12))
    made.nodes.extend(_node(made, w) for w in records(n_nodes, 10))
    assert at == len(made.words)
    return made


def _scorer(p: Read, w: Sequence[int]) -> tuple[Any, ...]:
    if w[0] == 0:
        return _polynomial(p, w)
    if w[0] == 1:
        trees = []
        for k in range(w[5]):
            output, width, n, pointers, slots, thresholds, children, leaves = p.run("i32", w[6] + 8 * k, 8)
            pairs = p.run("i16", children, 2 * n) if pointers else ()
            body = p.run("i16", slots, n), p.run("i16", thresholds, n), pairs
            trees.append((output, width, *body, p.run("i16", leaves, (n + 1) * width)))
        return "trees", p.run("i32", w[2], w[1]), p.run("i64", w[4], w[3]), trees
    if w[0] == 4:
        _, n, columns, substitutes, *shape, zero, n_layers, at = w[:10]
        given = p.run("i32", columns, n), p.run("i16", substitutes, n), tuple(shape), zero
        return "network", *given, _layers(p, shape[2], [p.run("i32", at + 17 * k, 17) for k in range(n_layers)])
    assert w[0] < 5, f"this evaluator does not know scorers of kind {w[0]}: SPEC-program, section 6.5"
    assert w[0] == 2, "an opaque scorer is native code, which this evaluator has not"
    members = p.run("i32", w[3], w[2])
    return "stack", w[1], members, _rows(p.run("i16", w[5], w[2] * w[4]), w[4]), p.run("i64", w[6], w[4])


def _rows(flat: Sequence[int], count: int) -> list[Sequence[int]]:
    size = len(flat) // count if count else 0
    return [flat[k * size : (k + 1) * size] for k in range(count)]


def _layers(p: Read, channels: int, records: list[tuple[int, ...]]) -> list[tuple[Any, ...]]:
    """Kind, window, stride, padding, shape, (zero point, low, high), weights, bias, multipliers, shifts."""
    out = []
    for kind, *w in records:
        n, size = w[8], w[0] * w[1] * (channels if kind == 0 else 1)
        counts = [n * size, n, n, n] if kind < 2 else [0] * 4
        runs = [p.run(*what) for what in zip(("i8", "i32", "i32", "i8"), w[12:], counts, strict=True)]
        out.append((kind, w[0:2], w[2:4], w[4:6], w[6:9], w[9:12], *runs))
        channels = n
    return out


def _polynomial(p: Read, w: Sequence[int]) -> tuple[Any, ...]:
    _, n_columns, columns, substitutes, n_terms, degree, terms, n_out, form, weights, bias, constant = w
    if form < 256:
        positions = p.run("i16", terms, n_terms * degree)
        flat = p.run(f"i{form}", weights, n_terms * n_out)
    else:
        positions = p.run("i8", terms, n_terms * degree)
        count = n_terms * n_out
        mask = p.run("i8", terms + n_terms * degree, -(-count // 8))
        bits = [(mask[k // 8] >> k % 8) & 1 for k in range(count)]
        stored = iter(p.run(f"i{form - 256}", weights, sum(bits)))
        flat = tuple(next(stored) if bit else 0 for bit in bits)
    products = [positions[k * degree : (k + 1) * degree] for k in range(n_terms)]
    given = p.run("i32", columns, n_columns), p.run("i16", substitutes, n_columns), constant
    return "polynomial", *given, products, _rows(flat, n_out), p.run("i64", bias, n_out)


def _node(p: Read, w: Sequence[int]) -> tuple[Any, ...]:
    kind = w[0]
    if kind == 0:
        return "acquire", p.run("i32", w[1], w[2]), w[3], w[4]
    if kind == 1:
        entrants = p.run("i32", w[9], 2 * w[8])
        matches = list(zip(entrants[::2], entrants[1::2], strict=True))
        return "branch", w[1:4], w[4], p.run("i32", w[6], w[5]), p.run("i64", w[7], 1)[0], matches
    if kind == 2:
        candidates = []
        for k in range(w[1]):
            size, cost, n_cost, target = p.run("i32", w[2] + 4 * k, 4)
            candidates.append((size, p.run("i64", cost, n_cost), target))
        return "select", candidates, w[3]
    if kind == 3:
        return "answer", w[1:4], w[4], p.run("i64", w[6], w[5]), p.run("i16", w[7], w[5] + 1), w[8]
    return "forward", p.run("i32", w[1], w[2]), w[3]


# ---------------------------------------------------------------- sections 2 and 3: readings and codes


def held(x: Any, dtype: str) -> Any:
    """The number that a type holds, as a fraction; None: missing."""
    if x is None or (isinstance(x, float) and not math.isfinite(x)):
        return None
    exact = Fraction(x)
    if dtype == "i32":
        return exact if exact.denominator == 1 and abs(exact) < 2**31 else None
    digits, lowest, largest = (24, -126, 127) if dtype == "f32" else (53, -1022, 1023)
    if exact == 0:
        return exact
    size = abs(exact).numerator.bit_length() - abs(exact).denominator.bit_length()
    size -= abs(exact) < Fraction(2) ** size
    place = Fraction(2) ** (max(size, lowest) - digits + 1)
    nearest = round(exact / place) * place  # Python's round takes ties to even
    return nearest if abs(nearest) < Fraction(2) ** (largest + 1) else None


def key(x: Fraction, dtype: str) -> int:
    """Section 3: an integer that orders as the reading does."""
    if dtype == "i32":
        return int(x)
    form, bits = ("<f", 31) if dtype == "f32" else ("<d", 63)
    (b,) = struct.unpack("<i" if bits == 31 else "<q", struct.pack(form, float(x) + 0.0))  # minus zero is zero
    return b if b >= 0 else b ^ (2**bits - 1)


def rank_code(thresholds: Sequence[int], at: int) -> int:
    """Thresholds strictly below, as keys."""
    return sum(t < at for t in thresholds) - 32767


def affine_code(numbers: Sequence[int], x: Fraction) -> int:
    frac, mul, add, shift, low, high = numbers
    q = max(-(2**31), min(2**31 - 1, math.floor(x * Fraction(2) ** frac)))
    assert abs(q * mul + add) < 2**63
    return max(low, min(high, (q * mul + add) >> shift))


def code(p: Read, column: int, x: Fraction) -> int:
    feature, rule, numbers = p.columns[column]
    return rank_code(numbers, key(x, p.features[feature][0])) if rule == 1 else affine_code(numbers, x)


# ---------------------------------------------------------------- section 4


@dataclass
class World:
    """What a decision depends on: readings by feature, and all that may go wrong.

    ``times``: by the clock, what each sensor really takes and, under -1, the wait for a reply.
    """

    readings: Sequence[Any]
    failing: frozenset[int] = frozenset()
    dead: frozenset[int] = frozenset()
    budget: int | None = None
    size: int = 1
    cloud: bool = True
    reply: tuple[int, int] | None = None
    times: Mapping[int, int] | None = None


Decided = tuple[int, int, str, int, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class Run:
    """One decision, as a generator that yields what it wants: ``READ``, ``ASK``, or a node of ``waits``."""

    def __init__(self, p: Read, world: World, waits: Collection[int] = ()) -> None:
        self.p, self.w, self.waits = p, world, waits
        self.bought: set[int] = set()
        self.failed = set(world.dead)
        self.vain: set[int] = set()
        self.dear: set[int] = set()
        self.spent, self.degraded = sum(p.costs()[3:]), False
        self.trace: list[int] = []
        self.codes = [MISSING] * len(p.columns)
        self.values: dict[int, Any] = {}
        self.asked: list[Any] | None = None

    # costs

    def price(self, cost: Sequence[int]) -> int:
        return sum(c * self.w.size**k for k, c in enumerate(cost))

    def costs(self, sensors: Sequence[int]) -> int:
        return sum(self.price(self.p.sensors[s][1]) for s in sensors)

    def fits(self, amount: int) -> bool:
        return self.w.budget is None or self.spent + amount <= self.w.budget

    def new(self, sensors: Sequence[int]) -> list[int]:
        return [s for s in sensors if s not in self.bought]

    def spend(self, what: int, declared: int) -> bool:
        """Section 4.3: False if this is given up when the time is over."""
        after = self.spent + (declared if self.w.times is None else self.w.times[what])
        is_in_time = self.w.times is None or self.w.budget is None or after <= self.w.budget
        self.spent = after if is_in_time else max(self.spent, self.w.budget or 0)
        return is_in_time

    def buy(self, sensors: Sequence[int]) -> None:
        for s in sensors:
            assert s not in self.bought
            self.bought.add(s)
            is_in_time = self.spend(s, self.costs([s]))
            features = self.p.sensors[s][0]
            values = {f: held(self.w.readings[f], self.p.features[f][0]) for f in features}
            is_gone = any(v is None and not self.p.features[f][1] for f, v in values.items())
            if s in self.w.failing or is_gone or not is_in_time:
                self.failed.add(s)
                continue
            self.values |= values
            for c, (feature, _, _) in enumerate(self.p.columns):
                if values.get(feature) is not None:
                    self.codes[c] = code(self.p, c, values[feature])

    # scores

    def leaf(self, columns: Sequence[int], tree: tuple[Any, ...]) -> Sequence[int]:
        _, width, slots, thresholds, children, leaves = tree
        n, at = len(slots), 0
        while 0 <= at < n:
            x = self.codes[columns[slots[at] >> 1]]
            left = not slots[at] & 1 if x == MISSING else x <= thresholds[at]
            at = children[2 * at + (not left)] if children else 2 * at + (1 if left else 2)
        k = -1 - at if children else at - n
        return leaves[k * width : (k + 1) * width]  # type: ignore[no-any-return]

    def scores(self, index: int) -> list[int]:
        scorer = self.p.scorers[index]
        if scorer[0] == "trees":
            _, columns, base, trees = scorer
            out = list(base)
            for tree in trees:
                for j, v in enumerate(self.leaf(columns, tree), tree[0]):
                    out[j] += v
                    assert abs(out[j]) < 2**31
            return out
        if scorer[0] == "network":
            return self.network(*scorer[1:])
        if scorer[0] == "stack":
            _, below, members, weights, bias = scorer
            _, columns, _, trees = self.p.scorers[below]
            x = [self.leaf(columns, trees[m])[0] for m in members]
        else:
            _, columns, substitutes, constant, terms, weights, bias = scorer
            inputs = []
            for c, substitute in zip(columns, substitutes, strict=True):
                inputs.append(substitute if self.codes[c] == MISSING else self.codes[c])
                assert inputs[-1] != MISSING, "V29: a reading without a substitute is there"
            inputs.append(constant)
            x = [math.prod(inputs[j] for j in term) for term in terms]
        out = [b + sum(w * v for w, v in zip(row, x, strict=True)) for row, b in zip(weights, bias, strict=True)]
        assert all(abs(v) < 2**62 for v in out)
        return out

    def network(
        self, columns: Sequence[int], substitutes: Sequence[int], shape: Sequence[int], zero: int, layers: list[Any]
    ) -> list[int]:
        x = [s if self.codes[c] == MISSING else self.codes[c] for c, s in zip(columns, substitutes, strict=True)]
        assert MISSING not in x, "V29: a reading without a substitute is there"
        assert all(-128 <= v <= 127 for v in x), "V35: codes of a network are int8"
        for kind, window, stride, padding, sizes, (z, low, high), *numbers in layers:
            y = []
            for at in range(math.prod(sizes)):
                row, column, o = at // sizes[2] // sizes[1], at // sizes[2] % sizes[1], at % sizes[2]
                places = []  # of the window, each with where its channels begin in x
                for place in range(window[0] * window[1]):
                    r = row * stride[0] - padding[0] + place // window[1]
                    c = column * stride[1] - padding[1] + place % window[1]
                    if 0 <= r < shape[0] and 0 <= c < shape[1]:
                        places.append((place, (r * shape[1] + c) * shape[2]))
                assert places, "V34: every window begins in its input"
                y.append(max(low, min(high, self.value(kind, shape[2], z, zero, o, places, x, numbers))))
            x, shape, zero = y, sizes, z
        return [v - zero for v in x]

    def value(
        self, kind: int, channels: int, z: int, zero: int, o: int, places: list[Any], x: list[int], numbers: list[Any]
    ) -> int:
        if kind == 3:
            return max(x[first + o] for _, first in places)
        if kind == 2:
            total = sum(x[first + o] for _, first in places)
            nearest = (2 * abs(total) + len(places)) // (2 * len(places))
            return nearest if total > 0 else -nearest
        weights, bias, multipliers, shifts = numbers
        total = bias[o]
        for place, first in places:
            for k in range(channels) if kind == 0 else [o]:
                at = (o * (len(weights) // len(bias) // channels) + place) * channels + k
                total += weights[at if kind == 0 else place * channels + o] * (x[first + k] - zero)
                assert abs(total) < 2**31
        return z + math.floor(Fraction(total * multipliers[o], 2 ** shifts[o]) + Fraction(1, 2))

    def slice(self, part: Sequence[int]) -> list[int]:
        return self.scores(part[0])[part[1] : part[2]]

    # nodes

    def available(self, target: int, failed: set[int]) -> bool:
        node = self.p.nodes[target]
        if node[0] == "acquire":
            return not failed & set(node[1]) and self.fits(self.costs(self.new(node[1])))
        if node[0] == "forward":
            needed = [s for s in self.new(node[1]) if s not in self.failed]
            return self.fits(self.costs(needed) + self.p.request()[0])
        return True

    def afford(self, new: list[int]) -> None:
        if new and not self.fits(self.costs(new)):
            self.dear |= set(new)

    def choose(self, node: tuple[Any, ...], failed: set[int] | None) -> int:
        _, part, rule, targets, threshold, matches = node
        scores = self.slice(part)
        can = [failed is None or self.available(t, failed) for t in targets]
        if not any(can):
            can = [True] * len(targets)
        pair = scores if len(scores) > 1 else [0, scores[0]]
        if rule == 3:
            winners: list[int | None] = [k if ok else None for k, ok in enumerate(can)]
            for (a, b), score in zip(matches, scores, strict=True):
                x, y = winners[a], winners[b]
                winners.append(y if x is None else x if y is None or score <= 0 else y)
            assert winners[-1] is not None
            return int(targets[winners[-1]])
        if rule == 2:
            order = sorted(range(len(targets)), key=lambda k: (-pair[k], k))
        else:
            best, second = sorted(pair, reverse=True)[:2]
            is_second = scores[0] > threshold if rule == 0 else best - second >= threshold
            order = [1, 0] if is_second else [0, 1]
        return int(targets[next(k for k in order if can[k])])

    def walk(self) -> Generator[str | int, Any, Decided]:
        """All of it; a reply, or the readings of a node's sensor, are sent in."""
        at: int | Decided = 0
        while isinstance(at, int):
            self.trace.append(at)
            node = self.p.nodes[at]
            step = getattr(self, f"_{node[0]}")(node)
            at = (yield from step) if node[0] in ("acquire", "forward") else step
        return at

    def _acquire(self, node: tuple[Any, ...]) -> Generator[str | int, Any, int]:
        _, sensors, then, otherwise = node
        wanted, new = set(sensors), self.new(sensors)
        self.afford(new)
        if not wanted & self.failed and self.fits(self.costs(new)):
            if new and self.trace[-1] in self.waits:
                self.give(new[0], (yield self.trace[-1]))
                self.buy(new)
            elif new:
                self.buy(new)
                yield READ
            if not wanted & self.failed:
                return int(then)
        self.vain |= wanted & self.failed
        return int(otherwise)

    def give(self, sensor: int, values: Sequence[Any]) -> None:
        given = dict(zip(self.p.sensors[sensor][0], values, strict=True))
        self.w.readings = [given.get(f, x) for f, x in enumerate(self.w.readings)]

    def _branch(self, node: tuple[Any, ...]) -> int:
        liked = self.p.nodes[self.choose(node, set())]
        if liked[0] == "acquire":
            self.vain |= set(liked[1]) & self.failed
        own = self.p.nodes[self.choose(node, None)]
        if own[0] == "acquire":
            self.afford(self.new(own[1]))
        return self.choose(node, self.failed)

    def _select(self, node: tuple[Any, ...]) -> int:
        for size, cost, target in node[1]:
            if self.w.size <= size and self.fits(self.price(cost)):
                return int(target)
        return int(node[2])

    def _forward(self, node: tuple[Any, ...]) -> Generator[str | int, Any, int | Decided]:
        _, sensors, fallback = node
        cost, carried = self.p.request()
        needed = [s for s in self.new(sensors) if s not in self.failed]
        if not self.w.cloud:
            self.degraded = True
        elif self.fits(self.costs(needed) + cost):
            self.buy(needed)
            if needed:
                yield READ
            if not self.fits(cost):  # by the clock, or by other parts of an item
                return int(fallback)
            self.vain |= set(sensors) & self.failed
            is_in_time = self.spend(REPLY, cost)
            self.asked = [None if (v := self.values.get(f)) is None else float(v) for f in carried]
            reply = yield ASK
            if is_in_time and reply is not None:
                return self.end(*reply, "cloud")
            self.degraded = True
        return int(fallback)

    def _answer(self, node: tuple[Any, ...]) -> Decided:
        _, part, kind, margins, confidences, shift = node
        scores = self.slice(part)
        result = margin = scores[0]
        if kind == 1:
            result = math.floor(Fraction(result) * Fraction(2) ** shift + Fraction(1, 2))
            assert abs(result) < 2**62
        else:
            pair = scores if len(scores) > 1 else [0, scores[0]]
            result = pair.index(max(pair))
            best, second = sorted(pair, reverse=True)[:2]
            margin = best - second
        confidence = confidences[sum(m <= margin for m in margins)]
        return self.end(result, confidence, "degraded" if self.degraded else "local")

    def end(self, result: int, confidence: int, route: str) -> Decided:
        bought, vain = tuple(sorted(self.bought)), tuple(sorted(self.vain))
        dear = tuple(sorted(self.dear - self.bought))
        return result, confidence, route, self.spent, bought, tuple(self.trace), vain, dear


def decide(p: Read, world: World) -> tuple[Decided, list[Any] | None]:
    """The decision, and the readings of the request if one was sent: in order, None for missing."""
    run, given = Run(p, world), None
    walk = run.walk()
    while True:
        try:
            given = world.reply if walk.send(given) == ASK else None
        except StopIteration as end:
            return end.value, run.asked


# ---------------------------------------------------------------- golden cases: section 4 of the bundle


def golden_of(p: Read) -> list[tuple[World, tuple[Any, ...]]]:
    """The cases of a bundle, each with its decision but for the sensors that it wanted in vain."""
    words, readings = p.pools.get("golden.words", (0,)), p.pools.get("golden.readings", ())
    at, n, m = 1, len(p.features), -(-len(p.sensors) // 15)
    is_short = all(isinstance(x, int) for x in readings)

    def take(count: int) -> tuple[int, ...]:
        nonlocal at
        at += count
        return words[at - count : at]

    def members(bits: Sequence[int]) -> tuple[int, ...]:
        return tuple(15 * k + j for k, word in enumerate(bits) for j in range(15) if word >> j & 1)

    cases = []
    for k in range(words[0]):
        budget, size, cloud, comes, result, confidence = take(6)
        failing = members(take(m))
        route, *answer = take(4)
        bought, trace = members(take(m)), take(take(1)[0])
        row = [None if x == MISSING and is_short else x for x in readings[k * n : (k + 1) * n]]
        world = World(row, frozenset(failing), frozenset(), None if budget == -1 else budget, size, cloud == 1)
        world.reply = (result, confidence) if comes else None
        said = (answer[0], answer[1], ("local", "cloud", "degraded")[route], answer[2], bought, trace)
        cases.append((world, said))
    return cases
