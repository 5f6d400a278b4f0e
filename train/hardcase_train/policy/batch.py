"""Runs a program on many rows at once: the same decisions and costs as the device's evaluator, row by row.

Used wherever training needs the outcome of a policy, so that every figure comes from the program itself and from the
one cost meter. A test compares it with ``hardcase_edge.session.session`` on every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from hardcase_edge.program.cost import Meter, to_unit
from hardcase_edge.program.definition import (
    CODE_MAX,
    MARGIN,
    MISSING,
    THRESHOLD,
    TOURNAMENT,
    Acquire,
    Answer,
    Branch,
    Column,
    Forward,
    Node,
    Opaque,
    Polynomial,
    Program,
    Rank,
    Scorer,
    Trees,
)

from .codes import affine_codes
from .quality import ACCURACY
from .tournament import play
from .tree_scores import add_tree

__all__ = ["Batch", "Outcome", "margins_of"]


@dataclass(frozen=True)
class Outcome:
    """What became of the rows."""

    label: np.ndarray  # (n,) class index
    cost: np.ndarray  # (n,) in the user's unit
    forwarded: np.ndarray  # (n,) bool
    margin: np.ndarray  # (n,) of the answering scorer; NaN where forwarded
    node: np.ndarray  # (n,) where each row ended

    def where(self, mask: np.ndarray, other: Outcome) -> Outcome:
        """These outcomes where the mask is set, the other's elsewhere."""
        parts = (self.label, self.cost, self.forwarded, self.margin, self.node)
        others = (other.label, other.cost, other.forwarded, other.margin, other.node)
        return Outcome(*(np.where(mask, a, b) for a, b in zip(parts, others, strict=True)))

    @staticmethod
    def joined(parts: Sequence[Outcome], order: np.ndarray) -> Outcome:
        """The outcomes of several batches as one, its row k the one at ``order[k]`` of all rows laid end to end."""
        return Outcome(*(np.concatenate([getattr(p, f.name) for p in parts])[order] for f in fields(Outcome)))

    def summary(self, y: np.ndarray, weight: np.ndarray | None = None) -> dict[str, float]:
        """Quality, mean cost and forward rate, each row as ``weight`` (n,) counts it, all alike unless given."""
        return {
            "quality": ACCURACY(y, self.label, weight),
            "cost": float(np.average(self.cost, weights=weight)),
            "forward_rate": float(np.average(self.forwarded, weights=weight)),
        }


class Batch:
    """Rows made ready for programs that share columns and scorers; scores are computed once.

    Parameters
    ----------
    program : Program of Trees, Polynomial and, where ``scores`` has its own, Opaque scorers, without Select
    X : ndarray of shape (n, n_features), NaN for missing
    scores : per scorer an ndarray of shape (n, n_outputs) to use instead of the scorer's own, such as out-of-fold
        scores; for rows on which all its sensors work
    """

    def __init__(self, program: Program, X: np.ndarray, scores: Sequence[np.ndarray] = ()) -> None:
        self.program = program
        self.X = X
        self._meter = Meter(program)
        self._owner = {f: k for k, sensor in enumerate(program.sensors) for f in sensor.features}
        self._codes = np.full((len(program.columns), len(X)), MISSING, dtype=np.int32)
        for k, column in enumerate(program.columns):
            x = X[:, column.feature]
            present = ~np.isnan(x)
            self._codes[k, present] = column_codes(column, x[present])
        self._works = np.array(
            [
                ~np.isnan(X[:, [f for f in s.features if not program.features[f].nullable]]).any(axis=1)
                for s in program.sensors
            ]
        )
        self._full: dict[int, np.ndarray] = dict(enumerate(scores))

    def scores(self, scorer: int, rows: np.ndarray | None = None, bought: np.ndarray | None = None) -> np.ndarray:
        """Scores of one scorer, (n, n_outputs), on full codes or on what ``rows`` have ``bought``."""
        if scorer not in self._full:
            self._full[scorer] = score_codes(self.program.scorers[scorer], self._codes)
        full = self._full[scorer]
        if rows is None or bought is None:
            return full
        out = full[rows]
        lacking = np.zeros(len(rows), dtype=bool)
        s = self.program.scorers[scorer]
        if isinstance(s, Opaque):
            return out  # it is asked only where its sensors are at hand: the verifier's rule V29
        assert isinstance(s, Trees | Polynomial)
        needs = [(c, self._owner[self.program.columns[c].feature]) for c in s.columns]
        for _, sensor in needs:
            lacking |= ~(bought[sensor, rows] & self._works[sensor, rows])
        if lacking.any():
            part = rows[lacking]
            codes = self._codes[:, part].copy()
            for c, sensor in needs:
                codes[c, ~(bought[sensor, part] & self._works[sensor, part])] = MISSING
            out[lacking] = score_codes(s, codes)
        return out

    def run(self, hpc_label: np.ndarray, nodes: Sequence[Node] | None = None) -> Outcome:
        """Walk all rows through the nodes (the program's own, or others over the same scorers).

        Parameters
        ----------
        hpc_label : ndarray of shape (n,), class index
            What f0 answers where a row is forwarded.
        """
        return self.walk(hpc_label, nodes)[0]

    def walk(self, hpc_label: np.ndarray, nodes: Sequence[Node] | None = None) -> tuple[Outcome, np.ndarray]:
        """As ``run``, with the sensors that each row bought, (n_sensors, n) bool."""
        nodes = self.program.nodes if nodes is None else nodes
        n = len(self.X)
        at = np.zeros(n, dtype=np.int64)
        arrived = {0: [np.arange(n)]}
        bought = np.zeros((len(self.program.sensors), n), dtype=bool)
        label = np.zeros(n, dtype=np.int64)
        margin = np.full(n, np.nan)
        forwarded = np.zeros(n, dtype=bool)
        for k, node in enumerate(nodes):
            if k not in arrived:
                continue
            rows = np.concatenate(arrived.pop(k))
            at[rows] = k
            if isinstance(node, Acquire):
                _send(rows, self._acquire(node, rows, bought), arrived)
            elif isinstance(node, Branch):
                _send(rows, self._branch(nodes, node, rows, bought), arrived)
            elif isinstance(node, Answer):
                label[rows], margin[rows] = self._answer(node, rows, bought)
            else:
                assert isinstance(node, Forward)
                bought[_cells(node, rows)] = True
                label[rows], forwarded[rows] = hpc_label[rows], True
        return Outcome(label, self._costs(bought, forwarded), forwarded, margin, at), bought

    def _acquire(self, node: Acquire, rows: np.ndarray, bought: np.ndarray) -> np.ndarray:
        cells = _cells(node, rows)
        dead = (bought[cells] & ~self._works[cells]).any(axis=0)
        bought[_cells(node, rows[~dead])] = True
        return np.where(self._works[cells].all(axis=0) & ~dead, node.then, node.otherwise)

    def _branch(self, nodes: Sequence[Node], node: Branch, rows: np.ndarray, bought: np.ndarray) -> np.ndarray:
        scores = self.scores(node.scores.scorer, rows, bought)[:, node.scores.start : node.scores.stop]
        assert node.rule in (THRESHOLD, MARGIN, TOURNAMENT)
        can = [self._can_have(nodes[t], rows, bought) for t in node.targets]
        if node.rule == TOURNAMENT:
            return np.array(node.targets)[play(node.bracket, scores, np.array(can))]
        yes = scores[:, 0] > node.threshold if node.rule == THRESHOLD else margins_of(scores) >= node.threshold
        yes = np.where(can[0] & ~can[1], False, np.where(can[1] & ~can[0], True, yes))
        return np.where(yes, node.targets[1], node.targets[0])

    def _can_have(self, node: Node, rows: np.ndarray, bought: np.ndarray) -> np.ndarray:
        if not isinstance(node, Acquire):
            return np.ones(len(rows), dtype=bool)
        cells = _cells(node, rows)
        return ~(bought[cells] & ~self._works[cells]).any(axis=0)

    def _answer(self, node: Answer, rows: np.ndarray, bought: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores = self.scores(node.scores.scorer, rows, bought)[:, node.scores.start : node.scores.stop]
        if scores.shape[1] == 1:
            return (scores[:, 0] > 0).astype(np.int64), np.abs(scores[:, 0])
        return scores.argmax(axis=1), margins_of(scores)

    def _costs(self, bought: np.ndarray, forwarded: np.ndarray) -> np.ndarray:
        """One call of the meter per distinct path."""
        _, first, which = np.unique(_path_of([*bought, forwarded]), return_index=True, return_inverse=True)
        prices = [to_unit(self._meter.total(np.flatnonzero(bought[:, i]).tolist(), int(forwarded[i]))) for i in first]
        return np.array(prices)[which]


def _path_of(flags: Sequence[np.ndarray]) -> np.ndarray:
    """A number for each row, (n,) int64, the same where all flags, each (n,) bool, are."""
    path = np.zeros(len(flags[0]), dtype=np.int64)
    for k in range(0, len(flags), 32):
        bits = sum(flag.astype(np.int64) << j for j, flag in enumerate(flags[k : k + 32]))
        path = np.unique(path << 32 | bits, return_inverse=True)[1]
    return path


def _send(rows: np.ndarray, targets: np.ndarray, arrived: dict[int, list[np.ndarray]]) -> None:
    """Note which rows arrive at which node next."""
    left = np.ones(len(rows), dtype=bool)
    while left.any():
        t = int(targets[left.argmax()])
        here = targets == t
        arrived.setdefault(t, []).append(rows[here])
        left &= ~here


def _cells(node: Acquire | Forward, rows: np.ndarray) -> tuple[np.ndarray, ...]:
    """Where a (sensor, row) table holds the node's sensors of these rows."""
    return np.ix_(np.array(node.sensors, dtype=np.int64), rows)


def margins_of(scores: np.ndarray) -> np.ndarray:
    """Best score minus second of each row, (n,); of a pair (0, s), its distance."""
    if scores.shape[1] == 1:
        return np.abs(scores[:, 0])
    top = np.partition(scores, -2, axis=1)
    return top[:, -1] - top[:, -2]


def column_codes(column: Column, x: np.ndarray) -> np.ndarray:
    """A column's codes of present readings, (n,)."""
    if isinstance(column.rule, Rank):
        return np.searchsorted(np.array(column.rule.thresholds, dtype=np.float64), x, side="left") - CODE_MAX
    return affine_codes(column.rule, x)


def score_codes(scorer: Scorer, codes: np.ndarray) -> np.ndarray:
    """Scores of a scorer, (n, n_outputs), for codes of shape (n_columns, n)."""
    assert isinstance(scorer, Trees | Polynomial)
    return _score_trees(scorer, codes) if isinstance(scorer, Trees) else _score_polynomial(scorer, codes)


def _score_polynomial(scorer: Polynomial, codes: np.ndarray) -> np.ndarray:
    """In floats: exact for sums below 2**53."""
    x = np.full((len(scorer.columns) + 1, codes.shape[1]), float(scorer.constant))
    for k, (column, substitute) in enumerate(zip(scorer.columns, scorer.substitutes, strict=True)):
        code = codes[column]
        x[k] = code if substitute is None else np.where(code == MISSING, substitute, code)
    out = np.tile(np.array(scorer.bias, dtype=np.float64), (codes.shape[1], 1))
    for t, term in enumerate(scorer.terms):
        product = x[list(term)].prod(axis=0)
        out += product[:, None] * np.array([row[t] for row in scorer.weights], dtype=np.float64)
    return out


def _score_trees(scorer: Trees, codes: np.ndarray) -> np.ndarray:
    out = np.tile(np.array(scorer.base, dtype=np.float64), (codes.shape[1], 1))
    columns = np.array(scorer.columns, dtype=np.int64)
    for tree in scorer.trees:
        n = len(tree.splits)
        kids = tree.children or [tuple(c if c < n else n - 1 - c for c in (2 * i + 1, 2 * i + 2)) for i in range(n)]
        add_tree(
            codes,
            MISSING,
            columns[np.array(tree.splits, dtype=np.int64)].astype(np.int32),
            np.array(tree.thresholds, dtype=np.int32),
            np.array(tree.missing_left, dtype=np.bool_),
            np.array(kids, dtype=np.int32).reshape(n, 2),
            np.array(tree.leaves, dtype=np.float64).reshape(n + 1, tree.width),
            out[:, tree.output : tree.output + tree.width],
        )
    return out
