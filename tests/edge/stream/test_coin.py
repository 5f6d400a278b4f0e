# SPDX-License-Identifier: Apache-2.0
"""The inner sensor ``coin``: its draws, what a bundle may declare of it, and the device that fills it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hardcase_edge.device.device import Device, RuntimeConfig
from hardcase_edge.errors import BundleError, InputError
from hardcase_edge.kernel.machine import decide, open_machine
from hardcase_edge.program.definition import MICRO, Affine, Column, Feature, Rank, Sensor, Uplink
from hardcase_edge.program.inner import COIN, DRAW
from hardcase_edge.session.session import Machine
from hardcase_edge.stream.coin import GRID, Coin, Toss, coin_of
from hardcase_edge.verifier.verify import verify
from tests.helpers.edge.coins import BELOW, cheap_program, load_mixed, mixed_program
from tests.helpers.edge.device import FEATURES, FORWARD_COST, HARD, FakeBank, FakeLink, make_loaded, make_program

ROW = [HARD, 1.0, 2.0, 3.0, 4.0]


def test_draws_are_uniform_and_a_seed_repeats_them() -> None:
    toss, again, other = Toss(7), Toss(7), Toss(8)
    draws = [toss() for _ in range(64_000)]
    assert draws[:100] == [again() for _ in range(100)] != [other() for _ in range(100)]
    assert 0 <= min(draws) <= max(draws) < GRID
    for part in (lambda x: x * 64 // GRID, lambda x: x % 64):  # the first bits, and the last ones
        counts = [0] * 64
        for x in draws:
            counts[part(x)] += 1
        chi_square = sum((n - 1000) ** 2 / 1000 for n in counts)
        assert 30 < chi_square < 104, "63 degrees of freedom: 0.1 % lie outside to either side"
    assert Toss()() != Toss()() or Toss()() != Toss()(), "without a seed, each start has its own"
    with pytest.raises(InputError, match="the coin's seed is -1"):
        Toss(-1)


def test_the_mix_decides_as_one_of_its_programs_and_a_coin_that_nobody_fills_goes_the_cheap_way() -> None:
    program, reply = mixed_program(), (1, 9_000)
    both = {True: make_program(), False: cheap_program()}
    for opened in (Machine(program), open_machine(program)):
        for draw in (0, BELOW - 1, BELOW, GRID - 1, None):
            for budget in (None, 2 * MICRO, 0):
                for x in (HARD, 3.0, None):
                    row = [x, *ROW[1:]]
                    is_dear = draw is not None and draw < BELOW
                    got = decide(opened, [*row, draw], reply, budget=budget)
                    wanted = decide(Machine(both[is_dear]), row, reply, budget=budget)
                    assert (got.result, got.confidence, got.route, got.cost) == (
                        wanted.result, wanted.confidence, wanted.route, wanted.cost,
                    ), (draw, budget, x)  # fmt: skip
                    assert set(got.sensors) == {*wanted.sensors, 2}
        dead = decide(opened, [*ROW, 0], reply, dead=(2,))
        assert (dead.cost, dead.sensors, dead.failed) == (MICRO, (0,), (2,)), "a runtime that knows no coin"


def test_the_proof_is_that_of_both_programs() -> None:
    mixed, dear, cheap = verify(mixed_program()), verify(make_program()), verify(cheap_program())
    assert (mixed.worst_cost, mixed.best_cost) == (dear.worst_cost, min(cheap.best_cost, dear.best_cost))
    assert mixed.is_exact
    assert mixed.longest_path == dear.longest_path + 2
    assert len(mixed_program().scorers) == 2, "the scorer that both read stands there once"


def test_a_device_tosses_for_each_decision() -> None:
    def run(seed: int | None) -> list[int]:
        link = FakeLink([None] * 2_000)
        device = Device(load_mixed(), FakeBank([HARD] * 2_000), link, RuntimeConfig(coin_seed=seed))
        records = list(device.run())
        assert {r["coin"] for r in records} <= {0, 1}
        assert all(r["cost"] == (FORWARD_COST if r["coin"] else 1) for r in records)
        assert all("coin" in r["sensors"] for r in records)
        return [r["coin"] for r in records]

    first = run(5)
    share = BELOW / GRID
    assert abs(sum(first) / 2_000 - share) < 4 * math.sqrt(share * (1 - share) / 2_000)
    toss = Toss(5)
    assert first == run(5) == [int(toss() < BELOW) for _ in range(2_000)]
    assert len({tuple(run(seed)) for seed in (6, None, None)}) == 3
    with pytest.raises(InputError, match="the coin's seed is"):
        RuntimeConfig(coin_seed=2**64)


@pytest.mark.parametrize("budget", [0.0, 1.0, 2.0, FORWARD_COST - 0.5])
def test_a_hard_budget_holds_both_ways(budget: float) -> None:
    device = Device(load_mixed(), FakeBank([HARD] * 50), FakeLink(), RuntimeConfig(budget=budget, coin_seed=1))
    records = list(device.run())
    assert {r["coin"] for r in records} == {0, 1}
    assert all(r["cost"] <= budget for r in records)


def test_a_bundle_without_a_coin_says_nothing_of_one() -> None:
    (record,) = Device(make_loaded(), FakeBank([3.0]), FakeLink()).run()
    assert "coin" not in record


# ---------------------------------------------------------------- what a bundle declares


def test_a_sensor_of_the_world_may_be_called_coin() -> None:
    program = mixed_program()
    features, sensors = (*FEATURES, "coin.weight"), ("x", "vib", COIN)
    assert coin_of(program, features, sensors) is None
    assert coin_of(program, (*FEATURES, DRAW), sensors) == Coin(2, 5, BELOW)
    assert Coin(2, 5, BELOW).ways == ((0, BELOW / GRID), (GRID - 1, 1 - BELOW / GRID))


def _column(program, rule):
    return replace(program, columns=(*program.columns[:-1], Column(5, rule)))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda p: replace(p, sensors=(*p.sensors[:2], Sensor((5,), (1,)))), "the inner sensor 'coin' has a cost"),
        (lambda p: replace(p, uplink=Uplink(60, (5,))), "would carry the inner sensor 'coin'"),
        (lambda p: replace(p, features=(*p.features[:5], Feature("i32"))), "does not give one nullable i32"),
        (lambda p: replace(p, features=(*p.features[:5], Feature("f32", nullable=True))), "does not give one nullable"),
        (
            lambda p: replace(
                p, features=(*p.features, Feature("i32", nullable=True)), sensors=(*p.sensors[:2], Sensor((5, 6), (0,)))
            ),
            "does not give one nullable i32",
        ),
        (lambda p: _column(p, Rank((-1,))), "does not compare coin.draw with one whole number"),
        (lambda p: _column(p, Rank((GRID - 1,))), "does not compare coin.draw with one whole number"),
        (lambda p: _column(p, Rank((1, 5))), "does not compare coin.draw with one whole number"),
        (lambda p: _column(p, Rank(())), "does not compare coin.draw with one whole number"),
        (lambda p: _column(p, Affine(0, 1, 0, 0)), "does not compare coin.draw with one whole number"),
        (lambda p: replace(p, columns=(*p.columns, Column(5, Rank((9,))))), "does not compare coin.draw with one"),
    ],
)
def test_a_malformed_coin_is_refused(change, complaint: str) -> None:
    program = change(mixed_program())
    with pytest.raises(BundleError, match=complaint):
        load_mixed(program, features=(*FEATURES, DRAW, "coin.side")[: len(program.features)])
