# SPDX-License-Identifier: Apache-2.0
"""Golden cases of a bundle: sessions on validation rows that a device replays when it loads the bundle.

The same program, rows and seed always give the same cases. They cover every trace seen, a cloud that is unreachable or
silent, the failure of each sensor, small budgets, missing readings and all sizes of items, as far as they apply to
the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.golden import GoldenCase, run_case
from hardcase_edge.bundle.load import MAX_GOLDEN_OPERATIONS
from hardcase_edge.program.cost import start_of
from hardcase_edge.program.definition import Program
from hardcase_edge.program.readings import Reading
from hardcase_edge.session.actions import CLOUD, LOCAL, Decision
from hardcase_edge.session.recorded import MAX_NUMBERS
from hardcase_edge.session.session import Machine
from hardcase_edge.verifier.verify import Report, verify

from .decide import readings_of

MIN_CASES = 64
MAX_ROWS = 2_000  # from which traces are collected
MAX_TRACES = 24
MAX_EACH = 40  # sensors that fail, features that are missing
_PLACEHOLDER = Decision(0, 0, LOCAL, 0, (), ())


def make_golden(
    program: Program,
    X: NDArray[np.float64],
    hpc: NDArray[np.int64],
    hpc_confidence: NDArray[np.int64],
    seed: int,
) -> tuple[GoldenCase, ...]:
    """At least ``MIN_CASES`` cases, or as many as a device replays of so large a program, each with its decision.

    Parameters
    ----------
    program : Program
        Quantised and verified.
    X : (n, n_features) float64, n at least 1, NaN = missing
    hpc, hpc_confidence : (n,) f0's answer: class index, and confidence in basis points
    seed : int
        Seed of the choice of rows; the same seed gives the same cases.
    """
    maker = _CaseMaker.over(program, X, hpc, hpc_confidence, np.random.default_rng(seed))
    cases = [*maker.traces(), *maker.clouds(), *maker.failures(), *maker.budgets(), *maker.missing(), *maker.sizes()]
    cases += [maker.any_case() for _ in range(MIN_CASES - len(cases))]
    cases = cases[: _most_cases(program, maker.report)]
    return tuple(replace(case, expected=run_case(maker.machine, case)) for case in cases)


def _most_cases(program: Program, report: Report) -> int:
    """As many cases as a device replays."""
    numbers = len(program.features) + len(program.sensors) + report.longest_path + 16  # of a case, at most
    return min(MAX_NUMBERS // numbers, MAX_GOLDEN_OPERATIONS // max(report.operations, 1))


@dataclass(frozen=True)
class _CaseMaker:
    machine: Machine
    report: Report
    plain: tuple[GoldenCase, ...]  # a case for each row, unchanged
    decisions: tuple[Decision, ...]  # of the plain cases
    random: np.random.Generator

    @classmethod
    def over(
        cls,
        program: Program,
        X: NDArray[np.float64],
        hpc: NDArray[np.int64],
        confidence: NDArray[np.int64],
        random: np.random.Generator,
    ) -> _CaseMaker:
        machine = Machine(program)
        order = random.permutation(len(X))[:MAX_ROWS]
        rows = readings_of(program, X[order])
        replies = zip(hpc[order].tolist(), confidence[order].tolist(), strict=True)
        plain = tuple(_plain(row, reply) for row, reply in zip(rows, replies, strict=True))
        return cls(machine, verify(program), plain, tuple(run_case(machine, case) for case in plain), random)

    @property
    def start(self) -> int:
        """The least budget: what a decision costs before it buys anything."""
        return start_of(self.machine.program.costs)

    def any_case(self) -> GoldenCase:
        """A random row; half of these cases have a random budget."""
        case = self.plain[int(self.random.integers(len(self.plain)))]
        if self.random.random() < 0.5:
            return case
        return replace(case, budget=int(self.random.integers(self.start, self.report.worst_cost + 1)))

    def traces(self) -> Iterator[GoldenCase]:
        """One row per trace; traces that the cloud answers come first."""
        first_rows: dict[tuple[int, ...], int] = {}
        for k, decision in enumerate(self.decisions):
            first_rows.setdefault(decision.trace, k)
        first = sorted(first_rows.values(), key=lambda k: (self.decisions[k].route != CLOUD, k))
        yield from (self.plain[k] for k in first[:MAX_TRACES])

    def clouds(self) -> Iterator[GoldenCase]:
        """Rows that forward, once with a cloud that does not reply and once with a cloud that is unreachable."""
        forwarded = [k for k, d in enumerate(self.decisions) if d.route == CLOUD]
        for k in forwarded[:4]:
            yield replace(self.plain[k], reply=None)
            yield replace(self.plain[k], cloud=False)

    def failures(self) -> Iterator[GoldenCase]:
        """The failure of each sensor, on a row that acquires it if there is one; and the failure of all at once."""
        n = len(self.machine.program.sensors)
        for sensor in range(min(n, MAX_EACH)):
            buyers = [k for k, d in enumerate(self.decisions) if sensor in d.sensors]
            yield replace(self.plain[(buyers or [sensor % len(self.plain)])[0]], failed=(sensor,))
        yield replace(self.plain[0], failed=tuple(range(n)))

    def budgets(self) -> Iterator[GoldenCase]:
        """The least budget, the costs of the cheapest and of the dearest path, one micro-unit less, and their mean."""
        low, high = self.report.best_cost, self.report.worst_cost
        amounts = sorted({max(amount, self.start) for amount in (0, low, low - 1, (low + high) // 2, high - 1, high)})
        most_expensive = max(range(len(self.decisions)), key=lambda k: self.decisions[k].cost)
        for row in dict.fromkeys((0, most_expensive)):
            for budget in amounts:
                yield replace(self.plain[row], budget=budget)

    def missing(self) -> Iterator[GoldenCase]:
        """Each feature that may be missing is missing once, and all of them together."""
        features = [k for k, f in enumerate(self.machine.program.features) if f.nullable]
        for k, feature in enumerate(features[:MAX_EACH]):
            yield _without(self.plain[k % len(self.plain)], [feature])
        if features:
            yield _without(self.plain[0], features)

    def sizes(self) -> Iterator[GoldenCase]:
        """Item sizes between 1 and the largest."""
        largest = self.machine.program.max_item_size
        for k, size in enumerate(sorted({2, (largest + 1) // 2, largest - 1, largest} - {0, 1}) if largest > 1 else []):
            yield replace(self.plain[k % len(self.plain)], item_size=min(size, largest))


def _plain(row: Sequence[Reading], reply: tuple[int, int]) -> GoldenCase:
    return GoldenCase(tuple(row), (), None, 1, True, reply, _PLACEHOLDER)


def _without(case: GoldenCase, features: Sequence[int]) -> GoldenCase:
    readings = [None if k in features else x for k, x in enumerate(case.readings)]
    return replace(case, readings=tuple(readings))
