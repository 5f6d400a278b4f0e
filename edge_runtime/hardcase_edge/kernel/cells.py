# SPDX-License-Identifier: Apache-2.0
"""The cells of an image: where a kernel's session stores codes, and how a reading becomes a code.

A cell holds one column in the form that one kind of scorer reads. A *small* cell is a byte, counted from 1, for trees
whose columns have few values; a *wide* cell has 16 bits, for polynomials and all other trees. A cell stores a missing
reading either as less than every code (*left*) or as more than every code (*right*), so that one comparison decides a
step in a tree. Only cells that some scorer reads exist. Where a cell stores other numbers than the program's codes, the
thresholds of trees are translated too: ``Cells.split`` gives the cell and the threshold that a node compares with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..base.record import record
from ..program.definition import CODE_MAX, Affine, Program, Rank
from ..program.format import to_keys
from ..program.readings import DTYPES
from .layout import COLUMN, RULE
from .sections import Sections

SMALL_CELLS = 256  # a tree names a small cell by one byte
SMALL_VALUES = 254  # 1 to 254; 0 and 255 stand for missing


@record(frozen=True, slots=True)
class Cell:
    """A column in the form that scorers of one kind read.

    ``is_right``: missing is more than every code. ``is_exact``: a wide cell that holds the program's own code, for
    polynomials.
    """

    column: int
    is_wide: bool
    is_right: bool
    is_exact: bool = False

    def is_as(self, other: Cell) -> bool:
        """Whether both cells hold equal codes for every reading that is not missing."""
        return (self.column, self.is_wide, self.is_exact) == (other.column, other.is_wide, other.is_exact)


class Cells:
    """All cells of a program: first announce every scorer by ``want_...``, then call ``number``, then ask for cells."""

    def __init__(self, program: Program) -> None:
        self._p = program
        self._exact: set[int] = set()
        self._small: set[tuple[int, bool]] = set()
        self._wide: set[tuple[int, bool]] = set()
        self._number: dict[Cell, int] = {}
        self._translations: dict[tuple[int, bool, bool], tuple[int, Callable[[int], int]]] = {}
        self.columns: list[Cell] = []

    # ------------------------------------------------------------ what scorers read

    def want_polynomial(self, columns: tuple[int, ...]) -> None:
        """Announce the columns that a polynomial reads."""
        self._exact.update(columns)

    def want_trees(self, splits: set[tuple[int, bool]]) -> bool:
        """Announce what an ensemble reads: pairs of a column and whether missing goes right.

        Returns whether the ensemble's cells are small.
        """
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
        """Give every announced cell its number, small and wide cells separately, each with left cells first."""
        cells = [Cell(c, True, False, True) for c in self._exact]
        cells += [Cell(c, False, right) for c, right in self._small]
        cells += [Cell(c, True, right) for c, right in self._wide]
        by_feature: dict[int, list[Cell]] = {}
        for cell in sorted(cells, key=lambda c: (c.column, c.is_wide, c.is_exact, c.is_right)):
            by_feature.setdefault(self._p.columns[cell.column].feature, []).append(cell)
        self._by_feature = by_feature
        self.columns = [c for s in self._p.sensors for f in s.features for c in by_feature.get(f, [])]
        counts = []
        for is_wide in (False, True):
            of_width = [c for c in self.columns if c.is_wide == is_wide]
            of_width.sort(key=lambda c: c.is_right)  # a stable sort: otherwise cells keep the order of feeding
            self._number.update((c, k) for k, c in enumerate(of_width))
            counts += [sum(not c.is_right for c in of_width), len(of_width)]
        self.counts: tuple[int, ...] = tuple(counts)  # small left, all small, wide left, all wide

    def wide(self, column: int) -> int:
        """The number of the cell that a polynomial reads for this column."""
        return self._number[Cell(column, True, False, True)]

    def split(self, column: int, threshold: int, is_right: bool, is_small: bool) -> tuple[int, int]:
        """Cell number and threshold of a tree's node: a row goes right if the cell is above the threshold."""
        kind = column, is_right, is_small
        if kind not in self._translations:
            cell = self._number[Cell(column, not is_small, is_right)]
            self._translations[kind] = cell, self._thresholds(column, is_small)
        cell, translate = self._translations[kind]
        return cell, translate(threshold)

    # ------------------------------------------------------------ rules

    def _is_direct(self, column: int) -> bool:
        """Whether the clipped reading itself can stand for its rank: an i32 whose thresholds lie close together."""
        feature, rule = self._p.columns[column].feature, self._p.columns[column].rule
        if self._p.features[feature].dtype != "i32" or not isinstance(rule, Rank):
            return False
        return bool(rule.thresholds) and self._span(column) < (
            SMALL_VALUES if len(rule.thresholds) < SMALL_VALUES else 65_534
        )

    def _span(self, column: int) -> int:
        rule = self._p.columns[column].rule
        assert isinstance(rule, Rank)
        return int(rule.thresholds[-1]) - int(rule.thresholds[0]) + 1

    def _thresholds(self, column: int, is_small: bool) -> Callable[[int], int]:
        """The function from a threshold on the program's codes to the threshold on the cell's numbers."""
        rule = self._p.columns[column].rule
        if isinstance(rule, Affine):
            below_low = rule.low - 1
            return (lambda t: max(0, min(SMALL_VALUES, t - below_low))) if is_small else int
        is_direct = self._is_direct(column)
        if not is_small and not is_direct:
            return int
        highest = SMALL_VALUES if is_small else CODE_MAX - 1
        lowest = 1 if is_small else -CODE_MAX
        offsets: Sequence[int] = range(len(rule.thresholds))
        if is_direct:
            offsets = [int(t) - int(rule.thresholds[0]) for t in rule.thresholds]

        def translate(threshold: int) -> int:
            rank = threshold + CODE_MAX  # a reading goes left if at most this many thresholds are below it
            return offsets[rank] + lowest if rank < len(offsets) else highest

        return translate

    def records(self, feature: int, at_reading: int, out: Sections) -> list[bytes]:
        """The column records in the image of the cells that a reading of this feature fills, in order.

        ``at_reading`` is the offset in bytes of the reading among its sensor's readings, at most ``MAX_READING_BYTES``.
        """
        records: list[bytes] = []
        before: Cell | None = None
        for cell in self._by_feature.get(feature, []):
            rule = (RULE.COPY, 0, 0) if before is not None and before.is_as(cell) else self._rule(cell, out)
            kind, a, b = rule
            flags = cell.is_wide | DTYPES[self._p.features[feature].dtype].number << 1
            records.append(
                COLUMN.pack(
                    rule=kind, flags=flags, cell=self._number[cell], a=a & 0xFFFF_FFFF, b=b, reading=at_reading // 4
                )
            )
            before = cell
        return records

    def _rule(self, cell: Cell, out: Sections) -> tuple[int, int, int]:
        """How a reading becomes the cell's number: the kind of the rule, and its two numbers."""
        column = self._p.columns[cell.column]
        rule, dtype = column.rule, self._p.features[column.feature].dtype
        if isinstance(rule, Affine):
            return RULE.AFFINE, out.i64([rule.frac, rule.mul, rule.add, rule.shift, rule.low, rule.high]), 0
        if self._is_direct(cell.column) and not cell.is_exact:
            return RULE.DIRECT, int(rule.thresholds[0]), self._span(cell.column)
        keys = to_keys(rule.thresholds, dtype)
        return RULE.RANK, out.i64(keys) if dtype == "f64" else out.i32(keys), len(keys)


class Splits(dict[tuple[int, int, bool], tuple[int, int]]):
    """Cell and threshold of a tree's node, remembered by (column, threshold, missing left): many nodes are equal."""

    def __init__(self, cells: Cells, is_small: bool) -> None:
        super().__init__()
        self._cells = cells
        self._is_small = is_small

    def __missing__(self, node: tuple[int, int, bool]) -> tuple[int, int]:
        column, threshold, missing_left = node
        self[node] = split = self._cells.split(column, threshold, not missing_left, self._is_small)
        return split
