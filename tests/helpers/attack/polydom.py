# SPDX-License-Identifier: Apache-2.0
"""Attack on the index of sensor sets: random lattices and costs that cross often, against exhaustive search."""

from __future__ import annotations

import random
import time

from hardcase_train.methods.polydom.index import candidates, make_index
from hardcase_train.methods.polydom.search import search_sets
from tests.helpers.train.lattices import broken_promise, crossing_sets, lattice, wrong_answers

from .outcome import Outcome

__all__ = ["attack"]

ALPHAS = (1.0, 1.1, 1.4)


def attack(seconds: float, seed: int) -> list[Outcome]:
    """Lattices for so many seconds: every size, every budget at and one below a cost, and the promise alpha."""
    rng, end = random.Random(seed), time.monotonic() + seconds
    tried = crossed = broken = wrong = 0
    while time.monotonic() < end:
        noise = rng.choice((0.0, 0.0, 0.08))
        of, alpha = lattice(rng, rng.randint(1, 7), noise=noise, largest=rng.randint(1, 12)), rng.choice(ALPHAS)
        found = search_sets(of.polynomials, of.largest, of.characterise, of.prior, alpha=alpha, tolerance=noise)
        broken += bool(broken_promise(found, make_index(candidates(found), of.largest), of, alpha))
        tried += 1
        for _ in range(5):
            sets, largest = crossing_sets(rng)
            wrong += bool(wrong_answers(make_index(sets, largest), sets, largest))
            crossed += 1
    return [
        Outcome("index of sensor sets: lattices and promises", tried, 0, broken),
        Outcome("index of sensor sets: costs that cross", crossed, 0, wrong),
    ]
