"""Tensors as a program: the way back from ``encoder``.

Everything read here is hostile: every offset is checked before use, the total work is bounded, and what no encoder
of ours writes is refused.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from operator import ge

from ..errors import BundleVersionError, ProgramError
from .definition import (
    MISSING,
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
    Trees,
    Uplink,
)
from .format import (
    CANDIDATE,
    COLUMN,
    FEATURE,
    HEADER,
    KINDS,
    NODE,
    PACKED,
    PACKED_COLUMNS,
    PROGRAM_VERSION,
    RULES,
    SCORER,
    SENSOR,
    TREE,
    Pools,
    Tensor,
    from_keys,
)
from .readings import DTYPES
from .stored_trees import StoredTrees

__all__ = ["decode"]

MAX_ELEMENTS = 4_000_000  # numbers a decoder will read before it refuses
NOTHING: Tensor = array("b")
MINUS_ZERO = -1  # its key
NODE_WORDS = (4, 9, 3, 7, 3)  # words in use after the kind


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

    def unused(self, words: Sequence[int]) -> None:
        """Words without a meaning must be zero: a later version may give them one."""
        if any(words):
            raise ProgramError(f"the record before word {self.at} has something in words that are not used")

    def look(self, pool: str, offset: int, count: int) -> Tensor:
        """These numbers as they lie there."""
        values = self.pools.get(pool, NOTHING)
        if count == 0:
            return NOTHING
        if offset < 0 or count < 0 or offset + count > len(values):
            raise ProgramError(f"{count} numbers at {offset} of the {pool} pool are asked for, it has {len(values)}")
        self.left -= count
        if self.left < 0:
            raise ProgramError(f"the program has more than {MAX_ELEMENTS} numbers")
        return values[offset : offset + count]

    def get(self, pool: str, offset: int, count: int) -> tuple[int, ...]:
        return tuple(self.look(pool, offset, count).tolist())

    def scores(self, pool: str) -> str:
        """The pool that numbers of scorers lie in."""
        return "f64" if self.is_draft else pool

    def numbers(self, pool: str, offset: int, count: int) -> tuple[Number, ...]:
        return self.get(self.scores(pool), offset, count)

    def rows(self, pool: str, offset: int, n_rows: int, n_columns: int) -> tuple[tuple[Number, ...], ...]:
        # bounded by the product before anything is made: a zero row is still a row
        self.left -= max(n_rows, 0)
        if n_rows < 0 or n_columns < 0 or self.left < 0:
            raise ProgramError(f"a table of {n_rows} by {n_columns} numbers is asked for")
        flat = self.numbers(pool, offset, n_rows * n_columns)
        return tuple(flat[k * n_columns : (k + 1) * n_columns] for k in range(n_rows))


def _flag(word: int) -> bool:
    if word not in (0, 1):
        raise ProgramError(f"a yes or no is {word}, not 0 or 1")
    return word == 1


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
    r.unused(head[13:])
    r.is_draft = _flag(head[1])
    n_features, n_sensors, n_columns, n_scorers, n_nodes = head[2:7]
    if min(head[2:7]) < 0 or sum(head[2:7]) > len(r.words):
        raise ProgramError(f"the program's counts {head[2:7]} do not fit its {len(r.words)} words")
    money = r.get("i64", head[9], 3)
    features, names = [], tuple(DTYPES)
    for _ in range(n_features):
        dtype, nullable = r.record(FEATURE)
        features.append(Feature(_one_of(names, dtype, "reading type"), _flag(nullable)))
    sensors = []
    for _ in range(n_sensors):
        f, n_f, c, n_c = r.record(SENSOR)
        sensors.append(Sensor(r.get("i32", f, n_f), r.get("i64", c, n_c)))
    columns = [_read_column(r, features) for _ in range(n_columns)]
    scorers = [_read_scorer(r) for _ in range(n_scorers)]
    nodes = [_read_node(r) for _ in range(n_nodes)]
    if r.at != len(r.words):
        raise ProgramError(f"the program has {len(r.words) - r.at} words too many")
    uplink = Uplink(money[0], money[1], money[2], head[10], r.get("i32", head[11], head[12]))
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
    thresholds = from_keys(keys, dtype)
    if any(map(ge, keys, keys[1:])) or (dtype != "i32" and MINUS_ZERO in keys):
        raise ProgramError("the thresholds of a rank column do not increase, or one is minus zero")
    return Column(feature, Rank(thresholds))


def _read_scorer(r: _Reader) -> Scorer:
    kind, *f = r.record(SCORER)
    readers: tuple[tuple[Callable[[_Reader, list[int]], Scorer], int], ...] = (
        (_read_polynomial, 11),
        (_read_trees, 6),
        (_read_stack, 6),
        (_read_opaque, 7),
    )
    if not 0 <= kind < len(readers):
        raise ProgramError(f"scorer kind {kind} is none of 0 to {len(readers) - 1}")
    read, used = readers[kind]
    r.unused(f[used:])
    return read(r, f)


def _read_polynomial(r: _Reader, f: list[int]) -> Polynomial:
    n_columns, columns, substitutes, n_terms, degree, terms, n_out, said, weights, bias, constant = f
    bits, is_packed = said % PACKED, said >= PACKED
    if said not in (8, 16, 8 + PACKED, 16 + PACKED) or degree not in (1, 2, 3):
        raise ProgramError(f"a polynomial of degree {degree} with {said}-bit weights; 1 to 3 and 8 or 16 are read")
    if is_packed:
        if r.is_draft or n_columns > PACKED_COLUMNS:
            raise ProgramError(f"a packed polynomial of {n_columns} columns; at most {PACKED_COLUMNS}, in no draft")
        positions, rows = _packed(r, f"i{bits}", terms, n_terms, degree, n_out, weights)
    else:
        positions = _integer_rows(r, "i16", terms, n_terms, degree)
        rows = r.rows(f"i{bits}", weights, n_out, n_terms)
    return Polynomial(
        r.get("i32", columns, n_columns),
        tuple(None if x == MISSING else x for x in r.get("i16", substitutes, n_columns)),
        constant,
        tuple(tuple(int(x) for x in term) for term in positions),
        rows,
        r.numbers("i64", bias, n_out),
        bits,
    )


def _packed(
    r: _Reader, pool: str, terms: int, n_terms: int, degree: int, n_out: int, weights: int
) -> tuple[list[tuple[int, ...]], tuple[tuple[Number, ...], ...]]:
    """Positions in bytes, behind them a bit for each weight, and the weights whose bit is set."""
    positions = _integer_rows(r, "i8", terms, n_terms, degree)
    count = n_terms * n_out
    r.left -= max(count, n_out)  # what is made of the bits, before it is made
    if n_out < 0 or r.left < 0:
        raise ProgramError(f"a table of {n_out} by {n_terms} numbers is asked for")
    mask = array("b", r.get("i8", terms + n_terms * degree, -(-count // 8))).tobytes()
    bits = [byte >> k & 1 for byte in mask for k in range(8)]
    kept = r.get(pool, weights, sum(bits))
    if any(bits[count:]) or 0 in kept:
        raise ProgramError("a packed polynomial has bits beyond its weights, or a weight of 0 whose bit is set")
    left = iter(kept)
    flat = [next(left) if bit else 0 for bit in bits[:count]]
    return positions, tuple(tuple(flat[k * n_terms : (k + 1) * n_terms]) for k in range(n_out))


def _integer_rows(r: _Reader, pool: str, offset: int, n_rows: int, n_columns: int) -> list[tuple[int, ...]]:
    flat = r.get(pool, offset, n_rows * n_columns) if n_rows >= 0 else r.get(pool, offset, -1)
    return [flat[k : k + n_columns] for k in range(0, len(flat), n_columns)]


def _read_trees(r: _Reader, f: list[int]) -> Trees:
    n_columns, columns, n_out, base, n_trees, at = f[:6]
    if n_trees < 0:
        raise ProgramError(f"an ensemble has {n_trees} trees")
    records = r.look("i32", at, n_trees * TREE)
    for k in range(0, len(records), TREE):
        _check_tree(r, records[k : k + TREE].tolist(), n_out)
    pools = [r.pools.get(name, NOTHING) for name in ("i16", r.scores("i16"))]
    return Trees(r.get("i32", columns, n_columns), r.numbers("i64", base, n_out), StoredTrees(records, *pools))


def _check_tree(r: _Reader, record: list[int], n_out: int) -> None:
    """That all of a tree is there; what it means is the verifier's business."""
    _, width, n, has_children, slots, thresholds, children, leaves = record
    if n < 0 or not 1 <= width <= n_out:
        raise ProgramError(f"a tree has {n} nodes and leaves of width {width} for {n_out} scores")
    if min(r.look("i16", slots, n).tolist(), default=0) < 0:
        raise ProgramError("a tree node reads a negative slot")
    r.look("i16", thresholds, n)
    if _flag(has_children):
        r.look("i16", children, 2 * n)
    r.look(r.scores("i16"), leaves, (n + 1) * width)


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
    if not 0 <= kind < len(NODE_WORDS):
        raise ProgramError(f"node kind {kind} is none of 0 to {len(NODE_WORDS) - 1}")
    r.unused(f[NODE_WORDS[kind] :])
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
    return Forward(r.get("i32", f[0], f[1]), f[2])
