# SPDX-License-Identifier: Apache-2.0
"""Graph policies of cuts: each price has its own way through nested sets, and nobody who goes on could better stop."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from hardcase_train.data.from_arrays import make_problem as arrays_problem
from hardcase_train.methods.graph.dag import DagClassifier, graph_of, graph_prices, nested_points, priced_way
from hardcase_train.policy.batch import Batch
from hardcase_train.policy.confidences import NEVER, WRONG_PER_MARGIN, met_margins
from hardcase_train.policy.selection import Judge
from hardcase_train.stages import staged_policy as rules
from hardcase_train.stages.nested_sets import Chains
from hardcase_train.stages.staged_policy import StagedPolicy, near_cuts
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.stages.thresholds import best_way, mean_value
from hardcase_train.successors.reduce import Graph
from tests.helpers.train.estimators import few
from tests.helpers.train.problems import BRIEF, make_problem
from tests.train.policy.test_batch import agree


@cache
def made(kind="trees"):
    search = SubsetSearch(Judge(make_problem(3, n=1200, effort=replace(BRIEF, n_prices=10))), 1)
    graph = graph_of(search, "chains")
    staged = StagedPolicy(search.judge, graph.states, search.models(graph.states, kind))
    return search, graph, staged, nested_points(search, graph, {"subsets": "chains", "classifier": kind})


@pytest.mark.parametrize("kind", ["trees", "forest"])
def test_the_session_decides_as_the_batch_on_every_row(kind):
    search, _, _, points = made(kind)
    rows = search.problem.test
    assert len(points) > 2
    for point in points:
        agree(point.program, rows.X[:300], rows.hpc_label[:300])


def test_states_are_those_of_both_chains():
    search, graph, _, _ = made()
    chains = search.once(Chains)
    assert set(graph.states) == {(), (0, 1, 2), *chains.greedy, *chains.climbed}


def test_the_stages_of_a_policy_are_nested_and_cost_more_for_a_lower_price():
    _, _, _, points = made()
    for point in points:
        stages = [set(s) for s in point.params["stages"]]
        assert all(a < b for a, b in pairwise(stages))
    by_price = sorted(points, key=lambda p: p.params["price"])
    assert by_price[0].valid.cost > by_price[-1].valid.cost


def test_judged_figures_are_those_of_the_program():
    search, _, _, points = made()
    judge = search.judge
    for point in points:
        said = judge.summary(Batch(point.program, judge.X).run(judge.hpc_label))
        if not judge.is_crossed:
            assert said.to_json() == pytest.approx(point.valid.to_json())
        assert said.cost == pytest.approx(point.valid.cost, rel=0.3)


@pytest.mark.parametrize("price", [0.0005, 0.003, 0.02])
def test_no_other_margin_of_a_stage_would_do_better(price):
    """Given the chances, and where its rows go on to, each cut is the best there is."""
    _, graph, staged, _ = made()
    choices = staged.choices
    cuts = priced_way(staged, graph, price)
    kept = sorted(cuts)
    value = choices.cloud_wrong + price * choices.cloud_cost
    if cuts[kept[-1]].is_last:
        value = np.full_like(value, np.inf)
    for k in reversed(kept):
        stage = choices.stages[k]
        here = stage.wrong + price * stage.cost
        came = np.ones(len(value), dtype=bool)
        for earlier in kept[: kept.index(k)]:
            came &= ~staged.ends(earlier, cuts[earlier])
        if not cuts[k].is_last:
            focus = np.where(came, 1.0, 0.05) * choices.weight

            def spent(bound, stage=stage, here=here, value=value, focus=focus):
                return float(focus @ np.where(stage.margin >= bound, here, value))

            best = min(spent(b) for b in np.quantile(stage.margin, np.linspace(0, 1, 21)))
            assert spent(cuts[k].margin) <= best * 1.02
        value = np.where(staged.ends(k, cuts[k]), here, value)


def test_rows_below_a_cut_may_go_on_where_stopping_beats_going_on_for_all():
    """Of ten rows two are unsure and only those gain by going on: no single action is as good as the cut."""
    margin = np.arange(1000) % 10.0
    unsure = margin < 2
    costs = np.column_stack([np.where(unsure, 1.0, 0.0), np.full(1000, 0.6), np.full(1000, 0.5)])
    assert best_way(costs, margin, np.ones(1000)) == (1.5, 2)
    assert best_way(costs[:, :1], margin, np.ones(1000)) == (-NEVER, 0)
    assert best_way(costs + np.array([1.0, 0.0, 0.0]), margin, np.ones(1000)) == (NEVER, 2)


def test_a_chance_knows_no_more_margins_than_wrong_rows_can_tell():
    margins = [np.full(5, float(k)) for k in range(20)]
    assert met_margins(margins, WRONG_PER_MARGIN - 1) is None
    assert met_margins([], 1000) is None
    assert met_margins(margins, 2 * WRONG_PER_MARGIN)[0].tolist() == [18.0, 19.0]
    assert met_margins(margins, 10**6).shape == (5, 12)


def test_prices_go_from_little_to_what_no_reading_is_worth():
    search = SubsetSearch(
        Judge(arrays_problem(np.eye(40)[:, :2], np.arange(40) % 2, np.ones(40), 2, None, [1.2, 30.0], 948.8, 0)), 1
    )
    graph = Graph(((), (0,), (0, 1)), ((1, 2), (2,), ()))
    prices = graph_prices(search, graph, 8)
    assert len(prices) == 8
    assert prices == sorted(prices)
    assert prices[0] * 980 == pytest.approx(0.01)
    assert prices[-1] * 1.2 == pytest.approx(0.5)
    assert len(graph_prices(search, Graph(((),), ((),)), 4)) == 4


def test_each_chain_is_cut_for_the_prices_around_those_that_lead_to_it(monkeypatch):
    monkeypatch.setattr(rules, "NEAR", 1)
    _, graph, staged, _ = made()
    prices = np.geomspace(0.01 / 80, 0.5, 9).tolist()
    ways = [priced_way(staged, graph, p) for p in prices]
    several = np.flatnonzero([len(way) > 1 for way in ways])
    assert len(several)
    for i in several:
        alone = [way if k == i else {} for k, way in enumerate(ways)]
        near = near_cuts(staged.choices, prices, alone)
        assert prices[i] in {p for p, _ in near} <= set(prices[max(i - 1, 0) : i + 2])
        for price, cuts in near:
            assert set(cuts) <= set(ways[i])
            before = mean_value(staged.choices, ways[i], price)
            assert mean_value(staged.choices, cuts, price) <= before + 1e-9
    assert near_cuts(staged.choices, prices, [{} for _ in prices]) == []


def test_a_size_without_a_forest_has_boosted_trees_alone():
    for size, kinds in (("auto", ["forest", "trees"]), ("small", ["trees"]), ("large", ["trees"])):
        grid = DagClassifier.grid(SubsetSearch(Judge(replace(make_problem(3), size_name=size)), 1))
        chains = [params for params in grid if params["subsets"] == "chains"]
        assert chains == [{"classifier": kind, "subsets": "chains"} for kind in kinds]


def test_the_estimator_takes_chains():
    rows = make_problem().train
    X = np.nan_to_num(rows.X)
    model = few("DagClassifier", states="chains").fit(X, rows.y)
    assert (model.predict(X) == rows.y).mean() > 0.5
    with pytest.raises(ValueError, match="states of DagClassifier is 'chain'"):
        DagClassifier(states="chain").fit(X, rows.y)
