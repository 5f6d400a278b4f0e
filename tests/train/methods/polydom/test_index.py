# SPDX-License-Identifier: Apache-2.0
"""The index against exhaustive search: every size, every budget at and one below a cost; and mutants that must fail."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import evaluate_polynomial
from hardcase_train.methods.polydom import estimate as estimate_module
from hardcase_train.methods.polydom import index as index_module
from hardcase_train.methods.polydom.estimate import design_of, estimates, search_estimated
from hardcase_train.methods.polydom.index import (
    Index,
    Set,
    candidates,
    index_all,
    is_superfluous,
    make_index,
    naive_lookup,
)
from hardcase_train.methods.polydom.search import (
    SANDWICH,
    Progress,
    Searched,
    SearchLimits,
    search_all,
    search_sets,
)
from hardcase_train.methods.polydom.sets import Costs
from hardcase_train.methods.polydom.signs import is_never_below, minus, sign_runs
from tests.helpers.attack.polydom import Lattice, attack, broken_promise, crossing_sets, lattice, wrong_answers

NOISE = 0.08


def lattices(count: int, noise: float = 0.0) -> list[Lattice]:
    return [lattice(random.Random(seed), 1 + seed % 5, noise=noise) for seed in range(count)]


def searched(of: Lattice, alpha: float = 1.0, tolerance: float = 0.0, **more: object) -> tuple[Searched, Index]:
    found = search_sets(of.polynomials, of.largest, of.characterise, of.prior, alpha=alpha, tolerance=tolerance, **more)  # type: ignore[arg-type]
    return found, make_index(candidates(found), of.largest)


def n_broken(alpha: float = 1.0, noise: float = 0.0, tolerance: float = 0.0, count: int = 60) -> int:
    """How many of some random lattices break the promise."""
    return sum(bool(broken_promise(*searched(of, alpha, tolerance), of, alpha)) for of in lattices(count, noise))


# ---------------------------------------------------------------- signs of polynomials


def test_signs_are_those_of_every_whole_number() -> None:
    rng = random.Random(0)
    for _ in range(300):
        p = tuple(rng.randint(-20, 20) for _ in range(rng.randint(0, 5)))
        low = rng.randint(-3, 3)
        high = low + rng.randint(0, 25)
        runs = sign_runs(p, low, high)
        values = [evaluate_polynomial(p, s) for s in range(low, high + 1)]
        expected = [(v > 0) - (v < 0) for v in values]
        assert [[sign for start, sign in runs if start <= s][-1] for s in range(low, high + 1)] == expected
        assert is_never_below(p, low, high) == (min(values) >= 0)


def test_a_set_is_nowhere_cheaper_only_if_it_is_so_at_every_size() -> None:
    for of in lattices(20):
        costs = Costs(of.polynomials, of.largest)
        for mask in range(1 << len(of.polynomials)):
            for other, certain in enumerate(costs.above(mask).tolist()):
                if certain:
                    assert is_never_below(minus(costs.of(other), costs.of(mask)), 1, of.largest)


def test_coefficients_of_0_do_not_make_sizes_too_large() -> None:
    costs = Costs([(5, 0, 0, 0, 0, 0, 0, 0), (0, 1)], largest=2**31 - 1)
    assert costs.of(0b01) == (5,)
    assert sign_runs((5, 0), 1, 2**31 - 1) == ((1, 1),)
    assert costs.at(2**31 - 1).tolist() == [0, 5, 2**31 - 1, 2**31 + 4]


# ---------------------------------------------------------------- exact


def test_the_index_answers_as_exhaustive_search() -> None:
    for of in lattices(60):
        found, index = searched(of)
        assert wrong_answers(index, of.sets(), of.largest) == []
        assert found.n_trained <= 2 ** len(of.polynomials) - 1
    of = lattice(random.Random(7), 7, largest=5)
    assert wrong_answers(searched(of)[1], of.sets(), of.largest) == []


def test_costs_may_cross_twice_and_three_times() -> None:
    for seed in range(80):
        sets, largest = crossing_sets(random.Random(seed))
        assert wrong_answers(make_index(sets, largest), sets, largest) == []
        assert wrong_answers(index_all(sets, largest), sets, largest) == []


def test_the_baselines_answer_alike_and_are_larger() -> None:
    of = lattice(random.Random(4), 4)
    found, index = searched(of)
    every = index_all(candidates(found), of.largest)
    assert every.n_entries >= index.n_entries
    for size in range(1, of.largest + 1):
        for budget in (0, 7, 40, 300):
            picks = [index.pick(size, budget), every.pick(size, budget), naive_lookup(candidates(found), size, budget)]
            assert len({None if p is None else p.accuracy for p in picks}) == 1
    assert search_all(of.polynomials, of.largest, of.characterise, of.prior).n_trained == 15


def test_problems_2_and_3_say_what_problem_1_says() -> None:
    of = lattice(random.Random(9), 4)
    _, index = searched(of)
    for size in range(1, of.largest + 1):
        line = index.of_size(size)
        for budget in range(0, 60, 7):
            fitting = [s for amount, s in line if amount <= budget]
            assert (fitting[-1] if fitting else None) == index.pick(size, budget)
    for budget in (0, 3, 20, 90):
        answers = index.of_budget(budget)
        for size in range(1, of.largest + 1):
            assert [s for start, s in answers if start <= size][-1] == index.pick(size, budget)


def test_a_skyline_has_no_set_that_another_of_the_same_cost_makes_superfluous() -> None:
    """It is (101) at every size, not only right in its answers."""
    for seed in range(80):
        sets, largest = crossing_sets(random.Random(seed))
        for index in (make_index(sets, largest), index_all(sets, largest)):
            for size in range(1, largest + 1):
                best: dict[int, float] = {}
                for s in sets:
                    best[s.at(size)] = max(s.accuracy, best.get(s.at(size), 0.0))
                line = [(c, a) for c, a in sorted(best.items()) if all(a > b for d, b in best.items() if d < c)]
                assert [(amount, s.accuracy) for amount, s in index.of_size(size)] == line


def test_only_sets_on_a_skyline_are_shipped() -> None:
    for of in lattices(15):
        found, index = searched(of)
        kept = set(index.sets)
        assert kept <= set(candidates(found))
        for s in kept:
            assert any(s in line for line in index.skylines)


# ---------------------------------------------------------------- the promise


@pytest.mark.parametrize("alpha", [1.1, 1.3])
def test_no_answer_is_worse_than_alpha_allows(alpha: float) -> None:
    assert n_broken(alpha) == 0


def test_the_relaxed_promise_holds_if_information_may_hurt() -> None:
    assert n_broken(1.0, NOISE, NOISE) == 0
    assert n_broken(1.1, NOISE, NOISE) == 0


def test_the_papers_own_properties_keep_the_promise_and_train_more() -> None:
    ours = theirs = 0
    for of in lattices(30):
        found, index = searched(of, 1.1, prune=SANDWICH)
        assert broken_promise(found, index, of, 1.1) == []
        ours, theirs = ours + searched(of, 1.1)[0].n_trained, theirs + found.n_trained
    assert ours < theirs


def test_a_progressive_search_trains_nothing_twice_and_says_how_far_it_came() -> None:
    of, asked = lattice(random.Random(24), 5), []

    def characterise(mask: int) -> float:
        asked.append(mask)
        return of.accuracy[mask]

    def search(models: int) -> Searched:
        asked.clear()
        found = search_sets(of.polynomials, of.largest, characterise, of.prior, limits=SearchLimits(models))
        assert len(asked) == len(set(asked)) == found.n_trained <= models
        return found

    every = search(31)
    assert every.alpha == 1.0
    factors = [search(models).alpha for models in range(1, every.n_trained + 1)]
    assert factors == sorted(factors, reverse=True)
    assert len(set(factors)) > 1
    out_of_time = search_sets(of.polynomials, of.largest, of.characterise, of.prior, limits=SearchLimits(seconds=0.0))
    assert out_of_time.n_trained == 0


def test_an_estimated_search_of_independent_sensors_trains_fewer_sets_and_finds_the_index() -> None:
    for seed in range(2):
        rng = random.Random(seed)
        n = 8
        miss = [rng.uniform(0.5, 0.95) for _ in range(n)]
        polynomials = [(rng.randint(1, 40), rng.randint(0, 3)) for _ in range(n)]
        accuracy = tuple(1 - 0.5 * math.prod(miss[k] for k in range(n) if mask >> k & 1) for mask in range(1 << n))
        of = Lattice(tuple(polynomials), accuracy, 9)
        exact, index = searched(of)
        found = search_estimated(of.polynomials, of.largest, of.characterise, of.prior)
        assert found.n_trained < 0.8 * exact.n_trained
        other = make_index(candidates(found), of.largest)
        for size in range(1, of.largest + 1):
            for budget in {of.cost(s.mask, size) for s in index.sets}:
                best, reached = index.pick(size, budget), other.pick(size, budget)
                assert best.accuracy - reached.accuracy < 0.005  # type: ignore[union-attr]
        few = search_estimated(of.polynomials, of.largest, of.characterise, of.prior, max_trained=30)
        assert few.n_trained == 30


def test_an_estimate_knows_that_two_sensors_tell_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """(116) by hand: the first two of four sensors halve the error, and both together too; the others each halve it.

    Of an error of 1/2, a fit to all other sets says that all four leave (1/2)^4, and not the (1/2)^5 of sensors that
    are independent.
    """
    halvings = [(mask & 3 > 0) + (mask >> 2 & 1) + (mask >> 3 & 1) for mask in range(16)]
    monkeypatch.setattr(estimate_module, "RIDGE", 1e-9)
    known = range(1, 15)
    found = estimates(design_of(4), known, [1 - 0.5 ** (1 + halvings[mask]) for mask in known])
    assert found == pytest.approx([1 - 0.5 ** (1 + h) for h in halvings], abs=1e-6)


def test_seventeen_sensors_are_refused_in_one_line() -> None:
    with pytest.raises(InputError, match="17 sensors have 131072 sets"):
        search_sets([(1,)] * 17, 1, lambda mask: 0.5, 0.5)
    with pytest.raises(InputError, match=r"alpha is 0\.5"):
        search_sets([(1,)], 1, lambda mask: 0.5, 0.5, alpha=0.5)


# ---------------------------------------------------------------- mutants


def test_alpha_used_again_among_candidates_breaks_the_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    def mutant(one: Set, other: Set, largest: int) -> bool:
        return is_superfluous(Set(one.mask, one.cost, one.accuracy / 1.1), other, largest)

    monkeypatch.setattr(index_module, "is_superfluous", mutant)
    assert n_broken(1.1) > 0


def test_covering_by_union_breaks_the_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_open(self: Progress, mask: int, alpha: float) -> bool:
        known = self.found.accuracy
        for small, accuracy in known.items():
            union = small
            for large, other in known.items():
                if small & ~large == 0 and alpha * accuracy >= other:
                    union |= large
            if small & ~mask == 0 and mask & ~union == 0:
                return False
        return mask not in known

    monkeypatch.setattr(Progress, "is_open", is_open)
    assert n_broken() > 0


def test_no_tolerance_under_noise_breaks_the_promise() -> None:
    assert n_broken(1.0, NOISE, 0.0) > 0


def test_a_second_crossing_forgotten_breaks_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    watch: Callable[[object, int], None] = index_module._Sweep._watch

    def once(self: index_module._Sweep, place: int) -> None:
        seen = self.__dict__.setdefault("seen", set())
        pair = frozenset(self._order[place : place + 2])
        if pair not in seen:
            watch(self, place)
        if self._size > 1:  # they have met as neighbours in the sweep
            seen.add(pair)

    monkeypatch.setattr(index_module._Sweep, "_watch", once)
    cases = [crossing_sets(random.Random(seed)) for seed in range(80)]
    assert sum(bool(wrong_answers(make_index(sets, largest), sets, largest)) for sets, largest in cases) > 0


def test_an_attack_finds_nothing() -> None:
    outcomes = attack(0.2, 0)
    assert all(outcome.inputs for outcome in outcomes)
    assert [(outcome.crashes, outcome.wrong) for outcome in outcomes] == [(0, 0), (0, 0)]
