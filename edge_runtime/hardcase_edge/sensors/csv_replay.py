# SPDX-License-Identifier: Apache-2.0
"""Recorded readings of a CSV file as a source, one row per item, read row by row in bounded memory.

The header names features, or samples of a window as ``SENSOR[0]``, ``SENSOR[1]``, ... ``base/cells.py`` says how cells
are separated and read; the cell of a category is text. A row with too few or too many cells, or of too many characters,
fails every sensor of its item, so rows and items stay in step. A quoted cell may go on over lines; a quote that is not
closed within the characters of a row ends the run, because nobody knows where the next row begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from ..base.cells import LATIN_1, column_names, is_open, number_in, separator_of
from ..base.files import STDIN, close_stream, open_stream
from ..errors import InputError, SensorError
from .bank import Features, Wanted
from .items import BUDGET, SIZE, Item, item_of

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

NO_CSV = {"PK\x03\x04": "an archive such as .npz", "PAR1": "a .parquet file", "ARROW1": "a .feather file"}
MAX_ROW = 4 * 1024 * 1024  # characters: 17 sensors with 6,000 samples each are about 1 M


class Replay:
    """A CSV file as a source.

    Parameters
    ----------
    path : the file; ``-`` and ``/dev/stdin`` read standard input as it comes

    Raises
    ------
    InputError
        The file cannot be read, its first row names no columns, or it names one twice.
    """

    is_instant = True  # ``next_item`` has read the row

    def __init__(self, path: str | Path) -> None:
        self._path, what = STDIN if str(path) == "-" else str(path), f"replay file {path}"
        try:
            self._lines: _Lines = open_stream(self._path, "replay", lambda: _Lines(_opened(self._path), what))
        except OSError as error:
            raise InputError(f"replay file {path} cannot be read: {error.strerror}") from error
        try:
            header = self._lines.header()
            if kind := next((kind for head, kind in NO_CSV.items() if header.startswith(head)), ""):
                raise InputError(f"replay file {path} is {kind} and no CSV; write its table as .csv")
            self._separator = separator_of(header)
            self._rows_of_file = _rows(self._lines, self._separator)
            cells = next(_rows(iter([header]), self._separator), [])
        except InputError:
            self.close()
            raise
        if not cells:
            self.close()
            raise InputError(f"replay file {path} has no header; its first row must name features")
        names = column_names(cells)
        if len(set(names)) != len(names):
            self.close()
            duplicate = next(name for name in names if names.count(name) > 1)
            raise InputError(f"replay file {path} names column {duplicate[:80]!r} twice; rename one")
        self._at = {name: k for k, name in enumerate(names)}
        self._columns: dict[str, tuple[list[tuple[int, bool]], bool]] = {}  # of a sensor, as ``lacks`` found them
        self._cells: list[str] | None = None
        self._item_columns: dict[str, int] = {}
        self._largest_item = 1

    def lacks(self, wanted: Wanted) -> str:
        """Why the file cannot serve this sensor, or empty text if it can."""
        has_features = all(name in self._at for name in wanted.features)
        names = list(wanted.features)
        if wanted.window and not has_features:
            names = [f"{wanted.name}[{k}]" for k in range(wanted.window)]
            if f"{wanted.name}[{wanted.window}]" in self._at:
                return f"replay file {self._path} has more than the {wanted.window} samples of sensor {wanted.name}"
        for name in names:
            if name not in self._at:
                return f"replay file {self._path} has no column {name!r}, which sensor {wanted.name} needs"
        are_texts = [bool(codes) for codes in wanted.categories] or [False] * len(names)
        self._columns[wanted.name] = list(zip(map(self._at.__getitem__, names), are_texts, strict=True)), has_features
        return ""

    def has_items(self, largest: int, features: Collection[str]) -> bool:
        """Whether columns ``item_size`` or ``budget`` say what each row's item is; a feature's column does not."""
        self._largest_item = largest
        self._item_columns = {n: self._at[n] for n in (SIZE, BUDGET) if n in self._at and n not in features}
        return bool(self._item_columns)

    @property
    def item(self) -> Item:
        """What the current row says of its item; an empty cell stands for the run's own."""
        if self._cells is None:
            return Item(None, None)
        cells = {n: self._cells[k].strip() for n, k in self._item_columns.items()}
        size, budget = (_number_or_text(cells.get(name, ""), self._separator) for name in (SIZE, BUDGET))
        return item_of(size, budget, self._largest_item)

    def has_column(self, name: str) -> bool:
        """Whether the file has a column of this name."""
        return name in self._at

    def cell(self, name: str) -> str:
        """The current row's cell in this column; empty if the row cannot be read."""
        return "" if self._cells is None else self._cells[self._at[name]]

    def next_item(self) -> bool:
        """Read the next row; False at the end of the file.

        Raises
        ------
        InputError
            A quote is not closed.
        """
        try:
            row = next(self._rows_of_file, None)
        except InputError:
            self.close()
            raise
        if row is None:
            self.close()
            return False
        self._cells = row if len(row) == len(self._at) else None
        return True

    def read(self, sensor: str) -> object:
        """The current row's values of one sensor."""
        if self._cells is None:
            raise SensorError("bad_row", f"a row and the header of replay file {self._path} differ in length")
        columns, are_features = self._columns[sensor]
        values = [self._cells[k] if is_text else _value(self._cells[k], self._separator) for k, is_text in columns]
        return Features(values) if are_features else values

    def close(self) -> None:
        """Close the file."""
        close_stream(self._lines)


def _opened(path: str) -> TextIO:
    return open(path, encoding="utf-8-sig", errors=LATIN_1, newline="")


class _Lines:
    """The lines of a file for ``csv.reader``, which asks for one more while a quote is open; blank ones between rows
    are left out, and a blank one takes the place of a row that is too long.

    Parameters
    ----------
    file : the file, opened with ``newline=""``
    what : what error messages call it
    """

    def __init__(self, file: TextIO, what: str) -> None:
        self._file, self._what, self._header = file, what, ""
        self._n = self._line = self._first = 0
        self.ahead: list[str] | None = None  # a row that was read and not used yet
        self.close = file.close

    def __iter__(self) -> _Lines:
        return self

    def begin(self) -> None:
        """A row has ended: the next line begins another one."""
        self._n = 0

    def header(self) -> str:
        """The first row that is not blank, as it stands in the file; empty if there is none."""
        if not self._header:
            text, is_within = [next(self, "")], False
            while is_within := is_open(text[-1], is_within):
                text.append(next(self))
            self._header = "".join(text)
        return self._header

    def __next__(self) -> str:
        """The next line; an ``InputError`` if a row is open and has no end."""
        while not self._file.closed and (line := self._file.readline(MAX_ROW)):
            self._line += 1
            if not self._n:
                if not line.strip():
                    continue
                self._first = self._line
            is_first, self._n = self._n == 0, self._n + len(line)
            if self._n <= MAX_ROW and (line.endswith(("\n", "\r")) or len(line) < MAX_ROW):
                return line
            if not is_first or is_open(line):
                raise self._endless(f"within {MAX_ROW} characters")
            while line and not line.endswith(("\n", "\r")):  # skip the rest of the line, in pieces
                line = self._file.readline(MAX_ROW)
            return "\n"
        if self._n:
            raise self._endless("at its end")
        raise StopIteration

    def _endless(self, where: str) -> InputError:
        return InputError(
            f"{self._what} has a quote in the row of line {self._first} that is not closed {where}; close it"
        )


def _rows(lines: Iterator[str], separator: str) -> Iterator[list[str]]:
    """The cells of each row, read as in training; none where it is too long."""
    import csv

    csv.field_size_limit(MAX_ROW)  # its default is less than the samples of a row may have
    reader = csv.reader(lines, delimiter=separator)
    while True:
        if isinstance(lines, _Lines):
            lines.begin()
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield []


def _number_or_text(cell: str, separator: str) -> object:
    try:
        return number_in(cell, separator) if cell else None
    except ValueError:
        return cell


def _value(cell: str, separator: str) -> float | None:
    try:
        return number_in(cell, separator)
    except ValueError as error:
        raise SensorError("not_a_number", f"cell {cell[:80]!r} is not a number") from error
