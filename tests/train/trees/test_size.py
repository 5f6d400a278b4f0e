# SPDX-License-Identifier: Apache-2.0
"""How large low-cost models are: by name, or by the number of training rows, from the TOML and from Python."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from hardcase_train.data.problem import Problem
from hardcase_train.methods.baselines.static import StaticSubset
from hardcase_train.policy.selection import Judge
from hardcase_train.settings.config import SIZES, PolicyLimits
from hardcase_train.settings.effort import NORMAL
from hardcase_train.settings.toml import read_config
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.tasks.task import make_task
from hardcase_train.trees.size import FOREST, LARGE, MANY_ROWS, SMALL, Size, n_offered
from hardcase_train.trees.size import size_of as size_of_problem
from tests.helpers.train.estimators import few, table
from tests.helpers.train.problems import make_problem, toml, write_csv


def size_of(name: str, n_rows: int, **limits: float) -> Size:
    """The size of a problem that has this name for it and so many training rows."""
    rows = SimpleNamespace(y=range(n_rows))
    return size_of_problem(
        SimpleNamespace(size_name=name, train=rows, effort=NORMAL, limits=PolicyLimits(**limits), n_outputs=1)
    )


def test_auto_is_large_from_many_rows_on_and_a_name_wins():
    few = replace(SMALL, forest=FOREST)
    assert [size_of("auto", n) for n in (10, MANY_ROWS - 1, MANY_ROWS)] == [few, few, LARGE]
    for n in (10, 10 * MANY_ROWS):
        assert (size_of("small", n), size_of("large", n)) == (SMALL, LARGE)
    additive = [replace(size, is_additive=True) for size in (SMALL, LARGE)]
    assert [size_of("ebm", n) for n in (10, MANY_ROWS)] == additive
    assert {size_of(name, 10) for name in SIZES} == {few, SMALL, LARGE, additive[0]}


@pytest.mark.parametrize(("text", "expected"), [("", "auto"), ('[policy]\nsize = "large"', "large")])
def test_the_tomls_size_is_the_problems(tmp_path, text, expected):
    X, y = table(120)
    write_csv(tmp_path / "data.csv", {**{f"x{k}": column for k, column in enumerate(np.nan_to_num(X).T)}, "y": y})
    assert make_task(read_config(toml(tmp_path, text))).problem.size_name == expected


@pytest.mark.filterwarnings("ignore:no policy of")
@pytest.mark.parametrize("name", SIZES)
def test_an_estimators_size_is_the_problems(name, monkeypatch):
    seen: list[Problem] = []
    points = StaticSubset.points
    monkeypatch.setattr(StaticSubset, "points", lambda self, judge: seen.append(judge.problem) or points(self, judge))
    monkeypatch.setattr("hardcase_train.trees.size.LARGE", replace(SMALL, n_trees=3, probe_trees=2))
    few("StaticSubset", size=name).fit(*table(100))
    assert [p.size_name for p in seen] == [name]


def test_a_model_is_as_large_as_its_size():
    leaves = []
    for name in ("small", "large"):
        p = replace(make_problem(2, n=2000), size_name=name)
        judge = Judge(replace(p, valid=p.test))
        judge.is_crossed = False  # copies are of no interest here
        judge.X, judge.y = p.valid.X, p.valid.y
        (trained,) = SubsetSearch(judge, 1).models([(0, 1, 2)])
        assert len(trained.part.trees) == size_of_problem(p).n_trees
        leaves.append([len(tree.features) + 1 for tree in trained.part.trees])
    small, large = leaves
    assert max(small) <= SMALL.model.max_leaves < max(large) <= LARGE.model.max_leaves
    assert sum(large) > 5 * sum(small)


def test_more_rows_than_the_leaves_of_a_model_can_use_ask_for_no_smaller_sizes():
    """Six models of 70 trees with 16 leaves take 70,000 bytes, however many rows there are."""
    problem = replace(make_problem(2, n=4000), size_name="small", limits=PolicyLimits(max_bytes=100_000))
    assert n_offered(problem) == 1
