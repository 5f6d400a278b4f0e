# SPDX-License-Identifier: Apache-2.0
"""Attack on evaluators: random valid programs, decided by Python, the kernel and the evaluator of the pages."""

from __future__ import annotations

import random
from typing import Any

from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.errors import BundleError
from tests.helpers.edge.bundles import bundle_of
from tests.helpers.edge.from_spec import read
from tests.helpers.edge.strategies import random_program
from tests.helpers.edge.worlds import differences, random_world

from .outcome import Attack, Outcome, forever

__all__ = ["attack"]

AGREE = "programs: Python, kernel and pages agree"
WORLDS = 12


def valid(rng: random.Random) -> tuple[bytes, random.Random]:
    """A bundle, and the chance of its worlds."""
    return bundle_of(random_program(rng.getrandbits(40), rng.randrange(7))), rng


def agrees(case: tuple[bytes, random.Random], loaded: Any) -> bool | Outcome:
    """A valid program must not be refused, and decides the same everywhere."""
    if isinstance(loaded, BundleError):
        return False
    (data, rng), program = case, loaded.bundle.program
    second, worst = read(data), loaded.report.worst_cost
    worlds = [random_world(rng, program) for _ in range(WORLDS)]
    return Outcome(AGREE, WORLDS, 0, sum(bool(differences(program, second, world, worst)) for world in worlds))


attack = Attack(
    "programs: valid ones are accepted", forever(valid), lambda case: load_bytes(case[0]), agrees, (BundleError,),
    (AGREE,), is_timed=False,
)  # fmt: skip
