# SPDX-License-Identifier: Apache-2.0
"""Prices of cost: geometric, in the problem's own unit, so that another unit of money changes no policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardcase_edge.more.fronts.front import Judged
from hardcase_edge.program.definition import Candidate, Costs, Node, Program, Select, Sensor
from hardcase_train.data.problem import Problem
from hardcase_train.methods import METHODS
from hardcase_train.policy.front import Point
from hardcase_train.policy.prices import over_prices, prices
from hardcase_train.sweep.train import learn
from tests.helpers.train.problems import LEAST, in_streams, make_problem

PRICED = {"forward_price", "price", "gamma", "budget", "path_costs"}  # parameters in units of cost, or by one


def in_units(problem: Problem, times: int) -> Problem:
    """The problem, all costs so many times as large."""
    sensors = tuple(Sensor(s.features, tuple(times * c for c in s.cost)) for s in problem.sensors)
    costs = Costs(*(times * amount for amount in problem.costs.terms.values()))
    return replace(problem, sensors=sensors, costs=costs)


@given(st.integers(2, 40), st.floats(1e-6, 1.0), st.floats(1.001, 1e6))
def test_prices_rise_by_one_factor_from_the_lowest_to_the_highest(n: int, lowest: float, factor: float) -> None:
    problem = make_problem()
    values = prices(problem, n, lowest, lowest * factor)
    assert len(values) == n
    assert all(isinstance(price, float) for price in values)
    assert values[0] * problem.cost_unit == pytest.approx(lowest)
    assert values[-1] * problem.cost_unit == pytest.approx(lowest * factor)
    steps = np.diff(np.log(values))
    assert (steps > 0).all()
    assert steps == pytest.approx(np.full(n - 1, np.log(factor) / (n - 1)))


def test_one_price_is_the_lowest() -> None:
    problem = make_problem()
    assert prices(problem, 1, 0.02, 5.0) == [0.02 / problem.cost_unit]


def test_where_nothing_costs_anything_prices_are_those_of_a_unit() -> None:
    free = in_units(make_problem(), 0)
    assert prices(free, 3, 0.01, 1.0) == pytest.approx([0.01, 0.1, 1.0])


@given(st.integers(1, 10**6))
def test_a_price_times_a_cost_is_the_same_in_every_unit(times: int) -> None:
    one, other = make_problem(), in_units(make_problem(), times)
    assert other.cost_unit == pytest.approx(times * one.cost_unit)
    assert np.array(prices(other, 5, 0.01, 1.0)) * times == pytest.approx(prices(one, 5, 0.01, 1.0))


def in_micro(program: Program, times: int) -> list[Node]:
    """The nodes, with the costs of candidates in so many times smaller units."""

    def scaled(node: Node) -> Node:
        if not isinstance(node, Select):
            return node
        candidates = [Candidate(c.max_size, tuple(x * times for x in c.cost), c.target) for c in node.candidates]
        return Select(tuple(candidates), node.otherwise)

    return list(map(scaled, program.nodes))


@pytest.mark.parametrize("method", [name for name in METHODS if name != "route"])  # whose table is in test_route
def test_costs_in_another_unit_change_no_policy(method: str) -> None:
    """A factor of 4, so that no float is rounded otherwise."""
    make = in_streams if METHODS[method].method.needs_order else make_problem
    problem = replace(make(n=60), effort=LEAST)
    one, other = (learn(p, (method,), quiet=True) for p in (problem, in_units(problem, 4)))
    assert len(one) == len(other) > 1
    for a, b in zip(one, other, strict=True):
        assert {k: v for k, v in a.params.items() if k not in PRICED} == {
            k: v for k, v in b.params.items() if k not in PRICED
        }
        assert (in_micro(a.program, 4), a.program.scorers) == (in_micro(b.program, 1), b.program.scorers)
        assert b.valid == replace(
            a.valid, **{k: pytest.approx(4 * getattr(a.valid, k), abs=1e-9) for k in ("cost", "cost_se")}
        )
        assert b.test == replace(a.test, cost=pytest.approx(4 * a.test.cost))


def made(price: float) -> Point:
    """The best point at a price of the front ``quality = sqrt(cost) / 4``, of costs to 9."""
    cost = min(9.0, (0.125 / price) ** 2)
    return Point("dag", {}, Judged(cost**0.5 / 4, cost, 0.0), None, None)


def test_prices_are_added_where_the_front_has_a_gap() -> None:
    tried: list[float] = []
    found = over_prices(lambda price: tried.append(price) or made(price), [0.001, 0.04, 1.6, 64.0])
    assert len(tried) == len(found) == 7
    between = [p for p in tried[4:] if 0.04 < p < 1.6]
    assert len(between) == 3  # the first gap is the whole front; the others have nothing to gain
    costs = sorted(p.valid.cost for p in found)
    grid = np.linspace(0, 9, 50)
    lost = np.sqrt(grid) / 4 - np.interp(grid, costs, np.sqrt(costs) / 4)
    assert lost.max() < 0.06
    assert (np.sqrt(grid) / 4 - grid / 12).max() > 0.18  # the mixture of the ends


def test_no_price_is_added_where_little_lies_above_a_mixture() -> None:
    def small(price: float) -> Point:
        figures = replace(
            made(price).valid, quality=made(price).valid.quality / 1000, cost=made(price).valid.cost / 1000
        )
        return Point("dag", {}, figures, None, None)

    assert len(over_prices(small, [0.001, 0.04, 1.6, 64.0])) == 4
