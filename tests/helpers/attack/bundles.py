# SPDX-License-Identifier: Apache-2.0
"""Attack on the reader of bundles: mutants under right checksums, and what is accepted decides as the pages say."""

from __future__ import annotations

import random
import time

from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.errors import BundleError
from hardcase_edge.program.definition import Opaque
from tests.golden.make_golden import GOLDEN
from tests.helpers.edge.bundles import bundle_of
from tests.helpers.edge.from_spec import read
from tests.helpers.edge.mutants import mutant
from tests.helpers.edge.spec_examples import example_bundle
from tests.helpers.edge.strategies import random_program
from tests.helpers.edge.worlds import differences, random_world

from .outcome import Outcome

__all__ = ["attack"]

MOST_SECONDS = 2.0  # of CPU, for any content
WORLDS = 3  # in which an accepted mutant decides
GENERATIONS = 5000  # mutants, from the same programs: later ones drift towards programs that are ever larger


def attack(seconds: float, seed: int) -> list[Outcome]:
    """Mutants for so many seconds: refused by a BundleError, or accepted and harmless.

    Half of the time goes to decisions of accepted mutants: they take longest, and loading has its own count to reach.
    """
    rng, end = random.Random(seed), time.monotonic() + seconds
    seeds: list[bytes] = []
    tried = crashes = slow = decided = differing = 0
    slowest = loading = deciding = 0.0
    while time.monotonic() < end:
        if tried % GENERATIONS == 0:
            programs = [random_program(seed + tried + k, k % 6) for k in range(40)]
            seeds = [GOLDEN.read_bytes(), example_bundle(), *map(bundle_of, programs)]
        data = mutant(rng, rng.choice(seeds), seeds)
        tried += 1
        started, loaded = time.process_time(), None
        try:
            loaded = load_bytes(data)
        except BundleError:
            pass
        except Exception:
            crashes += 1
        took = time.process_time() - started
        slowest, slow, loading = max(slowest, took), slow + (took > MOST_SECONDS), loading + took
        if loaded is None or deciding > loading or any(isinstance(s, Opaque) for s in loaded.bundle.program.scorers):
            continue
        started = time.process_time()
        program, second = loaded.bundle.program, read(data)
        for _ in range(WORLDS):
            decided += 1
            differing += bool(differences(program, second, random_world(rng, program), loaded.report.worst_cost))
        deciding += time.process_time() - started
        if rng.random() < 0.02:
            seeds[rng.randrange(2, len(seeds))] = data  # mutants of mutants reach further
    return [
        Outcome("bundles: mutants loaded", tried, crashes, slow, slowest),
        Outcome("bundles: accepted mutants decide", decided, 0, differing),
    ]
