# SPDX-License-Identifier: Apache-2.0
"""Reads a program back from a bundle's tensors: the inverse of ``encode``, for untrusted input.

Every number read here may be hostile: ``decode`` checks each offset before it uses it, bounds the total work, and
refuses whatever ``encode`` would not have written. docs/SPEC-program-v1.md section 6 defines every word.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from operator import ge

from ..errors import BundleVersionError, ProgramError
from .definition import (
    FREE,
    LAYERS,
    MISSING,
    Acquire,
    Affine,
    Answer,
    Branch,
    Candidate,
    Column,
    Costs,
    Feature,
    Forward,
    Layer,
    Network,
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
    LAYER,
    LEAST_COSTS,
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
from .kinds import ANSWERS
from .limits import MAX_NUMBERS, MAX_WORK, WORK
from .readings import DTYPES
from .reads import weights_per_output
from .stored_trees import StoredTrees

NOTHING: Tensor = array("b")
MINUS_ZERO = -1  # the key that minus zero would have
NODE_WORDS = (4, 9, 3, 8, 3)  # words in use after the kind, by kind


class _Reader:
    """A cursor in the program's words, with bounded access to the pools of numbers."""

    def __init__(self, tensors: Pools) -> None:
        self.pools = tensors
        self.words = tensors["program"]
        self.at = 0
        self.left = MAX_NUMBERS  # numbers that may still be read
        self.work = MAX_WORK  # and how much may still be done, of which rule V31 counts more
        self.is_draft = False

    def spend(self, part: str, count: int = 1) -> None:
        """Count the work of this many parts of a program."""
        self.work -= WORK[part] * count
        if self.work < 0:
            raise ProgramError(f"the program takes more than {MAX_WORK} steps to prove and lay out")

    def record(self, size: int) -> list[int]:
        """The next ``size`` words."""
        words: list[int] = self.words[self.at : self.at + size].tolist()
        if len(words) < size:
            raise ProgramError(f"the program ends at word {len(self.words)}, inside a record of {size} words")
        self.at += size
        return words

    def unused(self, words: Sequence[int]) -> None:
        """Check that unused words are zero, because a later version may give them a meaning."""
        if any(words):
            raise ProgramError(f"the record before word {self.at} has a word that is not used and not zero")

    def look(self, pool: str, offset: int, count: int) -> Tensor:
        """These numbers of a pool, as a view without a copy."""
        values = self.pools.get(pool, NOTHING)
        if count == 0:
            return NOTHING
        if offset < 0 or count < 0 or offset + count > len(values):
            raise ProgramError(
                f"a record names {count} numbers at {offset} of the {pool} pool, which has {len(values)}"
            )
        self.left -= count
        if self.left < 0:
            raise ProgramError(f"the program has more than {MAX_NUMBERS} numbers")
        return values[offset : offset + count]

    def get(self, pool: str, offset: int, count: int) -> tuple[int, ...]:
        """These numbers of a pool, as a tuple."""
        return tuple(self.look(pool, offset, count).tolist())

    def scores(self, pool: str) -> str:
        """The pool that holds numbers of scorers: ``f64`` in a draft."""
        return "f64" if self.is_draft else pool

    def numbers(self, pool: str, offset: int, count: int) -> tuple[Number, ...]:
        """These numbers of a scorer or node."""
        return self.get(self.scores(pool), offset, count)

    def rows(self, pool: str, offset: int, n_rows: int, n_columns: int) -> tuple[tuple[Number, ...], ...]:
        """A table of numbers of a scorer, row by row."""
        self.left -= max(n_rows, 0)  # an empty row takes memory too, so rows are bounded before they are made
        if n_rows < 0 or n_columns < 0 or self.left < 0:
            raise ProgramError(f"a record names a table of {n_rows} by {n_columns} numbers, which is out of bounds")
        flat = self.numbers(pool, offset, n_rows * n_columns)
        return tuple(flat[k * n_columns : (k + 1) * n_columns] for k in range(n_rows))


def _flag(word: int) -> bool:
    if word not in (0, 1):
        raise ProgramError(f"a flag is {word}, not 0 or 1")
    return word == 1


def _one_of(names: Sequence[str], index: int, what: str) -> str:
    if not 0 <= index < len(names):
        raise ProgramError(f"{what} {index} is out of range 0..{len(names) - 1}")
    return names[index]


def _costs(r: _Reader, offset: int, n_more: int) -> Costs:
    known = len(FREE.terms) - LEAST_COSTS
    if not 0 <= n_more <= known:
        raise ProgramError(f"the program has {n_more} further costs, of which this version knows {known}; update it")
    terms = r.get("i64", offset, LEAST_COSTS + n_more)
    if n_more and not terms[-1]:
        raise ProgramError("the last of the program's further costs is 0, which is left out; export it again")
    return Costs(*terms)


def decode(tensors: Pools) -> tuple[Program, bool]:
    """The program in these tensors, and whether it is a draft.

    Shapes and offsets are checked here; ``verifier.verify`` proves that the program is safe to run.

    Raises
    ------
    BundleVersionError
        This runtime does not read the program's version.
    ProgramError
        A record is truncated, out of range or too large.
    """
    r = _Reader(tensors)
    head = r.record(HEADER)
    if head[0] != PROGRAM_VERSION:
        raise BundleVersionError(head[0], PROGRAM_VERSION, PROGRAM_VERSION)
    r.unused(head[14:])
    r.is_draft = _flag(head[1])
    n_features, n_sensors, n_columns, n_scorers, n_nodes = head[2:7]
    if min(head[2:7]) < 0 or sum(head[2:7]) > len(r.words):
        raise ProgramError(f"the program's counts {head[2:7]} do not fit its {len(r.words)} words")
    costs = _costs(r, head[9], head[13])
    for part, count in zip(("feature", "sensor", "column", "scorer", "node"), head[2:7], strict=True):
        r.spend(part, count)
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
    uplink = Uplink(head[10], r.get("i32", head[11], head[12]))
    program = Program(
        tuple(features), tuple(sensors), uplink, tuple(columns), tuple(scorers), tuple(nodes), head[7], head[8], costs
    )
    return program, r.is_draft


def _read_column(r: _Reader, features: list[Feature]) -> Column:
    feature, rule, offset, count = r.record(COLUMN)
    if not 0 <= feature < len(features):
        raise ProgramError(f"a column reads feature {feature}, but there are {len(features)} features")
    if rule == 0:
        if count != 6:
            raise ProgramError(f"an affine rule has 6 numbers, not {count}")
        return Column(feature, Affine(*r.get("i64", offset, 6)))
    if rule != 1:
        raise ProgramError(f"column rule {rule} is neither 0 (affine) nor 1 (rank)")
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
        (_read_network, 9),
    )
    if not 0 <= kind < len(readers):
        raise ProgramError(f"scorer kind {kind} is out of range 0..{len(readers) - 1}")
    read, n_words = readers[kind]
    r.unused(f[n_words:])
    return read(r, f)


def _read_polynomial(r: _Reader, f: list[int]) -> Polynomial:
    n_columns, columns, substitutes, n_terms, degree, terms, n_out, weight_form, weights, bias, constant = f
    bits, is_packed = weight_form % PACKED, weight_form >= PACKED
    if weight_form not in (8, 16, 8 + PACKED, 16 + PACKED) or degree not in (1, 2, 3):
        raise ProgramError(
            f"a polynomial has degree {degree} and {weight_form}-bit weights, 1 to 3 and 8 or 16 are expected"
        )
    if is_packed:
        if r.is_draft or n_columns > PACKED_COLUMNS:
            raise ProgramError(
                f"a packed polynomial of {n_columns} columns; at most {PACKED_COLUMNS} are allowed, and none in a draft"
            )
        positions, rows = _packed(r, f"i{bits}", terms, n_terms, degree, n_out, weights)
    else:
        positions = _integer_rows(r, "i16", terms, n_terms, degree)
        r.spend("term", n_terms)
        rows = r.rows(f"i{bits}", weights, n_out, n_terms)
    return Polynomial(
        r.get("i32", columns, n_columns),
        _substitutes(r, substitutes, n_columns),
        constant,
        tuple(tuple(int(x) for x in term) for term in positions),
        rows,
        r.numbers("i64", bias, n_out),
        bits,
    )


def _substitutes(r: _Reader, offset: int, count: int) -> tuple[int | None, ...]:
    return tuple([None if x == MISSING else x for x in r.get("i16", offset, count)])


def _packed(
    r: _Reader, pool: str, terms: int, n_terms: int, degree: int, n_out: int, weights: int
) -> tuple[list[tuple[int, ...]], tuple[tuple[Number, ...], ...]]:
    """Terms and weights of a packed polynomial.

    It stores positions in bytes, then a bit per weight, and only the weights whose bit is set; the others are 0.
    """
    positions = _integer_rows(r, "i8", terms, n_terms, degree)
    r.spend("term", n_terms)
    count = n_terms * n_out
    r.left -= max(count, n_out)  # bounded before the weights are made
    if n_out < 0 or r.left < 0:
        raise ProgramError(f"a record names a table of {n_out} by {n_terms} numbers, which is out of bounds")
    mask = array("b", r.get("i8", terms + n_terms * degree, -(-count // 8))).tobytes()
    bits = [byte >> k & 1 for byte in mask for k in range(8)]
    nonzero = r.get(pool, weights, sum(bits))
    if any(bits[count:]) or 0 in nonzero:
        raise ProgramError("a packed polynomial has bits beyond its weights, or a weight of 0 whose bit is set")
    remaining = iter(nonzero)
    flat = [next(remaining) if bit else 0 for bit in bits[:count]]
    return positions, tuple(tuple(flat[k * n_terms : (k + 1) * n_terms]) for k in range(n_out))


def _integer_rows(r: _Reader, pool: str, offset: int, n_rows: int, n_columns: int) -> list[tuple[int, ...]]:
    flat = r.get(pool, offset, n_rows * n_columns) if n_rows >= 0 else r.get(pool, offset, -1)
    return [flat[k : k + n_columns] for k in range(0, len(flat), n_columns)]


def _read_trees(r: _Reader, f: list[int]) -> Trees:
    n_columns, columns, n_out, base, n_trees, at = f[:6]
    if n_trees < 0:
        raise ProgramError(f"an ensemble has {n_trees} trees")
    records = r.look("i32", at, n_trees * TREE)
    r.spend("tree", n_trees)
    for k in range(0, len(records), TREE):
        _check_tree(r, records[k : k + TREE].tolist(), n_out)
    pools = [r.pools.get(name, NOTHING) for name in ("i16", r.scores("i16"))]
    return Trees(r.get("i32", columns, n_columns), r.numbers("i64", base, n_out), StoredTrees(records, *pools))


def _check_tree(r: _Reader, record: list[int], n_out: int) -> None:
    """Check that the pools hold all of a tree; the verifier checks what it means."""
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


def _read_network(r: _Reader, f: list[int]) -> Network:
    n_columns, columns, substitutes, *shape, zero_point, n_layers, at = f[:9]
    layers: list[Layer] = []
    for words in _integer_rows(r, "i32", at, n_layers, LAYER):
        layers.append(_layer(r, words, layers[-1].shape[2] if layers else shape[2]))
    return Network(
        r.get("i32", columns, n_columns), _substitutes(r, substitutes, n_columns), (shape[0], shape[1], shape[2]),
        zero_point, tuple(layers),
    )  # fmt: skip


def _layer(r: _Reader, words: tuple[int, ...], channels: int) -> Layer:
    number, h, w, down, right, above, left, height, width, n, zero_point, low, high, *at = words
    if min(h, w, n, channels) < 1:
        raise ProgramError(f"a layer has windows of {h} by {w}, {channels} channels and {n} outputs; 1 is the least")
    kind = _one_of(LAYERS, number, "layer kind")
    r.spend("layer")
    per_output = weights_per_output(kind, (h, w), channels)
    counts = (n * per_output, n, n, n) if per_output else (0, 0, 0, 0)
    runs = map(r.get, ("i8", "i32", "i32", "i8"), at, counts)
    ends = (h, w), (down, right), (above, left), (height, width, n)
    return Layer(kind, *ends, zero_point, low, high, *runs)


def _read_node(r: _Reader) -> Node:
    kind, *f = r.record(NODE)
    if not 0 <= kind < len(NODE_WORDS):
        raise ProgramError(f"node kind {kind} is out of range 0..{len(NODE_WORDS) - 1}")
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
        records = _integer_rows(r, "i32", f[1], f[0], CANDIDATE)
        r.spend("candidate", len(records))
        candidates = [
            Candidate(max_size, r.get("i64", cost, n_cost), target) for max_size, cost, n_cost, target in records
        ]
        return Select(tuple(candidates), f[2])
    if kind == 3:
        return Answer(
            Slice(f[0], f[1], f[2]),
            _one_of(ANSWERS, f[3], "answer kind"),
            r.numbers("i64", f[5], f[4]),
            r.get("i16", f[6], f[4] + 1),
            f[7],
        )
    return Forward(r.get("i32", f[0], f[1]), f[2])
