# SPDX-License-Identifier: Apache-2.0
"""The rules by which a stage answers: levels, prices with gates and without, and what lies near a price's cuts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from hardcase_edge.program.definition import THRESHOLD, Branch
from hardcase_train.data.from_arrays import make_problem as arrays_problem
from hardcase_train.methods.adapt.stages import adapt_chain
from hardcase_train.policy.confidences import NEVER
from hardcase_train.policy.prices import prices
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.staged_policy import StagedPolicy, level_cuts, near_cuts, price_cuts, shortened_cuts
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.stages.thresholds import Cut, expected, mean_value, priced_cuts
from tests.helpers.train.problems import BRIEF, make_problem

CHAIN = [(1,), (0, 1), (0, 1, 2)]
LEVELS = (0.6, 0.9)
LAST = Cut(-NEVER)


@cache
def staged(has_gates=False):
    """Three stages, with gates or without."""
    judge = Judge(make_problem(3, n=150, effort=BRIEF))
    models = adapt_chain(judge, CHAIN, 1) if has_gates else SubsetSearch(judge, 1).models(CHAIN)
    return StagedPolicy(judge, CHAIN, models)


def some_prices(s, n=12):
    return prices(s.judge.problem, n, 0.01, 1.0)


# ---------------------------------------------------------------- one price for all stages


@pytest.mark.parametrize("has_gates", [False, True])
def test_a_price_cuts_by_gates_where_stages_have_them_and_else_by_margins_alone(has_gates):
    s = staged(has_gates)
    tried = price_cuts(s, some_prices(s))
    assert any(len(cuts) > 1 for _, cuts in tried)
    points = [s.finish(s.point("m", what, cuts)) for what, cuts in tried]
    branches = [n for p in points for n in p.program.nodes if isinstance(n, Branch) and n.rule == THRESHOLD]
    has_gate = any(cut.gate > -NEVER for _, cuts in tried for cut in cuts.values())
    assert has_gate == bool(branches) == has_gates


@pytest.mark.parametrize("has_gates", [False, True])
def test_each_price_has_the_cuts_of_least_cost_among_those_of_all_prices(has_gates):
    s = staged(has_gates)
    tried = price_cuts(s, some_prices(s))
    assert [what for what, _ in tried] == [{"price": price} for price in some_prices(s)]
    spent = [expected(s.choices, cuts)[1] for _, cuts in tried]
    assert spent == sorted(spent, reverse=True)  # the dearer a unit of cost, the less is spent
    for what, cuts in tried:
        value = mean_value(s.choices, cuts, what["price"])
        assert cuts == priced_cuts(s.choices, what["price"])
        assert all(value <= mean_value(s.choices, {k: LAST}, what["price"]) + 1e-12 for k in range(3))


def test_where_forwarding_is_always_worth_it_the_last_stage_answers_all():
    """Forwarding costs what the only sensor does, and f0 is never wrong: no cut is worth anything."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    p = arrays_problem(rng.normal(size=(200, 1)), y, np.ones(200), 2, None, [1], 0.0, 0, effort=BRIEF)
    judge = Judge(p.with_hpc(np.where(np.arange(2) == y[:, None], 0.99, 0.01)))
    s = StagedPolicy(judge, [(0,)], SubsetSearch(judge, 1).models([(0,)]))
    assert price_cuts(s, [0.001, 0.1]) == [({"price": 0.001}, {0: LAST}), ({"price": 0.1}, {0: LAST})]


# ---------------------------------------------------------------- one confidence for all stages


def test_levels_are_tried_from_every_first_stage_to_every_last_one():
    s = staged()
    tried = level_cuts(s, LEVELS)
    runs = [(a, b, "forward") for a, b in product(range(3), repeat=2) if a <= b]
    runs += [(a, b, "answer") for a, b in product(range(3), repeat=2) if a < b]  # one stage for all is a fixed set
    assert len(tried) == len(runs) * len(LEVELS)
    seen = {(min(cuts), max(cuts), what["end"], what["level"]) for what, cuts in tried}
    assert seen == {(*run, level) for run in runs for level in LEVELS}
    for what, cuts in tried:
        assert sorted(cuts) == list(range(min(cuts), max(cuts) + 1))
        assert cuts[max(cuts)].is_last == (what["end"] == "answer")
        assert all(cut.gate == -NEVER for cut in cuts.values())


def test_a_higher_level_ends_no_more_rows_at_any_stage_and_is_one_margin_a_stage():
    s = staged()
    by_level = {level: {} for level in LEVELS}
    for what, cuts in level_cuts(s, LEVELS):
        for k, cut in cuts.items():
            if not cut.is_last:
                assert by_level[what["level"]].setdefault(k, cut) == cut
    low, high = (by_level[level] for level in LEVELS)
    for k in range(3):
        assert (s.ends(k, high[k]) <= s.ends(k, low[k])).all()
        ends = s.ends(k, high[k])
        assert not ends.any() or (s.stops[k].label == s.judge.y)[ends].mean() > 0.85  # calibrated, so near the level


# ---------------------------------------------------------------- beside a price's cuts


def test_shortened_cuts_end_with_each_of_the_stages():
    cuts = {0: Cut(1.0), 2: Cut(2.0, 0.5), 5: Cut(3.0)}
    assert shortened_cuts(cuts) == [
        cuts,
        {0: LAST},
        {0: Cut(1.0), 2: LAST},
        {0: Cut(1.0), 2: Cut(2.0, 0.5), 5: LAST},
    ]
    assert shortened_cuts({}) == []


def test_near_cuts_are_of_stages_that_some_price_led_to():
    s = staged()
    tried = some_prices(s)
    chains = [priced_cuts(s.choices, price) for price in tried]
    near = near_cuts(s.choices, tried, chains)
    led = [set(cuts) for cuts in chains]
    assert near
    assert all(price in tried and any(set(cuts) <= stages for stages in led) for price, cuts in near)
    stages = sorted(chains[-1])
    alone = replace(s.choices, stages=[s.choices.stages[k] for k in stages])
    assert (tried[-1], {stages[k]: cut for k, cut in priced_cuts(alone, tried[-1]).items()}) in near
