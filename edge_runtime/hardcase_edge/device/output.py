# SPDX-License-Identifier: Apache-2.0
"""Decision lines on standard output, whose reader may be gone, and notes on standard error, which may be full.

A device goes on deciding when nobody can read it: a line that cannot be written is counted and lost. Both files are
written without buffers, so nothing is left over that Python would try to write when it ends.
"""

from __future__ import annotations

import errno
import os
import sys

from ..base.escape import terminal
from ..errors import InputError, one_line

__all__ = ["Lines", "hold_standard_files", "note", "print_text"]

NO_READER = (errno.EPIPE, errno.EBADF)  # the reader has left, or the file was closed before the start


class Lines:
    """Standard output for decision lines alone: in a ``with`` block, what others print there goes to standard error.

    Parameters
    ----------
    ends_with_reader : whether ``write`` raises BrokenPipeError when the reader has left for good
    """

    def __init__(self, *, ends_with_reader: bool) -> None:
        self._ends_with_reader = ends_with_reader
        self._lost = 0  # lines in a row
        self._is_cut = False  # the file ends within a line

    def __enter__(self) -> Lines:
        self._file, self._stdout = os.dup(1), sys.stdout
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        return self

    def __exit__(self, *_: object) -> None:
        sys.stdout = self._stdout
        os.dup2(self._file, 1)
        os.close(self._file)

    def write(self, line: str) -> bool:
        """Write one line; returns whether it was written whole.

        Raises
        ------
        BrokenPipeError
            The reader has left, and the writer ends with it.
        """
        data = b"\n" * self._is_cut + line.encode() + b"\n"
        at = 0
        try:
            while at < len(data):
                at += os.write(self._file, data[at:])
        except OSError as error:
            if at:
                self._is_cut = data[at - 1 : at] != b"\n"
            self._lose(error)
            return False
        self._is_cut = False
        if self._lost:
            note(f"standard output is written again; {self._lost} decisions were not written")
            self._lost = 0
        return True

    def _lose(self, error: OSError) -> None:
        if error.errno in NO_READER and self._ends_with_reader:
            raise BrokenPipeError from error
        if not self._lost:
            note(f"standard output cannot be written: {error.strerror}; decisions go on")
        self._lost += 1


def note(line: str) -> None:
    """Write one line to standard error; it is lost if that cannot be written."""
    try:
        os.write(2, f"hardcase-edge: {terminal(line)}\n".encode(errors="replace"))
    except OSError:
        return


def print_text(text: str) -> None:
    """Write a whole text to standard output.

    Raises
    ------
    BrokenPipeError
        The reader has left.
    InputError
        The file cannot be written.
    """
    data = text.encode()
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError as error:
        if error.errno in NO_READER:
            raise BrokenPipeError from error
        raise InputError(f"standard output cannot be written: {one_line(error)}; free some space") from error


def hold_standard_files() -> None:
    """Open what stands in for a standard file that was closed before the start, so that no other file gets its number.

    Reading one finds its end, and writing one fails.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)
