# SPDX-License-Identifier: Apache-2.0
"""Attack on the reader of bundles: mutants under right checksums, and what is accepted decides as the pages say."""

from __future__ import annotations

import random
import time
from collections.abc import Generator

from hardcase_edge.bundle.load import Loaded, load_bytes
from hardcase_edge.errors import BundleError
from hardcase_edge.program.definition import Opaque
from tests.golden.make_golden import GOLDEN
from tests.helpers.edge.bundles import bundle_of
from tests.helpers.edge.from_spec import read
from tests.helpers.edge.mutants import mutant
from tests.helpers.edge.spec_examples import example_bundle
from tests.helpers.edge.strategies import random_program
from tests.helpers.edge.worlds import differences, random_world

from .outcome import Attack, Outcome

__all__ = ["attack"]

MOST_SECONDS = 2.0  # of CPU, for any content
DECIDE = "bundles: accepted mutants decide"
WORLDS = 3  # in which an accepted mutant decides
GENERATIONS = 5000  # mutants, from the same programs: later ones drift towards programs that are ever larger


Case = tuple[bytes, random.Random, list[bytes]]  # a mutant, chance, and what it was made of


class Mutants:
    """Mutants of programs and of mutants, which reach further.

    Half of the time goes to decisions of accepted mutants: they take longest, and loading has its own count to reach.
    """

    def __init__(self) -> None:
        self.loading = self.deciding = 0.0

    def make(self, rng: random.Random) -> Generator[Case, None, None]:
        tried = 0
        self.loading = self.deciding = 0.0
        while True:
            if tried % GENERATIONS == 0:
                programs = [random_program(rng.getrandbits(30), k % 6) for k in range(40)]
                seeds = [GOLDEN.read_bytes(), example_bundle(), *map(bundle_of, programs)]
            tried += 1
            yield mutant(rng, rng.choice(seeds), seeds), rng, seeds

    def run(self, case: Case) -> tuple[Loaded | None, float]:
        began = time.process_time()
        try:
            return load_bytes(case[0]), time.process_time() - began
        except BundleError:
            return None, time.process_time() - began
        finally:
            self.loading += time.process_time() - began

    def allowed(self, case: Case, result: tuple[Loaded | None, float]) -> bool | Outcome:
        (data, rng, seeds), (loaded, took) = case, result
        if took > MOST_SECONDS or loaded is None or self.deciding > self.loading:
            return took <= MOST_SECONDS
        if any(isinstance(scorer, Opaque) for scorer in loaded.bundle.program.scorers):
            return True
        began, program, second = time.process_time(), loaded.bundle.program, read(data)
        worlds = [random_world(rng, program) for _ in range(WORLDS)]
        differing = sum(bool(differences(program, second, world, loaded.report.worst_cost)) for world in worlds)
        self.deciding += time.process_time() - began
        if rng.random() < 0.02:
            seeds[rng.randrange(2, len(seeds))] = data
        return Outcome(DECIDE, WORLDS, 0, differing)


mutants = Mutants()
attack = Attack("bundles: mutants loaded", mutants.make, mutants.run, mutants.allowed, rows=(DECIDE,))
