# SPDX-License-Identifier: Apache-2.0
"""Rows that come in groups: no part, fold or rung divides one, and neither their names nor the rows' order matter."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.dummy import DummyClassifier

from hardcase_edge.more.batch.quality import R2, Quality
from hardcase_train.data.canonical_order import content_groups
from hardcase_train.data.from_arrays import make_problem as of_arrays
from hardcase_train.data.problem import N_FOLDS, Problem, Rows
from hardcase_train.data.split import CALIBRATION, LEAST_GROUPS, deal, group_folds, random_split, time_split
from hardcase_train.hpc.fit import out_of_fold
from hardcase_train.policy.selection import ENOUGH_GROUPS, ENOUGH_RANKED, ENOUGH_ROWS, FEW_GROUPS, Judge
from hardcase_train.settings.toml import read_config
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.sweep.halving import Ladder
from hardcase_train.sweep.train import hpc_point
from hardcase_train.tasks.task import make_task
from tests.helpers.train.estimators import few, table
from tests.helpers.train.problems import BRIEF, make_problem, run, toml, write_csv

pytestmark = pytest.mark.usefixtures("brief_effort")

N = 120
LEAST = sum(LEAST_GROUPS)


@st.composite
def grouped_rows(draw, least=LEAST, most=20):
    """Group and class of each row: groups of 1 to 9 rows, interleaved."""
    sizes = draw(st.lists(st.integers(1, 9), min_size=least, max_size=most))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    group = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return group, rng.integers(0, draw(st.integers(2, 4)), len(group))


def parts_of(group, part):
    """The parts of each group, a set each."""
    return [set(part[group == g].tolist()) for g in np.unique(group)]


def with_groups(problem: Problem, n_groups: int) -> Problem:
    """The problem, the rows of each part in groups, with numbers of its own."""

    def grouped(rows: Rows, first: int) -> Rows:
        return replace(rows, group=first + np.random.default_rng(first).integers(0, n_groups, len(rows.y)))

    parts = ("train", "valid", "test")
    return replace(problem, **{name: grouped(getattr(problem, name), 1000 * k) for k, name in enumerate(parts)})


# ---------------------------------------------------------------- parts


@given(grouped_rows(), st.integers(0, 9))
def test_a_random_split_divides_no_group_and_leaves_no_part_empty(rows, seed):
    group, y = rows
    part = random_split(y, seed, group)
    assert all(len(parts) == 1 for parts in parts_of(group, part))
    n_groups = len(np.unique(group))
    assert all(len(np.unique(group[part == k])) >= least for k, least in enumerate(LEAST_GROUPS))
    drawn = len(np.unique(group[part == CALIBRATION]))
    assert drawn == min(round(0.1 * n_groups), n_groups - sum(LEAST_GROUPS))


def test_parts_have_their_shares_of_the_rows_of_each_class():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(300), rng.integers(1, 40, 300))
    y = (rng.random(300) < 0.2)[group].astype(int)  # a class for the whole group
    part = random_split(y, 0, group)
    for k, share in ((0, 6 / 9), (1, 1 / 9), (2, 2 / 9)):
        for c in (0, 1):
            others = (y == c) & (part != CALIBRATION)
            assert (part[others] == k).mean() == pytest.approx(share, abs=0.02)
    assert len(np.unique(group[part == CALIBRATION])) == 30


def test_calibration_groups_are_drawn_alike_large_ones_and_rare_classes_too():
    group = np.repeat(np.arange(20), [50, *[1] * 19])
    y = np.where(group == 1, 2, group % 2)
    drawn = np.array([random_split(y, seed, group)[[0, 50, 60]] == CALIBRATION for seed in range(1000)])
    assert np.abs(drawn.mean(axis=0) - 0.1).max() < 5 * np.sqrt(0.1 * 0.9 / 1000)


@given(grouped_rows(least=1), st.booleans())
def test_a_split_by_time_keeps_the_order_and_divides_no_group(rows, is_sorted):
    group = np.sort(rows[0]) if is_sorted else rows[0]
    part = time_split(len(group), group)
    last = {g: np.flatnonzero(group == g).max() for g in group}
    ends = [k for k in range(len(group) - 1) if all(last[g] <= k for g in group[: k + 1])]
    assert (part is None) == (len(ends) < 2)
    if part is not None:
        assert all(len(parts) == 1 for parts in parts_of(group, part))
        order = [(0, 1, CALIBRATION, 2).index(k) for k in part]
        assert order == sorted(order)
        assert {0, 1, 2} <= set(part.tolist())


def test_a_cut_in_time_moves_to_the_nearest_end_of_a_group():
    group = np.repeat(np.arange(10), [9, 11, 10, 12, 8, 11, 9, 10, 10, 10])
    part = time_split(100, group)
    assert np.flatnonzero(np.diff(part)).tolist() == [60, 69, 79]
    assert time_split(100, np.arange(100)).tolist() == time_split(100).tolist()


@given(grouped_rows(), st.integers(0, 9))
def test_folds_divide_no_group_and_each_holds_one(rows, seed):
    group, y = rows
    fold = group_folds(group, y, seed)
    assert all(len(folds) == 1 for folds in parts_of(group, fold))
    assert set(fold.tolist()) == set(range(N_FOLDS))


@given(grouped_rows(), st.integers(0, 9), st.randoms())
def test_dealing_knows_the_groups_and_not_the_order_of_their_rows(rows, seed, random):
    group, y = rows
    order = np.array(random.sample(range(len(y)), len(y)))
    dealt = deal(group, y, seed, (0.7, 0.3), (1, 1))
    assert deal(group[order], y[order], seed, (0.7, 0.3), (1, 1)).tolist() == dealt[order].tolist()


# ---------------------------------------------------------------- the order of content


@given(grouped_rows(), st.randoms())
def test_groups_are_numbered_by_what_is_in_them(rows, random):
    group, y = rows
    X = np.column_stack([y % 2, group // 2, np.where(y == 1, np.nan, 0.5)]).astype(float)  # many rows are alike
    names = [f"m{g}" for g in group]
    number, order = content_groups(names, X, y)
    shuffled = np.array(random.sample(range(len(y)), len(y)))
    renamed = random.sample(range(1000), 20)
    again, order_again = content_groups([renamed[g] for g in group[shuffled]], X[shuffled], y[shuffled])
    content = np.column_stack([number, y, X])[order]
    assert content.tobytes() == np.column_stack([again, y[shuffled], X[shuffled]])[order_again].tobytes()
    assert sorted(set(number.tolist())) == list(range(len(set(names))))
    assert len({*zip(names, number.tolist(), strict=True)}) == len(set(names))


# ---------------------------------------------------------------- folds, rungs, probes


class Watched(DummyClassifier):
    """Remembers the first column, which names the group, of the rows that each copy is fitted to and asked about."""

    seen: ClassVar[list] = []

    def fit(self, X, y, sample_weight=None):
        self.of_fit = set(X[:, 0].tolist())
        return super().fit(X, y)

    def predict_proba(self, X):
        Watched.seen.append((self.of_fit, set(X[:, 0].tolist())))
        return super().predict_proba(X)


@given(grouped_rows())
def test_f0_is_asked_about_no_training_group_that_it_was_fitted_to(rows):
    group, y = rows
    Watched.seen = []
    out_of_fold(Watched(), group[:, None].astype(float), y, y.max() + 1, 0, group=group)
    assert not any(fitted & asked for fitted, asked in Watched.seen)


@pytest.mark.parametrize("n_groups", [4, 7, 60])
def test_judges_rungs_and_searches_divide_no_group(n_groups):
    problem = with_groups(make_problem(n=400, effort=BRIEF), n_groups)
    judge, train = Judge(problem), problem.train
    assert all(len(folds) == 1 for folds in parts_of(train.group, judge.fold))
    assert judge.group.tolist() == [*train.group, *problem.valid.group]
    search = SubsetSearch(judge, 1)
    assert not set(judge.group[search.probe_train].tolist()) & set(judge.group[search.probed].tolist())
    for rung in (2, 4, 30):
        kept = Ladder(problem).at(rung).problem.train
        assert all(len(parts) == 1 for parts in parts_of(train.group, np.isin(train.index, kept.index)))
        n_kept = len(np.unique(kept.group))
        assert n_kept >= N_FOLDS
        assert len(kept.y) <= max(1.5 * len(train.y) / rung, 2 * N_FOLDS * len(train.y) / n_groups)
    assert len(Ladder(problem).at(1).problem.train.y) == len(train.y)


def test_an_estimators_validation_rows_are_of_other_groups():
    X, y = table(100)
    group = np.random.default_rng(0).integers(0, 8, 100)
    problem = of_arrays(X, y, np.ones(100), 3, None, None, 0.0, 0, group=group)
    train, valid = set(problem.train.group.tolist()), set(problem.valid.group.tolist())
    assert (train & valid, train | valid) == (set(), set(range(8)))
    with pytest.raises(ValueError, match="groups has 4 groups; at least 5"):
        of_arrays(X, y, np.ones(100), 3, None, None, 0.0, 0, group=group % 4)


# ---------------------------------------------------------------- standard errors


def test_a_group_of_equal_rows_counts_as_one_row():
    """Each row four times, in a group of its own: the standard error is that of the single rows, not half of it."""
    plain = make_problem(n=100)
    four = {k: np.repeat(np.arange(100), 4) for k in ("train", "valid", "test")}

    def copied(rows: Rows, again: np.ndarray, first: int) -> Rows:
        return Rows(rows.X[again], rows.y[again], rows.hpc[again], rows.index[again], group=first + again)

    parts = {k: copied(getattr(plain, k), four[k], 1000 * j) for j, k in enumerate(four)}
    single, copies = Judge(plain), Judge(replace(plain, **parts))
    program = hpc_point(single).program
    outcome = single.run_each([program] * (N_FOLDS + 1))
    outcome.label[::7] = 0
    again = copies.run_each([program] * (N_FOLDS + 1))
    again.label[:] = np.repeat(outcome.label, 4)
    one, other = single.summary(outcome), copies.summary(again)
    assert one.quality == pytest.approx(other.quality)
    assert other.loss_se == pytest.approx(one.loss_se * np.sqrt(200 / 199))
    assert other.cost_se == pytest.approx(one.cost_se * np.sqrt(200 / 199))


@pytest.mark.parametrize(("n_groups", "is_said"), [(4, True), (5, False), (60, False)])
def test_few_groups_are_worth_a_line(n_groups, is_said):
    said = Judge(with_groups(make_problem(n=200), n_groups)).warning()
    assert (said is not None) == is_said == (2 * n_groups < FEW_GROUPS)
    assert said is None or (said.startswith(f"choices are made on {2 * n_groups} groups") and "\n" not in said)
    assert Judge(make_problem()).warning() is None


def test_one_judged_group_says_nothing_of_others():
    problem = with_groups(make_problem(), N_FOLDS)
    judge = Judge(replace(problem, valid=replace(problem.valid, group=problem.valid.group * 0)), is_alone=True)
    figures = hpc_point(judge).valid
    assert figures.loss_se == 1.0
    assert figures.cost_se == pytest.approx(figures.cost), "equal costs say nothing of other groups"


@pytest.mark.parametrize("n_groups", [ENOUGH_GROUPS - 1, ENOUGH_GROUPS])
def test_many_validation_rows_of_few_groups_are_not_judged_alone(n_groups):
    problem = with_groups(make_problem(n=ENOUGH_ROWS), 40)
    group = np.arange(ENOUGH_ROWS) % n_groups
    judge = Judge(replace(problem, valid=replace(problem.valid, group=group)))
    assert judge.is_crossed == (n_groups < ENOUGH_GROUPS)


@pytest.mark.parametrize("n_queries", [ENOUGH_RANKED - 1, ENOUGH_RANKED])
def test_rankings_are_judged_alone_only_on_many_groups_because_each_is_one_figure(n_queries):
    """MQ2008 has 3,000 validation rows, and 156 queries: they are too few to choose by."""
    problem = make_problem(n=ENOUGH_ROWS)
    parts = ("train", "valid", "test")
    values = {k: replace(getattr(problem, k), hpc=getattr(problem, k).hpc[:, :1]) for k in parts}
    problem = replace(problem, n_classes=0, quality=R2, **values)
    valid = replace(problem.valid, group=np.arange(ENOUGH_ROWS) % n_queries)
    problem = replace(with_groups(problem, 40), valid=valid)
    assert not Judge(problem).is_crossed  # values: each row is a figure
    judge = Judge(problem.with_quality(Quality("ndcg", "NDCG@5", at=5)))
    assert judge.is_crossed == (n_queries < ENOUGH_RANKED)
    if judge.is_crossed:
        train = problem.train.group
        assert all(len(set(judge.fold[train == g])) == 1 for g in np.unique(train))  # no fold divides a query


# ---------------------------------------------------------------- the TOML


def columns(n_groups=12, names=lambda g: f"m{g}", order=None, n=N, is_text=False):
    """Rows of machines, each with its own offset; ``order``: of the rows; ``is_text``: words instead of numbers."""
    rng = np.random.default_rng(0)
    group = rng.permutation(np.arange(n) % n_groups)
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 2)) + y[:, None] + rng.normal(size=(n_groups, 2))[group]
    order = np.arange(n) if order is None else order
    called = [names(int(g)) for g in group[order]]
    a, b = np.round(X[order], 0 if is_text else 6).T
    if is_text:
        a, b = ([f"about {x:g}" for x in column] for column in (a, b))
    return {"a": a, "b": b, "machine": called, "y": y[order]}


def task_of(folder, data="", **made):
    write_csv(folder / "data.csv", columns(**made))
    return make_task(read_config(toml(folder, data=f'group = "machine"\n{data}')))


@pytest.mark.parametrize("names", [lambda g: f"m{g}", lambda g: g * 1.5 - 3], ids=["text", "numbers"])
def test_a_column_names_the_groups_and_is_no_feature(tmp_path, names):
    task = task_of(tmp_path, names=names)
    assert task.features == ("a", "b")
    p, called = task.problem, np.array(task.table.labels["machine"])
    parts = (p.train, p.valid, p.calibration, p.test)
    assert sorted(np.concatenate([rows.index for rows in parts]).tolist()) == list(range(N))
    of_parts = [set(called[rows.index]) for rows in parts]
    assert sum(map(len, of_parts)) == 12
    for rows in parts:
        assert len({*zip(called[rows.index], rows.group.tolist(), strict=True)}) == len(set(rows.group.tolist()))


@pytest.mark.parametrize("is_text", [False, True])
def test_shuffled_rows_and_renamed_groups_give_the_same_problem(tmp_path, is_text):
    one = task_of(tmp_path, is_text=is_text).problem
    order = np.random.default_rng(5).permutation(N)
    other = task_of(tmp_path, order=order, names=lambda g: g * g + 7, is_text=is_text).problem
    for name in ("train", "valid", "calibration", "test"):
        a, b = getattr(one, name), getattr(other, name)
        assert is_text or a.index.tolist() == order[b.index].tolist()  # of rows with the same texts any may come first
        for key in ("X", "y", "hpc", "weight", "group"):
            assert getattr(a, key).tobytes() == getattr(b, key).tobytes(), key


@pytest.mark.parametrize("name", ["StaticSubset", "AdaptGBRT", "DagClassifier"])
def test_shuffled_rows_and_renamed_groups_give_the_same_estimator(name):
    X, y = table(150)
    rng = np.random.default_rng(0)
    group, weight, order = rng.integers(0, 12, 150), rng.integers(1, 4, 150), rng.permutation(150)
    one = few(name).fit(X, y, sample_weight=weight, groups=[f"m{g}" for g in group])
    other = few(name).fit(X[order], y[order], sample_weight=weight[order], groups=-group[order])
    assert one.predict_proba(X).tobytes() == other.predict_proba(X).tobytes()
    assert one.figures_ == other.figures_
    assert one.figures_ != few(name).fit(X, y, sample_weight=weight).figures_


def test_an_estimator_says_that_its_groups_are_few_and_refuses_names_that_are_none():
    X, y = table(100)
    with pytest.warns(UserWarning, match="choices are made on 6 groups"):
        few("StaticSubset", max_loss=1.0).fit(X, y, groups=np.arange(100) % 6)
    with pytest.raises(ValueError, match=r"groups has the shape \(99,\)"):
        few("StaticSubset").fit(X, y, groups=np.arange(99))
    with pytest.raises(ValueError, match="groups has 1 missing names"):
        few("StaticSubset").fit(X, y, groups=[None, *range(99)])


@pytest.mark.parametrize(
    ("change", "data", "said"),
    [
        pytest.param({}, 'group = "site"', "group is 'site', which is not a column", id="no-such-column"),
        pytest.param({}, 'group = "y"', "which is the target, the split or the weight", id="the-target"),
        pytest.param(
            {"machine": [None, *["m"] * (N - 1)]},
            'group = "machine"',
            "the group 'machine' is missing in 1 rows, first in row 1",
            id="missing",
        ),
        pytest.param(
            {"machine": np.arange(N) % 5}, 'group = "machine"', "has 5 groups of 'machine', at least 6", id="too-few"
        ),
        pytest.param(
            {"machine": np.arange(N) % 7},
            'group = "machine"\nsplit = "time"',
            "the groups of 'machine' overlap in time",
            id="overlap-in-time",
        ),
        pytest.param(
            {"machine": np.arange(N) // 5 % 24, "part": ["train"] * 61 + ["valid"] * 29 + ["test"] * 30},
            'group = "machine"\nsplit = "part"',
            "the group '12' of 'machine' is in both train and valid of the split column 'part'",
            id="divided",
        ),
        pytest.param(
            {"machine": np.arange(N) // 30, "part": ["train"] * 60 + ["valid"] * 30 + ["test"] * 30},
            'group = "machine"\nsplit = "part"',
            "the training rows have 2 groups of 'machine', at least 4",
            id="few-to-train",
        ),
    ],
)
def test_groups_that_cannot_be_kept_whole_are_one_line(tmp_path, capsys, change, data, said):
    write_csv(tmp_path / "data.csv", {**columns(), **change})
    status, _, err = run(capsys, "train", toml(tmp_path, data=data), "--out", tmp_path / "build")
    assert (status, err.count("\n")) == (2, 1)
    assert said in err


def test_a_split_by_time_follows_the_ends_of_groups(tmp_path):
    write_csv(tmp_path / "data.csv", {**columns(), "machine": np.arange(N) // 7})
    p = make_task(read_config(toml(tmp_path, data='group = "machine"\nsplit = "time"'))).problem
    parts = [sorted(rows.index.tolist()) for rows in (p.train, p.valid, p.calibration, p.test)]
    assert [k for part in parts for k in part] == list(range(N))
    assert [part[0] % 7 for part in parts] == [0, 0, 0, 0]


def test_an_npz_may_hold_groups(tmp_path):
    made = columns()
    X, group = np.column_stack([made["a"], made["b"]]), np.array(made["machine"])
    np.savez(tmp_path / "data.npz", X=X, y=made["y"], group=group)
    task = make_task(read_config(toml(tmp_path, file="data.npz", data='group = "group"\n')))
    assert len(np.unique(task.problem.train.group)) == len(set(group[task.problem.train.index]))
