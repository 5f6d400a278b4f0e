# SPDX-License-Identifier: Apache-2.0
"""A sweep under a time limit: always a whole front, more rows while time is left, nothing that would end too late."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hardcase_train.data.problem import Problem, Rows
from hardcase_train.method import Setting
from hardcase_train.policy.front import Point
from hardcase_train.policy.selection import ENOUGH_ROWS
from hardcase_train.stages.deadline import Deadline
from hardcase_train.sweep import timed
from hardcase_train.sweep.halving import Job, Ladder
from hardcase_train.sweep.loop import SETS, Loop
from hardcase_train.sweep.timed import Clock, first_problem, last_deadline, later_problems
from hardcase_train.sweep.train import learn
from tests.helpers.train.problems import BRIEF, make_problem

METHODS = ("static", "cascade", "dag")
JOB = Job(Setting("static", {"sensors": [0], "classifier": "trees"}))


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed, "QUICK", BRIEF)


def many_valid(n: int = 200) -> Problem:
    """Validation rows alone are judged."""
    problem = make_problem(2, n=n, effort=BRIEF)
    v = problem.valid
    rows = np.arange(ENOUGH_ROWS) % len(v.y)
    return replace(problem, valid=Rows(v.X[rows], v.y[rows], v.hpc[rows], v.index[rows]))


def test_when_the_time_is_over_there_is_a_whole_front_still() -> None:
    first: list[list[Point]] = []
    lines: list[str] = []
    over = Deadline(0.0, 0.0)
    points = learn(
        make_problem(effort=BRIEF), METHODS, quiet=True, jobs=1, say=lines.append, deadline=over, better=first.append
    )
    assert {p.method for p in points} == {"hpc", *METHODS}
    assert all(p.program is not None and p.test for p in points)
    assert [[(p.method, p.params) for p in front] for front in first] == [[(p.method, p.params) for p in points]]
    assert lines[-1] == "no time was left for 150 training rows; a longer limit gives better policies"


def test_with_time_left_the_search_and_the_settings_of_the_asked_effort_run_on_all_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: list[str] = []
    efforts: list[str] = []
    search = Loop.search

    def noted(self: Loop, ladder: Ladder, deadline: Deadline, phase: int = SETS) -> None:
        efforts.append(ladder.problem.effort.name)
        search(self, ladder, deadline, phase)

    monkeypatch.setattr(Loop, "search", noted)
    points = learn(
        make_problem(effort=BRIEF), ("static",), quiet=True, jobs=1, say=lines.append, deadline=Deadline.after(6_000)
    )
    assert [line.split(":")[0] for line in lines] == ["first front, 150 rows", "settings, 150 rows"]
    assert efforts == ["quick", BRIEF.name]
    assert any(p.params.get("classifier") == "forest" for p in points)  # of size "auto"; the first front has none


def test_a_job_that_would_end_too_late_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed, "run_job", lambda ladder, job: [])
    ladder = Ladder(make_problem(effort=BRIEF))
    kind = timed.kind_of(JOB)
    assert Clock(Deadline.after(100), {kind: 200.0}).run(ladder, JOB) is None
    assert Clock(Deadline.after(100), {kind: 50.0}).run(ladder, JOB) == []
    assert Clock(Deadline.after(100), {kind: 200.0}, {kind: 50.0}).run(ladder, JOB) == []  # what was measured counts
    forest = Job(Setting("static", {"sensors": [0], "classifier": "forest"}))
    assert Clock(Deadline.after(100), {kind: 50.0}).run(ladder, forest) is None
    other = Job(Setting("l1", {}))
    assert Clock(Deadline.after(100), {kind: 200.0}).run(ladder, other) is None  # of a kind that has not run
    assert Clock(Deadline.after(10)).run(ladder, other) == []


def test_expectations_grow_with_the_work_of_a_model() -> None:
    clock = Clock(Deadline.after(10), {("l1", "trees", False): 1.0}, {timed.kind_of(JOB): 2.0})
    later = clock.then(Deadline.after(20), 10.0)
    assert later.expected == {("l1", "trees", False): 10 * timed.MARGIN, timed.kind_of(JOB): 20 * timed.MARGIN}
    assert not later.taken


@pytest.mark.parametrize(("took", "times"), [(8.0, 2), (50.0, 10), (2.0, 10**0.3), (0.0, 10)])
def test_the_next_expectation_grows_as_the_last_two_times_did(took: float, times: float) -> None:
    kind = timed.kind_of(JOB)
    taken = {kind: took} if took else {}
    clock = Clock(Deadline.after(10), {kind: 8.0}, taken, before={kind: 4.0}, work=10.0)
    assert clock.then(Deadline.after(20), 10.0).expected[kind] == pytest.approx((took or 8.0) * times * timed.MARGIN)


def test_the_first_front_has_few_rows_where_validation_rows_alone_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed, "FIRST_ROWS", 50)
    monkeypatch.setattr(timed, "MANY_ROWS", 10)
    problem = many_valid()
    assert len(first_problem(problem).train.y) == 50
    steps = later_problems(problem)
    *small, few, last = steps
    assert [(len(p.train.y), p.size_name) for p in small] == [(13, "small"), (50, "small"), (200, "small")]
    assert (len(few.train.y), few.size_name, few.effort.tree_share) == (200, "auto", problem.effort.tree_share / 4)
    assert last is problem
    assert {p.size_name for p in later_problems(replace(problem, size_name="large"))} == {"large"}
    crossed = make_problem(effort=BRIEF)
    assert len(first_problem(crossed).train.y) == 150
    assert [len(p.train.y) for p in later_problems(crossed)] == [150, 150, 150]


def test_figures_of_larger_models_are_given_more_of_the_time() -> None:
    small, whole = make_problem(effort=BRIEF), Deadline.after(10_000)
    large = replace(small, size_name="large")
    assert last_deadline(whole, 1_000, small, small).left() == pytest.approx(10_000 - 1_000 * timed.LAST_TIMES, abs=60)
    assert last_deadline(whole, 1_000, small, large).left() < 10_000 - 1_500 * timed.LAST_TIMES
    assert last_deadline(whole, 10, small, large).left() == pytest.approx(10_000 - 10_000 * timed.LAST_SHARE, abs=60)


def test_the_next_rows_are_the_most_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed, "FIRST_ROWS", 50)
    monkeypatch.setattr(timed, "MANY_ROWS", 10)
    lines: list[str] = []
    learn(many_valid(), ("static",), quiet=True, jobs=1, say=lines.append, deadline=Deadline.after(6_000))
    assert [line.split(":")[0] for line in lines] == ["first front, 50 rows", "settings, 200 rows"]
