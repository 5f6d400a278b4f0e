"""Integer scores of a program for many rows at once, in numpy; the device's ``scoring`` takes one row at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.program.definition import CODE_MAX, MISSING, Column, Polynomial, Program, Rank, Stack, Trees

from .trees import Shape

__all__ = ["leaves_of", "scores_of"]

CHUNK = 512  # rows walked at once: what a core's cache holds


def _codes_of(columns: Sequence[Column], X: NDArray[np.float64]) -> NDArray[np.int32]:
    """Codes (n_columns, n) of readings (n, n_features), NaN for missing, that their types hold exactly."""
    out = np.full((len(columns), len(X)), MISSING, dtype=np.int32)
    for k, column in enumerate(columns):
        x = X[:, column.feature]
        present = ~np.isnan(x)
        if isinstance(column.rule, Rank):
            thresholds = np.array(column.rule.thresholds, dtype=np.float64)
            out[k, present] = np.searchsorted(thresholds, x[present], side="left") - CODE_MAX
        else:
            r = column.rule
            with np.errstate(over="ignore", under="ignore"):
                fixed = np.clip(np.floor(np.ldexp(x[present], r.frac)), -(2.0**31), 2.0**31 - 1).astype(np.int64)
            out[k, present] = np.clip((fixed * r.mul + r.add) >> r.shift, r.low, r.high)
    return out


def leaves_of(shapes: Sequence[Shape], codes: NDArray[np.int32]) -> Iterator[tuple[slice, NDArray[np.int64]]]:
    """Rows and the leaf (rows, n_trees) that each of them reaches, numbered on over all trees, a few rows at a time.

    ``codes``: (n_columns, n); the shapes' splits name its rows.
    """
    n_nodes = sum(len(s.splits) for s in shapes)
    slot = np.zeros(n_nodes, dtype=np.int32)
    threshold = np.full(n_nodes, CODE_MAX, dtype=np.int32)
    n_leaves = sum(len(s.leaf_of) for s in shapes)
    child = np.zeros(2 * (n_nodes + n_leaves), dtype=np.int32)  # right, left; leaves lie behind all nodes
    child[2 * n_nodes :] = np.repeat(np.arange(n_nodes, n_nodes + n_leaves), 2)
    slot = np.concatenate([slot, np.zeros(n_leaves, dtype=np.int32)])
    threshold = np.concatenate([threshold, np.full(n_leaves, CODE_MAX, dtype=np.int32)])
    roots, steps, at, leaf = [], 0, 0, n_nodes
    for s in shapes:
        n = len(s.splits)
        if n:
            slot[at : at + n] = 2 * np.array(s.splits) + ~np.array(s.missing_left, dtype=np.bool_)
            threshold[at : at + n] = s.thresholds
            pairs = np.array(s.children or [(2 * k + 1, 2 * k + 2) for k in range(n)], dtype=np.int64).reshape(n, 2)
            placed = (
                np.where(pairs < 0, leaf - 1 - pairs, at + pairs) if s.children else _heap_places(pairs, n, at, leaf)
            )
            child[2 * at : 2 * (at + n)] = placed[:, ::-1].ravel()
            steps = max(steps, _depth(pairs, n, bool(s.children)))
        roots.append(at if n else leaf)
        at, leaf = at + n, leaf + len(s.leaf_of)
    start = np.array(roots, dtype=np.int32)
    both = np.repeat(codes, 2, axis=0)  # as in scoring: missing below every code, and above every code
    both[1::2][codes == MISSING] = -MISSING - 1
    if not len(both):
        both = np.zeros((1, codes.shape[1]), dtype=np.int32)
    flat_rows = np.ascontiguousarray(both.T)
    width = flat_rows.shape[1]
    for first in range(0, codes.shape[1], CHUNK):
        rows = flat_rows[first : first + CHUNK]
        offset = (np.arange(len(rows), dtype=np.int32) * width)[:, None]
        flat = rows.ravel()
        node = np.broadcast_to(start, (len(rows), len(start))).copy()
        for _ in range(steps):
            left = flat.take(slot.take(node) + offset) <= threshold.take(node)
            node = child.take(2 * node + left)
        yield slice(first, first + len(rows)), node.astype(np.int64) - n_nodes


def _heap_places(pairs: NDArray[np.int64], n: int, at: int, leaf: int) -> NDArray[np.int64]:
    return np.where(pairs < n, at + pairs, leaf + pairs - n)


def _depth(pairs: NDArray[np.int64], n: int, has_pointers: bool) -> int:
    if not has_pointers:
        return n.bit_length()
    depths = [0] * n
    for k in range(n - 1, -1, -1):
        depths[k] = 1 + max(depths[c] if c > 0 else 0 for c in pairs[k].tolist())
    return depths[0]


def scores_of(program: Program, scorer: int, X: NDArray[np.float64]) -> NDArray[np.int64]:
    """Integer scores (n, n_outputs) of a scorer of trees, a stack or a linear one; NaN for missing."""
    s = program.scorers[scorer]
    codes = _codes_of(program.columns, X)
    if isinstance(s, Polynomial):
        return _linear(s, codes)
    ensemble = program.scorers[s.trees] if isinstance(s, Stack) else s
    assert isinstance(ensemble, Trees)
    start = s.bias if isinstance(s, Stack) else ensemble.base
    shapes, first = _shapes(ensemble)
    values = np.zeros((len(start), sum(len(shape.leaf_of) for shape in shapes)), dtype=np.int64)
    says = np.zeros((len(start), len(shapes)), dtype=np.bool_)
    numbers = range(len(ensemble.trees)) if not isinstance(s, Stack) else s.members
    for m, k in enumerate(numbers):
        tree, (which, at) = ensemble.trees[k], first[k]
        leaves = np.array(tree.leaves, dtype=np.int64).reshape(-1, tree.width).T
        rows: Any = slice(tree.output, tree.output + tree.width)
        if isinstance(s, Stack):
            weights = np.array([row[m] for row in s.weights], dtype=np.int64)
            leaves, rows = leaves * weights[weights != 0, None], weights != 0
        values[rows, at : at + leaves.shape[1]] += leaves
        says[rows, which] = True
    out = np.tile(np.array(start, dtype=np.int64), (X.shape[0], 1))
    for part, leaves in leaves_of(shapes, codes[list(ensemble.columns)]):
        for o, mine in enumerate(says):
            out[part, o] += values[o].take(leaves if mine.all() else leaves[:, mine]).sum(axis=1)
    return out


def _shapes(ensemble: Trees) -> tuple[list[Shape], list[tuple[int, int]]]:
    """Each shape once, and per tree which it has and where that one's leaves begin."""
    seen: dict[tuple[object, ...], tuple[int, int]] = {}
    shapes: list[Shape] = []
    first, at = [], 0
    for t in ensemble.trees:
        key = (t.splits, t.thresholds, t.missing_left, t.children)
        if key not in seen:
            seen[key] = (len(shapes), at)
            n_leaves = len(t.splits) + 1
            shapes.append(Shape(*key, np.zeros(n_leaves, dtype=np.int64)))
            at += n_leaves
        first.append(seen[key])
    return shapes, first


def _linear(s: Polynomial, codes: NDArray[np.int32]) -> NDArray[np.int64]:
    x = codes[list(s.columns)].astype(np.int64)
    for k, substitute in enumerate(s.substitutes):
        x[k][x[k] == MISSING] = 0 if substitute is None else substitute
    x = np.vstack([x, np.full(x.shape[1], s.constant)])
    inputs = x[[term[0] for term in s.terms]]
    return (np.array(s.weights, dtype=np.int64) @ inputs).T + np.array(s.bias, dtype=np.int64)
