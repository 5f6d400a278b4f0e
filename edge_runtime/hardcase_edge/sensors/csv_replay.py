# SPDX-License-Identifier: Apache-2.0
"""Recorded readings of a CSV file as a source, one row per item, read row by row in bounded memory.

The header names features, or samples of a window as ``SENSOR[0]``, ``SENSOR[1]``, ... An empty cell is a missing
reading. A row with too few or too many cells, or of too many characters, fails every sensor of its item, so rows and
items stay in step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from ..errors import InputError, SensorError
from .bank import Features, Wanted

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Replay"]

MAX_LINE = 4 * 1024 * 1024  # characters: 17 sensors with 6,000 samples each are about 1 M


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
        self._path = "/dev/stdin" if str(path) == "-" else str(path)
        try:
            self._file: TextIO = open(self._path, encoding="utf-8-sig", errors="replace")  # noqa: SIM115
        except OSError as error:
            raise InputError(f"replay file {path} cannot be read: {error.strerror}") from error
        self._rows = _rows(self._file)
        header = next(self._rows, None)
        if not header:
            self.close()
            raise InputError(f"replay file {path} has no header; its first row must name features")
        names = [name.strip() for name in header]
        if len(set(names)) != len(names):
            self.close()
            duplicate = next(name for name in names if names.count(name) > 1)
            raise InputError(f"replay file {path} names column {duplicate[:80]!r} twice")
        self._at = {name: k for k, name in enumerate(names)}
        self._columns: dict[str, tuple[list[int], bool]] = {}  # of a sensor: its cells, and whether they are features
        self._cells: list[str] | None = None

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
        self._columns[wanted.name] = [self._at[name] for name in names], has_features
        return ""

    def next_item(self) -> bool:
        """Read the next row; False at the end of the file."""
        row = next(self._rows, None)
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
        values = [_value(self._cells[k]) for k in columns]
        return Features(values) if are_features else values

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _rows(file: TextIO) -> Iterator[list[str]]:
    """Yield the cells of each line that is not blank; no cells for a line that is too long."""
    import csv

    csv.field_size_limit(MAX_LINE)
    while not file.closed and (line := file.readline(MAX_LINE)):
        if line.endswith("\n") or len(line) < MAX_LINE:
            if line.strip():
                yield _cells(line)
            continue
        while line and not line.endswith("\n"):  # skip the rest of the line, in pieces
            line = file.readline(MAX_LINE)
        yield []


def _cells(line: str) -> list[str]:
    import csv

    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return []


def _value(cell: str) -> float | None:
    text = cell.strip()
    if not text:
        return None
    try:
        return float(text if "_" not in text else "not a number")
    except ValueError as error:
        raise SensorError("not_a_number", f"cell {cell[:80]!r} is not a number") from error
