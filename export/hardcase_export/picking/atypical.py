# SPDX-License-Identifier: Apache-2.0
"""A score of how unlike the training rows a case is: trees over the readings that the answer has bought anyway.

Each tree sorts the training rows into up to sixteen cells, by readings that tell their answers apart, and around those
of each cell it draws a box. A case counts for a tree if it lies outside the box of its cell: one of its readings does
not go with the others, even where each of them alone lies within the range of training. The score of a case is the
number of these trees, and the threshold of each Answer is such that a wished share of the judged rows that end there
lies above it. A case above it is forwarded where the program may forward, and otherwise answered with a confidence
that judged rows above it have.

All of this is nodes and scorers of the program, so every evaluator has it; docs/math.md (155) and (156).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.evidence import is_above
from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.codes import codes_of
from hardcase_edge.more.batch.intervals import wilson
from hardcase_edge.more.batch.quality import ACCURACY, Quality
from hardcase_edge.more.batch.trees import score_trees
from hardcase_edge.program.definition import (
    THRESHOLD,
    Acquire,
    Answer,
    Branch,
    Candidate,
    Forward,
    Node,
    Program,
    Select,
    Slice,
    targets_of,
)
from hardcase_edge.program.limits import MAX_ITEM_SIZE
from hardcase_edge.program.reads import led
from hardcase_edge.session.actions import LOCAL, Decision
from hardcase_edge.verifier.verify import verify

from ..drafts.rows import Rows, n_remembered, read_rows
from ..integers.decide import decisions
from ..integers.point import Build, IntegerPoint, measure_intervals, remeasured
from ..scorers.boxes import N_TREES, box_trees

LEAST_FIT = 512  # training rows that end at an Answer; of fewer all are taken, wherever they end
MIN_JUDGED = 40  # rows that end at an Answer, to set its threshold
MAX_ENSEMBLES = 8  # one for each set of sensors that answers have bought

Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]
Way = tuple[int, bool]  # a node, and whether it is reached behind a Forward
WAYS = (False, True)


class NoScoreError(InputError):
    """No answer of this point can have a score; as one of two in a mix it has none."""


@dataclass(frozen=True)
class _Guard:
    """What an Answer gets: the number of a scorer, a threshold, and the confidence above it, in basis points."""

    scorer: int
    threshold: int
    confidence: int


@dataclass(frozen=True)
class Judged:
    """Rows that set thresholds and confidences: (n, n_features) readings, whether answers are right, weights."""

    X: NDArray[np.float64]
    right: Flags
    weight: NDArray[np.float64] | None
    at: dict[int, tuple[Codes, tuple[int, ...]]]  # by Answer the numbers of rows, and the sensors all of them bought


@dataclass(frozen=True)
class Scored:
    """Gives points of a build the score; arguments as for ``with_atypical``."""

    build: Build
    share: float
    forwards: bool

    def __call__(self, point: IntegerPoint) -> IntegerPoint:
        path = self.build.folder / "train.npz"
        if not path.is_file():
            raise InputError(f"{path.parent} has no train.npz, which --atypical needs; train again with this version")
        train, calibration = read_rows(path, point.manifest).X, self.build.calibration(point.manifest)
        return with_atypical(
            point, train, self.share, self.build.front.measure, forwards=self.forwards, calibration=calibration
        )


def with_atypical(
    point: IntegerPoint, train: NDArray[np.float64], share: float, quality: Quality = ACCURACY, *,
    forwards: bool = True, calibration: Rows | None = None,
) -> IntegerPoint:  # fmt: skip
    """The point with a score for each Answer at which enough validation rows end, and measured again.

    Parameters
    ----------
    train : (n, n_features) rows of training, NaN = missing
    share : of the validation rows at each Answer that may lie above its threshold
    forwards : whether a case above the threshold goes to the cloud, if the program goes there at all
    calibration : rows on which intervals of values are measured, of each node that answers now

    Raises
    ------
    InputError
        The share is out of range, or the policy remembers; ``NoScoreError`` if no Answer has enough rows.
    """
    if n_remembered(point.manifest):
        raise InputError("a policy that remembers has no score of atypical cases: its rows do not hold its memory")
    program, rows, steps = point.quantised.program, point.valid, point.quantised.steps
    decided = decisions(program, rows.X, rows.hpc, rows.confidence, steps=steps, sizes=rows.sizes)
    judged = Judged(rows.X, _right(point, decided), rows.weight, _judged(decided))
    on_train = decisions(program, train, None, steps=steps, cloud=False)
    ends, answers = np.array([d.trace[-1] for d in on_train]), np.array([d.result for d in on_train])
    program, branches = with_guards(program, (train, ends, answers), judged, share, forwards)
    verify(program)
    scales = (*point.quantised.scales, *((1.0,) for _ in program.scorers[len(point.quantised.scales) :]))
    quantised = replace(point.quantised, program=program, scales=scales)
    intervals = {} if calibration is None else measure_intervals(quantised, calibration)
    return remeasured(replace(point, quantised=quantised, atypical=branches, intervals=intervals), quality)


def with_guards(
    program: Program, train: tuple[NDArray[np.float64], Codes, NDArray[Any]], judged: Judged, share: float,
    forwards: bool,
) -> tuple[Program, tuple[int, ...]]:  # fmt: skip
    """The program with a score before each Answer that has judged rows, and its branches; errors of ``with_atypical``.

    ``train``: (n, n_features) rows of training, the node at which each ends, and its answer.
    """
    if not 0 < share <= 0.5:
        raise InputError(f"atypical is {share}; give a share above 0 and up to 0.5, such as 0.05")
    if not judged.at:
        raise NoScoreError(f"atypical needs {MIN_JUDGED} validation rows that the program answers alone at one node")
    X, ends, answers = train
    guards: dict[int, _Guard] = {}
    for sensors in sorted({s for _, s in judged.at.values()})[:MAX_ENSEMBLES]:
        nodes = [n for n, (_, own) in judged.at.items() if own == sensors]
        columns, ensemble = box_trees(program, sensors, *_fit_rows(ends, answers, nodes, X))
        if not columns:
            continue
        scores = score_trees(ensemble, codes_of(columns, judged.X))[:, 0]
        first = len(program.columns)
        scorer = replace(ensemble, columns=tuple(range(first, first + len(columns))))
        program = replace(program, columns=(*program.columns, *columns), scorers=(*program.scorers, scorer))
        for node in nodes:
            at = judged.at[node][0]
            guards[node] = _guard(len(program.scorers) - 1, scores[at], judged, at, share)
    guarded, branches = _guarded(program, guards, forwards)
    return replace(program, nodes=guarded), branches


def atypical_shares(point: IntegerPoint) -> dict[str, dict[str, int]]:
    """By name of the rows, how many of them have a score, and how many of these lie above a threshold."""
    program, steps = point.quantised.program, point.quantised.steps
    counts = {}
    for name, rows in {"valid": point.valid, "test": point.test}.items():
        decided = decisions(program, rows.X, rows.hpc, rows.confidence, steps=steps, sizes=rows.sizes)
        found = [above for d in decided if (above := is_above(d.trace, program, point.atypical)) is not None]
        counts[name] = {"n": len(rows.y), "scored": len(found), "atypical": sum(found)}
    return counts


def _judged(decided: Sequence[Decision]) -> dict[int, tuple[Codes, tuple[int, ...]]]:
    """By Answer, the rows that end there alone with all sensors, and the sensors that all of them have bought."""
    ends: dict[int, list[int]] = defaultdict(list)
    for k, d in enumerate(decided):
        if d.route == LOCAL and not d.failed:
            ends[d.trace[-1]].append(k)
    bought = {n: set.intersection(*(set(decided[k].sensors) for k in at)) for n, at in ends.items()}
    return {n: (np.array(ends[n]), tuple(sorted(bought[n]))) for n in ends if len(ends[n]) >= MIN_JUDGED and bought[n]}


def _right(point: IntegerPoint, decided: Sequence[Decision]) -> Flags:
    """Whether the answers are right; values: no further from the truth than f0's root mean square."""
    rows = point.valid
    answers = np.array([d.result for d in decided])
    slack = 0.0 if point.quantised.steps is None else float(np.sqrt(np.mean(np.square(rows.hpc - rows.y))))
    return np.asarray(np.abs(answers - rows.y) <= slack)


def _guard(scorer: int, scores: Codes, judged: Judged, at: Codes, share: float) -> _Guard:
    """The least threshold with at most this share of rows above it, by weight, and the least confidence of those."""
    weight, right = np.ones(len(at)) if judged.weight is None else judged.weight[at], judged.right[at]
    weight = weight if weight.sum() else np.ones(len(at))
    above = [float(weight[scores > t].sum()) for t in range(N_TREES + 1)]
    threshold = next(t for t, w in enumerate(above) if w <= share * weight.sum())
    over = scores > threshold
    n, chance = int(over.sum()), float(np.average(right[over], weights=weight[over])) if above[threshold] else 0.0
    return _Guard(scorer, threshold, floor(10_000 * wilson(chance * n, n)[0]))


def _fit_rows(
    ends: Codes, answers: NDArray[Any], nodes: Sequence[int], train: NDArray[np.float64]
) -> tuple[NDArray[np.float64], Codes]:
    """The training rows that end at these nodes, of few all of them, and a class of each: its answer, or its range."""
    own = np.isin(ends, nodes)
    own = own if own.sum() >= LEAST_FIT else np.ones(len(train), dtype=np.bool_)
    values = answers[own]
    if values.dtype.kind == "f":
        values = np.searchsorted(np.quantile(values, [0.25, 0.5, 0.75]), values)
    return train[own], np.unique(values, return_inverse=True)[1]


# ---------------------------------------------------------------- the nodes


def _guarded(program: Program, guards: dict[int, _Guard], forwards: bool) -> tuple[tuple[Node, ...], tuple[int, ...]]:
    """The nodes with a Branch before each of these Answers, and the numbers of these branches.

    An Answer that stands in for the cloud has an entrance of its own there, from which nothing is forwarded.
    """
    named, behind = _ways(program)
    forward = next((n for n in program.nodes if isinstance(n, Forward)), None) if forwards else None
    reads = {k: _reads(program, guard) for k, guard in guards.items()}
    entrances = {k: [e for e in WAYS if (k, e) in named and reads[k] <= named[k, e]] for k in guards}
    at: dict[Way, int] = {}  # where each way to each node leads now
    n = 0
    for k in range(len(program.nodes)):
        own = entrances.get(k, [])
        at |= {(k, e): n + j for j, e in enumerate(own)}
        n += len(own) + bool(own) + 2 * (False in own and forward is not None)
        for e in WAYS:
            at.setdefault((k, e), n)
        n += 1
    nodes: list[Node] = []
    branches: list[int] = []
    for k, node in enumerate(program.nodes):
        own = entrances.get(k, [])
        if own and isinstance(node, Answer):
            guard, is_sent = guards[k], False in own and forward is not None
            unsure = len(nodes) + len(own) + 2 * is_sent
            for e in own:
                branches.append(len(nodes))
                above = unsure - 2 if is_sent and not e else unsure
                nodes.append(Branch(Slice(guard.scorer, 0, 1), THRESHOLD, (unsure + 1, above), guard.threshold))
            if is_sent and forward is not None:
                # a Branch would pass over a Forward that is too dear, and answer with the full confidence
                nodes.append(Select((Candidate(MAX_ITEM_SIZE, (0,), unsure - 1),), unsure - 1))
                nodes.append(replace(forward, fallback=unsure))
            nodes.append(replace(node, confidences=tuple(min(c, guard.confidence) for c in node.confidences)))
        is_behind = k in behind or isinstance(node, Forward)
        nodes.append(led(node, {t: at[t, is_behind] for t in targets_of(node)}.__getitem__))
    return tuple(nodes), tuple(branches)


def _ways(program: Program) -> tuple[dict[Way, set[int]], set[int]]:
    """For each node and way to it, the sensors that some path names; and the nodes behind a Forward."""
    named: dict[Way, set[int]] = {(0, False): set()}
    behind: set[int] = set()
    for k, node in enumerate(program.nodes):  # targets lie ahead of their nodes
        so_far = named.get((k, False), set()) | named.get((k, True), set())
        so_far = so_far | set(node.sensors) if isinstance(node, Acquire | Forward) else so_far
        is_behind = k in behind or isinstance(node, Forward)
        for t in targets_of(node):
            named.setdefault((t, is_behind), set()).update(so_far)
            if is_behind:
                behind.add(t)
    return named, behind


def _reads(program: Program, guard: _Guard) -> set[int]:
    columns = getattr(program.scorers[guard.scorer], "columns", ())
    return {program.sensor_of[program.columns[c].feature] for c in columns}
