# SPDX-License-Identifier: Apache-2.0
"""Time limits: what a user writes, how much is left, and a search that ends early."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardcase_edge.errors import InputError
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.deadline import Deadline, seconds_of
from hardcase_train.stages.nested_sets import Chains
from hardcase_train.stages.subset_search import SubsetSearch
from tests.helpers.train.problems import BRIEF, make_problem


@given(st.integers(1, 10_000), st.sampled_from(["s", "m"]))
def test_a_time_is_a_number_with_a_unit(n: int, unit: str) -> None:
    assert seconds_of("--time-limit", f"{n}{unit}") == n * {"s": 1, "m": 60}[unit]


@pytest.mark.parametrize(
    "text", ["", "10", "m", "-5m", "0s", "1e3s", "nan m", "721h", "10 minutes", "9" * 500 + "s", "١s"]
)
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(InputError, match=r"--time-limit is .*; write a time above 0 with its unit: 90s, 10m or 2h"):
        seconds_of("--time-limit", text)


def test_a_deadline_says_what_is_left_and_leaves_time_for_later() -> None:
    whole = Deadline(100.0, 200.0)
    assert (whole.limit, whole.before(25.0)) == (100.0, Deadline(100.0, 175.0))
    assert 3_540 < Deadline.after(3_600).left() <= 3_600
    assert Deadline(0.0, time.monotonic() - 1).left() < 0


def test_a_search_that_is_late_ends_early_with_a_path_and_a_chain() -> None:
    search = SubsetSearch(Judge(make_problem(effort=BRIEF)), 1)
    search.deadline = Deadline(0.0, 0.0)
    assert [len(path) for path in search.paths()] == [
        2,
        2,
    ]  # one step forward each way; backward would not reach the small sets
    whole = SubsetSearch(Judge(make_problem(effort=BRIEF)), 1)
    assert search.paths()[0] == whole.forward(1.0, whole.sensors)[:2]
    assert search.once(Chains).climbed in [[path[1]] for path in search.paths()]


def test_a_search_that_follows_another_has_its_sets_and_probes_nothing() -> None:
    guide, other = (SubsetSearch(Judge(make_problem(effort=BRIEF)), 1) for _ in range(2))
    chains = guide.once(Chains)
    counts: list[int] = []
    other.progress = counts.append
    other.follow(guide)
    assert (other.once(Chains), other.walked()) == (chains, guide.walked())
    assert not counts
    assert other.n_probes == 0
