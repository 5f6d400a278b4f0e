# SPDX-License-Identifier: Apache-2.0
"""Proves rules V11 to V20: each scorer is well formed, and no sum in it can overflow its integer type; what it reads.

``networks`` has those of networks, V34 to V36.

The bound of an output is a sum of absolute values, so it holds for every partial sum in any order too.
docs/SPEC-program-v1.md section 5 lists the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import prod
from typing import assert_never

from ..base.record import record
from ..errors import ProgramError
from ..program.definition import (
    CODE_MAX,
    Affine,
    Column,
    Network,
    Number,
    Opaque,
    Polynomial,
    Program,
    Scorer,
    Stack,
    Tree,
    Trees,
)
from ..program.limits import MAX_TREE_COLUMNS, MAX_TREE_NODES, SAFE, WORK
from ..program.reads import bits_of, read_by_scorers
from ..program.stored_trees import Outline, shape_of
from .networks import prove_network
from .require import I32, in_range, integers, need, whole


@record(frozen=True, slots=True)
class Proved:
    """What holds for a scorer that has passed its rules."""

    outputs: tuple[int, ...]  # a bound on each output's absolute value
    operations: int  # columns read, tree steps, multiplications and additions
    work: int = 0  # its numbers, and more for each tree and term: see ``limits.WORK``
    leaves: tuple[int, ...] = ()  # the largest absolute leaf of each tree
    outline: Outline = Outline((), frozenset())  # shapes and splits of an ensemble's trees
    exact: tuple[int, ...] = ()  # columns whose codes are read as numbers, not compared


def prove_scorer(program: Program, index: int, before: Sequence[Proved]) -> Proved:
    """Check scorer ``index``; ``before`` holds the proofs of all scorers before it.

    Raises
    ------
    ProgramError
        A rule does not hold.
    """
    s, what = program.scorers[index], f"scorer {index}"
    if isinstance(s, Polynomial):
        proved = _polynomial(program, s, what)
    elif isinstance(s, Trees):
        proved = _trees(program, s, what)
    elif isinstance(s, Stack):
        proved = _stack(program, s, what, before)
    elif isinstance(s, Network):
        proved = Proved(*prove_network(program, s, what), exact=s.columns)
    elif isinstance(s, Opaque):
        proved = _opaque(program, s, what)
    else:
        assert_never(s)
    need(len(proved.outputs) >= 1, f"{what} has no output")
    return proved


# ---------------------------------------------------------------- sums of products


def _polynomial(p: Program, s: Polynomial, what: str) -> Proved:
    in_range(s.columns, len(p.columns), f"{what}: column")
    need(len(s.substitutes) == len(s.columns), f"{what}: one substitute per column is needed")
    integers([s.constant], f"{what}: the constant", CODE_MAX)
    need(s.weight_bits in (8, 16), f"{what}: weights have {s.weight_bits} bits, 8 or 16 are expected")
    integers([x for x in s.substitutes if x is not None], f"{what}: a substitute", CODE_MAX)
    for c, substitute in zip(s.columns, s.substitutes, strict=True):
        if substitute is None and p.features[p.columns[c].feature].nullable:
            feature = p.columns[c].feature
            raise ProgramError(f"{what} reads feature {feature}, which may be missing, and has no substitute for it")
    sizes = [_code_bound(p.columns[c]) for c in s.columns] + [abs(s.constant)]
    sizes = [max(q, abs(x or 0)) for q, x in zip(sizes, (*s.substitutes, None), strict=True)]
    products = _products(s.terms, sizes, what)
    outputs = _sums(s.weights, s.bias, products, 2 ** (s.weight_bits - 1) - 1, what, "terms")
    degree, n_outputs = len(s.terms[0]) if s.terms else 0, len(s.bias)
    operations = len(s.columns) + len(s.terms) * (n_outputs + degree) + n_outputs
    return Proved(outputs, operations, operations + len(s.columns) + WORK["term"] * len(s.terms), exact=s.columns)


def _products(terms: Sequence[tuple[int, ...]], sizes: list[int], what: str) -> list[int]:
    """The largest absolute value of each term's product."""
    degrees = set(map(len, terms))
    need(not degrees or degrees in ({1}, {2}, {3}), f"{what}: terms do not all have one degree of 1 to 3")
    in_range([*chain.from_iterable(terms)], len(sizes), f"{what}: term position")
    return [prod([sizes[j] for j in term]) for term in terms]


def _sums(
    rows: Sequence[Sequence[Number]],
    bias: Sequence[Number],
    sizes: Sequence[int],
    limit: int,
    what: str,
    inputs: str,
) -> tuple[int, ...]:
    need(len(rows) == len(bias), f"{what}: {len(rows)} rows of weights for {len(bias)} outputs")
    integers(bias, f"{what}: a bias")
    bounds = []
    for row, b in zip(rows, bias, strict=True):
        need(len(row) == len(sizes), f"{what}: {len(row)} weights for {len(sizes)} {inputs}")
        integers(row, f"{what}: a weight", limit)
        bounds.append(int(abs(b) + sum([abs(w) * q for w, q in zip(row, sizes, strict=True)])))
    largest = max(bounds, default=0)
    need(largest < SAFE, f"{what}: a sum may reach {largest} and overflow 64 bits")
    return tuple(bounds)


def _code_bound(column: Column) -> int:
    return max(abs(column.rule.low), abs(column.rule.high)) if isinstance(column.rule, Affine) else CODE_MAX


# ---------------------------------------------------------------- trees


def _trees(p: Program, s: Trees, what: str) -> Proved:
    in_range(s.columns, len(p.columns), f"{what}: column")
    need(
        len(s.columns) <= MAX_TREE_COLUMNS, f"{what}: {len(s.columns)} columns, at most {MAX_TREE_COLUMNS} are allowed"
    )
    integers(s.base, f"{what}: a base score")
    outputs = [int(abs(b)) for b in s.base]
    leaves, shapes = [], []
    work = (1 + WORK["read"]) * len(s.columns) + len(s.base)
    splits: set[tuple[int, bool]] = set()
    for t, tree in enumerate(s.trees):
        try:
            bounds = _tree(tree, len(s.columns), len(outputs))
            shapes.append(shape_of(tree))
        except ProgramError as error:
            raise ProgramError(f"{what}, tree {t}: {error}") from None
        splits.update(zip(tree.splits, tree.missing_left, strict=True))
        leaves.append(max(bounds))
        work += WORK["tree"] + 2 * len(tree.splits) + 2 * len(tree.children) + len(tree.leaves)
        for j, bound in enumerate(bounds, tree.output):
            outputs[j] += bound
    largest = max(outputs, default=0)
    need(largest <= I32, f"{what}: a sum may reach {largest} and overflow 32 bits")
    operations = len(s.base) + sum([shape.depth + shape.width for shape in shapes])
    return Proved(tuple(outputs), operations, work, tuple(leaves), Outline(tuple(shapes), frozenset(splits)))


def _tree(tree: Tree, n_columns: int, n_outputs: int) -> list[int]:
    """The largest absolute leaf of each of a tree's outputs. ``shape_of`` checks that no node leads back.

    An ensemble may have thousands of trees, so messages are formatted only when a rule does not hold.
    """
    n, width = len(tree.splits), tree.width
    if width < 1 or not 0 <= tree.output <= n_outputs - width:
        raise ProgramError(f"outputs {tree.output} to {tree.output + width} of {n_outputs}")
    if n > MAX_TREE_NODES:
        raise ProgramError(f"{n} nodes, at most {MAX_TREE_NODES} are allowed")
    if not len(tree.thresholds) == len(tree.missing_left) == n or len(tree.leaves) != (n + 1) * width:
        raise ProgramError(f"{n} nodes need {n} thresholds and {n + 1} leaves of width {width}")
    in_range(tree.splits, n_columns, "column position")
    whole(tree.leaves, "a leaf")
    columns = [sorted(tree.leaves[j::width]) for j in range(width)]
    bounds = [int(max(-column[0], column[-1])) for column in columns]
    if max(bounds) > CODE_MAX:
        outside = next(leaf for leaf in tree.leaves if abs(leaf) > CODE_MAX)
        raise ProgramError(f"a leaf is {outside}, outside +-{CODE_MAX}")
    integers(tree.thresholds, "a threshold", CODE_MAX)
    # evaluators store a missing reading that goes right as +32767, so no threshold may reach it
    if CODE_MAX in tree.thresholds and (CODE_MAX, False) in zip(tree.thresholds, tree.missing_left, strict=True):
        raise ProgramError(f"the threshold {CODE_MAX} would send missing to the left")
    if not tree.children:
        need((n + 1) & n == 0, f"{n} nodes are not a complete tree")
        return bounds
    need(len(tree.children) == n, f"{len(tree.children)} pairs of children for {n} nodes")
    if sorted(chain.from_iterable(tree.children)) != [*range(-n - 1, 0), *range(1, n)]:
        raise ProgramError("every node but the first, and every leaf, must be the child of exactly one node")
    return bounds


def _stack(p: Program, s: Stack, what: str, before: Sequence[Proved]) -> Proved:
    need(0 <= s.trees < len(before), f"{what}: stands on scorer {s.trees}, which must come before it")
    below = p.scorers[s.trees]
    if not isinstance(below, Trees):
        raise ProgramError(f"{what}: stands on scorer {s.trees}, which has no trees")
    in_range(s.members, len(below.trees), f"{what}: tree")
    need(len(set(s.members)) == len(s.members), f"{what} names a tree twice")
    ensemble = before[s.trees]
    shapes = ensemble.outline.shapes
    for m in s.members:
        if shapes[m].width != 1:
            raise ProgramError(f"{what}: tree {m} has leaves of width {shapes[m].width}, not 1")
    outputs = _sums(s.weights, s.bias, [ensemble.leaves[m] for m in s.members], CODE_MAX, what, "trees")
    sums = (len(s.members) + 1) * len(s.bias)
    operations = sum([1 + shapes[m].depth for m in s.members]) + sums
    return Proved(outputs, operations, 4 * len(s.members) + sums)


# ---------------------------------------------------------------- opaque scorers: declared, not proved


def _opaque(p: Program, s: Opaque, what: str) -> Proved:
    in_range(s.features, len(p.features), f"{what}: feature")
    for f in s.features:
        if p.features[f].nullable:
            raise ProgramError(f"{what} reads feature {f}, which may be missing, and has no substitute for it")
    need(len(s.low) == len(s.high), f"{what}: {len(s.low)} lower and {len(s.high)} upper bounds")
    integers(s.low, f"{what}: a lower bound", SAFE - 1)
    integers(s.high, f"{what}: an upper bound", SAFE - 1)
    for low, high in zip(s.low, s.high, strict=True):
        need(low <= high, f"{what}: the declared range {low} to {high} is empty")
    outputs = tuple([max(abs(a), abs(b)) for a, b in zip(s.low, s.high, strict=True)])
    return Proved(outputs, 0, len(s.features) + 2 * len(outputs))


Reads = tuple[int, int, int]  # sensors, as bits: read, to be tried on every path, to be there on every path


def reads_of(p: Program) -> list[Reads]:
    """What each scorer reads. Its columns and features exist: V11 has been proved.

    Trees need only the first: each split says where a missing reading goes, so other sensors may be left unbought. A
    stack reads its members alone, so that nodes with different sensors may stand on one ensemble.
    """
    return [_reads(p, s, read) for s, read in zip(p.scorers, read_by_scorers(p), strict=True)]


def _reads(p: Program, s: Scorer, read: int) -> Reads:
    if isinstance(s, Opaque):
        return read, read, read
    if isinstance(s, Trees | Stack):
        return read, 0, 0
    if not isinstance(s, Polynomial | Network):
        assert_never(s)
    must = [p.sensor_of[p.columns[c].feature] for c, x in zip(s.columns, s.substitutes, strict=True) if x is None]
    return read, read, bits_of(must)
