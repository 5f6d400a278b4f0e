# SPDX-License-Identifier: Apache-2.0
"""Orders of sensors for staged policies: nested stages, a climb that never does worse, and one that must do better."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from hardcase_train.data.from_arrays import make_problem as arrays_problem
from hardcase_train.policy.selection import Judge
from hardcase_train.settings.config import PolicyLimits
from hardcase_train.settings.effort import NORMAL
from hardcase_train.stages import nested_sets as module
from hardcase_train.stages.nested_sets import Chains
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.stages.thresholds import priced_cuts
from hardcase_train.sweep.train import hpc_point
from tests.helpers.train.problems import BRIEF, make_problem


def chains_of(problem):
    return Chains(SubsetSearch(Judge(problem), 1))


def many_sensors(n_sensors=14, n=600, **effort):
    """A sensor per column, each telling a little of the class; a request costs twice as much as all of them."""
    rng = np.random.default_rng(4)
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, n_sensors)) + 0.6 * y[:, None]
    p = arrays_problem(X, y, np.ones(n), 2, None, None, n_sensors, 0, effort=replace(BRIEF, **effort))
    return p.with_hpc(np.where(np.arange(2) == y[:, None], 0.98, 0.02))


def misleading(n=1600):
    """Column 0 says nine labels of ten and none for sure; column 1 settles half the rows, and says nothing of others.

    Both cost the same, a request ten times that; f0 is never wrong.
    """
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n)
    mostly = np.where(rng.random(n) < 0.9, y, 1 - y)
    settled = np.where(np.arange(n) % 2 == 0, y * 2 - 1, 0)
    p = arrays_problem(np.column_stack([mostly, settled]), y, np.ones(n), 2, None, [3, 3], 54, 0)
    return p.with_hpc(np.where(np.arange(2) == y[:, None], 0.999, 0.001))


# ---------------------------------------------------------------- stages


@pytest.mark.parametrize("n_classes", [2, 3])
def test_stages_are_nested_and_each_buys_something(n_classes):
    chains = chains_of(make_problem(n_classes, effort=BRIEF))
    for chain in (chains.greedy, chains.climbed):
        assert chain
        assert chain[0] != ()
        assert all(set(a) < set(b) for a, b in pairwise(chain))
        assert all(subset == tuple(sorted(subset)) for subset in chain)


def test_there_are_a_dozen_stages_at_most_from_the_first_of_use_to_the_last(monkeypatch):
    monkeypatch.setattr(module, "priced_cuts", lambda choices, price: range(len(choices.stages)))  # all of use
    chains = chains_of(many_sensors(max_stages=NORMAL.max_stages))
    stages = chains._stages(tuple(range(14)))
    assert len(stages) == 12
    assert (stages[0], stages[-1]) == ((0,), tuple(range(14)))
    assert all(set(a) < set(b) for a, b in pairwise(stages))


def test_where_no_stage_is_of_use_the_one_of_all_sensors_is_left(monkeypatch):
    monkeypatch.setattr(module, "priced_cuts", lambda choices, price: {})
    assert chains_of(make_problem(effort=BRIEF))._stages((2, 0, 1)) == [(0, 1, 2)]


def test_stages_of_no_use_at_any_price_are_left_out():
    chains = chains_of(make_problem(effort=BRIEF))
    order = chains._greedy()
    choices = chains._choices(order)
    used = {k for times in module.SPREAD for k in priced_cuts(choices, times * chains._price)}
    of_use = [tuple(sorted(order[: k + 1])) for k in sorted(used)]
    assert set(chains._stages(order)) <= set(of_use)
    assert chains._stages(order)[-1] == of_use[-1]


# ---------------------------------------------------------------- orders


def test_neighbours_are_other_orders_of_the_same_sensors_each_once():
    found = list(module._neighbours((3, 0, 2, 1)))
    assert len(set(found)) == len(found) == 9  # six pairs to move, three of them not beside each other to swap
    assert all(sorted(order) == [0, 1, 2, 3] for order in found)
    assert (3, 0, 2, 1) not in found


def test_only_the_front_of_a_long_order_is_moved(monkeypatch):
    monkeypatch.setattr(module, "REACH", 3)
    assert {order[3:] for order in module._neighbours((5, 4, 3, 2, 1, 0))} == {(2, 1, 0)}


@pytest.mark.parametrize("seed", range(4))
def test_a_climb_never_raises_the_value(seed, monkeypatch):
    chains = chains_of(make_problem(3, seed=seed, effort=replace(BRIEF, max_probes=400)))
    seen = []
    value = chains._value
    monkeypatch.setattr(chains, "_value", lambda order: seen.append((order, value(order))) or seen[-1][1])
    stages = chains.climbed
    assert seen[-1][0] != chains._greedy()  # others were tried
    best = min(v for _, v in seen)
    assert stages in [chains._stages(order) for order, v in seen if v <= best + 1e-6]


def test_the_same_problem_has_the_same_chains():
    first, second = (chains_of(make_problem(3, effort=BRIEF)) for _ in range(2))
    assert first.greedy == second.greedy
    assert first.climbed == second.climbed


@pytest.mark.parametrize("most", [0, 10, 40])
def test_a_climb_probes_at_most_one_order_more_than_it_may(most):
    chains = chains_of(many_sensors(8, max_probes=most))
    chains._greedy()
    before = chains.search.n_probes
    _ = chains.climbed
    assert before < chains.search.n_probes <= before + most + 8


def test_a_sensor_that_settles_half_the_rows_goes_before_one_that_says_most_of_the_label():
    """By the loss on all rows the other is better, and every greedy path begins with it."""
    chains = chains_of(misleading())
    said, settles = chains.search.losses([(0,), (1,)])
    assert said < settles
    assert chains._greedy() == (0, 1)
    assert chains.climbed == [(1,), (0, 1)]
    saved = 0.5 * 3 * chains._price  # the other sensor, in half of the rows
    assert chains._value((0, 1)) - chains._value((1, 0)) == pytest.approx(saved, rel=0.1)
    choices = chains._choices((1, 0))
    cuts = priced_cuts(choices, chains._price)
    assert choices.stages[0].ends(cuts[0]).mean() == pytest.approx(0.5, abs=0.05)


# ---------------------------------------------------------------- costs


@pytest.mark.parametrize("n_classes", [2, 3])
def test_forwarding_costs_what_the_meter_says_of_f0_for_every_row(n_classes):
    p = make_problem(n_classes)
    point = hpc_point(Judge(p))
    assert point.valid.cost == pytest.approx(p.forward_cost, rel=1e-12)
    assert point.valid.forward_rate == 1.0
    chains = chains_of(p)
    assert set(chains._cloud_cost) == {p.forward_cost}
    assert chains._price * p.forward_cost == pytest.approx(module.PRICE)


def test_a_sensor_over_the_budget_is_left_out_of_an_order_and_later_ones_are_not():
    """Sensors cost 1, 5 and 20."""
    problem = make_problem(2, effort=BRIEF)
    prefixes = {
        b: chains_of(replace(problem, limits=PolicyLimits(budget=b)))._prefixes((2, 1, 0)) for b in (0.5, 6, 21)
    }
    assert prefixes == {0.5: [()], 6: [(1,), (0, 1)], 21: [(2,), (0, 2)]}
