# SPDX-License-Identifier: Apache-2.0
"""Scorers in pure Python: functions from codes to integer scores, or to floats for a draft.

``prepare`` turns a scorer's data into a function once; a session calls it with its codes. Each code is stored twice:
slot 2c holds column c with missing as -32768, slot 2c + 1 with missing as +32767. A step in a tree is then a single
comparison, whichever way missing goes (the verifier keeps thresholds of missing-right nodes below 32767).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import prod
from operator import mul
from struct import Struct
from typing import Any, assert_never

from ..program.definition import MISSING, Network, Number, Opaque, Polynomial, Program, Stack, Tree, Trees
from ..program.stored_trees import children_of, depth_of

ScoreFunction = Callable[..., list[Number]]  # of codes; of a stack, also of values of trees that it shares with others
Leaves = dict[tuple[int, int], Number]  # values of trees, by ensemble and number

HALF = 2**63
LEAST_PACKED = 3  # outputs: with fewer, a long integer gains nothing
MAX_PADDED_DEPTH = 6  # shallower trees are padded to complete ones, and walked together without tests for leaves


def prepare(
    program: Program, index: int, roots: dict[int, list[Any]] | None = None, shared: Collection[tuple[int, int]] = ()
) -> ScoreFunction:
    """The scoring function of scorer ``index``; ``session.tflite`` prepares Opaque scorers.

    Parameters
    ----------
    roots : caches prepared trees by scorer, so that the stacks on an ensemble share its trees
    shared : trees, by ensemble and number, that several stacks read and whose values the session keeps
    """
    scorer = program.scorers[index]
    if isinstance(scorer, Polynomial):
        return _polynomial(scorer)
    if isinstance(scorer, Network):
        from .networks import prepare_network

        return prepare_network(scorer)
    if isinstance(scorer, Opaque):
        from .tflite import prepare_opaque

        return prepare_opaque(scorer)
    if not isinstance(scorer, Trees | Stack):
        assert_never(scorer)
    roots = {} if roots is None else roots
    below = scorer.trees if isinstance(scorer, Stack) else index
    ensemble = program.scorers[below]
    assert isinstance(ensemble, Trees)
    if below not in roots:
        roots[below] = [prepare_tree(tree, ensemble.columns) for tree in ensemble.trees]
    return _stack(scorer, roots[below], shared) if isinstance(scorer, Stack) else _trees(ensemble, roots[below])


# ---------------------------------------------------------------- trees


def prepare_tree(tree: Tree, columns: Sequence[int]) -> Any:
    """Nested ``(slot, threshold, left, right)`` tuples; a leaf is a list of its values."""
    width, n = tree.width, len(tree.splits)
    leaves = [list(tree.leaves[k : k + width]) for k in range(0, len(tree.leaves), width)]
    if n == 0:
        return leaves[0]
    nodes, children = list[Any]([None] * n), children_of(tree)
    for i in range(n - 1, -1, -1):
        slot = 2 * columns[tree.splits[i]] + (0 if tree.missing_left[i] else 1)
        pair = [nodes[c] if c >= 0 else leaves[-1 - c] for c in children[i]]
        nodes[i] = (slot, tree.thresholds[i], *pair)
    return nodes[0]


def walk(node: Any, codes: list[int]) -> list[Number]:
    """The leaf that these codes reach."""
    while node.__class__ is tuple:
        slot, threshold, left, right = node
        node = left if codes[slot] <= threshold else right
    leaf: list[Number] = node
    return leaf


def _trees(scorer: Trees, roots: Sequence[Any]) -> ScoreFunction:
    groups: dict[tuple[int, int, int], list[Any]] = {}
    for tree, root in zip(scorer.trees, roots, strict=True):
        depth = depth_of(tree)
        depth = depth if depth <= MAX_PADDED_DEPTH else 0
        root = _padded(root, depth) if tree.children else root  # without pointers it is complete already
        groups.setdefault((tree.output, tree.width, depth), []).append(root)
    base = list(scorer.base)
    plan = [(output, range(depth), group) for (output, _, depth), group in groups.items()]

    def score(codes: list[int]) -> list[Number]:
        out = base.copy()
        for output, levels, nodes in plan:
            for _ in levels:
                nodes = [a if codes[slot] <= threshold else b for slot, threshold, a, b in nodes]
            if not levels:
                nodes = [walk(node, codes) for node in nodes]
            for k, total in enumerate(map(sum, zip(*nodes, strict=True)), output):
                out[k] += total
        return out

    return score


def _padded(node: Any, depth: int) -> Any:
    """A tree that answers as this one, with all leaves at this depth."""
    if depth == 0:
        return node
    slot, threshold, left, right = node if node.__class__ is tuple else (0, 0, node, node)
    return slot, threshold, _padded(left, depth - 1), _padded(right, depth - 1)


def _stack(scorer: Stack, roots: Sequence[Any], shared: Collection[tuple[int, int]]) -> ScoreFunction:
    keys = [(scorer.trees, m) for m in scorer.members]
    members = [(roots[m], key if key in shared else None) for m, key in zip(scorer.members, keys, strict=True)]
    rows = [list(w) for w in scorer.weights]
    bias = list(scorer.bias)

    def score(codes: list[int], leaves: Leaves | None = None) -> list[Number]:
        leaves = {} if leaves is None else leaves
        outputs = []
        for root, key in members:
            value = None if key is None else leaves.get(key)
            if value is None:
                value = walk(root, codes)[0]
                if key is not None:
                    leaves[key] = value
            outputs.append(value)
        return [b + sum(map(mul, row, outputs)) for b, row in zip(bias, rows, strict=True)]

    return score


# ---------------------------------------------------------------- polynomials


def _polynomial(scorer: Polynomial) -> ScoreFunction:
    slots, substitutes = [2 * c for c in scorer.columns], scorer.substitutes
    constant, terms = scorer.constant, scorer.terms
    linear = all(term == (k,) for k, term in enumerate(terms))
    outputs = _packed(scorer) or _one_by_one(scorer)

    def score(codes: list[int]) -> list[Number]:
        x = [codes[slot] for slot in slots]
        if MISSING in x:  # the verifier has proved that what may be missing has a substitute
            x = [s if code == MISSING else code for code, s in zip(x, substitutes, strict=True)]  # type: ignore[misc]
        x.append(constant)
        return outputs(x if linear else [prod([x[k] for k in term]) for term in terms])

    return score


def _one_by_one(scorer: Polynomial) -> Callable[[list[int]], list[Number]]:
    rows, bias = [list(w) for w in scorer.weights], list(scorer.bias)
    return lambda products: [b + sum(map(mul, row, products)) for b, row in zip(bias, rows, strict=True)]


def _packed(scorer: Polynomial) -> Callable[[list[int]], list[Number]] | None:
    """All outputs in one sum: each term's weights lie 64 bits apart in one long integer.

    None for a draft, for few outputs, where it gains nothing, and where a sum may not fit. Fields hold sums from
    -2^63 on as numbers from 0 on, so that none borrows from the next.
    """
    columns = [scorer.bias, *zip(*scorer.weights, strict=True)]
    if len(scorer.bias) < LEAST_PACKED or any(w.__class__ is not int for column in columns for w in column):
        return None
    largest, degree = max(-MISSING, abs(scorer.constant)), max(map(len, scorer.terms), default=1)
    if (len(columns) * largest**degree) * max(max(map(abs, column)) for column in columns) >= HALF:
        return None
    fields = Struct(f"<{len(scorer.bias)}Q")
    middle = int.from_bytes(fields.pack(*[HALF] * len(scorer.bias)), "little")
    packed = [int.from_bytes(fields.pack(*[w + HALF for w in column]), "little") - middle for column in columns]
    start, weights, unpack, size = packed[0] + middle, packed[1:], fields.unpack, fields.size
    return lambda products: [
        total - HALF for total in unpack(sum(map(mul, weights, products), start).to_bytes(size, "little"))
    ]
