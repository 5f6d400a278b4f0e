# SPDX-License-Identifier: Apache-2.0
"""Bounded reads, and paths that may be written: all that is refused is one line that says what to do."""

from __future__ import annotations

import errno
import os
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from hardcase_edge.base.files import HEAD_BYTES, check_replaceable, read_bounded, write_whole
from hardcase_edge.errors import InputError


@pytest.mark.parametrize("size", [0, 7, 8])
def test_a_file_within_the_limit_is_read_whole(tmp_path: Path, size: int) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(b"x" * size)
    assert read_bounded(path, 8, "key", remedy="make one") == b"x" * size


def test_a_small_file_takes_little_memory_whatever_the_limit(tmp_path: Path) -> None:
    """A machine with less memory than the limit of f0's file, 1 GiB, could open none."""
    path = tmp_path / "key.pem"
    path.write_bytes(b"x" * 1000)
    tracemalloc.start()
    try:
        assert len(read_bounded(path, 2**30, "key", remedy="make one")) == 1000
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_file_without_a_size_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "key.pipe"
    os.mkfifo(path)
    with ThreadPoolExecutor(1) as writer:
        writer.submit(path.write_bytes, b"x" * 8)
        assert read_bounded(path, 8, "key", remedy="make one") == b"x" * 8


def test_a_larger_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(b"x" * 9)
    with pytest.raises(InputError) as error:
        read_bounded(path, 8, "key", remedy="make one")
    assert str(error.value) == f"key {path} is larger than 8 bytes; make one"


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read_bounded(tmp_path / "none.pem", 8, "key", remedy="make one")
    assert str(error.value) == f"key {tmp_path / 'none.pem'} cannot be read: No such file or directory; make one"


def is_note(head: bytes) -> bool:
    return head.startswith(b"note")


def test_a_path_is_free_where_nothing_stands_or_an_own_or_empty_file(tmp_path: Path) -> None:
    for name, data in (("own", b"note 1"), ("empty", b"")):
        (tmp_path / name).write_bytes(data)
    for name in ("own", "empty", "absent"):
        check_replaceable(tmp_path / name, "a note", is_note)


def test_another_file_is_named_and_may_be_replaced_by_force_only(tmp_path: Path) -> None:
    path = tmp_path / "wine.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError) as error:
        check_replaceable(path, "a note", is_note)
    assert str(error.value) == (
        f"{path} exists and is not a note; name another file, or replace it with --force (force=True in Python)"
    )
    with pytest.raises(InputError, match=r"wine.csv exists; name another file"):
        check_replaceable(path)
    check_replaceable(path, "a note", is_note, force=True)
    assert path.read_text() == "a,b\n1,2\n"
    with pytest.raises(InputError, match="cannot be written: Is a directory"):
        check_replaceable(tmp_path, force=True)


def test_only_the_head_of_a_large_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(10_000))
    heads: list[bytes] = []
    check_replaceable(tmp_path / "large", "a note", lambda head: not heads.append(head))
    assert heads == [bytes(HEAD_BYTES)]


def test_a_full_disk_is_told_from_a_folder_that_nobody_may_write(tmp_path: Path, monkeypatch) -> None:
    for code, remedy in ((errno.ENOSPC, "free some space"), (errno.EROFS, "choose a writable folder")):
        error = OSError(code, os.strerror(code))
        monkeypatch.setattr(os, "fsync", Mock(side_effect=error))
        with pytest.raises(InputError, match=f"{os.strerror(code)}; {remedy}"):
            write_whole(tmp_path / "x", b"1")
