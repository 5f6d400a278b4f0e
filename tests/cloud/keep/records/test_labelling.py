# SPDX-License-Identifier: Apache-2.0
"""f0 labels the audits of a store: one in which it fails costs no other its label, and is paid for once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.incoming import Incoming
from hardcase_cloud.keep.records.labels import F0, Labelling, Labels
from hardcase_edge.errors import InputError


class Large:
    """A large model that fails where the reading is below 0, and says the reading else."""

    dtypes: tuple[str, ...] = ("f64",)

    def __init__(self) -> None:
        self.sha256 = ""
        self.asked: list[float] = []

    def answer(self, rows: Sequence[Sequence[Any]]) -> list[tuple[int, int]]:
        raise InputError("one of the rows failed")

    def answers(self, rows: Sequence[Sequence[Any]]) -> list[tuple[int, int] | str]:
        self.asked += [row[0] for row in rows]
        return ["failed" if row[0] < 0 else (int(row[0]), 10_000) for row in rows]


@pytest.fixture
def labels(tmp_path: Path) -> Iterator[Labels]:
    database = Database(f"sqlite:{tmp_path / 'd.sqlite'}")
    yield Labels(database)
    database.close()


def audits(labels: Labels, readings: list[float]) -> None:
    records = [
        Incoming("d", 1, k, "audit", json.dumps({"bundle": "b", "label": "no", "readings": [x]}), "b")
        for k, x in enumerate(readings)
    ]
    labels.database.keep(records, 100.0)


def test_a_row_that_fails_costs_no_other_its_label_and_is_asked_once(labels: Labels) -> None:
    audits(labels, [0, 1, -1, 0, -2, 1])
    model = Large()
    labelling = Labelling(labels, model, ("no", "yes"), most=4)
    goes = [labelling.some(lambda: 1.0) for _ in range(3)]
    assert (sum(n for n, _ in goes), sum(agreed for _, agreed in goes), goes[-1]) == (4, 2, (0, 0))
    assert sorted(model.asked) == [-2, -1, 0, 0, 1, 1]
    assert len(labelling.failed) == len(labels.unlabelled(F0, 9)) == 2
    audits(labels, [0] * 7)
    assert labelling.some(lambda: 2.0) == (1, 1), "the others were here"


def test_audits_of_a_bundle_that_asks_another_f0_wait_for_that_one(labels: Labels) -> None:
    ours, theirs = "a1" * 32, "b2" * 32
    for sha256, hpc in ((ours, "0a"), (theirs, "0b"), ("c3" * 32, "")):  # as a roll-out notes them
        labels.database.write("INSERT INTO bundles VALUES (?, 'x', 1, 0, 0, ?, 0)", (sha256, json.dumps({"hpc": hpc})))
    of = [theirs, ours, "d4" * 32, theirs, "c3" * 32, theirs]
    records = [
        Incoming("d", 1, k, "audit", json.dumps({"bundle": bundle, "label": "no", "readings": [0.0]}), bundle)
        for k, bundle in enumerate(of)
    ]
    labels.database.keep(records, 100.0)
    for hpc, n in (("0a", 3), ("0b", 3)):
        model = Large()
        model.sha256 = hpc
        labelling = Labelling(labels, model, ("no", "yes"), most=2)
        assert sum(labelling.some(lambda: 1.0)[0] for _ in range(4)) == n
    assert labels.unlabelled(F0, 9) == []


def test_a_model_that_answers_nothing_ends_it(labels: Labels) -> None:
    audits(labels, [-1, -2])
    with pytest.raises(InputError, match="f0 answers none of 2 audits; see the log"):
        Labelling(labels, Large(), ("no", "yes")).some()
    assert len(labels.unlabelled(F0, 9)) == 2
