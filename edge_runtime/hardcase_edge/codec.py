"""A program as tensors, and back. docs/SPEC-program-v1.md section 6 defines every word.

One tensor of fixed-size records (``program``, 32-bit words) refers to a few pooled tensors by offset, so that a
kernel can run from the file as it lies in memory. In a draft, numbers of scorers are floats and live in the ``f64``
pool. Everything read here is hostile: every offset is checked before use and the total work is bounded.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from .errors import BundleVersionError, ProgramError
from .program import (
    ARGMAX,
    MARGIN,
    MISSING,
    THRESHOLD,
    TOURNAMENT,
    Acquire,
    Affine,
    Answer,
    Branch,
    Candidate,
    Column,
    Feature,
    Forward,
    Node,
    Number,
    Opaque,
    Polynomial,
    Program,
    Rank,
    Scorer,
    Select,
    Sensor,
    Slice,
    Stack,
    Tree,
    Trees,
    Uplink,
)

__all__ = ["POOLS", "PROGRAM_VERSION", "Pools", "decode", "encode", "from_key", "to_key"]

PROGRAM_VERSION = 1
MAX_ELEMENTS = 4_000_000  # numbers a decoder will read before it refuses
DTYPES = ("i32", "f32", "f64")
RULES = (THRESHOLD, MARGIN, ARGMAX, TOURNAMENT)
KINDS = ("class", "value")
POOLS = {"f64": "d", "i64": "q", "i32": "i", "i16": "h", "i8": "b"}  # widest first: all aligned in the file
HEADER, FEATURE, SENSOR, COLUMN, SCORER, NODE, TREE, CANDIDATE = 16, 2, 4, 4, 12, 10, 8, 4

Pools = dict[str, array]  # type: ignore[type-arg]


# ---------------------------------------------------------------- order-preserving keys


def to_key(value: Number, dtype: str) -> int:
    """A signed integer that orders as the reading does; minus zero has zero's key."""
    if dtype == "i32":
        return int(value)
    wide = dtype == "f64"
    (bits,) = struct.unpack("<q" if wide else "<i", struct.pack("<d" if wide else "<f", value + 0.0))
    flip = 0x7FFF_FFFF_FFFF_FFFF if wide else 0x7FFF_FFFF
    return bits if bits >= 0 else bits ^ flip


def from_key(key: int, dtype: str) -> Number:
    """The reading with this key."""
    if dtype == "i32":
        return key
    wide = dtype == "f64"
    bits = key if key >= 0 else key ^ (0x7FFF_FFFF_FFFF_FFFF if wide else 0x7FFF_FFFF)
    (value,) = struct.unpack("<d" if wide else "<f", struct.pack("<q" if wide else "<i", bits))
    return float(value)


# ---------------------------------------------------------------- writing


class _Writer:
    def __init__(self, is_draft: bool) -> None:
        self.is_draft = is_draft
        self.pools: Pools = {name: array(code) for name, code in POOLS.items()}
        self._seen: dict[tuple[str, tuple[Number, ...]], int] = {}

    def put(self, pool: str, values: Iterable[Number]) -> int:
        """Offset of these values in a pool; equal runs are stored once."""
        run = tuple(values)
        key = (pool, run)
        if key not in self._seen:
            self._seen[key] = len(self.pools[pool])
            try:
                self.pools[pool].extend(array(POOLS[pool], run))
            except OverflowError as error:
                raise ProgramError(f"a number does not fit the {pool} pool: {error}; quantise to fewer bits") from error
        return self._seen[key]

    def numbers(self, pool: str, values: Iterable[Number]) -> int:
        """Numbers of a scorer: floats in a draft."""
        return self.put("f64", [float(v) for v in values]) if self.is_draft else self.put(pool, values)


def encode(program: Program, *, is_draft: bool = False) -> dict[str, array]:  # type: ignore[type-arg]
    """Tensors of a program: ``program`` (32-bit words) and the pools that are not empty.

    Raises
    ------
    ProgramError
        When a number does not fit its field.
    """
    w = _Writer(is_draft)
    up = program.uplink
    words: list[int] = [
        PROGRAM_VERSION,
        int(is_draft),
        len(program.features),
        len(program.sensors),
        len(program.columns),
        len(program.scorers),
        len(program.nodes),
        program.n_classes,
        program.max_item_size,
        w.put("i64", (up.per_request, up.per_byte, up.cloud_per_request)),
        up.request_bytes,
        w.put("i32", up.features),
        len(up.features),
    ]
    words += [0] * (HEADER - len(words))
    for f in program.features:
        words += [DTYPES.index(f.dtype), int(f.nullable)]
    for s in program.sensors:
        words += [w.put("i32", s.features), len(s.features), w.put("i64", s.cost), len(s.cost)]
    for c in program.columns:
        words += _column(w, c, program.features[c.feature].dtype)
    for scorer in program.scorers:
        words += _padded(_scorer(w, scorer), SCORER)
    for node in program.nodes:
        words += _padded(_node(w, node), NODE)
    try:
        tensors = {"program": array("i", words)}
    except OverflowError as error:
        raise ProgramError(f"a program word does not fit 32 bits: {error}") from error
    return {**{k: p for k, p in w.pools.items() if p}, **tensors}


def _padded(words: list[int], size: int) -> list[int]:
    return words + [0] * (size - len(words))


def _column(w: _Writer, column: Column, dtype: str) -> list[int]:
    rule = column.rule
    if isinstance(rule, Affine):
        fields = (rule.frac, rule.mul, rule.add, rule.shift, rule.low, rule.high)
        return [column.feature, 0, w.put("i64", fields), len(fields)]
    keys = [to_key(t, dtype) for t in rule.thresholds]
    return [column.feature, 1, w.put("i64" if dtype == "f64" else "i32", keys), len(keys)]


def _scorer(w: _Writer, s: Scorer) -> list[int]:
    if isinstance(s, Polynomial):
        substitutes = [MISSING if x is None else x for x in s.substitutes]
        weights = [x for row in s.weights for x in row]
        return [
            0,
            len(s.columns),
            w.put("i32", s.columns),
            w.put("i16", substitutes),
            len(s.terms),
            len(s.terms[0]) if s.terms else 1,
            w.put("i16", [x for term in s.terms for x in term]),
            len(s.bias),
            s.weight_bits,
            w.numbers(f"i{s.weight_bits}", weights),
            w.numbers("i64", s.bias),
            s.constant,
        ]
    if isinstance(s, Trees):
        records = [x for tree in s.trees for x in _tree(w, tree)]
        return [
            1,
            len(s.columns),
            w.put("i32", s.columns),
            len(s.base),
            w.numbers("i64", s.base),
            len(s.trees),
            w.put("i32", records),
        ]
    if isinstance(s, Stack):
        weights = [x for row in s.weights for x in row]
        return [
            2,
            s.trees,
            len(s.members),
            w.put("i32", s.members),
            len(s.bias),
            w.numbers("i16", weights),
            w.numbers("i64", s.bias),
        ]
    blob = array("b", s.blob)
    return [
        3,
        len(s.features),
        w.put("i32", s.features),
        w.put("i8", blob),
        len(blob),
        len(s.low),
        w.put("i64", s.low),
        w.put("i64", s.high),
    ]


def _tree(w: _Writer, t: Tree) -> list[int]:
    slots = [2 * c + (0 if left else 1) for c, left in zip(t.splits, t.missing_left, strict=True)]
    return [
        t.output,
        t.width,
        len(t.splits),
        int(bool(t.children)),
        w.put("i16", slots),
        w.put("i16", t.thresholds),
        w.put("i16", [x for pair in t.children for x in pair]),
        w.numbers("i16", t.leaves),
    ]


def _node(w: _Writer, n: Node) -> list[int]:
    if isinstance(n, Acquire):
        return [0, w.put("i32", n.sensors), len(n.sensors), n.then, n.otherwise]
    if isinstance(n, Branch):
        return [
            1,
            *_slice_words(n.scores),
            RULES.index(n.rule),
            len(n.targets),
            w.put("i32", n.targets),
            w.numbers("i64", (n.threshold,)),
            len(n.bracket),
            w.put("i32", [x for pair in n.bracket for x in pair]),
        ]
    if isinstance(n, Select):
        records = [x for c in n.candidates for x in (c.max_size, w.put("i64", c.cost), len(c.cost), c.target)]
        return [2, len(n.candidates), w.put("i32", records), n.otherwise]
    if isinstance(n, Answer):
        return [
            3,
            *_slice_words(n.scores),
            KINDS.index(n.kind),
            len(n.margins),
            w.numbers("i64", n.margins),
            w.put("i16", n.confidences),
        ]
    return [4, w.put("i32", n.sensors), len(n.sensors), n.fallback]


def _slice_words(s: Slice) -> list[int]:
    return [s.scorer, s.start, s.stop]


# ---------------------------------------------------------------- reading


class _Reader:
    def __init__(self, tensors: Pools) -> None:
        self.pools = tensors
        self.words = tensors["program"]
        self.at = 0
        self.left = MAX_ELEMENTS
        self.is_draft = False

    def record(self, size: int) -> list[int]:
        out: list[int] = self.words[self.at : self.at + size].tolist()
        if len(out) < size:
            raise ProgramError(f"the program ends at word {len(self.words)}, inside a record of {size} words")
        self.at += size
        return out

    def get(self, pool: str, offset: int, count: int) -> tuple[int, ...]:
        values = self.pools.get(pool)
        have = 0 if values is None else len(values)
        if count == 0:
            return ()
        if values is None or offset < 0 or count < 0 or offset + count > have:
            raise ProgramError(f"{count} numbers at {offset} of the {pool} pool are asked for, it has {have}")
        self.left -= count
        if self.left < 0:
            raise ProgramError(f"the program has more than {MAX_ELEMENTS} numbers")
        return tuple(values[offset : offset + count])

    def numbers(self, pool: str, offset: int, count: int) -> tuple[Number, ...]:
        return self.get("f64" if self.is_draft else pool, offset, count)

    def rows(self, pool: str, offset: int, n_rows: int, n_columns: int) -> tuple[tuple[Number, ...], ...]:
        # bounded by the product before anything is made: a zero row is still a row
        self.left -= max(n_rows, 0)
        if n_rows < 0 or n_columns < 0 or self.left < 0:
            raise ProgramError(f"a table of {n_rows} by {n_columns} numbers is asked for")
        flat = self.numbers(pool, offset, n_rows * n_columns)
        return tuple(flat[k * n_columns : (k + 1) * n_columns] for k in range(n_rows))


def _one_of(names: Sequence[str], index: int, what: str) -> str:
    if not 0 <= index < len(names):
        raise ProgramError(f"{what} {index} is none of 0 to {len(names) - 1}")
    return names[index]


def decode(tensors: Pools) -> tuple[Program, bool]:
    """The program in these tensors, and whether it is a draft. Shapes are checked here, meaning by ``verifier``.

    Raises
    ------
    BundleVersionError
        The program's version is not the one this runtime reads.
    ProgramError
        Anything is cut, out of range or too large.
    """
    r = _Reader(tensors)
    head = r.record(HEADER)
    if head[0] != PROGRAM_VERSION:
        raise BundleVersionError(head[0], PROGRAM_VERSION, PROGRAM_VERSION)
    r.is_draft = head[1] == 1
    n_features, n_sensors, n_columns, n_scorers, n_nodes = head[2:7]
    if min(head[2:7]) < 0 or sum(head[2:7]) > len(r.words):
        raise ProgramError(f"the program's counts {head[2:7]} do not fit its {len(r.words)} words")
    money = r.get("i64", head[9], 3)
    features = []
    for _ in range(n_features):
        dtype, nullable = r.record(FEATURE)
        features.append(Feature(_one_of(DTYPES, dtype, "reading type"), nullable == 1))
    sensors = []
    for _ in range(n_sensors):
        f, n_f, c, n_c = r.record(SENSOR)
        sensors.append(Sensor(r.get("i32", f, n_f), r.get("i64", c, n_c)))
    columns = [_read_column(r, features) for _ in range(n_columns)]
    scorers = [_read_scorer(r) for _ in range(n_scorers)]
    nodes = [_read_node(r) for _ in range(n_nodes)]
    if r.at != len(r.words):
        raise ProgramError(f"the program has {len(r.words) - r.at} words too many")
    uplink = Uplink(*money, request_bytes=head[10], features=r.get("i32", head[11], head[12]))
    program = Program(
        tuple(features), tuple(sensors), uplink, tuple(columns), tuple(scorers), tuple(nodes), head[7], head[8]
    )
    return program, r.is_draft


def _read_column(r: _Reader, features: list[Feature]) -> Column:
    feature, rule, offset, count = r.record(COLUMN)
    if not 0 <= feature < len(features):
        raise ProgramError(f"a column reads feature {feature}, there are {len(features)}")
    if rule == 0:
        if count != 6:
            raise ProgramError(f"an affine rule has 6 numbers, not {count}")
        return Column(feature, Affine(*r.get("i64", offset, 6)))
    if rule != 1:
        raise ProgramError(f"column rule {rule} is none of 0 (affine) and 1 (rank)")
    dtype = features[feature].dtype
    keys = r.get("i64" if dtype == "f64" else "i32", offset, count)
    if any(a >= b for a, b in pairwise(keys)):
        raise ProgramError("the thresholds of a rank column do not increase")
    return Column(feature, Rank(tuple(from_key(k, dtype) for k in keys)))


def _read_scorer(r: _Reader) -> Scorer:
    kind, *f = r.record(SCORER)
    readers: tuple[Callable[[_Reader, list[int]], Scorer], ...] = (
        _read_polynomial,
        _read_trees,
        _read_stack,
        _read_opaque,
    )
    if not 0 <= kind < len(readers):
        raise ProgramError(f"scorer kind {kind} is none of 0 to {len(readers) - 1}")
    return readers[kind](r, f)


def _read_polynomial(r: _Reader, f: list[int]) -> Polynomial:
    n_columns, columns, substitutes, n_terms, degree, terms, n_out, bits, weights, bias, constant = f
    if bits not in (8, 16) or degree not in (1, 2, 3):
        raise ProgramError(f"a polynomial of degree {degree} with {bits}-bit weights; 1 to 3 and 8 or 16 are read")
    return Polynomial(
        r.get("i32", columns, n_columns),
        tuple(None if x == MISSING else x for x in r.get("i16", substitutes, n_columns)),
        constant,
        tuple(tuple(int(x) for x in term) for term in _integer_rows(r, "i16", terms, n_terms, degree)),
        r.rows(f"i{bits}", weights, n_out, n_terms),
        r.numbers("i64", bias, n_out),
        bits,
    )


def _integer_rows(r: _Reader, pool: str, offset: int, n_rows: int, n_columns: int) -> list[tuple[int, ...]]:
    flat = r.get(pool, offset, n_rows * n_columns) if n_rows >= 0 else r.get(pool, offset, -1)
    return [flat[k : k + n_columns] for k in range(0, len(flat), n_columns)]


def _read_trees(r: _Reader, f: list[int]) -> Trees:
    n_columns, columns, n_out, base, n_trees, records = f[:6]
    if n_trees < 0:
        raise ProgramError(f"an ensemble has {n_trees} trees")
    trees = []
    for output, width, n, has_children, slots, thresholds, children, leaves in _integer_rows(
        r, "i32", records, n_trees, TREE
    ):
        if n < 0 or not 1 <= width <= n_out:
            raise ProgramError(f"a tree has {n} nodes and leaves of width {width} for {n_out} scores")
        slot = r.get("i16", slots, n)
        if any(x < 0 for x in slot):
            raise ProgramError("a tree node reads a negative slot")
        trees.append(
            Tree(
                output,
                width,
                tuple([x >> 1 for x in slot]),
                r.get("i16", thresholds, n),
                tuple([not x & 1 for x in slot]),
                tuple((a, b) for a, b in _integer_rows(r, "i16", children, n, 2)) if has_children else (),
                r.numbers("i16", leaves, (n + 1) * width),
            )
        )
    return Trees(r.get("i32", columns, n_columns), r.numbers("i64", base, n_out), tuple(trees))


def _read_stack(r: _Reader, f: list[int]) -> Stack:
    trees, n_members, members, n_out, weights, bias = f[:6]
    return Stack(
        trees,
        r.get("i32", members, n_members),
        r.rows("i16", weights, n_out, n_members),
        r.numbers("i64", bias, n_out),
    )


def _read_opaque(r: _Reader, f: list[int]) -> Opaque:
    n_features, features, blob, n_bytes, n_out, low, high = f[:7]
    return Opaque(
        r.get("i32", features, n_features),
        array("b", r.get("i8", blob, n_bytes)).tobytes(),
        r.get("i64", low, n_out),
        r.get("i64", high, n_out),
    )


def _read_node(r: _Reader) -> Node:
    kind, *f = r.record(NODE)
    if kind == 0:
        return Acquire(r.get("i32", f[0], f[1]), f[2], f[3])
    if kind == 1:
        return Branch(
            Slice(f[0], f[1], f[2]),
            _one_of(RULES, f[3], "branch rule"),
            r.get("i32", f[5], f[4]),
            r.numbers("i64", f[6], 1)[0],
            tuple((a, b) for a, b in _integer_rows(r, "i32", f[8], f[7], 2)),
        )
    if kind == 2:
        candidates = [
            Candidate(max_size, r.get("i64", cost, n_cost), target)
            for max_size, cost, n_cost, target in _integer_rows(r, "i32", f[1], f[0], CANDIDATE)
        ]
        return Select(tuple(candidates), f[2])
    if kind == 3:
        return Answer(
            Slice(f[0], f[1], f[2]),
            _one_of(KINDS, f[3], "answer kind"),
            r.numbers("i64", f[5], f[4]),
            r.get("i16", f[6], f[4] + 1),
        )
    if kind == 4:
        return Forward(r.get("i32", f[0], f[1]), f[2])
    raise ProgramError(f"node kind {kind} is none of 0 to 4")


assert sys.byteorder == "little", "hardcase-edge runs on little-endian machines only"
