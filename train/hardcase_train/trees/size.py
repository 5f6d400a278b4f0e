# SPDX-License-Identifier: Apache-2.0
"""Sizes of low-cost models: small ones for any device, large ones for many training rows.

A small model has about 1,100 leaves and a large one about 19,000: some 10 or 200 kilobytes for each stage and two
classes. A forest, with 3,000 to 8,000 leaves, may be more accurate on few rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..data.problem import Problem
from .boosting import TreeSettings
from .forest import ForestSettings

__all__ = ["Size", "size_of"]

MANY_ROWS = 8000  # of training; with fewer rows, small models are as accurate as large ones


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


def size_of(problem: Problem) -> Size:
    """The size of the problem's low-cost models, by its ``size_name``, one of ``config.SIZES``, and its effort.

    "auto" is large from ``MANY_ROWS`` training rows on; with fewer, boosted trees are small and forests are offered.
    """
    is_large = problem.size_name == "large" or (problem.size_name == "auto" and len(problem.train.y) >= MANY_ROWS)
    size, effort = LARGE if is_large else SMALL, problem.effort
    forest = replace(FOREST, n_trees=effort.forest_trees) if problem.size_name == "auto" and not is_large else None
    n_trees, probe_trees = (max(1, round(effort.tree_share * n)) for n in (size.n_trees, size.probe_trees))
    return replace(size, n_trees=n_trees, probe_trees=probe_trees, forest=forest)
