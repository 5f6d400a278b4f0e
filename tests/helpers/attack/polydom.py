# SPDX-License-Identifier: Apache-2.0
"""Attack on the index of sensor sets: random lattices and costs that cross often, against exhaustive search."""

from __future__ import annotations

import random
from typing import Any

from hardcase_train.methods.polydom.index import candidates, make_index
from hardcase_train.methods.polydom.search import search_sets
from tests.helpers.train.lattices import broken_promise, crossing_sets, lattice, wrong_answers

from .outcome import Attack, each, forever

__all__ = ["attack"]

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
