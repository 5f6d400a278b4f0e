"""Trained parts to a draft program: ensembles become Trees scorers over rank columns shared by the whole program.

A draft holds floats where a bundle holds integers; everything else (columns, sensors, costs, nodes) is final.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hardcase_edge.program import CODE_MAX, Column, Node, Program, Rank, Tree, Trees

from .boosting import Ensemble
from .problem import Problem

__all__ = ["compile_program"]


def compile_program(problem: Problem, ensembles: Sequence[Ensemble], nodes: Sequence[Node]) -> Program:
    """A draft program whose scorer k is ``ensembles[k]``."""
    dtypes = problem.dtypes
    cuts = _cuts_in_use(ensembles, dtypes)
    columns = tuple(Column(f, Rank(tuple(cuts[f]))) for f in sorted(cuts))
    position = {column.feature: k for k, column in enumerate(columns)}
    return Program(
        features=problem.features,
        sensors=problem.sensors,
        uplink=problem.uplink,
        columns=columns,
        scorers=tuple(_trees(e, cuts, position, dtypes) for e in ensembles),
        nodes=tuple(nodes),
        n_classes=problem.n_classes,
    )


def _cuts_in_use(ensembles: Sequence[Ensemble], dtypes: Sequence[str]) -> dict[int, list[float | int]]:
    found: dict[int, set[float | int]] = {}
    for e in ensembles:
        for tree in e.trees:
            for f, b in zip(tree.features, tree.bins, strict=True):
                found.setdefault(int(e.features[f]), set()).add(_cut(e, int(f), int(b), dtypes))
    return {f: sorted(values) for f, values in found.items()}


def _cut(e: Ensemble, feature: int, bin_: int, dtypes: Sequence[str]) -> float | int:
    cuts = e.bins.cuts[feature]
    is_whole = dtypes[int(e.features[feature])] == "i32"
    if bin_ < len(cuts):
        return int(cuts[bin_]) if is_whole else float(cuts[bin_])
    # every reading against missing: no cut says that, the largest value does
    if is_whole:
        return 2**31 - 1
    return float(np.finfo(np.float64 if dtypes[int(e.features[feature])] == "f64" else np.float32).max)


def _trees(e: Ensemble, cuts: dict[int, list[float | int]], position: dict[int, int], dtypes: Sequence[str]) -> Trees:
    used = sorted({int(e.features[f]) for tree in e.trees for f in tree.features})
    local = {f: k for k, f in enumerate(used)}
    rank = {f: {value: k for k, value in enumerate(cuts[f])} for f in used}
    trees = []
    for tree, (output, width) in zip(e.trees, e.outputs, strict=True):
        splits = [int(e.features[f]) for f in tree.features]
        parts = zip(splits, tree.features, tree.bins, strict=True)
        at = [rank[s][_cut(e, int(f), int(b), dtypes)] for s, f, b in parts]
        trees.append(
            Tree(
                output=output,
                width=width,
                splits=tuple(local[s] for s in splits),
                thresholds=tuple(k - CODE_MAX for k in at),
                missing_left=tuple(bool(m) for m in tree.missing_left),
                children=tuple((int(a), int(b)) for a, b in tree.children),
                leaves=tuple(float(v) for v in tree.leaves.ravel()),
            )
        )
    return Trees(tuple(position[f] for f in used), tuple(float(b) for b in e.base), tuple(trees))
