"""How large low-cost models are: small enough for any device, or as large as many rows can fill.

A small model is about 1,100 leaves, a large one about 19,000: some 10 or 200 kilobytes a stage for two classes. Of few
rows a forest may say more, in some 3,000 to 8,000 leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..data.problem import Problem
from .boosting import TreeSettings
from .forest import ForestSettings

__all__ = ["Size", "size_of"]

MANY_ROWS = 8000  # of training; below, small models tell as much as large ones


@dataclass(frozen=True)
class Size:
    """A low-cost model, and the smaller one by which sets of sensors are compared before it is trained."""

    model: TreeSettings
    n_trees: int
    probe: TreeSettings
    probe_trees: int
    probe_rows: int  # training and validation rows at most
    forest: ForestSettings | None = None  # the other kind of model; None: boosted trees alone
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
    """How large the problem's low-cost models are, by ``size_name``, one of ``config.SIZES``.

    "auto" is large from ``MANY_ROWS`` training rows on; below, boosted trees are small, and there may be forests.
    """
    is_large = problem.size_name == "large" or (problem.size_name == "auto" and len(problem.train.y) >= MANY_ROWS)
    size, effort = LARGE if is_large else SMALL, problem.effort
    forest = replace(FOREST, n_trees=effort.forest_trees) if problem.size_name == "auto" and not is_large else None
    n_trees, probe_trees = (max(1, round(effort.tree_share * n)) for n in (size.n_trees, size.probe_trees))
    return replace(size, n_trees=n_trees, probe_trees=probe_trees, forest=forest)
