# SPDX-License-Identifier: Apache-2.0
"""The journal of an authority: one line for each entry, appended and flushed before anybody hears of it.

Runs and workers that share a journal take turns by a lock, and each reads what the others have appended. A last line
that a power cut has left without its end was promised to nobody, and is removed.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hardcase_edge.errors import InputError

from .book import Book, Entry

MAX_BYTES = 1024 * 1024 * 1024  # some 800,000 certificates


class Journal:
    """The entries in a file, which exists.

    ``book`` has what was read; it is up to date within ``locked``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.book = Book()
        self._read_to = 0  # bytes of the file that are in the book

    @contextmanager
    def locked(self) -> Iterator[Book]:
        """The book, up to date, which nobody else changes meanwhile.

        Raises
        ------
        InputError
            The file cannot be read or written, or a line of it is damaged.
        """
        try:
            file = os.open(self.path, os.O_RDWR)
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be opened: {error.strerror}; name an authority of hardcase ca init"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._read(file)
            yield self.book
        finally:
            os.close(file)

    def append(self, entry: Entry) -> None:
        """Write an entry, within ``locked``; it is on the disk when this returns.

        Raises
        ------
        InputError
            The disk is full or cannot be written: the entry does not exist.
        """
        line = json.dumps(entry.to_json(), sort_keys=True).encode() + b"\n"
        try:
            file = os.open(self.path, os.O_WRONLY)
            try:
                self._write(file, line)
            finally:
                os.close(file)
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {error.strerror}; make room on its disk") from error
        self.book.add(entry)
        self._read_to += len(line)

    def _write(self, file: int, line: bytes) -> None:
        """Append a whole line and flush it, or leave the file as it was."""
        try:
            os.lseek(file, self._read_to, os.SEEK_SET)
            left = memoryview(line)
            while left:
                left = left[os.write(file, left) :]
            os.fsync(file)
        except OSError:
            os.ftruncate(file, self._read_to)
            raise

    def _read(self, file: int) -> None:
        """Read what others have appended, and cut off a line without an end."""
        if os.fstat(file).st_size > MAX_BYTES:
            raise InputError(f"{self.path} is larger than {MAX_BYTES} bytes; begin a new authority")
        os.lseek(file, self._read_to, os.SEEK_SET)
        with os.fdopen(os.dup(file), "rb") as lines:
            for number, line in enumerate(lines, len(self.book.entries) + 1):
                if not line.endswith(b"\n"):
                    os.ftruncate(file, self._read_to)
                    return
                self.book.add(self._entry(line, number))
                self._read_to += len(line)

    def _entry(self, line: bytes, number: int) -> Entry:
        try:
            return Entry.from_json(json.loads(line))
        except (ValueError, TypeError, RecursionError) as error:
            raise InputError(f"{self.path}, line {number}, is damaged; restore the file from a copy") from error
