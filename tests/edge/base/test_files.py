# SPDX-License-Identifier: Apache-2.0
"""Bounded reads: a file within its limit comes whole, and everything else is one line that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from hardcase_edge.base.files import read_bounded
from hardcase_edge.errors import InputError


@pytest.mark.parametrize("size", [0, 7, 8])
def test_a_file_within_the_limit_is_read_whole(tmp_path: Path, size: int) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(b"x" * size)
    assert read_bounded(path, 8, "key", remedy="make one") == b"x" * size


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
