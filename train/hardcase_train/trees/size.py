# SPDX-License-Identifier: Apache-2.0
"""Sizes of low-cost models: small ones for any device, large ones for many training rows.

A small model has about 1,100 leaves and a large one about 19,000: some 10 or 200 kilobytes for each stage and two
classes. A forest, with 3,000 to 8,000 leaves, may be more accurate on few rows; an additive model has some 10 leaves
for each feature. Under [policy] max_bytes or max_ms,
models are halved until one of them may keep the limit, and further halves are offered, of which policies of several
stages are made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hardcase_edge.kernel.image import KERNEL_BYTES
from hardcase_edge.program.limits import worst_decision_ms

from ..data.problem import Problem
from .boosting import TreeSettings
from .forest import ForestSettings

ADDITIVE = "ebm"  # the size whose classifiers of sensor sets are additive models
MANY_ROWS = 8000  # of training; with fewer rows, small models are as accurate as large ones
MOST_STAGES = 6  # models of the smallest offered size, within the limits
MOST_HALVES = 3  # offered beside the largest that may keep the limits
LEAF_BYTES, OUTPUT_BYTES = 6.5, 2.1  # of an image: a leaf with the question that leads to it, and a number in it
PART_BYTES, PART_OUTPUT_BYTES = 1600, 105  # of an image: what a model takes beside its leaves, and for each output
TREE_OPERATIONS = 6  # of a walk, beside its questions and outputs
FEWEST_LEAVES = 4
MOST_EXCESS = 12.0  # halvings: a single small tree
FASTEST = 0.5  # learning rate of few trees


@dataclass(frozen=True)
class Size:
    """Settings of low-cost models, and of the small probes by which sensor sets are compared before training them."""

    model: TreeSettings
    n_trees: int
    probe: TreeSettings
    probe_trees: int
    probe_rows: int  # training and validation rows at most
    forest: ForestSettings | None = (
        None  # settings of forests, the other kind of model; None if only boosted trees are offered
    )
    forest_bins: int = 255
    stumps: int = 400  # of an additive model
    is_additive: bool = False  # whether classifiers of sensor sets are additive models alone


SMALL = Size(
    model=TreeSettings(learning_rate=0.15, max_leaves=16, max_depth=6, min_rows=20, l2=0.01, max_bins=64),
    n_trees=70,
    probe=TreeSettings(learning_rate=0.3, max_leaves=8, max_depth=4, min_rows=20, l2=0.01, max_bins=32),
    probe_trees=25,
    probe_rows=4000,
)
FOREST = ForestSettings(64, max_features=0.8, is_drawn=True, max_leaves=256)
LARGE = Size(
    model=TreeSettings(learning_rate=0.2, max_leaves=128, max_depth=14, min_rows=5, l2=1.0, max_bins=255),
    n_trees=150,
    probe=TreeSettings(learning_rate=0.3, max_leaves=31, max_depth=8, min_rows=10, l2=1.0, max_bins=64),
    probe_trees=40,
    probe_rows=8000,
)


def size_of(problem: Problem, halvings: int = 0) -> Size:
    """The size of the problem's low-cost models, by its ``size_name``, one of ``config.SIZES``, and its effort.

    "auto" is large from ``MANY_ROWS`` training rows on; with fewer, boosted trees are small and forests are offered.
    Where the problem has limits of bytes or time, the largest that may keep them, halved so often again.
    """
    by_rows = problem.size_name in ("auto", ADDITIVE)
    is_large = problem.size_name == "large" or (by_rows and len(problem.train.y) >= MANY_ROWS)
    size, effort = LARGE if is_large else SMALL, problem.effort
    forest = replace(FOREST, n_trees=effort.forest_trees) if problem.size_name == "auto" and not is_large else None
    counts = (size.n_trees, size.probe_trees, size.stumps)
    n_trees, probe_trees, stumps = (max(1, round(effort.tree_share * n)) for n in counts)
    model, most = size.model, len(problem.train.y) // size.model.min_rows
    k = halvings + _excess(problem, n_trees, min(model.max_leaves, most))
    if k:
        n_trees, leaves, was = *_halved(n_trees, model.max_leaves, k), n_trees
        rate = max(model.learning_rate, min(FASTEST, model.learning_rate * math.sqrt(was / n_trees)))
        model = replace(model, max_leaves=leaves, learning_rate=rate)
    if forest is not None:
        assert forest.max_leaves is not None
        k = halvings + _excess(problem, forest.n_trees, min(forest.max_leaves, len(problem.train.y)))
        n_drawn, leaves = _halved(forest.n_trees, forest.max_leaves, k)
        forest = replace(forest, n_trees=n_drawn, max_leaves=leaves)
    size = replace(size, model=model, n_trees=n_trees, probe_trees=probe_trees, stumps=stumps, forest=forest)
    return replace(size, is_additive=problem.size_name == ADDITIVE)


def n_offered(problem: Problem) -> int:
    """How many sizes are offered, each half of the one before; 1 where nothing limits bytes and time."""
    size = size_of(problem)
    most = len(problem.train.y) // size.model.min_rows
    left = _excess(problem, size.n_trees, min(size.model.max_leaves, most), MOST_STAGES)
    return 1 + min(MOST_HALVES, math.ceil(left))


def _halved(n_trees: int, leaves: int, k: float) -> tuple[int, int]:
    """Trees and leaves of k halvings: first of the leaves, then of the trees, and so on; what is left, of the trees."""
    for step in range(int(k)):
        if (step % 2 == 0 and leaves > FEWEST_LEAVES) or n_trees == 1:
            leaves = max(FEWEST_LEAVES, leaves // 2)
        else:
            n_trees //= 2
    return max(1, int(n_trees / 2 ** (k % 1))), leaves


def _excess(problem: Problem, n_trees: int, leaves: int, n_models: int = 1) -> float:
    """How often models must be halved until so many of them keep the limits of bytes and time, estimated; 0 or more."""
    limits, width, leaves = problem.limits, problem.n_outputs, max(2, leaves)
    over = 1.0
    if limits.max_bytes is not None:
        room = (limits.max_bytes - KERNEL_BYTES) / n_models - PART_BYTES - PART_OUTPUT_BYTES * width
        over = max(over, n_trees * leaves * (LEAF_BYTES + OUTPUT_BYTES * width) / max(1, room))
    if limits.max_ms is not None:
        steps = n_models * n_trees * (TREE_OPERATIONS + math.ceil(math.log2(leaves)) + width)
        over = max(over, (worst_decision_ms(steps, "kernel") / max(limits.max_ms, 1e-6)) ** 2)  # trees: each 2nd time
    return min(math.log2(over), MOST_EXCESS)
