"""A setting, the unit of a sweep's work: a method and its parameters in plain JSON values, and what it takes to run it.

Every method is a family: a grid of settings, and a function from one of them to points. To run a setting needs nothing
but the setting and the rows, so it may happen in any order, in a thread or on another machine, and gives the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..methods.adapt.grid import adapt_grid, adapt_run, greedy_grid, greedy_run
from ..methods.adapt.linear_paths import LINEAR_METHODS, linear_grid, linear_run
from ..methods.baselines.cascade import cascade_grid, cascade_run
from ..methods.baselines.static import static_grid, static_run
from ..methods.graph.dag import dag_grid, dag_run
from ..methods.graph.lp_tree import lp_grid, lp_run
from ..methods.prune.pruned_forest import prune_grid, prune_run
from ..policy.front import Point, best_points, with_test
from ..policy.selection import Judge
from ..stages.subset_search import SubsetSearch

__all__ = ["Setting", "points_of", "run_setting", "settings_of"]

Params = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """One way to train a method. ``params`` hold what JSON can say."""

    method: str
    params: Params


@dataclass(frozen=True)
class Family:
    """A method's settings for a problem, those that take longest first, and how one of them becomes points."""

    grid: Callable[[SubsetSearch], list[Params]]
    run: Callable[[SubsetSearch, Params], list[Point]]


FAMILIES = {
    "cascade": Family(cascade_grid, cascade_run),
    "static": Family(static_grid, static_run),
    "adapt-gbrt": Family(adapt_grid, adapt_run),
    "greedy-miser": Family(greedy_grid, greedy_run),
    "budget-prune": Family(prune_grid, prune_run),
    "dag": Family(dag_grid, dag_run),
    "lp-tree": Family(lp_grid, lp_run),
    **{m: Family(partial(linear_grid, m), partial(linear_run, m)) for m in LINEAR_METHODS},
}


def settings_of(method: str, search: SubsetSearch) -> list[Setting]:
    """The method's grid for this problem."""
    return [Setting(method, params) for params in FAMILIES[method].grid(search)]


def run_setting(search: SubsetSearch, setting: Setting) -> list[Point]:
    """The points that the judged rows keep of one setting."""
    return FAMILIES[setting.method].run(search, setting.params)


def points_of(method: str, judge: Judge) -> list[Point]:
    """The points that the judged rows keep over all settings of a method, one after another on this thread."""
    search = SubsetSearch(judge, 1)
    found = [p for setting in settings_of(method, search) for p in run_setting(search, setting)]
    return with_test(judge.problem, best_points(found))
