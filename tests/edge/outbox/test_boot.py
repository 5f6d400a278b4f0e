# SPDX-License-Identifier: Apache-2.0
"""The number of a start: never the same twice, whatever happens to its file."""

from __future__ import annotations

import errno
import os

import pytest

from hardcase_edge.fleet.outbox.opening import MOST_NUMBER, next_boot


def test_the_number_rises_at_each_start_and_is_on_the_disk(tmp_path):
    numbers = [next_boot(tmp_path) for _ in range(4)]
    first = numbers[0][0]
    assert numbers == [(first + k, True) for k in range(4)]
    assert int((tmp_path / "boot").read_text()) == first + 3


@pytest.mark.parametrize(
    "data", [b"", b"x", b"-3", b"0", b"\xff\xfe", b"9" * 400, b"%d" % MOST_NUMBER, b"1.5", b"7" * 31]
)
def test_a_damaged_file_begins_anew_far_from_every_other_number(tmp_path, data):
    (tmp_path / "boot").write_bytes(data)
    (boot, is_written), (again, _) = next_boot(tmp_path), next_boot(tmp_path)
    assert is_written
    assert 2**20 <= boot <= MOST_NUMBER
    assert again == boot + 1


def test_a_new_card_does_not_repeat_the_numbers_of_the_old_one(tmp_path):
    boots = set()
    for k in range(6):
        (tmp_path / str(k)).mkdir()
        boots |= {next_boot(tmp_path / str(k))[0] for _ in range(3)}
    assert len(boots) == 18


def test_where_the_number_cannot_be_written_the_start_has_one_of_its_own(tmp_path, monkeypatch):
    kept = next_boot(tmp_path)[0]

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        (boot, is_written), (other, _) = next_boot(tmp_path), next_boot(tmp_path)
        assert not is_written
        assert len({boot, other, kept}) == 3
    assert next_boot(tmp_path) == (kept + 1, True)
