"""Cells: where a session keeps codes, and how a reading becomes one.

A cell is one column as one kind of reader wants it: *small* (a byte, counted from 1) for trees whose columns have few
values, *wide* (16 bits) for polynomials and all other trees; and missing as less than everything (*left*) or more
than everything (*right*), so that a step in a tree is one comparison. Only cells that are read exist. A threshold of
a tree moves with its cell: ``threshold`` says which one means the same there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from ..base.record import record
from ..errors import ImageError
from ..program.definition import CODE_MAX, Affine, Program, Rank
from ..program.format import to_key
from ..program.readings import DTYPES
from .sections import Sections

__all__ = ["SMALL_CELLS", "SMALL_VALUES", "Cell", "Cells", "Splits"]

SMALL_CELLS = 256  # a tree names one in a byte
SMALL_VALUES = 254  # 1 to 254; 0 and 255 are missing
AFFINE, RANK, DIRECT, COPY = range(4)


@record(frozen=True, slots=True)
class Cell:
    """A column as its readers want it. ``is_exact``: its wide code is the program's own (a polynomial reads it)."""

    column: int
    is_wide: bool
    is_right: bool
    is_exact: bool = False

    def is_as(self, other: Cell) -> bool:
        """Whether both hold the same codes, but for what is missing."""
        mine, its = (self.column, self.is_wide, self.is_exact), (other.column, other.is_wide, other.is_exact)
        return mine == its


class Cells:
    """All cells of a program; ``want`` first, then ``number``."""

    def __init__(self, program: Program) -> None:
        self._p = program
        self._exact: set[int] = set()
        self._small: set[tuple[int, bool]] = set()
        self._wide: set[tuple[int, bool]] = set()
        self._number: dict[Cell, int] = {}
        self._moved: dict[tuple[int, bool, bool], tuple[int, Callable[[int], int]]] = {}
        self.columns: list[Cell] = []

    # ------------------------------------------------------------ wanting

    def want_polynomial(self, columns: tuple[int, ...]) -> None:
        """A polynomial reads these columns."""
        self._exact.update(columns)

    def want_trees(self, splits: set[tuple[int, bool]]) -> bool:
        """Trees read these columns, each with missing to the left (False) or right; whether they are small."""
        is_small = all(self.n_values(c) <= SMALL_VALUES for c, _ in splits) and len(self._small | splits) <= SMALL_CELLS
        (self._small if is_small else self._wide).update(splits)
        return is_small

    def n_values(self, column: int) -> int:
        """How many values a column can take."""
        rule = self._p.columns[column].rule
        if isinstance(rule, Affine):
            return rule.high - rule.low + 1
        return (self._span(column) if self._is_direct(column) else len(rule.thresholds)) + 1

    # ------------------------------------------------------------ numbers

    def number(self) -> None:
        """Give every wanted cell its number: those with missing to the left first, small and wide for themselves."""
        wanted = [Cell(c, True, False, True) for c in self._exact]
        wanted += [Cell(c, False, right) for c, right in self._small]
        wanted += [Cell(c, True, right) for c, right in self._wide]
        by_feature: dict[int, list[Cell]] = {}
        for cell in sorted(wanted, key=lambda c: (c.column, c.is_wide, c.is_exact, c.is_right)):
            by_feature.setdefault(self._p.columns[cell.column].feature, []).append(cell)
        self._by_feature = by_feature
        self.columns = [c for s in self._p.sensors for f in s.features for c in by_feature.get(f, [])]
        counts = []
        for is_wide in (False, True):
            ours = [c for c in self.columns if c.is_wide == is_wide]
            ours.sort(key=lambda c: c.is_right)  # stable: else in the order in which they are fed
            self._number.update((c, k) for k, c in enumerate(ours))
            counts += [sum(not c.is_right for c in ours), len(ours)]
        self.counts: tuple[int, ...] = tuple(counts)  # small left, small, wide left, wide

    def of_feature(self, feature: int) -> list[Cell]:
        """Cells that a reading of this feature fills, in order."""
        return self._by_feature.get(feature, [])

    def wide(self, column: int) -> int:
        """The cell that a polynomial reads."""
        return self._number[Cell(column, True, False, True)]

    def split(self, column: int, threshold: int, is_right: bool, is_small: bool) -> tuple[int, int]:
        """Cell and threshold of a tree's node: right is where the cell is above that threshold."""
        kind = column, is_right, is_small
        if kind not in self._moved:
            self._moved[kind] = self._number[Cell(column, not is_small, is_right)], self._thresholds(column, is_small)
        cell, move = self._moved[kind]
        return cell, move(threshold)

    # ------------------------------------------------------------ rules

    def _is_direct(self, column: int) -> bool:
        """An i32 feature's thresholds lie so close together that the reading itself, cut off, orders as its rank."""
        column_ = self._p.columns[column]
        if self._p.features[column_.feature].dtype != "i32" or not isinstance(column_.rule, Rank):
            return False
        return bool(column_.rule.thresholds) and self._span(column) < (
            SMALL_VALUES if len(column_.rule.thresholds) < SMALL_VALUES else 65_534
        )

    def _span(self, column: int) -> int:
        rule = self._p.columns[column].rule
        assert isinstance(rule, Rank)
        return int(rule.thresholds[-1]) - int(rule.thresholds[0]) + 1

    def _thresholds(self, column: int, is_small: bool) -> Callable[[int], int]:
        rule = self._p.columns[column].rule
        if isinstance(rule, Affine):
            least = rule.low - 1
            return (lambda t: max(0, min(SMALL_VALUES, t - least))) if is_small else int
        is_direct = self._is_direct(column)
        if not is_small and not is_direct:
            return int
        most = SMALL_VALUES if is_small else CODE_MAX - 1
        least = 1 if is_small else -CODE_MAX
        above: Sequence[int] = range(len(rule.thresholds))
        if is_direct:
            above = [int(t) - int(rule.thresholds[0]) for t in rule.thresholds]

        def move(threshold: int) -> int:
            rank = threshold + CODE_MAX  # left are those with at most so many thresholds below
            return above[rank] + least if rank < len(above) else most

        return move

    def record(self, cell: Cell, at_reading: int, out: Sections) -> bytes:
        """The column's record of an image; ``at_reading``: where its reading lies among its sensor's, in bytes."""
        column = self._p.columns[cell.column]
        rule, dtype = column.rule, self._p.features[column.feature].dtype
        if at_reading // 4 > 0xFFFF:
            raise ImageError(
                f"column {cell.column} reads at byte {at_reading} of its sensor's readings, at most 262140 do"
            )

        def made(kind: int, a: int, b: int) -> bytes:
            flags = cell.is_wide | 2 * DTYPES[dtype].number
            return struct.pack("<BBHIHH", kind, flags, self._number[cell], a & 0xFFFF_FFFF, b, at_reading // 4)

        before = self.of_feature(column.feature)
        k = before.index(cell)
        if k > 0 and before[k - 1].is_as(cell):
            return made(COPY, 0, 0)
        if isinstance(rule, Affine):
            return made(AFFINE, out.i64([rule.frac, rule.mul, rule.add, rule.shift, rule.low, rule.high]), 0)
        if self._is_direct(cell.column) and not cell.is_exact:
            return made(DIRECT, int(rule.thresholds[0]), self._span(cell.column))
        keys = [to_key(t, dtype) for t in rule.thresholds]
        return made(RANK, out.i64(keys) if dtype == "f64" else out.i32(keys), len(keys))


class Splits(dict[tuple[int, int, bool], tuple[int, int]]):
    """Cell and threshold of nodes, by column, threshold and whether missing goes left: many nodes are alike."""

    def __init__(self, cells: Cells, is_small: bool) -> None:
        super().__init__()
        self._cells = cells
        self._is_small = is_small

    def __missing__(self, node: tuple[int, int, bool]) -> tuple[int, int]:
        column, threshold, missing_left = node
        self[node] = found = self._cells.split(column, threshold, not missing_left, self._is_small)
        return found
