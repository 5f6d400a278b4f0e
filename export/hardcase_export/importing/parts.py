"""A source model as parts of a program, with the fewest bits a leaf that keep its labels, and compared with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import Column, Program, Trees

from ..sources.reference import labels_of_scores, reference_scores
from ..sources.source import CLASS, Source
from .agreement import Match, compare, float_bound, score_size
from .leaves import Summed, sum_exactly, sum_in_16, sum_in_31
from .linear import sum_linear
from .probe_rows import as_held, probe_rows
from .program import Parts, plain
from .sensor_layout import Layout, make_layout
from .trees import Shape, lay

__all__ = ["LEAVES", "Imported", "import_parts"]

LEAVES = ("auto", "16", "31")
EVERY, TIES, TESTED = "every row", "every row but ties", "tested"
SCOUTS = 2_000  # rows that say whether 16 bits may do
MAX_EXPECTED = 0.1  # labels in 100,000 that may be expected to flip before leaves are made wider
MAX_VALUE_OFF = 1e-4  # of the largest value: the same for models of values
WIDER = 1 / 8  # how far a range found in rows is stretched to either side


@dataclass(frozen=True, slots=True)
class Imported:
    """A source as parts of a program, and how they compare with it. ``proof``: what is known of all rows."""

    source: Source
    layout: Layout
    parts: Parts
    summed: Summed
    match: Match
    proof: str
    rows: NDArray[np.float64]

    @property
    def bound(self) -> float:
        """How far scores can be from exact ones, in the source's unit, roundings of the source included."""
        return float(self.summed.off.max()) / self.summed.scale + float_bound(self.source, np.nan_to_num(self.rows))

    def program(self) -> Program:
        """A program of its own."""
        return plain(self.layout.features, self.layout.sensors, self.parts, len(self.layout.classes))


def import_parts(
    source: Source,
    layout: Layout | None = None,
    *,
    rows: NDArray[np.float64] | None = None,
    leaves: str = "auto",
    n_check: int = 10_000,
    seed: int = 0,
) -> Imported:
    """Columns and scorers of a source, compared with it.

    Parameters
    ----------
    rows : (n, n_features) in the model's order, NaN for missing; linear models take their ranges from them
    leaves : "auto", "16" or "31": bits of a leaf
    n_check : rows to compare on: at thresholds, between them, and ``rows`` where given
    seed : of those rows

    Raises
    ------
    InputError
        A feature has too many thresholds, or a linear model no ranges or a bound that is too wide.
    """
    if leaves not in LEAVES:
        raise InputError(f"leaves of {leaves!r} are asked for; {', '.join(LEAVES)} can be had")
    layout = make_layout(source) if layout is None else layout
    dtypes, nullable = [f.dtype for f in layout.features], [f.nullable and source.is_nullable for f in layout.features]
    known = None if rows is None else as_held(rows, dtypes, nullable)
    if source.linear is not None:
        reach = _reach(source, layout, known)
        columns, summed = sum_linear(source, reach, dtypes)
        X = probe_rows((), dtypes, nullable, n_check, seed, known=known, reach=reach)
        trial = _Trial.on(source, layout, columns, as_held(np.clip(X, reach[:, 0], reach[:, 1]), dtypes, nullable))
        return trial.of(summed, TESTED)
    laid = lay(source, dtypes, nullable)
    trial = _Trial.on(
        source, layout, laid.columns, probe_rows(laid.columns, dtypes, nullable, n_check, seed, known=known)
    )
    exact = sum_exactly(source, laid.shapes)
    if exact is not None and leaves != "31":
        return trial.of(exact, _proof(source, exact))
    if leaves != "31":
        short = sum_in_16(source, laid.shapes)
        proof = EVERY if _keeps_all(source, laid.shapes, short) else TESTED
        if leaves == "16" or proof == EVERY or trial.first(SCOUTS).is_fine(short):
            found = trial.of(short, proof)
            if leaves == "16" or found.match.differ == 0:
                return found
    return trial.of(sum_in_31(source, laid.shapes), TESTED)


@dataclass(frozen=True, slots=True)
class _Trial:
    """A source and rows to try it on, with what it says there."""

    source: Source
    layout: Layout
    columns: tuple[Column, ...]
    X: NDArray[np.float64]
    said: NDArray[Any] | None
    exact: NDArray[np.float64]

    @classmethod
    def on(cls, source: Source, layout: Layout, columns: tuple[Column, ...], X: NDArray[np.float64]) -> _Trial:
        said = None if source.predict is None else source.predict(X)
        return cls(source, layout, columns, X, said, reference_scores(source, X))

    def first(self, n: int) -> _Trial:
        said = None if self.said is None else self.said[:n]
        return replace(self, X=self.X[:n], said=said, exact=self.exact[:n])

    def of(self, summed: Summed, proof: str) -> Imported:
        parts = Parts.of(self.source, self.columns, summed)
        program = plain(self.layout.features, self.layout.sensors, parts, len(self.layout.classes))
        match = compare(self.source, summed, program, self.X, self.said, self.exact)
        return Imported(self.source, self.layout, parts, summed, match, proof, self.X)

    def is_fine(self, summed: Summed) -> bool:
        """May no label, or no value beyond ``MAX_VALUE_OFF``, be expected to change?"""
        found = self.of(summed, TESTED)
        if self.source.kind == CLASS:
            return found.match.differ == 0 and found.match.expected <= MAX_EXPECTED
        return found.bound <= MAX_VALUE_OFF * score_size(self.source)


def _proof(source: Source, exact: Summed) -> str:
    """Sums of shares with a power of two below the line are exact in the source too; others to less than a step."""
    parts = int(exact.scale)
    if float_bound(source, np.zeros((1, 1))) * parts >= 0.5:
        return TESTED
    return EVERY if len(source.trees) == 1 or parts & (parts - 1) == 0 else TIES


def _keeps_all(source: Source, shapes: Sequence[Shape], summed: Summed) -> bool:
    """One tree has so many answers as leaves: does each of them keep its label?"""
    if source.kind != CLASS or len(shapes) != 1:
        return False
    tree, ours = source.trees[0], summed.scorers[0]
    assert isinstance(ours, Trees)
    n = len(shapes[0].leaf_of)
    whole = np.tile(np.array(ours.base, dtype=np.int64), (n, 1))
    exact = np.tile(np.array(source.base), (n, 1))
    part = slice(tree.output, tree.output + tree.leaves.shape[1])
    whole[:, part] += np.array(ours.trees[0].leaves, dtype=np.int64).reshape(n, -1)
    exact[:, part] += tree.leaves[shapes[0].leaf_of]
    return bool((labels_of_scores(whole) == labels_of_scores(exact, ties_up=source.ties_up)).all())


def _reach(source: Source, layout: Layout, rows: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Each feature's lowest and highest, (n_features, 2): as the layout says, else as rows show, stretched a little."""
    reach = layout.ranges.copy()
    asked = np.isnan(reach[:, 0])
    if asked.any():
        if rows is None:
            raise InputError(
                f"the {source.name} needs to know the range of its readings; give rows of them, or [range] in the TOML"
            )
        low, high = np.nanmin(rows, axis=0), np.nanmax(rows, axis=0)
        room = (high - low) * WIDER
        found = np.stack([low - room, high + room], axis=1)
        reach[asked] = found[asked]
    return reach
