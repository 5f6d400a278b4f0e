# SPDX-License-Identifier: Apache-2.0
"""Where validation rows are enough they are judged alone, and nobody trains copies; below that, training rows too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hardcase_train.data.problem import N_FOLDS, Rows
from hardcase_train.methods.adapt import gbrt as adapt_gbrt
from hardcase_train.methods.adapt.gbrt import AdaptGBRT, Twin
from hardcase_train.policy.batch import Batch
from hardcase_train.policy.selection import ENOUGH_GROUPS, ENOUGH_ROWS, Judge
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.sweep.train import hpc_point
from hardcase_train.trees.boosting import TreeSettings
from tests.helpers.train.problems import BRIEF, make_problem

PART = object()  # a judge only hands it on


def with_valid(n):
    """A problem with so many validation rows, each of those there in turn."""
    p = make_problem(3, effort=BRIEF)
    rows = np.arange(n) % len(p.valid.y)
    return replace(p, valid=Rows(*(getattr(p.valid, k)[rows] for k in ("X", "y", "hpc", "index", "weight"))))


def never(rows, others):
    raise AssertionError("a copy is trained")


# ---------------------------------------------------------------- enough rows


def test_enough_validation_rows_are_judged_alone():
    p = with_valid(ENOUGH_ROWS)
    judge = Judge(p)
    assert not judge.is_crossed
    assert ENOUGH_ROWS == len(judge.y) == 3000
    assert judge.X.tobytes() == p.valid.X.tobytes()
    assert judge.y.tolist() == p.valid.y.tolist()
    assert judge.stakes.tobytes() == p.valid.hpc.tobytes()
    assert judge.weight.tolist() == p.valid.weight.tolist()


def test_with_one_row_less_training_rows_are_judged_too():
    p = with_valid(ENOUGH_ROWS - 1)
    judge = Judge(p)
    assert judge.is_crossed
    assert judge.y.tolist() == [*p.train.y, *p.valid.y]
    assert judge.hpc_label.tolist() == [*p.train.hpc_label, *p.valid.hpc_label]


@pytest.mark.parametrize(("n_groups", "is_crossed"), [(ENOUGH_GROUPS, False), (ENOUGH_GROUPS - 1, True)])
def test_enough_rows_of_too_few_groups_are_not_judged_alone(n_groups, is_crossed):
    p = with_valid(ENOUGH_ROWS)
    train, valid = (replace(r, group=np.arange(len(r.y)) % n_groups) for r in (p.train, p.valid))
    assert Judge(replace(p, train=train, valid=valid)).is_crossed == is_crossed


# ---------------------------------------------------------------- copies


def test_where_validation_rows_are_enough_no_copy_is_trained():
    judge = Judge(with_valid(ENOUGH_ROWS))
    scores = np.arange(9000.0).reshape(3000, 3)
    trained = judge.trained(PART, scores, never)
    assert trained.part is PART
    assert trained.scores is scores


def test_where_they_are_not_each_fold_is_scored_by_a_copy_fitted_to_the_others():
    judge = Judge(make_problem(3))
    n, asked = len(judge.fold), []

    def held(rows, others):
        asked.append(rows)
        assert sorted([*rows, *others]) == list(range(n))
        assert set(judge.fold[rows]) == {len(asked) - 1}
        return np.column_stack([rows, np.full(len(rows), len(asked))])

    trained = judge.trained(PART, np.zeros((n, 2)), held)
    assert len(asked) == N_FOLDS
    assert trained.scores[:n, 0].tolist() == list(range(n))
    assert trained.scores[:n, 1].tolist() == (judge.fold + 1).tolist()
    assert trained.scores[n:].tolist() == np.zeros((n, 2)).tolist()


def test_a_search_fits_one_classifier_a_set_where_validation_rows_are_enough():
    search = SubsetSearch(Judge(with_valid(ENOUGH_ROWS)), 1)
    (trained,) = search.models([(0, 2)])
    assert trained.scores.shape == (3000, 3)
    assert len(search.probe_train) == len(search.problem.train.y)  # sets are compared by models of all training rows
    assert len(search.probed) == 3000
    assert len(search.probes([(0,)])[0].sure) == 3000


def test_sets_are_compared_on_training_rows_held_back_and_all_validation_rows():
    judge = Judge(make_problem(3, n=200, effort=BRIEF))
    search = SubsetSearch(judge, 1)
    n = len(judge.fold)
    held_back = search.probed[search.probed < n]
    assert sorted([*search.probe_train, *held_back]) == list(range(n))
    assert len(held_back) == pytest.approx(n / 2, abs=1)
    assert search.probed[len(held_back) :].tolist() == list(range(n, 2 * n))


def test_twins_are_two_where_they_serve_the_q_step_alone(monkeypatch):
    made = []
    monkeypatch.setattr(adapt_gbrt, "Twin", lambda *args: made.append(Twin(*args)) or made[-1])
    settings = TreeSettings(learning_rate=0.3, max_leaves=4, max_depth=2, min_rows=10, l2=0.01, max_bins=16)
    model = AdaptGBRT(n_rounds=1, trees_per_round=2, settings=settings).learn(Judge(with_valid(ENOUGH_ROWS)))
    assert model.trained_.scores.shape == (3000, 4)
    whole, *twins = [t.rows.tolist() for t in made]
    assert whole == sorted(twins[0] + twins[1]) == list(range(150))


# ---------------------------------------------------------------- programs of copies


def test_judged_alone_the_last_of_the_programs_is_walked():
    judge = Judge(with_valid(ENOUGH_ROWS))
    program = hpc_point(judge).program
    found = judge.run_each([None] * N_FOLDS + [program])
    expected = Batch(program, judge.X).run(judge.hpc_label)
    assert found.label.tolist() == expected.label.tolist()
    assert found.cost.tolist() == expected.cost.tolist()
