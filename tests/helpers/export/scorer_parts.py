# SPDX-License-Identifier: Apache-2.0
"""Parts of random programs by their kind of scorer, with readings to feed them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.program.definition import Network, Polynomial, Program, Stack, Trees
from hardcase_edge.program.readings import Reading, normalise
from hardcase_export.scorers.parts import ScorerPart, parts_of
from tests.helpers.edge.strategies import random_program, random_readings

N_PROGRAMS = 60
N_ROWS = 8


@dataclass(frozen=True)
class Case:
    """A part of a program, and rows of readings, thresholds themselves and missing ones among them."""

    program: Program
    part: ScorerPart
    rows: list[list[Reading]]

    @property
    def manifest(self) -> Manifest:
        p = self.program
        return Manifest(
            name="t", unit="mJ", features=tuple(f"x{k}" for k in range(len(p.features))),
            sensors=tuple(f"s{k}" for k in range(len(p.sensors))), classes=tuple(range(p.n_classes)),
        )  # fmt: skip


@cache
def cases(kind: str) -> list[Case]:
    """Parts of this kind, of as many random programs as hold any."""
    return list(_cases(kind))


def _cases(kind: str) -> Iterator[Case]:
    found = 0
    for seed in range(10_000):
        program = random_program(seed, 4)
        mine = [p for p in parts_of(program) if kind_of(program, p) == kind]
        if mine:
            rng = random.Random(seed)
            dtypes = [f.dtype for f in program.features]
            rows = [normalise(random_readings(rng, program), dtypes) for _ in range(N_ROWS)]
            yield from (Case(program, part, rows) for part in mine)
            found += 1
        if found == N_PROGRAMS:
            return


def kind_of(program: Program, part: ScorerPart) -> str:
    """Linear, polynomial, trees, stack, network; a scorer that reads nothing is of no kind."""
    scorer = program.scorers[part.scores.scorer]
    if isinstance(scorer, Polynomial):
        if not scorer.columns or not scorer.terms:
            return "none"
        return "linear" if len(scorer.terms[0]) == 1 else "polynomial"
    return {Trees: "trees", Stack: "stack", Network: "network"}[type(scorer)]
