# SPDX-License-Identifier: Apache-2.0
"""The outbox on the disk: whole groups or nothing, bounded, and never trusted."""

from __future__ import annotations

import os
import random
import sqlite3
from contextlib import closing

import pytest

from hardcase_edge.fleet.outbox import file as outbox_file
from hardcase_edge.fleet.outbox.file import OVERHEAD, DamagedError, RecordFile
from hardcase_edge.settings.values import OLDEST_FIRST, SAMPLE
from tests.helpers.edge.outbox import make_made

PAYLOAD = b"x" * (1000 - OVERHEAD)
LIMIT = 100_000


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Of a file that flushes nothing, for the tests that cut no power."""
    monkeypatch.setattr(outbox_file, "SETTINGS", [s.replace("FULL", "OFF") for s in outbox_file.SETTINGS])
    return tmp_path / "outbox.sqlite"


def sequences(file: RecordFile) -> list[int]:
    rows, bad = file.after(0, 10**6)
    assert not bad
    return [row.record.sequence for row in rows]


def test_what_is_committed_is_there_again_in_order(path):
    file = RecordFile(path, LIMIT, OLDEST_FIRST)
    made = [make_made(5, 2, 7.0, b"a"), make_made(1, 9, None, b"b"), make_made(3, 2, 8.5, b"c")]
    assert file.commit(made, []) == 0
    assert file.commit([make_made(4)], [2]) == 0
    file.close()
    again = RecordFile(path, LIMIT, OLDEST_FIRST)
    rows, bad = again.after(0, 10)
    assert ([row.id for row in rows], [row.record for row in rows]) == ([1, 3, 4], [made[0], made[2], make_made(4)])
    assert (bad, again.waiting, again.last_id, again.bytes) == ([], 3, 4, 3 * OVERHEAD + 4)
    assert again.after(3, 1)[0] == rows[2:]


def test_the_outbox_flushes_before_a_commit_counts(tmp_path):
    file = RecordFile(tmp_path / "outbox.sqlite", LIMIT, OLDEST_FIRST)
    settings = [file._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert settings == [b"wal", 2], "2 is FULL; 1, NORMAL, loses commits at a power cut"


@pytest.mark.parametrize("was_there", [False, True])
def test_nobody_but_its_owner_reads_it_whatever_the_umask(tmp_path, was_there):
    """Audits have readings."""
    path = tmp_path / "outbox.sqlite"
    if was_there:
        RecordFile(path, LIMIT, OLDEST_FIRST).close()
        path.chmod(0o664)
    before = os.umask(0o022)
    try:
        file = RecordFile(path, LIMIT, OLDEST_FIRST)
        file.commit([make_made(2)], [])
        assert {p.name: p.stat().st_mode & 0o777 for p in tmp_path.iterdir()} == {
            "outbox.sqlite": 0o600, "outbox.sqlite-wal": 0o600,
        }  # fmt: skip
        file.close()
    finally:
        os.umask(before)


def test_two_cannot_use_one_file(path):
    first = RecordFile(path, LIMIT, OLDEST_FIRST)
    first.commit([make_made(2)], [])
    with pytest.raises(OSError, match="locked"):
        RecordFile(path, LIMIT, OLDEST_FIRST)


def test_the_oldest_go_first_when_it_is_full(path):
    file = RecordFile(path, LIMIT, OLDEST_FIRST)
    gone = sum(file.commit([make_made(10 * k + j, payload=PAYLOAD) for j in range(10)], []) for k in range(50))
    kept = sequences(file)
    assert kept == list(range(500 - len(kept), 500))
    assert 95 <= len(kept) <= 100
    assert gone == 500 - len(kept)
    assert file.bytes == 1000 * len(kept) <= LIMIT


def test_a_sample_stays_even_when_it_is_full_and_ends_when_it_is_empty(path):
    file = RecordFile(path, LIMIT, SAMPLE)
    for k in range(50):
        file.commit([make_made(10 * k + j, payload=PAYLOAD) for j in range(10)], [])
    kept = sequences(file)
    assert file.level in (3, 4)
    assert 15 <= len(kept) <= 100
    parts = [sum(k // 125 == part for k in kept) for part in range(4)]
    assert min(parts) >= 2, "none of the four quarters of the time is left out"
    assert 0.2 < sum(k % 2 for k in kept) / len(kept) < 0.8, "nor every second record"
    file.commit([], range(1, file.last_id + 1))
    assert file.waiting == file.bytes == 0
    file.commit([make_made(k) for k in range(501, 509)], [])
    assert sequences(file) == list(range(501, 509))


def test_one_record_larger_than_the_outbox_does_not_stay(path):
    for drop in (OLDEST_FIRST, SAMPLE):
        file = RecordFile(path, LIMIT, drop)
        assert file.commit([make_made(8, payload=bytes(2 * LIMIT))], []) == 1
        assert sequences(file) == []
        file.close()


def test_what_is_too_old_goes_and_what_has_no_time_stays(path):
    file = RecordFile(path, LIMIT, OLDEST_FIRST)
    made = [make_made(1, made=10.0), make_made(2, made=None), make_made(3, made=20.0)]
    assert file.commit(made, [], expire=15.0) == 1
    assert sequences(file) == [2, 3]


def test_the_file_stays_within_its_bound(path):
    file = RecordFile(path, LIMIT, OLDEST_FIRST)
    for k in range(100):
        file.commit([make_made(10 * k + j, payload=PAYLOAD) for j in range(10)], [])
    size = path.stat().st_size
    assert size < 1.4 * LIMIT
    assert path.with_name(path.name + "-wal").stat().st_size < 2_000_000


def test_any_damaged_byte_is_a_damaged_file_or_a_damaged_row_or_harmless(path, tmp_path):
    file = RecordFile(path, LIMIT, OLDEST_FIRST)
    made = [make_made(k, payload=b'{"kind":"decision"}' * 3) for k in range(60)]
    file.commit(made, [])
    file.close()
    good, rng, ends = path.read_bytes(), random.Random(1), set()
    for k in range(80):
        data = bytearray(good)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        copy = tmp_path / f"copy{k}.sqlite"
        copy.write_bytes(data)
        try:
            damaged = RecordFile(copy, LIMIT, OLDEST_FIRST)
            rows, bad = damaged.after(0, 1000)
            damaged.commit([make_made(99)], [row.id for row in rows])
            damaged.close()
        except DamagedError:
            ends.add("file")
            continue
        assert all(row.record in made or row.record.made != 2e9 for row in rows)
        ends.add("row" if bad else "harmless")
    assert ends == {"file", "row", "harmless"}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: b"SQLite format 3\0", "."),
        (lambda data: b"not a database at all" * 500, "."),
        (lambda data: bytes(4096), "."),
        (lambda data: data.replace(b"CREATE TABLE", b"CRE\xf0TE TABLE"), "."),
        (lambda data: data.replace(b"CREATE TABLE", b"CREATE \xb8ABLE"), "."),
        ("CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records; END", "not an outbox's"),
        ("CREATE VIEW v AS SELECT 1", "not an outbox's"),
        ("ALTER TABLE records ADD COLUMN more", "not an outbox's"),
        ("UPDATE records SET id = 9223372036854775807", "."),
    ],
)
def test_a_file_that_is_not_an_outbox_is_damaged(path, damage, said):
    file = RecordFile(path, LIMIT, OLDEST_FIRST)
    file.commit([make_made(1)], [])
    file.close()
    if isinstance(damage, str):
        execute(path, damage)
    else:
        good = path.read_bytes()
        path.write_bytes(damage(good))
        assert path.read_bytes() != good
    with pytest.raises(DamagedError, match=said):
        RecordFile(path, LIMIT, OLDEST_FIRST)


def execute(path, statement):
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)


@pytest.mark.parametrize("column", ["boot", "sequence", "made", "payload"])
def test_a_row_with_a_text_that_is_none_is_damaged_and_the_others_go(path, column):
    file = RecordFile(path, LIMIT, OLDEST_FIRST)
    file.commit([make_made(k) for k in (1, 2, 3)], [])
    file.close()
    execute(path, f"UPDATE records SET {column} = CAST(x'ff00fe' AS TEXT) WHERE id = 2")
    file = RecordFile(path, LIMIT, OLDEST_FIRST)
    rows, bad = file.after(0, 10)
    if column == "made":  # no checksum covers the time
        assert [(row.id, row.record.made is None) for row in rows if row.id == 2] == [(2, True)]
    else:
        assert ([row.id for row in rows], bad) == ([1, 3], [2])
