# SPDX-License-Identifier: Apache-2.0
"""Programs of imported models: acquire the sensors and answer, or let a gate choose to answer or forward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hardcase_edge.program.definition import (
    FREE,
    THRESHOLD,
    Acquire,
    Answer,
    Branch,
    Column,
    Costs,
    Feature,
    Forward,
    Network,
    Node,
    Polynomial,
    Program,
    Scorer,
    Sensor,
    Slice,
    Stack,
    Trees,
    Uplink,
    sensors_of_features,
)
from hardcase_edge.program.readings import request_bytes

from ..sources.source import LOGISTIC, MEAN, Source
from .leaves import Summed

LEVELS = (*(k / 20 for k in range(2, 20)), 0.99, 0.999)


@dataclass(frozen=True, slots=True)
class Parts:
    """The columns and scorers of one model, which refer to no others; ``answer`` reads the last scorer.

    ``features`` : read without a column. ``otherwise`` : the answer if a sensor fails, where ``answer`` needs them all.
    """

    columns: tuple[Column, ...]
    scorers: tuple[Scorer, ...]
    answer: Answer
    features: tuple[int, ...] = ()
    otherwise: Answer | None = None

    @classmethod
    def of(cls, source: Source, columns: Sequence[Column], summed: Summed) -> Parts:
        """The parts of a source, given its columns and scorers."""
        return cls(tuple(columns), summed.scorers, answer_of(source, summed.scale, len(summed.scorers) - 1))

    def behind(self, columns: int, scorers: int) -> Parts:
        """These parts, renumbered to follow this many columns and scorers of a program."""
        scorers_behind: list[Scorer] = []
        for s in self.scorers:
            if isinstance(s, Stack):
                scorers_behind.append(replace(s, trees=s.trees + scorers))
            elif isinstance(s, Trees | Polynomial | Network):
                scorers_behind.append(replace(s, columns=tuple(c + columns for c in s.columns)))
        scores = replace(self.answer.scores, scorer=self.answer.scores.scorer + scorers)
        return Parts(self.columns, tuple(scorers_behind), replace(self.answer, scores=scores))


def answer_of(source: Source, scale: float, scorer: int) -> Answer:
    """The answer by a scorer that gives the source's scores in steps of 1 / ``scale``."""
    margins, confidences = _confidences(source, scale) if source.kind.has_classes else ((), (0,))
    return Answer(Slice(scorer, 0, len(source.base)), source.kind.answer, margins, confidences)


def plain(
    features: Sequence[Feature], sensors: Sequence[Sensor], model: Parts, n_classes: int, costs: Costs = FREE
) -> Program:
    """A program of one model: an Acquire of the sensors that it reads, and an Answer."""
    read = _sensors(sensors, model)
    nodes: tuple[Node, ...] = (Acquire(read, 1, 1), model.answer) if read else (model.answer,)
    if model.otherwise is not None:
        nodes = Acquire(read, 1, 2), model.answer, model.otherwise
    return Program(
        tuple(features), tuple(sensors), Uplink(), model.columns, model.scorers, nodes, n_classes, costs=costs
    )


def gated(
    features: Sequence[Feature],
    sensors: Sequence[Sensor],
    gate: Parts,
    lpc: Parts,
    n_classes: int,
    *,
    threshold: int = 0,
    costs: Costs = FREE,
) -> Program:
    """A program with a two-class gate before a low-cost model: rows with gate scores above ``threshold`` are forwarded.

    The program buys the gate's sensors first, then those that the model still needs; a request carries all features.
    ``costs`` are those beside the sensors'.
    """
    first, rest = _sensors(sensors, gate), _sensors(sensors, lpc)
    lpc = lpc.behind(len(gate.columns), len(gate.scorers))
    if gate.answer.scores.stop != 1:
        raise ValueError(f"a gate must have one score, but this one has {gate.answer.scores.stop}")
    up = Uplink(request_bytes([f.dtype for f in features]), tuple(range(len(features))))
    nodes = (
        Acquire(first, 1, 1),
        Branch(gate.answer.scores, THRESHOLD, (3, 2), threshold),
        Forward(tuple(range(len(sensors))), 3),
        Acquire(rest, 4, 4),
        lpc.answer,
    )
    columns, scorers = gate.columns + lpc.columns, gate.scorers + lpc.scorers
    return Program(tuple(features), tuple(sensors), up, columns, scorers, nodes, n_classes, costs=costs)


def _sensors(sensors: Sequence[Sensor], model: Parts) -> tuple[int, ...]:
    """The sensors that the model reads, in order."""
    owner = sensors_of_features(sensors)
    return tuple(sorted({owner[f] for f in (*(c.feature for c in model.columns), *model.features)}))


def _confidences(source: Source, scale: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Margins, and the lowest probability that the best class can have above each; exact for two classes."""
    n = max(2, len(source.base))
    if source.link not in (MEAN, LOGISTIC):
        return (), (0,)
    table: dict[int, int] = {}
    for p in LEVELS:
        if p <= 1 / n:
            continue
        margin = (n * p - 1) / (n - 1) if source.link == MEAN else math.log(p * (n - 1) / (1 - p))
        table[math.ceil(margin * source.unit * scale)] = round(10_000 * p)
    return tuple(table), (10_000 // n, *table.values())
