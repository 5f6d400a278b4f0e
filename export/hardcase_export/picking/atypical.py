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
from math import floor, frexp
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.batch.codes import codes_of
from hardcase_edge.batch.intervals import wilson
from hardcase_edge.batch.quality import ACCURACY, Quality
from hardcase_edge.batch.trees import score_trees
from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import (
    CODE_MAX,
    MISSING,
    THRESHOLD,
    Acquire,
    Affine,
    Answer,
    Branch,
    Candidate,
    Column,
    Forward,
    Node,
    Program,
    Select,
    Slice,
    Tree,
    Trees,
    led,
    targets_of,
)
from hardcase_edge.program.limits import MAX_ITEM_SIZE
from hardcase_edge.session.session import LOCAL, Decision
from hardcase_edge.verifier.verify import verify

from ..drafts.rows import Rows, n_remembered, read_rows
from ..integers.decide import decisions
from ..integers.point import IntegerPoint, remeasured

__all__ = ["MIN_JUDGED", "NoScoreError", "Scored", "atypical_shares", "with_atypical"]

N_TREES = 24
DEPTH = 4  # of the splits; below them come the tests of a box
DRAWS = 6  # of a split, the best of which is taken
TESTS = 5  # of one box: those that show most of the training rows with one moved reading
LEAST_CELL = 16  # rows on each side of a split
LEAST_FIT = 512  # training rows that end at an Answer; of fewer all are taken, wherever they end
MOVED = 2.0  # standard deviations: how far one reading of such a row moves at most
MIN_JUDGED = 40  # rows that end at an Answer, to set its threshold
MAX_ENSEMBLES = 8  # one for each set of sensors that answers have bought
HALF_RANGE = 16_000  # codes from the middle of the training rows to their ends: there is room beyond

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
class Scored:
    """Gives points of a build the score; arguments as for ``with_atypical``."""

    build: Path
    share: float
    quality: Quality
    forwards: bool

    def __call__(self, point: IntegerPoint) -> IntegerPoint:
        path = self.build / "train.npz"
        if not path.is_file():
            raise InputError(f"{self.build} has no train.npz, which --atypical needs; train again with this version")
        train = read_rows(path, point.manifest).X
        return with_atypical(point, train, self.share, self.quality, forwards=self.forwards)


def with_atypical(
    point: IntegerPoint, train: NDArray[np.float64], share: float, quality: Quality = ACCURACY, *, forwards: bool = True
) -> IntegerPoint:
    """The point with a score for each Answer at which enough validation rows end, and measured again.

    Parameters
    ----------
    train : (n, n_features) rows of training, NaN = missing
    share : of the validation rows at each Answer that may lie above its threshold
    forwards : whether a case above the threshold goes to the cloud, if the program goes there at all

    Raises
    ------
    InputError
        The share is out of range, or the policy remembers; ``NoScoreError`` if no Answer has enough rows.
    """
    if not 0 < share <= 0.5:
        raise InputError(f"--atypical is {share}; give a share above 0 and up to 0.5, such as 0.05")
    if n_remembered(point.manifest):
        raise InputError("a policy that remembers has no score of atypical cases: its rows do not hold its memory")
    program, rows, steps = point.quantised.program, point.valid, point.quantised.steps
    decided = decisions(program, rows.X, rows.hpc, rows.confidence, steps=steps, sizes=rows.sizes)
    judged = _judged(decided)
    if not judged:
        raise NoScoreError(f"--atypical needs {MIN_JUDGED} validation rows that the program answers alone at one node")
    on_train = decisions(program, train, None, steps=steps, cloud=False)
    ends, answers = np.array([d.trace[-1] for d in on_train]), np.array([d.result for d in on_train])
    guards: dict[int, _Guard] = {}
    for sensors in sorted({s for _, s in judged.values()})[:MAX_ENSEMBLES]:
        columns, ensemble = _ensemble(
            program, sensors, *_fit_rows(ends, answers, [n for n in judged if judged[n][1] == sensors], train)
        )
        if not columns:
            continue
        scores = score_trees(ensemble, codes_of(columns, rows.X))[:, 0]
        first = len(program.columns)
        scorer = replace(ensemble, columns=tuple(range(first, first + len(columns))))
        program = replace(program, columns=(*program.columns, *columns), scorers=(*program.scorers, scorer))
        for node, (at, own) in judged.items():
            if own == sensors:
                guards[node] = _guard(len(program.scorers) - 1, scores[at], _right(point, decided, at), rows, at, share)
    nodes, branches = _guarded(program, guards, forwards)
    program = replace(program, nodes=nodes)
    verify(program)
    scales = (*point.quantised.scales, *((1.0,) for _ in program.scorers[len(point.quantised.scales) :]))
    quantised = replace(point.quantised, program=program, scales=scales)
    return remeasured(replace(point, quantised=quantised, atypical=branches), quality)


def atypical_shares(point: IntegerPoint) -> dict[str, dict[str, int]]:
    """By name of the rows, how many of them have a score, and how many of these lie above a threshold."""
    program, steps = point.quantised.program, point.quantised.steps
    counts = {}
    for name, rows in {"valid": point.valid, "test": point.test}.items():
        decided = decisions(program, rows.X, rows.hpc, rows.confidence, steps=steps, sizes=rows.sizes)
        above = [is_above for d in decided if (is_above := _is_above(d, program, point.atypical)) is not None]
        counts[name] = {"n": len(rows.y), "scored": len(above), "atypical": sum(above)}
    return counts


def _is_above(decision: Decision, program: Program, branches: Sequence[int]) -> bool | None:
    """Whether a decision was above the threshold at its last node of these; None: it has passed none."""
    trace = decision.trace
    for k, after in zip(trace[-2::-1], trace[:0:-1], strict=True):
        if k in branches:
            return after != targets_of(program.nodes[k])[0]
    return None


def _judged(decided: Sequence[Decision]) -> dict[int, tuple[Codes, tuple[int, ...]]]:
    """By Answer, the rows that end there alone with all sensors, and the sensors that all of them have bought."""
    ends: dict[int, list[int]] = defaultdict(list)
    for k, d in enumerate(decided):
        if d.route == LOCAL and not d.failed:
            ends[d.trace[-1]].append(k)
    bought = {n: set.intersection(*(set(decided[k].sensors) for k in at)) for n, at in ends.items()}
    return {n: (np.array(ends[n]), tuple(sorted(bought[n]))) for n in ends if len(ends[n]) >= MIN_JUDGED and bought[n]}


def _right(point: IntegerPoint, decided: Sequence[Decision], at: Codes) -> Flags:
    """Whether the answers to these rows are right; values: no further from the truth than f0's root mean square."""
    rows = point.valid
    answers, truth = np.array([decided[k].result for k in at]), rows.y[at]
    slack = 0.0 if point.quantised.steps is None else float(np.sqrt(np.mean(np.square(rows.hpc - rows.y))))
    return np.asarray(np.abs(answers - truth) <= slack)


def _guard(scorer: int, scores: Codes, right: Flags, rows: Rows, at: Codes, share: float) -> _Guard:
    """The least threshold with at most this share of rows above it, by weight, and the least confidence of those."""
    weight = np.ones(len(at)) if rows.weight is None else rows.weight[at]
    weight = weight if weight.sum() else np.ones(len(at))
    above = [float(weight[scores > t].sum()) for t in range(N_TREES + 1)]
    threshold = next(t for t, w in enumerate(above) if w <= share * weight.sum())
    over = scores > threshold
    n, chance = int(over.sum()), float(np.average(right[over], weights=weight[over])) if above[threshold] else 0.0
    return _Guard(scorer, threshold, floor(10_000 * wilson(chance * n, n)[0]))


# ---------------------------------------------------------------- the ensemble


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


def _ensemble(
    program: Program, sensors: Sequence[int], train: NDArray[np.float64], classes: Codes
) -> tuple[tuple[Column, ...], Trees]:
    """Columns of all readings of these sensors that training rows have, and trees over them, in this order."""
    features = [f for s in sensors for f in program.sensors[s].features if np.isfinite(train[:, f]).any()]
    columns = tuple(Column(f, _rule(train[:, f])) for f in features)
    codes = codes_of(columns, train).astype(np.int64)
    rng = np.random.default_rng(0)
    trees = tuple(_Boxes(codes, classes, rng).tree() for _ in range(N_TREES)) if features else ()
    return columns, Trees(tuple(range(len(columns))), (0,), trees)


def _rule(values: NDArray[np.float64]) -> Affine:
    """Codes around the middle of these values, a power of two apart."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    largest = max(abs(low), abs(high), 1e-6)
    width = max((high - low) / 2, largest * 2.0**-20)  # a constant has steps, too
    frac = max(-64, min(64, 13 - frexp(width / (HALF_RANGE / 2**13))[1], 30 - frexp(largest)[1]))
    return Affine(frac, 1, -floor((low + high) / 2 * 2.0**frac), 0)


class _Boxes:
    """One tree: splits that tell answers apart, and in each cell the tests of a box around the training rows in it."""

    def __init__(self, codes: Codes, classes: Codes, rng: np.random.Generator) -> None:
        self._codes, self._classes, self._rng = codes, classes, rng
        spread = np.array([c[c != MISSING].std() for c in codes])
        moved = np.repeat(codes, 2, axis=1)
        which, k = rng.integers(0, len(codes), moved.shape[1]), np.arange(moved.shape[1])
        steps = np.round(rng.uniform(-MOVED, MOVED, len(k)) * np.maximum(spread[which], 1.0)).astype(np.int64)
        there = moved[which, k] != MISSING
        moved[which, k] = np.where(there, np.clip(moved[which, k] + steps, -CODE_MAX, CODE_MAX), MISSING)
        self._moved = moved
        self._splits: list[int] = []
        self._thresholds: list[int] = []
        self._left: list[bool] = []  # where missing goes
        self._children: list[tuple[int, int]] = []
        self._leaves: list[int] = []

    def tree(self) -> Tree:
        """The tree: its leaves are 0 inside a box and 1 outside."""
        self._grow(np.arange(self._codes.shape[1]), np.arange(self._moved.shape[1]), DEPTH)
        splits, children = tuple(self._splits), tuple(self._children)
        return Tree(0, 1, splits, tuple(self._thresholds), tuple(self._left), children, tuple(self._leaves))

    def _grow(self, rows: Codes, moved: Codes, depth: int) -> int:
        """The number of the node or leaf that stands for these rows."""
        split = self._split(rows) if depth and len(rows) >= 2 * LEAST_CELL else None
        if split is None:
            return self._box(rows, moved)
        column, threshold = split
        node = self._node(column, threshold, missing_left=True)
        low, low_moved = self._codes[column, rows] <= threshold, self._moved[column, moved] <= threshold
        left = self._grow(rows[low], moved[low_moved], depth - 1)
        self._children[node] = left, self._grow(rows[~low], moved[~low_moved], depth - 1)
        return node

    def _split(self, rows: Codes) -> tuple[int, int] | None:
        """Of some columns and quartiles at random, the split that tells the answers apart best; None: there is none."""
        found: list[tuple[float, int, int]] = []
        for _ in range(DRAWS):
            column, q = int(self._rng.integers(len(self._codes))), float(self._rng.choice([0.25, 0.5, 0.75]))
            values = self._codes[column, rows]
            threshold = int(np.quantile(values, q, method="lower"))
            left = values <= threshold
            if threshold >= -CODE_MAX and LEAST_CELL <= left.sum() <= len(rows) - LEAST_CELL:
                sides = [np.bincount(self._classes[rows[side]]) for side in (left, ~left)]
                found.append((sum(float((n**2).sum() / n.sum()) for n in sides), column, threshold))
        return max(found)[1:] if found else None

    def _box(self, rows: Codes, moved: Codes) -> int:
        """A chain of tests: each leads outside to a leaf of its own, and the last one inside to the leaf 0."""
        own = self._codes[:, rows]
        low = np.where(own == MISSING, CODE_MAX + 1, own).min(axis=1)
        high = np.where(own == MISSING, -CODE_MAX - 1, own).max(axis=1)
        some = self._moved[:, moved]
        there = (some != MISSING) & (low <= high)[:, None]
        outside = np.concatenate([there & (some < low[:, None]), there & (some > high[:, None])])
        first = last = None
        for _ in range(TESTS):
            caught = outside.sum(axis=1)
            best = int(caught.argmax())
            if not caught[best]:
                break
            outside = outside[:, ~outside[best]]
            column, is_high = best % len(low), best >= len(low)
            node = self._node(column, int(high[column] if is_high else low[column] - 1), missing_left=is_high)
            out = self._leaf(1)
            if last is not None:
                self._close(last, node)
            self._children[node] = (node, out) if is_high else (out, node)  # its own number: the other side is open
            first, last = node if first is None else first, node
        inside = self._leaf(0)
        if first is None or last is None:
            return inside
        self._close(last, inside)
        return first

    def _close(self, node: int, target: int) -> None:
        left, right = self._children[node]
        self._children[node] = (target, right) if left == node else (left, target)

    def _node(self, column: int, threshold: int, *, missing_left: bool) -> int:
        self._splits.append(column)
        self._thresholds.append(threshold)
        self._left.append(missing_left)
        self._children.append((0, 0))
        return len(self._splits) - 1

    def _leaf(self, value: int) -> int:
        self._leaves.append(value)
        return -len(self._leaves)


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
