# SPDX-License-Identifier: Apache-2.0
"""Once its promise is broken, a device answers alone where f0 agrees, and no stream makes it err beyond its ledger."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import pairwise
from math import exp, log, sqrt

import pytest

from hardcase_edge.more.drift import reaction
from hardcase_edge.more.drift.companion import MAX_BYTES

PROMISED = 0.98
LIVES = 10
BEYOND = 3  # lives of them outside a bound of 5 %: more have a probability of 0.1 %
Errs = Callable[
    [reaction.Rest, int, int, random.Random], bool
]  # whether f0 differs at a case: cells, which case, place, draws


def live(errs: Errs, n: int, seed: int, *, n_cells: int = 6, lost: float = 0.0, promised: float = PROMISED
         ) -> tuple[reaction.Rest, bool, int]:  # fmt: skip
    """The cells after n cases, whether wrong answers alone ever were beyond the bound, and how many there are."""
    draw, world, rest, wrong, is_beyond = (
        random.Random(seed), random.Random(seed + 1_000), reaction.Rest(promised), 0, False,
    )  # fmt: skip
    for k in range(n):
        place = world.randrange(n_cells)
        is_wrong = errs(rest, k, place, world)
        if rest.takes(place, draw.random()):
            if world.random() >= lost:
                rest.answered(agrees=not is_wrong)
        else:
            wrong += is_wrong
            bound = (1 - promised) * rest.alone + reaction.ALLOWED * (1 + (rest.n // reaction.DOUBLING).bit_length())
            is_beyond = is_beyond or wrong > bound
    return rest, is_beyond, wrong


def answers(rest: reaction.Rest, place: int) -> bool:
    """Whether the cell answers but for a probe: all that an adversary could know."""
    return place in rest._cells and bool(rest._cells[place][3]) and rest.may_answer


STREAMS: dict[str, Errs] = {
    "as promised": lambda rest, k, place, world: world.random() < 1 - PROMISED,
    "twice as many": lambda rest, k, place, world: world.random() < 2 * (1 - PROMISED),
    "some cells": lambda rest, k, place, world: world.random() < (0.0, 0.0, 0.01, 0.02, 0.1, 0.5)[place],
    "worse and worse": lambda rest, k, place, world: world.random() < k / 60_000,
    "good for a while": lambda rest, k, place, world: (k // 3_000) % 2 == 1,
    "whenever nobody looks": lambda rest, k, place, world: answers(rest, place),
    "often when nobody looks": lambda rest, k, place, world: answers(rest, place) and world.random() < 0.1,
    "one cell after the other": lambda rest, k, place, world: (k // 500) % 6 == place and answers(rest, place),
    "once there is credit": lambda rest, k, place, world: answers(rest, place) and rest.alone > 5_000,
    "as long as it may": lambda rest, k, place, world: (
        answers(rest, place) and reaction.most_wrong(rest.wrong_probes) < rest.allowance - 30
    ),
}


@pytest.mark.parametrize(("weight", "price"), reaction.GRID)
def test_a_wrong_answer_multiplies_no_bet_on_average(weight, price):
    """The supermartingale, exactly: alone it is not seen, and as a probe it costs its price."""
    assert (1 - reaction.PROBE) * exp(weight) + reaction.PROBE * exp(-price) == pytest.approx(1)


@pytest.mark.parametrize("stream", STREAMS)
def test_wrong_answers_stay_within_the_ledgers_bound_whatever_the_cases_are(stream):
    lives = [live(STREAMS[stream], 12_000, seed) for seed in range(LIVES)]
    assert sum(is_beyond for _, is_beyond, _ in lives) <= BEYOND
    assert sum(wrong > reaction.most_wrong(rest.wrong_probes) for rest, _, wrong in lives) <= BEYOND


@pytest.mark.parametrize("stream", ["as promised", "some cells", "worse and worse"])
def test_replies_that_are_lost_at_random_leave_the_bound_as_it_is(stream):
    assert sum(live(STREAMS[stream], 12_000, seed, lost=0.3)[1] for seed in range(LIVES)) <= BEYOND


def first_cases(promised: float) -> int:
    """Cases of a new cell in which f0 agrees until it is looked at and good enough: (n + 1/2) CAUTION m >= 1/2."""
    return round(0.5 / (reaction.CAUTION * (1 - promised)) + reaction.LOOK)


def until_clean(promised: float) -> float:
    """Cases until all errors of a cell's memory count too little, at most, and the next look."""
    memory = round(1 / (1 - promised))
    return memory * log(memory / (reaction.CAUTION * (1 - promised) * (memory + 0.5) - 0.5)) + reaction.LOOK


@pytest.mark.parametrize("promised", [0.8, 0.95, 0.98, 0.995])
def test_a_cell_in_which_f0_always_agrees_answers_all_but_probes(promised):
    rest, _, wrong = live(lambda *_: False, n := 6_000, 1, n_cells=1, promised=promised)
    covered = n - first_cases(promised)
    assert rest.alone >= (1 - reaction.PROBE) * covered - 5 * sqrt(reaction.PROBE * covered)
    assert wrong == 0


@pytest.mark.parametrize("promised", [0.8, 0.95, 0.98, 0.995])
@pytest.mark.parametrize("seed", range(3))
def test_a_cell_that_is_good_again_answers_as_soon_as_its_memory_is_clean(promised, seed):
    bad, good = 3_000, 9_000
    rest, is_beyond, _ = live(lambda rest, k, *_: k < bad, bad + good, seed, n_cells=1, promised=promised)
    covered = good - until_clean(promised)
    assert rest.alone >= (1 - reaction.PROBE) * covered - 5 * sqrt(reaction.PROBE * covered)
    assert not is_beyond


def test_cells_that_are_good_answer_while_bad_ones_rest():
    def errs(rest, k, place, world):
        return place % 2 == 1 and world.random() < 0.3

    n = 12_000
    rest, _, wrong = live(errs, n, 3)
    n_good = n / 2 - 5 * sqrt(n) / 2 - 3 * first_cases(PROMISED) - reaction.FADE / 6  # until a look finds all three
    assert rest.alone >= (1 - reaction.PROBE) * n_good - 5 * sqrt(reaction.PROBE * n_good)
    assert wrong <= (1 - PROMISED) * rest.alone


def test_a_ledger_that_is_used_up_stops_all_answers_until_the_cases_have_doubled():
    rest, draw, until = reaction.Rest(PROMISED), random.Random(5), 2 * reaction.DOUBLING

    def case(agrees: bool) -> bool:
        is_forwarded = rest.takes(0, draw.random())
        if is_forwarded:
            rest.answered(agrees=agrees)
        return is_forwarded

    while rest.n < reaction.DOUBLING or rest.may_answer:
        case(agrees=rest.may_answer is False or not answers(rest, 0))
        assert rest.n < until, "an adversary who errs whenever the cell answers is stopped"
    stopped = rest.alone
    while rest.n < until - 1:
        assert case(agrees=True)
    assert rest.alone == stopped
    for _ in range(round(until_clean(PROMISED))):
        case(agrees=True)
    assert rest.alone > stopped


def test_a_probe_without_an_answer_has_its_cell_rest_until_f0_has_answered():
    rest = reaction.Rest(PROMISED)
    for _ in range(first_cases(PROMISED) + reaction.LOOK):
        if rest.takes(0, 0.5):
            rest.answered(agrees=True)
    assert not rest.takes(0, 0.5)
    assert rest.takes(0, 0.0)
    assert all(rest.takes(0, 0.5) for _ in range(500)), "no reply has come"
    rest.answered(agrees=True)
    assert not rest.takes(0, 0.5)


def test_an_answer_that_nobody_waits_for_counts_for_nothing():
    rest = reaction.Rest(PROMISED)
    rest.answered(agrees=False)
    assert rest.takes(0, 0.5)
    rest.answered(agrees=True)
    before = rest.to_json()
    for agrees in (False, True) * 50:
        rest.answered(agrees=agrees)
    assert rest.to_json() == before


def test_answers_of_several_cases_at_once_each_count_for_their_own_cell():
    rest = reaction.Rest(0.9)
    for _ in range(64):
        cases = []
        for place in (1, 2):
            assert rest.takes(place, 0.01)
            cases.append(rest.asked)
        for agrees, case in zip((True, False), cases, strict=True):
            rest.asked = case
            rest.answered(agrees=agrees)
    assert [rest.takes(place, 0.5) for place in (1, 2)] == [False, True]


def test_cells_go_on_over_restarts_as_if_nothing_had_been():
    one, other = reaction.Rest(PROMISED), reaction.Rest(PROMISED)
    draw, world = random.Random(2), random.Random(3)
    for k in range(5_000):
        place, number, agrees = world.randrange(40), draw.random(), world.random() < 0.99
        taken = [rest.takes(place, number) for rest in (one, other)]
        assert taken[0] == taken[1]
        if taken[0] and world.random() < 0.9:
            one.answered(agrees=agrees)
            other.answered(agrees=agrees)
        if k % 97 == 0:
            state = json.loads(json.dumps(other.to_json()))
            other = reaction.Rest(PROMISED)
            assert other.restore(state)
    assert one.to_json() == other.to_json()
    assert one.alone > 0


GOOD = [9, 4, 1, 0, 5, [7], [[3, 5, 2, 0, 0], [7, 4, 3, reaction.ONE, 1]]]


@pytest.mark.parametrize("at", range(8))
@pytest.mark.parametrize("value", [None, -1, 2**60, 0.5, "x", True, [1, [2]], {}, float("nan")])
def test_a_damaged_table_is_refused_and_changes_nothing(at, value):
    rest = reaction.Rest(PROMISED)
    assert rest.restore(GOOD)
    before = rest.to_json()
    assert before == GOOD
    for bad in ([*GOOD[:at], value, *GOOD[at + 1 :]], [*GOOD[:6], [[7, 4, 3, 0, 1], *[value] * (at + 1)]]):
        if bad != GOOD:
            assert not rest.restore(bad)
    for k in range(5):
        assert not rest.restore([*GOOD[:6], [[*GOOD[6][1][:k], value, *GOOD[6][1][k + 1 :]]]])
    assert not rest.restore([*GOOD[:5], [8], GOOD[6]]), "a probe of a cell that is not there"
    assert rest.to_json() == before


def test_the_table_stays_small_whatever_the_answers_are():
    rest, world = reaction.Rest(0.9999), random.Random(1)
    for _ in range(20_000):
        place = reaction.place_of(
            world.randrange(70_000), world.choice([None, world.random(), float("nan")]), world.randrange(99)
        )
        assert 0 <= place < reaction.PLACES
        if rest.takes(place, world.random()):
            rest.answered(agrees=world.random() < 0.5)
    assert len(rest.to_json()[-1]) <= reaction.PLACES
    cells = [
        [place, reaction.FADE, rest._memory, reaction.ONE * (rest._memory + 1), 1] for place in range(reaction.PLACES)
    ]
    largest = [2**53, 2**52, 2**52, 2**53, 2**53, list(range(reaction.PLACES)), cells]
    assert reaction.Rest(0.9999).restore(largest)
    assert len(json.dumps(largest, separators=(",", ":"))) < MAX_BYTES - 2_000


def test_the_bound_rises_with_each_wrong_probe_and_ever_less():
    steps = [reaction.most_wrong(k + 1) - reaction.most_wrong(k) for k in range(2_000)]
    assert all(a >= b - 1e-9 > (1 - reaction.PROBE) / reaction.PROBE - 1e-9 for a, b in pairwise(steps))
    assert reaction.most_wrong(0) == pytest.approx(log(len(reaction.GRID) / reaction.DELTA) / reaction.GRID[0][0])
    assert reaction.most_wrong(1) < reaction.ALLOWED, "one wrong probe at the beginning does not stop all answers"
