# SPDX-License-Identifier: Apache-2.0
"""The greedy search over sensor subsets, and the baselines that stand on it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from hardcase_edge.more.batch.choices import margins_of
from hardcase_edge.program.definition import MICRO, Feature, Sensor, Uplink
from hardcase_train.data.problem import Problem, Rows, Subset
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.subset_search import Probe, SubsetSearch
from hardcase_train.trees import size as sizes
from hardcase_train.trees.boosting import ensemble_scores
from hardcase_train.trees.subset_classifier import FOREST
from tests.helpers.places import ROOT
from tests.helpers.train.problems import BRIEF, make_problem


def probes(losses: dict[Subset, float]) -> dict[Subset, Probe]:
    return {subset: Probe(loss, np.zeros(1), np.ones(1, dtype=bool)) for subset, loss in losses.items()}


def by_class(rows: Rows) -> Rows:
    order = np.argsort(rows.y, kind="stable")
    return Rows(rows.X[order], rows.y[order], rows.hpc[order], rows.index[order])


def test_a_table_sorted_by_class_is_searched_on_rows_of_every_class(monkeypatch):
    """Long tables are probed on a part of their rows; the first of them would all be of one class."""
    monkeypatch.setattr(sizes, "SMALL", replace(sizes.SMALL, probe_rows=50))
    problem = make_problem(3, n=150, effort=BRIEF)
    problem = replace(problem, train=by_class(problem.train), valid=by_class(problem.valid))
    search = SubsetSearch(Judge(problem), 1)
    for rows, y in ((search.probe_train, problem.train.y), (search.probed, search.judge.y)):
        assert len(rows) == 50
        assert set(y[rows]) == {0, 1, 2}
    nothing, everything = search.losses([(), (0, 1, 2)])
    assert everything < nothing


def test_paths_go_from_nothing_to_everything_one_sensor_at_a_time():
    search = SubsetSearch(Judge(make_problem(effort=BRIEF)), 1)
    for path in (search.forward(0.0, (0, 1, 2)), search.forward(1.0, (0, 1, 2)), search.backward((0, 1, 2))[::-1]):
        assert path[0] == ()
        assert path[-1] == (0, 1, 2)
        assert all(set(a) < set(b) and len(b) == len(a) + 1 for a, b in pairwise(path))


def test_gain_per_cost_begins_with_the_cheap_sensor_where_the_dear_one_is_hardly_better():
    search = SubsetSearch(Judge(make_problem(effort=BRIEF)), 1)
    search._probes = probes({(): 1.0, (0,): 0.6, (1,): 0.5, (2,): 0.45})  # costs 1, 5 and 20
    search._probes |= probes({(0, 1): 0.4, (0, 2): 0.3, (1, 2): 0.3, (0, 1, 2): 0.2})
    assert search.forward(1.0, (0, 1, 2))[1] == (0,)
    assert search.forward(0.0, (0, 1, 2))[1] == (2,)
    assert search.backward((0, 1, 2))[1] == (0, 1)  # per cost saved, the dear one is missed least


def test_a_search_tells_how_many_sets_it_probed_for_the_first_time():
    search, told = SubsetSearch(Judge(make_problem(n=60, effort=BRIEF)), 1), []
    search.progress = told.append
    search.losses([(0,), (1,), (0,)])
    search.losses([(1,), (0, 1)])
    assert told == [2, 1]


def test_of_sensors_that_harm_as_much_the_cheapest_is_added_first():
    search = SubsetSearch(Judge(make_problem(effort=BRIEF)), 1)
    search._probes = probes({(): 0.4, (0,): 0.6, (1,): 0.6, (2,): 0.6})
    search._probes |= probes({(0, 1): 0.7, (0, 2): 0.7, (1, 2): 0.7, (0, 1, 2): 0.8})
    assert search.forward(1.0, (0, 1, 2)) == [(), (0,), (0, 1), (0, 1, 2)]


def test_promising_subsets_are_the_front_by_the_probe_and_the_dearest():
    search = SubsetSearch(Judge(make_problem(effort=BRIEF)), 1)
    search._probes = probes({(): 1.0, (0,): 0.6, (1,): 0.7, (2,): 0.5, (0, 1, 2): 0.5})
    assert search.promising([(), (0,), (1,), (2,), (0, 1, 2)]) == [(), (0,), (0, 1, 2), (2,)]


def test_a_classifier_reads_its_own_sensors_only():
    search = SubsetSearch(Judge(make_problem(effort=BRIEF)), 1)
    for subset, trained in zip([(), (1,), (0, 2)], search.models([(), (1,), (0, 2)]), strict=True):
        used = {int(trained.part.features[f]) // 2 for tree in trained.part.trees for f in tree.features}
        assert used <= set(subset)
        assert trained.scores.shape == (300, 3)


def test_a_cut_lets_as_many_rows_through_on_a_device_as_on_the_judged_rows():
    """Copies of three quarters of the rows are surer than the whole forest, so their scores are scaled.

    Truth is some 3,000 letters that no part has seen. With copies' own scores .04 fewer of them pass.
    """
    table = np.loadtxt(ROOT / "examples" / "letters" / "letters.csv", delimiter=",", dtype=str, skiprows=1)
    X, y = table[:, :-1].astype(float), (table[:, -1] > "M").astype(np.int64)
    order, p = np.random.default_rng(0).permutation(len(y)), np.full((len(y), 2), 0.5)
    train, valid, test = (Rows(X[r], y[r], p[r], r) for r in np.split(order, (1350, 1800)))
    features = tuple(Feature("i32") for _ in range(16))
    sensors = tuple(Sensor((s,), (MICRO,)) for s in range(16))
    problem = Problem(features, sensors, Uplink(64, tuple(range(16))), 2, train, valid, test)
    search = SubsetSearch(Judge(problem), 1)
    sets = [(k, k + 1, k + 2) for k in range(0, 15, 3)]
    more = []
    for trained in search.models(sets, FOREST):
        codes = search._learners[FOREST].bins.transform(test.X)
        fresh = margins_of(ensemble_scores(trained.part, codes[trained.part.features]))
        more += [np.mean(fresh >= np.quantile(margins_of(trained.scores), q)) - (1 - q) for q in (0.25, 0.5, 0.75)]
    assert abs(np.mean(more)) < 0.015, more
