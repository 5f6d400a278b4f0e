# SPDX-License-Identifier: Apache-2.0
"""A worker's cases: each once in the store, a share of them by their ids, and never in the way of an answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hardcase_cloud.answer.service import Service
from hardcase_cloud.commands.worker import open_cases
from hardcase_cloud.keep.records import cases as module
from hardcase_cloud.keep.records.cases import Cases
from hardcase_cloud.keep.records.database import Database
from hardcase_edge.errors import InputError
from hardcase_edge.link.wire import Request, pack_request, request_topic, unpack_reply
from tests.helpers.cloud.brokers import until
from tests.helpers.cloud.requests import FAKE, FakeModel, ask


def test_what_a_service_answers_is_kept_once_whoever_answers_it(tmp_path: Path) -> None:
    url = tmp_path / "s.sqlite"
    payload = ask(1, (21.5,), deadline_ms=2_000)
    for _ in range(2):
        cases = Cases(lambda: Database(url), FAKE, 1.0, now=lambda: 60.0)
        cases.start()
        service = Service(FakeModel(dtypes=("f32",)), on_answer=cases.add)
        for again in range(2):
            service.receive(request_topic("pump-7"), payload, now=float(again) / 10)
        service.run(now=0.5)
        cases.close()
    database = Database(url)
    ((device, boot, kind, text),) = database.read("SELECT device, boot, kind, record FROM records")
    assert (device, boot, kind) == ("pump-7", 0, "case")
    fields = json.loads(text)
    assert {key: fields[key] for key in ("readings", "result", "share")} == {
        "readings": [21.5], "result": 1, "share": 1.0,
    }  # fmt: skip
    assert database.read("SELECT count(*) FROM minutes") == [(0,)]
    database.close()


def test_audits_are_answered_and_are_no_cases() -> None:
    kept: list[str] = []
    service = Service(FakeModel(dtypes=("f32",)), on_answer=lambda device, *_: kept.append(device))
    for k, is_audit in enumerate((True, False, True)):
        request = Request(bytes((k, *[0] * 15)), bytes.fromhex(FAKE), 2_000, (21.5,), is_audit)
        service.receive(request_topic(f"pump-{k}"), pack_request(request, ["f32"]), now=0.0)
    replies = service.run(now=0.5)
    assert {unpack_reply(reply.payload, bytes.fromhex(FAKE), 2).result for reply in replies} == {1}
    assert (len(replies), kept) == (3, ["pump-1"])


def test_a_share_is_kept_by_id_and_a_store_that_is_away_costs_cases_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> Database:
        raise InputError("the store cannot be used")

    monkeypatch.setattr(module, "MOST_WAITING", 3)
    cases = Cases(away, FAKE, 0.5)
    ids = [bytes(8) + bytes([k]) + bytes(7) for k in range(0, 256, 25)]
    for id_ in ids:
        cases.add("d", id_, (1.0,), 0)
    assert cases.figures() == {"cases": 0, "cases_lost": sum(id_[8] < 128 for id_ in ids) - 3}
    cases.start()
    cases.close()
    assert (cases.figures()["cases_lost"], cases.trouble) == (6, "the store cannot be used")


def test_cases_wait_for_a_store_that_is_away_and_one_that_no_store_takes_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.01)
    monkeypatch.setattr(module, "BATCH", 3)
    tries: list[int] = []

    def back_at_the_third() -> Database:
        tries.append(1)
        if len(tries) < 3:
            raise InputError("the store cannot be used")
        return Database(tmp_path / "s.sqlite")

    cases = Cases(back_at_the_third, FAKE, 1.0)
    for k, device in enumerate(["a", "b", "\ud800", "c", "d"]):
        cases.add(device, bytes((k, *[0] * 15)), (1.0,), 0)
    cases.start()
    until(lambda: cases.figures()["cases"] == 4 and not cases.trouble)
    cases.close()
    assert (cases.figures(), cases.trouble) == ({"cases": 4, "cases_lost": 1}, "")


def test_the_flags_of_a_worker_open_a_store_or_are_one_line(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 's.sqlite'}"
    assert open_cases(None, "100%", FAKE) is None
    cases = open_cases(url, "25%", FAKE)
    assert cases is not None
    for k in range(256):
        cases.add("d", bytes((k, *[0] * 7, k, *[0] * 7)), (1.0,), 0)
    cases.close()
    assert cases.figures() == {"cases": 64, "cases_lost": 0}
    for store, share, line in ((url, "0%", "--cases-share is"), (f"sqlite:{tmp_path}/no/s", "5%", "cannot be opened")):
        with pytest.raises(InputError, match=line):
            open_cases(store, share, FAKE)
