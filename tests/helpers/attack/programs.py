# SPDX-License-Identifier: Apache-2.0
"""Attack on evaluators: random valid programs, decided by Python, the kernel and the evaluator of the pages."""

from __future__ import annotations

import random
import time

from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.errors import BundleError
from tests.helpers.edge.bundles import bundle_of
from tests.helpers.edge.from_spec import read
from tests.helpers.edge.strategies import random_program
from tests.helpers.edge.worlds import differences, random_world

from .outcome import Outcome

__all__ = ["attack"]

WORLDS = 12


def attack(seconds: float, seed: int) -> list[Outcome]:
    """Programs for so many seconds; a valid one that is refused counts as wrong, as a different answer does."""
    rng, end = random.Random(seed), time.monotonic() + seconds
    programs = refused = cases = differing = 0
    while time.monotonic() < end:
        data = bundle_of(random_program(rng.getrandbits(40), rng.randrange(7)))
        programs += 1
        try:
            loaded = load_bytes(data)
        except BundleError:
            refused += 1
            continue
        program, second = loaded.bundle.program, read(data)
        for _ in range(WORLDS):
            cases += 1
            differing += bool(differences(program, second, random_world(rng, program), loaded.report.worst_cost))
    return [
        Outcome("programs: valid ones are accepted", programs, 0, refused),
        Outcome("programs: Python, kernel and pages agree", cases, 0, differing),
    ]
