# SPDX-License-Identifier: Apache-2.0
"""The Parquet export: a row per record, typed, and null where a device sent something else."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hardcase_cloud.keep.records import parquet
from hardcase_cloud.keep.records.database import COLUMNS, Database
from hardcase_cloud.keep.records.incoming import Incoming
from hardcase_cloud.keep.records.schema import RECORDS
from hardcase_edge.errors import InputError


def test_every_record_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROWS", 2)
    database = Database(tmp_path / "d.sqlite")
    fields = [
        {"label": "x", "cost": 1.5, "failed": ["a"]},
        {"label": 7, "cost": "y"},
        {"value": 10**400, "label": "\ud800"},
    ]
    database.keep([Incoming("a", 1, k, "decision", json.dumps(f)) for k, f in enumerate(fields, 1)], 5.0)
    assert parquet.write_parquet(database, tmp_path / "d.parquet") == 3
    table = pq.read_table(tmp_path / "d.parquet")
    assert table.column_names == list(COLUMNS)
    assert table["sequence"].to_pylist() == [1, 2, 3]
    assert table["label"].to_pylist() == ["x", "7", "?"]
    assert table["cost"].to_pylist() == [1.5, None, None]
    assert table["failed"].to_pylist() == ['["a"]', None, None]
    assert table["value"].to_pylist() == [None] * 3
    assert table["item_size"].to_pylist() == [None] * 3
    assert sorted(p.name for p in tmp_path.glob("*part*")) == []
    with pytest.raises(InputError, match="cannot be written"):
        parquet.write_parquet(database, tmp_path / "none" / "d.parquet")
    database.close()


def test_items_have_their_size_budget_and_lateness_in_stores_of_every_version(tmp_path: Path) -> None:
    fields = [
        {"item_size": 96, "budget": 2.5, "late": True},
        {"item_size": None, "budget": None, "late": False},
        {"item_size": 10**30, "budget": 10**400, "late": 1},
        {"item_size": 1.5, "budget": "x", "late": "no"},
    ]
    records = [Incoming("a", 1, k, "decision", json.dumps(one)) for k, one in enumerate(fields, 1)]
    with sqlite3.connect(tmp_path / "first.sqlite") as db:  # a store of version 1, which knows of no items
        db.execute(f"PRAGMA application_id={0x68636472}")
        db.execute(RECORDS)
        db.executemany("INSERT INTO records VALUES (?, ?, ?, ?, 5.0, ?)", [
            (r.device, r.boot, r.sequence, r.kind, r.text) for r in records
        ])  # fmt: skip
    db.close()
    for name in ("first", "new"):
        database = Database(tmp_path / f"{name}.sqlite")
        assert database.keep(records, 5.0) == (4 if name == "new" else 0)
        assert parquet.write_parquet(database, tmp_path / "d.parquet") == 4
        csv_text = io.StringIO()
        database.export(csv_text)
        database.close()
        table = pq.read_table(tmp_path / "d.parquet")
        assert table["item_size"].to_pylist() == [96, None, None, None]
        assert table["budget"].to_pylist() == [2.5, None, None, None]
        assert table["late"].to_pylist() == [True, False, None, None]
        assert next(csv.DictReader(csv_text.getvalue().splitlines()))["budget"] == "2.5"
