# SPDX-License-Identifier: Apache-2.0
"""Attack on the index of sensor sets: random lattices and costs that cross often, against exhaustive search."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hardcase_edge.program.cost import evaluate_polynomial
from hardcase_edge.program.definition import Answer, Feature, Node, Program, Sensor, Slice, Trees, Uplink
from hardcase_train.methods.polydom.index import Index, Set, candidates, make_index
from hardcase_train.methods.polydom.plan import Shipped
from hardcase_train.methods.polydom.search import Searched, search_sets
from hardcase_train.methods.polydom.sets import members

from .outcome import Attack, each, forever


@dataclass(frozen=True)
class Lattice:
    """Costs of sensors, the accuracy of every set, and the largest item."""

    polynomials: tuple[tuple[int, ...], ...]
    accuracy: tuple[float, ...]
    largest: int

    @property
    def prior(self) -> float:
        return self.accuracy[0]

    def characterise(self, mask: int) -> float:
        """The accuracy of a set."""
        return self.accuracy[mask]

    def cost(self, mask: int, size: int) -> int:
        """The cost of a set for an item of a size."""
        return sum(evaluate_polynomial(self.polynomials[k], size) for k in members(mask))

    def sets(self) -> list[Set]:
        """Every set."""
        whole = []
        for mask, accuracy in enumerate(self.accuracy):
            width = max((len(self.polynomials[k]) for k in members(mask)), default=1)
            parts = [[*self.polynomials[k], *[0] * width] for k in members(mask)]
            cost = tuple(sum(p[d] for p in parts) for d in range(width))
            whole.append(Set(mask, cost, accuracy))
        return whole


def lattice(rng: random.Random, n: int, *, noise: float = 0.0, largest: int = 9) -> Lattice:
    """Polynomials of degree 0 to 3 with ties and equal curves; accuracies that rise with the set, plus noise.

    ``noise``: a superset is at most so much worse than its subset.
    """
    polynomials: list[tuple[int, ...]] = []
    for _ in range(n):
        if polynomials and rng.random() < 0.15:
            polynomials.append(rng.choice(polynomials))
        else:
            tops = (rng.choice((0, 3, 40)), rng.choice((0, 1, 9)), rng.choice((0, 0, 2)), rng.choice((0, 0, 1)))
            polynomials.append(tuple(rng.randint(0, top) for top in tops[: rng.randint(1, 4)]))
    worth = [rng.choice((0.0, rng.random(), rng.random())) for _ in range(n)]
    accuracy = [0.5]
    rise = rng.choice((0.05, 0.3, 1.0))
    for mask in range(1, 1 << n):
        below = max(accuracy[mask & ~(1 << k)] for k in members(mask))
        bonus = rise * max(worth[k] for k in members(mask)) * rng.random() if rng.random() < 0.6 else 0.0
        accuracy.append(below + (1 - below) * bonus)
    noisy = [a - noise * rng.random() for a in accuracy]
    return Lattice(tuple(polynomials), tuple(round(a, 3) for a in accuracy) if not noise else tuple(noisy), largest)


def crossing_sets(rng: random.Random) -> tuple[list[Set], int]:
    """Sets whose costs cross twice or three times, touch, or are equal; and the largest item."""
    largest, sets = rng.randint(8, 40), []
    for _ in range(rng.randint(2, 5)):
        a, b, c = (rng.randint(1, largest) for _ in range(3))
        ground = rng.randint(0, 60)
        pair = [
            ((ground + a * b, 0, 1), (ground, a + b)),  # (s - a)(s - b): twice, or a touch where a = b
            ((ground, a * b + b * c + a * c, 0, 1), (ground + a * b * c, 0, a + b + c)),  # (s - a)(s - b)(s - c)
            ((ground, 2), (ground, 2)),
        ][rng.randrange(3)]
        for cost in pair:
            sets.append(Set(len(sets) + 1, cost, rng.randint(50, 99) / 100))
    return sets, largest


def _budgets(sets: Iterable[Set], size: int) -> list[int]:
    """Every cost, and one below it."""
    amounts = {s.at(size) for s in sets}
    return sorted({a for amount in amounts for a in (amount - 1, amount)} - {-1})


def _queries(sets: Sequence[Set], largest: int) -> Iterator[tuple[int, int, float]]:
    """Every size, every budget at and one below a cost, and the best accuracy there; -1 where nothing fits."""
    for size in range(1, largest + 1):
        for budget in _budgets(sets, size):
            yield size, budget, max((s.accuracy for s in sets if s.at(size) <= budget), default=-1.0)


def wrong_answers(index: Index, sets: Sequence[Set], largest: int) -> list[tuple[int, int]]:
    """Sizes and budgets at which an index gives another accuracy than an exhaustive search."""
    wrong = []
    for size, budget, best in _queries(sets, largest):
        one = index.pick(size, budget)
        if (-1.0 if one is None else one.accuracy) != best or (one is not None and one.at(size) > budget):
            wrong.append((size, budget))
    return wrong


def broken_promise(found: Searched, index: Index, of: Lattice, alpha: float) -> list[tuple[int, int]]:
    """Sizes and budgets at which the index is worse than the best of all sets by more than alpha."""
    wrong = []
    for size, budget, best in _queries(of.sets(), of.largest):
        one = index.pick(size, budget)
        if one is None or alpha * one.accuracy < best - 1e-9:
            wrong.append((size, budget))
    return wrong


def program_of(
    of: Lattice, sets: Sequence[Set], make: Callable[[Shipped, Sequence[Answer]], tuple[Node, ...]], costs: object
) -> Program:
    """A program in which the model of the set at place k of ``sets`` always answers class k."""
    n = len(sets)
    scorers = tuple(Trees((), tuple(int(j == k) for j in range(max(n, 3))), ()) for k in range(n))
    nodes = make(Shipped(tuple(sets), costs), [Answer(Slice(k, 0, max(n, 3))) for k in range(n)])  # type: ignore[arg-type]
    return Program(
        features=tuple(Feature("f32") for _ in of.polynomials),
        sensors=tuple(Sensor((k,), p) for k, p in enumerate(of.polynomials)), uplink=Uplink(), columns=(),
        scorers=scorers, nodes=nodes, n_classes=max(n, 3), max_item_size=of.largest,
    )  # fmt: skip


ALPHAS = (1.0, 1.1, 1.4)


def drawn(rng: random.Random) -> tuple[float, Any, float]:
    """A lattice of any size, its noise and the promise alpha."""
    noise = rng.choice((0.0, 0.0, 0.08))
    return noise, lattice(rng, rng.randint(1, 7), noise=noise, largest=rng.randint(1, 12)), rng.choice(ALPHAS)


def keeps(case: tuple[float, Any, float]) -> bool:
    """Every budget at and one below a cost, and the promise alpha."""
    noise, of, alpha = case
    found = search_sets(of.polynomials, of.largest, of.characterise, of.prior, alpha=alpha, tolerance=noise)
    return not broken_promise(found, make_index(candidates(found), of.largest), of, alpha)


attack = each(
    Attack("index of sensor sets: lattices and promises", forever(drawn), keeps, is_timed=False),
    Attack(
        "index of sensor sets: costs that cross", forever(crossing_sets),
        lambda case: not wrong_answers(make_index(*case), *case), is_timed=False,
    ),
)  # fmt: skip
