# SPDX-License-Identifier: Apache-2.0
"""How a bundle's promise stands by its audits: counted once, tested as they come, and by class."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.incoming import Incoming
from hardcase_cloud.keep.records.labels import Labels
from hardcase_cloud.keep.records.standing import MOST_CLASSES, promise, standings

CLAIMS = {"audits": {"at_least": 0.9, "classes": {"x": 0.8, "y": 0.95}}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Labels]:
    database = Database(f"sqlite:{tmp_path / 'd.sqlite'}")
    yield Labels(database)
    database.close()


def audit(
    store: Labels, first: int, labels: str, agrees: str, received: float, bundle: str = "b1", **more: object
) -> int:
    """Audits with these labels, of which those with a 1 agree."""
    records = [
        Incoming("d", 1, first + k, "audit", json.dumps({"bundle": bundle, "label": label, **more}), bundle)
        for k, label in enumerate(labels)
    ]
    store.database.keep(records, received)
    rows = sorted(store.unlabelled("f0", 5_000))
    return store.label([(row, row[4], agree == "1") for row, agree in zip(rows, agrees, strict=True)], "f0", 1.0)


def test_audits_are_counted_over_all_and_by_class_and_only_what_is_promised_breaks(store: Labels) -> None:
    promise(store.database, "b1", CLAIMS)
    assert standings(store.database) == []
    audit(store, 0, "xy" * 150, "1" * 300, 100.0)
    states = {s.label: (s.n, s.agreed, s.promised, s.state) for s in standings(store.database)}
    assert states == {
        "": (300, 300, 0.9, "holds"), "x": (150, 150, 0.8, "holds"), "y": (150, 150, 0.95, "holds"),
    }  # fmt: skip
    for k in range(4):
        audit(store, 300 + 20 * k, "xy" * 10, "10" * 10, 200.0 + 100 * k)
    after = {s.label: s for s in standings(store.database)}
    assert (after["x"].state, after["y"].state, after[""].state) == ("holds", "broken", "broken")
    assert after["y"].since == after[""].since == 200.0
    low, high = after["y"].interval
    assert low < 150 / 190 < high < 0.9


@pytest.mark.parametrize(("price", "counts"), [(2, True), (1.5, True), (None, True), ("3", True), (2.001, False)])
def test_audits_at_a_higher_price_than_the_shipped_one_test_no_promise(
    store: Labels, price: object, counts: bool
) -> None:
    promise(store.database, "b1", CLAIMS, 2)
    assert audit(store, 0, "xyz" * 40, "0" * 120, 100.0, price=price) == 120, "they are labelled all the same"
    assert [(s.label, s.n, s.state) for s in standings(store.database)] == (
        [("", 120, "broken"), ("x", 40, "broken"), ("y", 40, "broken"), ("z", 40, "not promised")] if counts else []
    )
    assert store.database.read("SELECT labelled FROM minutes") == [(120,)]


def test_a_bundle_noted_by_an_earlier_version_learns_its_shipped_level(store: Labels) -> None:
    promise(store.database, "b1", CLAIMS)
    audit(store, 0, "xy", "11", 100.0, price=9.0)
    promise(store.database, "b1", {"audits": {"at_least": 0.5, "classes": {"x": 0.5, "y": 0.5}}}, 2)
    audit(store, 2, "xy", "00", 101.0, price=9.0)
    assert [(s.label, s.n, s.promised) for s in standings(store.database)] == [
        ("", 2, 0.9), ("x", 1, 0.8), ("y", 1, 0.95),
    ]  # fmt: skip


def test_the_test_goes_on_from_one_look_to_the_next_as_in_one(store: Labels, tmp_path: Path) -> None:
    other = Labels(Database(f"sqlite:{tmp_path / 'other.sqlite'}"))
    agrees = "1101101110" * 6
    for it in (store, other):
        promise(it.database, "b1", CLAIMS)
    audit(store, 0, "x" * 60, agrees, 5.0)
    for k in range(0, 60, 6):
        audit(other, k, "x" * 6, agrees[k : k + 6], 5.0)
    select = "SELECT * FROM standings ORDER BY label"
    one, many = store.database.read(select), other.database.read(select)
    assert [row[:6] + row[7:] for row in one] == [row[:6] + row[7:] for row in many]
    assert [json.loads(row[6]) for row in one if row[6]] == [json.loads(row[6]) for row in many if row[6]]
    other.database.close()


def test_labels_of_people_and_bundles_that_promise_nothing_test_nothing(store: Labels) -> None:
    audit(store, 0, "xy", "00", 1.0, bundle="b2")
    assert {s.state for s in standings(store.database)} == {"not promised"}
    store.label([(row, "x", False) for row in store.unlabelled("person", 9)], "person", 2.0)
    assert {(s.label, s.n) for s in standings(store.database)} == {("", 2), ("x", 1), ("y", 1)}


def test_a_flood_of_classes_and_odd_claims_stay_bounded(store: Labels) -> None:
    for claims in ({}, {"audits": []}, {"audits": {"at_least": 0.9, "classes": [1]}}, {"audits": {"at_least": 2.0}}):
        promise(store.database, "b3", claims)
    records = [
        Incoming("d", 1, k, "audit", json.dumps({"bundle": "b3", "label": f"class {k}"}), "b3") for k in range(200)
    ]
    store.database.keep(records, 3.0)
    rows = store.unlabelled("f0", 500)
    assert store.label([(row, "", False) for row in rows], "f0", 1.0) == 200
    some = standings(store.database)
    assert len(some) <= MOST_CLASSES + 1
    assert some[0].n == 200
