# SPDX-License-Identifier: Apache-2.0
"""Effort: three names, each trying no less than the one before it, from the TOML and from Python to the problem."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import numpy as np
import pytest

import hardcase_train
from hardcase.training.build import configure
from hardcase_edge.errors import InputError
from hardcase_train.data.from_arrays import make_problem as arrays_problem
from hardcase_train.methods.baselines.static import StaticSubset
from hardcase_train.settings.effort import EFFORTS, NORMAL, QUICK, THOROUGH, Effort, effort_of
from hardcase_train.settings.toml import read_config
from hardcase_train.sweep.job_cache import task_key
from hardcase_train.tasks.task import make_task
from hardcase_train.trees.size import LARGE, SMALL, size_of
from tests.helpers.places import ROOT
from tests.helpers.train.estimators import few, table
from tests.helpers.train.problems import BRIEF, make_problem, toml, write_csv

KNOBS = [field.name for field in fields(Effort) if field.name != "name"]


def amount(value: Any) -> float:
    """How much a field's value asks for: as many as there are, or the number."""
    return len(value) if isinstance(value, tuple) else value


# ---------------------------------------------------------------- names


def test_each_effort_has_its_name_and_normal_is_the_default() -> None:
    assert list(EFFORTS) == ["quick", "normal", "thorough"]
    assert [effort_of("here", name) for name in EFFORTS] == [QUICK, NORMAL, THOROUGH]
    assert Effort(name="normal") == NORMAL == make_problem().effort
    assert effort_of("here", BRIEF) is BRIEF
    with pytest.raises(FrozenInstanceError):
        NORMAL.n_prices = 3  # type: ignore[misc]


@pytest.mark.parametrize("name", ["quik", "", 3, None, ("quick",), "x" * 1000])
def test_another_name_is_refused_in_one_line(name: object) -> None:
    with pytest.raises(InputError, match=r"^here names the effort .*; use one of quick, normal, thorough$") as error:
        effort_of("here", name)
    assert len(str(error.value)) < 200


# ---------------------------------------------------------------- knobs


@pytest.mark.parametrize("knob", KNOBS)
def test_more_effort_tries_no_less(knob: str) -> None:
    low, middle, high = (amount(getattr(effort, knob)) for effort in EFFORTS.values())
    assert 0 <= low <= middle <= high
    assert high > 0


@pytest.mark.parametrize("knob", KNOBS)
def test_every_knob_is_read_by_something(knob: str) -> None:
    """A field that nobody reads would promise what is not so."""
    sources = [p for p in (ROOT / "train" / "hardcase_train").rglob("*.py") if p.name != "effort.py"]
    assert any(re.search(rf"effort\.{knob}\b", path.read_text(encoding="utf-8")) for path in sources)


@pytest.mark.parametrize("effort", [*EFFORTS.values(), BRIEF], ids=["quick", "normal", "thorough", "brief"])
def test_shares_are_shares_and_levels_rise(effort: Effort) -> None:
    for shares in (effort.levels, effort.forward_rates, effort.p_fulls, effort.linear_p_fulls):
        assert list(shares) == sorted(set(shares))
        assert 0 <= shares[0] <= shares[-1] < 1
    assert effort.forward_rates[0] == 0.0  # a policy that forwards nothing is always among those tried
    assert list(effort.ridges) == sorted(set(effort.ridges))
    assert all(n >= 1 and 0 < share <= 1 for n, share in effort.prune_forests)


# ---------------------------------------------------------------- where it arrives


@pytest.mark.parametrize(("text", "expected"), [("", QUICK), ('[policy]\neffort = "thorough"\n', THOROUGH)])
def test_the_tomls_effort_is_the_problems_and_the_commands_wins(tmp_path: Any, text: str, expected: Effort) -> None:
    X, y = table(120)
    write_csv(tmp_path / "data.csv", {**{f"x{k}": column for k, column in enumerate(np.nan_to_num(X).T)}, "y": y})
    path = toml(tmp_path, text)  # says "quick" unless the text says otherwise
    task = make_task(read_config(path))
    assert task.problem.effort == expected
    other = make_task(configure(path, effort="normal"))
    assert other.problem.effort == NORMAL
    assert task_key(task) != task_key(other)  # so jobs that were kept from one are not taken for the other's
    with pytest.raises(InputError, match=r"^--effort names the effort 'quik'"):
        configure(path, effort="quik")


@pytest.mark.filterwarnings("ignore:no policy of")
@pytest.mark.parametrize(("given", "expected"), [("quick", QUICK), (BRIEF, BRIEF)])
def test_an_estimators_effort_is_the_problems(given: Any, expected: Effort, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    points = StaticSubset.points
    monkeypatch.setattr(StaticSubset, "points", lambda self, judge: seen.append(judge.problem) or points(self, judge))
    few("StaticSubset", effort=given, size="small").fit(*table(100))
    assert [p.effort for p in seen] == [expected]
    assert hardcase_train.StaticSubset().effort == "normal"


@pytest.mark.parametrize(
    ("name", "said"), [("effort", "names the effort 'xyz'"), ("size", "is 'xyz'; use one of auto, small, large, ebm")]
)
def test_an_effort_or_size_that_is_none_is_refused_before_anything_is_made(name: str, said: str) -> None:
    X, y = table(100)
    with pytest.raises(InputError, match=f"the parameter {name} {said}"):
        arrays_problem(X, y, np.ones(100), 3, None, None, 0.0, 0, **{name: "xyz"})


@pytest.mark.parametrize(("name", "size"), [("small", SMALL), ("large", LARGE)])
def test_effort_scales_the_number_of_trees_and_never_to_none(name: str, size: Any) -> None:
    def trees(effort: Effort) -> tuple[int, int, int]:
        scaled = size_of(replace(make_problem(), size_name=name, effort=effort))
        counts = {"n_trees": size.n_trees, "probe_trees": size.probe_trees, "stumps": size.stumps}
        assert replace(scaled, **counts) == size  # nothing else changes
        return scaled.n_trees, scaled.probe_trees, scaled.stumps

    assert trees(NORMAL) == trees(THOROUGH) == (size.n_trees, size.probe_trees, size.stumps)
    assert trees(QUICK) == (round(0.5 * size.n_trees), round(0.5 * size.probe_trees), round(0.5 * size.stumps))
    assert trees(replace(BRIEF, tree_share=1e-6)) == (1, 1, 1)


def test_effort_is_how_many_trees_a_forest_has() -> None:
    assert [size_of(make_problem(effort=effort)).forest.n_trees for effort in EFFORTS.values()] == [48, 64, 64]
