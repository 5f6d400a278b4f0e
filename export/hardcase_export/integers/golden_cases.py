"""Golden cases: which sessions a bundle carries as proof, chosen from validation rows, always the same ones.

Every trace seen, a cloud that is away or stays silent, every sensor failed once, tight budgets, missing readings and
all sizes of items are among them, whichever of these the program knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.golden import GoldenCase, run_case
from hardcase_edge.program.definition import Program
from hardcase_edge.program.readings import Reading
from hardcase_edge.session.session import CLOUD, LOCAL, Decision, Machine
from hardcase_edge.verifier.verify import Report, verify

from .decide import readings_of

__all__ = ["MIN_CASES", "make_golden"]

MIN_CASES = 64
MAX_ROWS = 2_000  # looked at when traces are collected
MAX_TRACES = 24
MAX_EACH = 40  # sensors failed, features left out
_NOT_YET = Decision(0, 0, LOCAL, 0, (), ())


def make_golden(
    program: Program,
    X: NDArray[np.float64],
    hpc: NDArray[np.int64],
    hpc_confidence: NDArray[np.int64],
    seed: int,
) -> tuple[GoldenCase, ...]:
    """At least ``MIN_CASES`` cases with what this program makes of them.

    Parameters
    ----------
    program : Program
        Verified, of integers.
    X : (n, n_features) float64, n at least 1, NaN = missing
    hpc, hpc_confidence : (n,) what f0 answers, class index and basis points
    seed : int
        Of the choice of rows; the same seed gives the same cases.
    """
    maker = _Maker.over(program, X, hpc, hpc_confidence, np.random.default_rng(seed))
    cases = [*maker.traces(), *maker.clouds(), *maker.failures(), *maker.budgets(), *maker.missing(), *maker.sizes()]
    cases += [maker.any_case() for _ in range(MIN_CASES - len(cases))]
    return tuple(replace(case, expected=run_case(maker.machine, case)) for case in cases)


@dataclass(frozen=True)
class _Maker:
    machine: Machine
    report: Report
    plain: tuple[GoldenCase, ...]  # each row as it is
    made: tuple[Decision, ...]  # and what comes of it
    random: np.random.Generator

    @classmethod
    def over(
        cls,
        program: Program,
        X: NDArray[np.float64],
        hpc: NDArray[np.int64],
        confidence: NDArray[np.int64],
        random: np.random.Generator,
    ) -> _Maker:
        machine = Machine(program)
        order = random.permutation(len(X))[:MAX_ROWS]
        rows = readings_of(program, X[order])
        replies = zip(hpc[order].tolist(), confidence[order].tolist(), strict=True)
        plain = tuple(_plain(row, reply) for row, reply in zip(rows, replies, strict=True))
        return cls(machine, verify(program), plain, tuple(run_case(machine, case) for case in plain), random)

    def any_case(self) -> GoldenCase:
        """A row at random, half of them under a budget at random."""
        case = self.plain[int(self.random.integers(len(self.plain)))]
        if self.random.random() < 0.5:
            return case
        return replace(case, budget=int(self.random.integers(0, self.report.worst_cost + 1)))

    def traces(self) -> Iterator[GoldenCase]:
        """One row for each trace, those of the cloud first."""
        seen: dict[tuple[int, ...], int] = {}
        for k, decision in enumerate(self.made):
            seen.setdefault(decision.trace, k)
        first = sorted(seen.values(), key=lambda k: (self.made[k].route != CLOUD, k))
        yield from (self.plain[k] for k in first[:MAX_TRACES])

    def clouds(self) -> Iterator[GoldenCase]:
        """Rows that forward, with a cloud that is silent, and one that is away."""
        forwarded = [k for k, d in enumerate(self.made) if d.route == CLOUD]
        for k in forwarded[:4]:
            yield replace(self.plain[k], reply=None)
            yield replace(self.plain[k], cloud=False)

    def failures(self) -> Iterator[GoldenCase]:
        """Each sensor failed, in a row that buys it where there is one; and all failed at once."""
        n = len(self.machine.program.sensors)
        for sensor in range(min(n, MAX_EACH)):
            buyers = [k for k, d in enumerate(self.made) if sensor in d.sensors]
            yield replace(self.plain[(buyers or [sensor % len(self.plain)])[0]], failed=(sensor,))
        yield replace(self.plain[0], failed=tuple(range(n)))

    def budgets(self) -> Iterator[GoldenCase]:
        """No money, the cheapest path's, the dearest's, and amounts between, one step short among them."""
        low, high = self.report.best_cost, self.report.worst_cost
        amounts = sorted({0, low, max(low - 1, 0), (low + high) // 2, max(high - 1, 0), high})
        dear = max(range(len(self.made)), key=lambda k: self.made[k].cost)
        for row in dict.fromkeys((0, dear)):
            for budget in amounts:
                yield replace(self.plain[row], budget=budget)

    def missing(self) -> Iterator[GoldenCase]:
        """Each feature that may be missing, missing; and all of them."""
        features = [k for k, f in enumerate(self.machine.program.features) if f.nullable]
        for k, feature in enumerate(features[:MAX_EACH]):
            yield _without(self.plain[k % len(self.plain)], [feature])
        if features:
            yield _without(self.plain[0], features)

    def sizes(self) -> Iterator[GoldenCase]:
        """Items of sizes between 1 and the largest."""
        most = self.machine.program.max_item_size
        for k, size in enumerate(sorted({2, (most + 1) // 2, most - 1, most} - {0, 1}) if most > 1 else []):
            yield replace(self.plain[k % len(self.plain)], item_size=min(size, most))


def _plain(row: Sequence[Reading], reply: tuple[int, int]) -> GoldenCase:
    return GoldenCase(tuple(row), (), None, 1, True, reply, _NOT_YET)


def _without(case: GoldenCase, features: Sequence[int]) -> GoldenCase:
    readings = [None if k in features else x for k, x in enumerate(case.readings)]
    return replace(case, readings=tuple(readings))
