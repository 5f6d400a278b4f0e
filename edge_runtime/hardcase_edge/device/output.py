# SPDX-License-Identifier: Apache-2.0
"""Decision lines on standard output, whose reader may be gone, and notes on standard error, which may be full.

A device goes on deciding when nobody can read it: a line that cannot be written is counted and lost. Both files are
written without buffers, so nothing is left over that Python would try to write when it ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable
from time import monotonic

from ..base.escape import terminal
from ..errors import InputError, one_line

PIPE_BYTES = 4_096  # what a pipe that can be written takes at once, on Linux and by POSIX at least 512
BLOCKED_S = 1.0  # after this time, a write that has not come to its end waits for a reader who does not read


class Lines:
    """Standard output for decision lines alone: in a ``with`` block, what others print there goes to standard error.

    Parameters
    ----------
    ends_with_reader : whether ``write`` raises an error when the reader has left for good
    is_last : whether standard output stays where it is behind the block, because the process ends there: what a plug-in
        has printed into a buffer, and what it prints when it ends, is not among the decisions either
    tell : called with each line for the log; None: ``note``
    """

    def __init__(
        self, *, ends_with_reader: bool, is_last: bool = False, tell: Callable[[str], None] | None = None
    ) -> None:
        self._tell = tell or note
        self._ends_with_reader = ends_with_reader
        self.is_last = is_last
        self._lost = 0  # lines in a row
        self._is_cut = False  # the file ends within a line
        self._since: float | None = None  # when the write under way began

    def __enter__(self) -> Lines:
        from ..base.printing import print_to_stderr

        self._file, self._streams = os.dup(1), (sys.stdout, sys.stderr)
        self._is_cut = _ends_within_a_line(self._file)
        os.dup2(2, 1)
        print_to_stderr()
        return self

    def __exit__(self, *_: object) -> None:
        if self._lost:
            self._tell(f"the last {self._lost} decisions were not written")
        with contextlib.suppress(OSError):  # a plug-in may have closed it
            if not self.is_last:
                sys.stdout, sys.stderr = self._streams
                os.dup2(self._file, 1)
            os.close(self._file)

    def write(self, line: str) -> bool:
        """Write one line; returns whether it was written whole.

        Raises
        ------
        BrokenPipeError
            The reader has left, and the writer ends with it.
        InputError
            Standard output was closed before the start, and the writer needs a reader.
        """
        data = b"\n" * self._is_cut + line.encode() + b"\n"
        at = 0
        self._since = monotonic()
        try:
            while at < len(data):
                at += os.write(self._file, data[at:])
        except OSError as error:
            if at:
                self._is_cut = data[at - 1 : at] != b"\n"
            self._lose(error)
            return False
        finally:
            self._since = None
        self._is_cut = False
        if self._lost:
            self._tell(f"standard output is written again; {self._lost} decisions were not written")
            self._lost = 0
        return True

    def give_up(self) -> None:
        """End a write that is blocked, by an exception that ``write`` counts as a lost line; for signal handlers."""
        if self._since is not None and monotonic() - self._since >= BLOCKED_S:
            self._since = None
            raise InterruptedError(errno.EINTR, "its reader does not read")

    def _lose(self, error: OSError) -> None:
        if self._ends_with_reader:
            _raise_if_nobody_reads(error)
        if not self._lost:
            self._tell(f"standard output cannot be written: {error.strerror}; decisions go on")
        self._lost += 1


def note(line: str) -> None:
    """Write one line to standard error; it is lost if that cannot be written now, because a log must hold nobody up."""
    data = f"hardcase-edge: {terminal(line)}\n".encode(errors="replace")
    if len(data) > PIPE_BYTES:
        data = data[: PIPE_BYTES - 1] + b"\n"
    with contextlib.suppress(OSError):
        _write_now(2, data)


def _write_now(file: int, data: bytes) -> None:
    """Write at most ``PIPE_BYTES`` without waiting for a reader; nothing is written if one would have to be waited for.

    Raises
    ------
    OSError
        The file cannot be written, or not now.
    """
    import stat

    if stat.S_ISFIFO(os.fstat(file).st_mode):
        with contextlib.suppress(PermissionError, FileNotFoundError):  # a pipe of another user's, or no /dev/fd
            own = os.open(f"/dev/fd/{file}", os.O_WRONLY | os.O_NONBLOCK)  # for nobody else that writes to this pipe
            try:
                os.write(own, data)
            finally:
                os.close(own)
            return
    if _takes_now(file):
        os.write(file, data)


def _takes_now(file: int) -> bool:
    """Whether a short write does not wait for a reader; of a pipe, whether a page of it is free."""
    import select

    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    poll.register(file, select.POLLOUT)
    return bool(poll.poll(0))


def print_text(text: str) -> None:
    """Write a whole text to standard output.

    Raises
    ------
    BrokenPipeError
        The reader has left.
    InputError
        The file cannot be written, or was closed before the start.
    """
    data = text.encode()
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError as error:
        _raise_if_nobody_reads(error)
        raise InputError(f"standard output cannot be written: {one_line(error)}; free some space") from error


def _raise_if_nobody_reads(error: OSError) -> None:
    if error.errno == errno.EPIPE:
        raise BrokenPipeError from error
    if error.errno == errno.EBADF:
        raise InputError("standard output is closed, and nobody else can read what is said; open it") from error


def _ends_within_a_line(file: int) -> bool:
    """Whether the next byte of a regular file would continue a line that an earlier run could not write whole."""
    try:
        at = (
            os.lseek(file, 0, os.SEEK_CUR) or os.fstat(file).st_size
        )  # a file for appending is at 0 until it is written
        reader = os.open(f"/dev/fd/{file}", os.O_RDONLY)
    except OSError:
        return False  # not a regular file, or not for us to read
    try:
        return at > 0 and os.pread(reader, 1, at - 1) not in (b"\n", b"")
    finally:
        os.close(reader)


def hold_standard_files() -> None:
    """Open what stands in for a standard file that was closed before the start, so that no other file gets its number.

    Reading one finds its end, and writing one fails.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)
