# SPDX-License-Identifier: Apache-2.0
"""Both dialects do the same: records, sums, devices, labels, migration, retention, and a database that goes away."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hardcase_cloud.keep.dashboard.judged import Errors, Judged
from hardcase_cloud.keep.dashboard.waiting import START, case_at, next_waiting, take_back
from hardcase_cloud.keep.records import database as module
from hardcase_cloud.keep.records import schema
from hardcase_cloud.keep.records.came_back import came_back
from hardcase_cloud.keep.records.cases import case_of
from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.devices import Devices, Seen
from hardcase_cloud.keep.records.dialects import open_dialect, redacted
from hardcase_cloud.keep.records.incoming import Incoming
from hardcase_cloud.keep.records.labels import Labels
from hardcase_cloud.keep.records.rollouts import Rollouts
from hardcase_cloud.keep.records.schema import RECORDS, VERSION
from hardcase_cloud.keep.records.standing import promise, standings
from hardcase_edge.errors import InputError
from tests.helpers.cloud.postgres import Cluster, running_postgres

BUNDLE = {"sha256": "b1", "name": "one", "bytes": 5, "root": 1, "targets": 2, "manifest": "{}"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_postgres() as running:
        yield running


@pytest.fixture
def empty(cluster: Cluster) -> Iterator[str]:
    """The URL of a database without tables, which is left so for the next test in whatever order."""
    yield cluster.empty()
    cluster.empty()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    is_sqlite = request.param == "sqlite"
    opened = Database(f"sqlite:{tmp_path / 'd.sqlite'}" if is_sqlite else request.getfixturevalue("cluster").url)
    yield opened
    if not is_sqlite:  # faster than to make all tables again
        names = "records, minutes, answers, labels, devices, members, bundles, rollouts, instances, starts"
        opened.write(f"TRUNCATE {names}")
        opened.write("UPDATE store_version SET version = ?", (VERSION,))
    opened.close()


def decision(device: str, sequence: int, label: str = "x", **more: object) -> Incoming:
    fields = {"bundle": "b1", "route": "local", "cost": 2.0, "label": label, **more}
    return Incoming(
        device, 1, sequence, "decision", json.dumps(fields), "b1", str(fields["route"]), label,
        float(str(fields["cost"])),
    )  # fmt: skip


def audit(device: str, sequence: int, label: object, bundle: object = "b1", **more: object) -> Incoming:
    fields = {"bundle": bundle, "label": label, "readings": [1], **more}
    return Incoming(device, 1, sequence, "audit", json.dumps(fields), bundle if bundle == "b1" else "")


def test_a_record_is_kept_once_in_order_and_summed_up_once(database: Database) -> None:
    batch = [
        decision("Z", 1), decision("a", 1, route="cloud"), decision("a", 1, "y"), decision("a", 2, route="degraded"),
    ]  # fmt: skip
    assert database.keep(batch, 61.0) == 3
    assert database.keep([*batch, decision("b", 1, cost=0.5)], 62.0) == 1
    assert database.keep([], 63.0) == 0
    assert [(r["device"], r["sequence"], r["label"]) for r in database.rows()] == [
        ("Z", 1, "x"), ("a", 1, "x"), ("a", 2, "x"), ("b", 1, "x"),
    ]  # fmt: skip
    assert database.read("SELECT * FROM minutes") == [("b1", 1, 4, 2, 1, 6.5, 0, 0, 0)]
    assert database.read("SELECT * FROM answers") == [("b1", 0, "x", 4)]


def test_a_flood_of_labels_is_counted_as_others(database: Database) -> None:
    database.keep([decision("a", k, f"l{k:03d}") for k in range(1, 101)], 5.0)
    rows = dict(database.read("SELECT label, n FROM answers"))
    assert (len(rows), rows["other"], sum(rows.values())) == (65, 36, 100)


def test_rows_come_page_by_page(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 3)
    database.keep([decision(f"d{k % 4}", k) for k in range(1, 11)], 5.0)
    assert [r["sequence"] for r in database.rows()] == [4, 8, 1, 5, 9, 2, 6, 10, 3, 7]


def test_old_records_are_removed_by_pages(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 4)
    database.keep([decision("a", k) for k in range(1, 7)], 10.0)
    database.keep([decision("a", 7)], 20.0)
    assert [database.remove(15.0) for _ in range(3)] == [4, 2, 0]
    assert [r["sequence"] for r in database.rows()] == [7]


def test_what_fails_halfway_leaves_nothing(database: Database) -> None:
    def act() -> None:
        database.dialect.execute("INSERT INTO members VALUES ('g', 'a')")
        database.dialect.execute("INSERT INTO members VALUES ('g', 'a')")

    with pytest.raises(InputError, match="cannot be used"):
        database.dialect.run(act)
    assert database.read("SELECT * FROM members") == []


def test_the_store_has_the_newest_of_each_device(database: Database) -> None:
    devices = Devices(database)
    devices.saw([Seen("a", is_online=True), Seen("b", bundle="b1", state="trial", facts='{"asked": 3}')], 5.0)
    devices.saw([Seen("a", bundle="b2", state="good"), Seen("b", is_online=True)], 6.0)
    assert database.read("SELECT * FROM devices ORDER BY device") == [
        ("a", 1, "b2", "good", "{}", 6.0), ("b", 1, "b1", "trial", '{"asked": 3}', 6.0),
    ]  # fmt: skip
    assert (devices.set_group("g", ["b", "a", "b"]), devices.group("g"), devices.group("x")) == (2, ["a", "b"], [])
    devices.set_group("g", ["c"])
    assert devices.group("g") == ["c"]


def test_a_roll_out_is_kept_and_no_device_is_in_two(database: Database) -> None:
    rollouts = Rollouts(database)
    machine = {"state": "running", "x": 1}
    one = rollouts.begin(BUNDLE, "/m.hcb", "/meta", "g", machine, ["a", "b"], 5.0)
    with pytest.raises(InputError, match="roll-out 1 has 1 of these devices, such as b; stop it"):
        rollouts.begin({**BUNDLE, "sha256": "b2"}, "", "", "h", machine, ["b", "c"], 6.0)
    with pytest.raises(InputError, match="has no devices"):
        rollouts.begin(BUNDLE, "", "", "none", machine, [], 6.0)
    rollouts.wish(one, "pause")
    assert rollouts.save(one, machine, {"a": ("good", 7.0, "")}, 7.0) == "pause"
    assert [rollouts.save(one, machine, {}, 8.0, done) for done in ("", "stop", "pause")] == ["pause", "pause", ""]
    assert rollouts.instances(one) == {"a": ("good", 7.0, ""), "b": ("waiting", 5.0, "")}
    with pytest.raises(InputError, match=r"release 1\.1, and roll-out 1 has brought 1\.2"):
        rollouts.begin({**BUNDLE, "sha256": "b0", "targets": 1}, "", "", "g", machine, ["a"], 8.0, supersedes=True)
    two = rollouts.begin(
        {**BUNDLE, "sha256": "b2", "targets": 3}, "", "", "h", machine, ["b", "c"], 9.0, supersedes=True
    )
    assert [(r.id, r.wish, r.state) for r in rollouts.rollouts()] == [
        (two, "", "running"),
        (one, "supersede", "running"),
    ]
    assert rollouts.save(one, {"state": "superseded"}, {}, 9.0) == "supersede"
    with pytest.raises(InputError, match="roll-out 1 has ended: superseded"):
        rollouts.wish(one, "stop")
    with pytest.raises(InputError, match="there is no roll-out 9"):
        rollouts.wish(9, "stop")
    rollouts.save(two, {"state": "done"}, {}, 10.0)
    assert rollouts.begin({**BUNDLE, "sha256": "b3", "targets": 4}, "", "", "g", machine, ["a", "b", "c"], 11.0) == 3


def test_labels_are_kept_once_and_agreement_is_summed_up(database: Database) -> None:
    database.keep([audit("a", 1, "x"), audit("a", 2, "y"), decision("a", 3)], 61.0)
    waiting = Labels(database).unlabelled("f0", 10)
    assert sorted(row[2] for row in waiting) == [1, 2]
    labels = [(row, "x", json.loads(row[4])["label"] == "x") for row in waiting]
    assert Labels(database).label(labels, "f0", 70.0) == 2
    assert Labels(database).label(labels, "f0", 71.0) == 0
    assert (Labels(database).unlabelled("f0", 10), len(Labels(database).unlabelled("person", 10))) == ([], 2)
    assert database.read("SELECT audits, labelled, agreed FROM minutes") == [(2, 2, 1)]
    end = (70.0, "a", 1, 2)
    assert Rollouts(database).audits_since("b1", (69.0, "", 0, 0), 99.0) == ([("a", True), ("a", False)], end)
    assert Rollouts(database).audits_since("b2", (69.0, "", 0, 0), 99.0) == ([], end)
    assert Rollouts(database).audits_since("b1", end, 99.0) == ([], end)
    assert Rollouts(database).costs_since("b1", 60.0, 99.0) == ([("a", 2.0)], 61.0)
    assert Rollouts(database).costs_since("b1", 61.0, 99.0) == ([], 61.0)
    assert Rollouts(database).costs_since("b2", 60.0, 99.0) == ([], 61.0), "decisions of other bundles are read once"


def test_a_rollout_is_told_of_audits_at_the_shipped_price_or_a_lower_one(database: Database) -> None:
    database.keep([audit(name, 1, "x", price=price) for name, price in zip("abc", (0.5, 2, 2.5), strict=True)], 61.0)
    Labels(database).label([(row, "x", True) for row in Labels(database).unlabelled("f0", 10)], "f0", 70.0)
    after = (69.0, "", 0, 0)
    assert Rollouts(database).audits_since("b1", after, 99.0, 2) == ([("a", True), ("b", True)], (70.0, "c", 1, 1))
    assert len(Rollouts(database).audits_since("b1", after, 99.0)[0]) == 3


@pytest.mark.parametrize("name", ["sqlite", "postgresql"])
def test_a_store_of_version_4_learns_at_which_price_a_bundle_promises(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:{tmp_path / 'd.sqlite'}" if name == "sqlite" else request.getfixturevalue("empty")
    with monkeypatch.context() as earlier:
        earlier.setattr(schema, "VERSION", 4)
        older = Database(url)
    columns = "bundle, label, n, agreed, promised, delta, test, since"
    older.write(f"INSERT INTO standings ({columns}) VALUES ('b1', '', 0, 0, 0.9, 0.05, '', 0)")
    older.close()
    opened = Database(url)
    labels = Labels(opened)
    promise(opened, "b1", {"audits": {"at_least": 0.9}}, 2)
    opened.keep([audit("a", k, "x", price=2.0 + k) for k in range(3)], 61.0)
    assert labels.label([(row, "x", True) for row in labels.unlabelled("f0", 9)], "f0", 70.0) == 3
    assert [(s.label, s.n, s.promised) for s in standings(opened)] == [("", 1, 0.9), ("x", 1, None)]
    opened.close()


def test_an_answer_that_is_kept_late_is_not_passed_over(database: Database) -> None:
    database.keep([audit("a", 1, "x"), audit("b", 1, "x")], 61.0)
    late, early = sorted(Labels(database).unlabelled("f0", 10))
    Labels(database).label([(early, "x", True)], "f0", 70.5)
    start = (69.0, "", 0, 0)
    assert Rollouts(database).audits_since("b1", start, 71.0) == ([], start), (
        "one that labels beside it may not be done"
    )
    Labels(database).label([(late, "x", True)], "f0", 70.0)  # stamped before the first, and kept after it
    audits, _ = Rollouts(database).audits_since("b1", start, 80.0)
    assert audits == [("a", True), ("b", True)]


def test_a_decision_that_is_kept_late_is_not_passed_over(database: Database) -> None:
    rollouts = Rollouts(database)
    database.keep([decision("a", 1)], 70.5)
    assert rollouts.costs_since("b1", 69.0, 71.0) == ([], 69.0), "a store that writes beside it may not be done"
    database.keep([decision("b", 1)], 70.0)
    assert rollouts.costs_since("b1", 69.0, 80.0) == ([("b", 2.0), ("a", 2.0)], 70.5)


def test_audits_of_other_bundles_hide_none_and_none_of_one_batch_is_left_out(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hardcase_cloud.keep.records.rollouts.MOST_AT_ONCE", 2)
    database.keep([audit("a", k, "x", "other") for k in range(1, 4)] + [audit("b", k, "x") for k in range(1, 6)], 61.0)
    Labels(database).label([(row, "x", True) for row in Labels(database).unlabelled("f0", 10)], "f0", 70.0)
    after, audits, n_pages = (0.0, "", 0, 0), [], 0
    while page := Rollouts(database).audits_since("b1", after, 99.0):
        if page[1] == after:
            break
        (more, after), n_pages = page, n_pages + 1
        audits += more
    assert (audits, n_pages) == ([("b", True)] * 5, 4)


def test_words_and_numbers_that_no_store_holds_stop_nobody(database: Database) -> None:
    for k, odd in enumerate(("\ud800", "\0", ["x"], 5, {}), 1):
        database.keep([audit("a", k, odd, odd), decision("b", k, "x", cost=0.0, bundle=odd)], 61.0)
    texts = [json.dumps({"bundle": "b1", "cost": cost}) for cost in (10**400, -1, "2", True, 3)]
    database.keep([Incoming("c", 1, k, "decision", text, "b1") for k, text in enumerate(texts, 1)], 61.0)
    assert Labels(database).label([(row, "x", False) for row in Labels(database).unlabelled("f0", 10)], "f0", 70.0) == 5
    assert Rollouts(database).costs_since("b1", 60.0, 99.0) == ([("c", 3.0)], 61.0)
    assert came_back(database, ["b1"], "", 1, ["x"]) == []


def test_of_two_labels_of_people_the_last_one_counts(database: Database) -> None:
    database.keep([audit("a", 1, "x")], 61.0)
    assert Labels(database).label_by_person([("a", 1, 2, "x"), ("a", 1, 1, "y"), ("a", 1, 1, "x")], 70.0) == 2
    assert database.read("SELECT sequence, label FROM labels") == [(1, "x")]


def test_a_store_of_a_newer_version_is_refused_in_one_line(database: Database) -> None:
    database.write("UPDATE store_version SET version = ?", (VERSION + 1,))
    url = getattr(database.dialect, "_url", database.dialect.name)
    with pytest.raises(
        InputError, match=rf"has version {VERSION + 1}, and this hardcase-cloud reads 1 to {VERSION}; update"
    ):
        Database(url)


def test_a_store_of_version_1_goes_on_with_all_its_records(tmp_path: Path) -> None:
    path = tmp_path / "d.sqlite"
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA application_id={0x68636472}")
        db.execute(RECORDS)
        db.execute("INSERT INTO records VALUES ('a', 1, 1, 'decision', 5.0, '{\"label\": \"x\"}')")
    db.close()
    for _ in range(2):
        opened = Database(f"sqlite:{path}")
        assert [(r["device"], r["label"], r["received"]) for r in opened.rows()] == [("a", "x", 5.0)]
        assert opened.read("SELECT version FROM store_version") == [(VERSION,)]
        assert opened.keep([decision("a", 1), decision("a", 2)], 6.0) == 1
        opened.write("DELETE FROM records WHERE sequence = 2")
        opened.close()


@pytest.mark.parametrize("name", ["sqlite", "postgresql"])
def test_a_store_of_version_3_finds_new_labels_by_an_index(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:{tmp_path / 'd.sqlite'}" if name == "sqlite" else request.getfixturevalue("empty")
    with monkeypatch.context() as earlier:
        earlier.setattr(schema, "VERSION", 3)
        older = Database(url)
    older.keep([audit("a", k, "x") for k in range(2000)], 61.0)
    it = older.dialect
    answers = [("a", 1, k, "f0", "x", float(k)) for k in range(2000)]
    it.run(lambda: it.many("INSERT INTO labels VALUES (?, ?, ?, ?, ?, ?)", answers))
    older.write("ANALYZE")
    assert (older.read("SELECT version FROM store_version"), "labels_since" in plan(older)) == ([(3,)], False)
    older.close()
    opened = Database(url)
    assert opened.read("SELECT version FROM store_version") == [(VERSION,)]
    assert Rollouts(opened).audits_since("b1", (1997.0, "a", 1, 1997), 3000.0) == (
        [("a", True)] * 2,
        (1999.0, "a", 1, 1999),
    )
    steps = plan(opened)
    assert ("labels_since" in steps, "Sort" in steps, "TEMP B-TREE" in steps) == (True, False, False)
    opened.close()


def plan(database: Database) -> str:
    """How the database looks for the labels that have come since the last but two."""
    asked: list[tuple[str, Sequence[object]]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "read", lambda sql, values: asked.append((sql, values)) or [])
        Rollouts(database).audits_since("b1", (1997.0, "a", 1, 1997), 3000.0)
    [(sql, values)] = asked
    words = "EXPLAIN QUERY PLAN" if database.dialect.is_sqlite else "EXPLAIN"
    return "\n".join(str(row[-1]) for row in database.read(f"{words} {sql}", values))


def test_a_database_with_tables_of_others_is_refused(empty: str) -> None:
    dialect = open_dialect(empty, 0)
    dialect.run(lambda: dialect.execute("CREATE TABLE mine (x BIGINT)"))
    dialect.close()
    with pytest.raises(InputError, match="is not a store of decisions"):
        Database(empty)


def test_after_a_restart_of_the_database_the_next_call_succeeds(cluster: Cluster, empty: str) -> None:
    database = Database(empty)
    database.keep([decision("a", 1)], 5.0)
    cluster.stop()
    with pytest.raises(InputError, match="start the database or repair it") as caught:
        database.keep([decision("a", 2)], 5.0)
    assert "\n" not in str(caught.value)
    cluster.start()
    assert database.keep([decision("a", 1), decision("a", 2)], 5.0) == 1
    database.close()


@pytest.mark.parametrize("url", ["mysql://u:secret@h/d", "redis:x", "postgresql://u:secret@127.0.0.1:1/d"])
def test_what_is_no_store_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(InputError) as caught:
        Database(url)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_url_is_shown_without_its_password() -> None:
    assert redacted("postgresql://u:secret@h:5/d?x=y") == "postgresql://u@h:5/d"
    assert redacted("postgresql:///d?password=secret") == "postgresql:///d"
    assert "secret" not in redacted("postgresql://[u:secret")


def test_cases_wait_until_a_person_has_labelled_them_and_what_people_say_is_summed_up(database: Database) -> None:
    audits = [
        Incoming("d1", 1, k, "audit", json.dumps({"bundle": "b1", "label": "x", "t": 20.0 * k})) for k in (1, 2, 3)
    ]
    database.keep([*audits, case_of("d2", bytes(16), "f0", [1.0], 0, 1.0), decision("d1", 9)], 5.0)
    judged = Judged(database, lambda fields: "x")

    def waiting(**more: Any) -> list[int]:
        found, place = [], START
        while (case := next_waiting(database, lambda _: True, after=place, **more)[0]) is not None:
            found.append(case.sequence)
            place = case.place
        return found

    assert waiting() == [0, 3, 2, 1]
    assert waiting(kinds=("audit",), apart_s=30.0, passed=[("d1", 60.0)]) == [1]
    labels = Labels(database)
    assert labels.label_by_person([("d1", 1, 2, "y"), ("d2", 0, 0, "x"), ("d1", 1, 1, "x")], 6.0) == 3
    judged.renew()
    assert (judged.all, judged.by_f0, judged.by_bundle) == (Errors(2, 1), Errors(1, 0), {"b1": Errors(2, 1)})
    assert waiting(apart_s=5.0) == [3]
    assert (take_back(database, ("d1", 1, 2), "x"), take_back(database, ("d1", 1, 2), "y")) == (False, True)
    judged.renew()
    assert (judged.all, waiting()) == (Errors(1, 0), [3, 2])
    found = case_at(database, ("d1", 1, 2))
    assert found is not None
    assert (found.time, case_at(database, ("d1", 1, 9))) == (40.0, None)
