# SPDX-License-Identifier: Apache-2.0
"""The database of records: each once, flushed, bounded, and with times that later records correct."""

from __future__ import annotations

import io
import json
import os
import sqlite3

import pytest

from hardcase.cli import main
from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.incoming import Incoming
from hardcase_edge.errors import InputError


def record(device: str, boot: int, sequence: int, **fields: object) -> Incoming:
    return Incoming(device, boot, sequence, "decision", json.dumps(fields))


@pytest.fixture
def database(tmp_path):
    opened = Database(tmp_path / "d.sqlite")
    yield opened
    opened.close()


def test_a_record_is_kept_once_and_the_first_stays(database):
    assert database.keep([record("a", 1, 1, label="x"), record("a", 1, 1, label="y"), record("a", 1, 2)], 5.0) == 2
    assert database.keep([record("a", 1, 1, label="z"), record("b", 1, 1), record("a", 2, 1)], 6.0) == 2
    rows = [(r["device"], r["boot"], r["sequence"], r["label"], r["received"]) for r in database.rows()]
    assert rows == [("a", 1, 1, "x", 5.0), ("a", 1, 2, None, 5.0), ("a", 2, 1, None, 6.0), ("b", 1, 1, None, 6.0)]


@pytest.mark.parametrize("was_there", [False, True])
def test_nobody_but_its_owner_reads_the_file_whatever_the_umask(tmp_path, was_there):
    """Audits and cases have readings."""
    path = tmp_path / "d.sqlite"
    if was_there:
        Database(path).close()
        path.chmod(0o664)
    before = os.umask(0o022)
    try:
        opened = Database(path)
        opened.keep([record("a", 1, 1)], 5.0)
        modes = {p.name: p.stat().st_mode & 0o777 for p in tmp_path.iterdir()}
        assert modes == dict.fromkeys(("d.sqlite", "d.sqlite-wal", "d.sqlite-shm"), 0o600)
        opened.close()
    finally:
        os.umask(before)


def test_the_database_flushes_before_anything_is_acknowledged(database):
    settings = [database.dialect.execute(f"PRAGMA {name}")[0][0] for name in ("journal_mode", "synchronous")]
    assert settings == ["wal", 2]


def test_the_time_of_a_record_follows_from_the_latest_of_its_boot_that_knows_it(database):
    fields = [(1, 10.0, None), (2, 20.0, 1005.0), (3, 30.0, None), (4, 40.0, 2040.0), (5, 50.0, None)]
    database.keep([record("a", 1, k, at=at, t=t) for k, at, t in fields], 9.0)
    database.keep([record("a", 2, 1, at=1.0, t=None), record("a", 3, 1, t=7.5)], 9.0)
    assert [r["time"] for r in database.rows()] == [2010.0, 2020.0, 2030.0, 2040.0, 2050.0, None, 7.5]


def test_numbers_that_are_none_are_not_times(database):
    odd = [{"t": 10**400, "at": 1}, {"t": "x", "at": []}, {"t": True, "at": 1}, {"t": 1e300, "at": -1e300}]
    database.keep([record("a", k, 1, **fields) for k, fields in enumerate(odd, 1)], 9.0)
    database.keep([Incoming("b", 1, 1, "decision", '{"t": 1e999, "at": 1e999}')], 9.0)
    assert [r["time"] for r in database.rows()] == [None] * 5


def test_the_table_has_no_formulas(database):
    database.keep([record("a", 1, 1, label="=1+1", failed=["x"], value=-2.5, route="@x")], 5.0)
    file = io.StringIO()
    assert database.export(file) == 1
    (row,) = file.getvalue().splitlines()[1:]
    assert row.split(",")[:4] == ["a", "1", "1", "decision"]
    assert "'=1+1" in row
    assert "'@x" in row
    assert '"[""x""]"' in row
    assert "-2.5" in row.split(",")


@pytest.mark.parametrize("mark", [";", "\t", "\n", "\r"])
def test_a_cell_of_a_spreadsheet_that_parts_lines_elsewhere_is_no_formula(database, mark):
    database.keep([record("a", 1, 1, label=f"calm{mark}=1+1 -2")], 5.0)
    file = io.StringIO()
    assert database.export(file) == 1
    assert f"calm{mark}'=1+1 -2" in file.getvalue()


def test_a_label_that_is_half_a_character_is_a_question_mark(database):
    database.keep([record("a", 1, 1, label="\ud800")], 5.0)
    file = io.StringIO()
    assert database.export(file) == 1
    assert b",?," in file.getvalue().encode()


def test_a_full_store_keeps_what_it_has_and_takes_nothing_by_halves(tmp_path):
    small = Database(tmp_path / "d.sqlite", 120_000)
    small.keep([record("a", 1, 1)], 5.0)
    with pytest.raises(InputError, match="full; make room"):
        small.keep([record("a", 2, k, text="x" * 5000) for k in range(100)], 5.0)
    assert small.keep([record("a", 3, 1)], 5.0) == 1
    assert [r["boot"] for r in small.rows()] == [1, 3]
    small.close()
    assert (tmp_path / "d.sqlite").stat().st_size <= 120_000


@pytest.mark.parametrize("data", [b"no database" * 500, b"SQLite format 3\0"])
def test_a_file_that_is_not_a_store_is_refused(tmp_path, data):
    (tmp_path / "d.sqlite").write_bytes(data)
    with pytest.raises(InputError, match=r"cannot be used|is not a store"):
        Database(tmp_path / "d.sqlite")
    assert (tmp_path / "d.sqlite").read_bytes() == data


def test_another_programs_database_is_refused_and_stays(tmp_path):
    with sqlite3.connect(tmp_path / "d.sqlite") as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    with pytest.raises(InputError, match="is not a store of decisions"):
        Database(tmp_path / "d.sqlite")
    with sqlite3.connect(tmp_path / "d.sqlite") as db:
        assert db.execute("SELECT name FROM sqlite_schema").fetchall() == [("mine",)]
    db.close()


def test_a_store_whose_file_is_moved_or_replaced_takes_and_shows_nothing(tmp_path):
    path, other = tmp_path / "d.sqlite", tmp_path / "e.sqlite"
    database = Database(path)
    database.keep([record("a", 1, 1)], 5.0)
    path.rename(other)

    def is_refused():
        for use in (lambda: database.keep([record("a", 1, 2)], 6.0), lambda: database.read("SELECT 1")):
            with pytest.raises(InputError, match="was moved or removed"):
                use()

    is_refused()
    other.rename(path)
    assert database.keep([record("a", 1, 2)], 7.0) == 1, "it is back"
    path.unlink()
    is_refused()
    path.touch()
    is_refused()
    database.close()


@pytest.mark.parametrize(
    "words",
    [
        ["rollout", "status"], ["rollout", "stop", "1"], ["dashboard"], ["audits", "--audit", "1%"],
        ["rollout", "serve", "1", "--broker", "mqtt://127.0.0.1:1"],
    ],
)  # fmt: skip
def test_who_reads_a_store_makes_none_by_a_mistyped_name(words, tmp_path, capsys):
    assert main(["cloud", *words, "--store", f"sqlite:{tmp_path / 'typo.sqlite'}"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "there is no store" in line
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_fails_leaves_no_part_of_a_file(tmp_path, monkeypatch, capsys):
    path = tmp_path / "d.sqlite"
    database = Database(path)
    database.keep([record("a", 1, k) for k in range(1, 4)], 5.0)
    database.close()
    rows = Database.rows

    def breaks(self):
        yield next(rows(self))
        raise InputError("the store is gone; mend it")

    monkeypatch.setattr(Database, "rows", breaks)
    for name in ("x.csv", "x.parquet"):
        assert main(["cloud", "store", "--out", str(path), "--export", str(tmp_path / name)]) == 2
        assert "the store is gone" in capsys.readouterr().err
    assert {found.name for found in tmp_path.iterdir()} <= {path.name, f"{path.name}-wal", f"{path.name}-shm"}


def test_the_command_exports_and_says_what_is_wrong(tmp_path, capsys):
    path = tmp_path / "d.sqlite"
    words = ["cloud", "store", "--out", str(path)]
    assert main([*words, "--export", str(tmp_path / "x.csv")]) == 2
    assert main(words) == 2
    assert main([*words, "--broker", "mqtt://h", "--max-bytes", "x"]) == 2
    database = Database(path)
    database.keep([record("a", 1, 1, label="low")], 5.0)
    assert main([*words, "--export", str(tmp_path / "x.csv")]) == 0, "while another process uses it"
    database.close()
    assert main([*words, "--export", str(tmp_path / "x.csv")]) == 2, "a file that is there stays"
    told = capsys.readouterr()
    assert [line.partition(": ")[2].partition(";")[0] for line in told.err.splitlines()] == [
        f"there is no store {path}", "name either a broker with --broker, or a file with --export",
        "--max-bytes is 'x'", f"{tmp_path / 'x.csv'} exists",
    ]  # fmt: skip
    assert (tmp_path / "x.csv").read_text().splitlines()[1].startswith("a,1,1,decision,5.0,")
