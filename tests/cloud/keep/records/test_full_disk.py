# SPDX-License-Identifier: Apache-2.0
"""A disk that becomes full while store, worker and outbox run, by a limit of the kernel's: nothing ends or is lost."""

from __future__ import annotations

import json
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hardcase_cloud.answer.service import Service
from hardcase_cloud.keep.records import cases as cases_module
from hardcase_cloud.keep.records import keeper as keeper_module
from hardcase_cloud.keep.records.cases import Cases
from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.keeper import Keeper
from hardcase_edge.fleet.outbox.acks import unpack_acks
from hardcase_edge.fleet.outbox.queue import Queue, QueueConfig
from hardcase_edge.fleet.outbox.records import Made
from hardcase_edge.link.address import parse_address
from hardcase_edge.link.connection import Connection, ConnectionConfig
from hardcase_edge.link.wire import ack_topic, audit_topic, request_topic
from tests.helpers.cloud.brokers import running_mosquitto, until
from tests.helpers.cloud.requests import FAKE, FakeModel, ask

N = 40


@contextmanager
def full_disk(most_bytes: int) -> Iterator[None]:
    """Writes beyond this size of a file fail while the block runs (EFBIG; Python ignores the signal)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def longest(folder: Path) -> int:
    return max(path.stat().st_size for path in folder.iterdir())


def test_store_and_worker_go_on_while_the_disk_is_full_and_keep_all_once_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "RETRY_S", 0.02)
    monkeypatch.setattr(cases_module, "PAUSE_S", 0.02)
    folder = tmp_path / "disk"
    folder.mkdir()
    notes: list[str] = []
    acked: set[int] = set()
    with running_mosquitto(tmp_path) as broker:
        keeper = Keeper(Database(folder / "s.sqlite"), parse_address(broker.url), note=notes.append)
        keeper.start()
        thread = threading.Thread(target=keeper.run)
        thread.start()
        device = Connection(
            ConnectionConfig(address=parse_address(broker.url), client_id="d"), subscribe=ack_topic("d"),
            on_message=lambda m: acked.update(s for _, a, b in unpack_acks(m.payload) for s in range(a, b + 1)),
        )  # fmt: skip
        assert device.start(60)

        def send(sequence: int) -> None:
            head = {"kind": "audit", "device": "d", "boot": 1, "sequence": sequence}
            payload = json.dumps({**head, "readings": ["x" * 2_000]}).encode()
            assert device.publish(audit_topic("d"), payload, wait_s=60)

        send(1)
        until(lambda: acked == {1})
        with full_disk(longest(folder)):
            for sequence in range(2, N):
                send(sequence)
            until(lambda: keeper.ill_since is not None and keeper.waiting > 0)
            cases = Cases(lambda: Database(folder / "s.sqlite"), FAKE, 1.0)
            cases.start()
            service = Service(FakeModel(dtypes=("f32",)), on_answer=cases.add)
            for k in range(1, 60):
                payload = ask(k, (21.5,), deadline_ms=2_000)
                service.receive(request_topic("d"), payload, now=0.0)
            while service.due(0.0) is not None:
                service.run(0.1)
            assert service.counters.served == 59
            until(lambda: cases.trouble != "")
            assert len(acked) < N - 1
        until(lambda: acked == set(range(1, N)))
        until(lambda: keeper.ill_since is None)
        cases.close()
        device.stop()
        keeper.stop()
        thread.join()
        assert "records wait here" in notes[0]
        assert keeper._database.read("SELECT count(*) FROM records WHERE kind = 'audit'") == [(N - 1,)]
        keeper._database.close()


def test_an_outbox_goes_on_while_the_disk_is_full_and_writes_what_waits_once_it_is_not(tmp_path: Path) -> None:
    notes: list[str] = []
    config = QueueConfig(limit=1 << 24, drop="oldest-first", group=1, retry_s=0.01)
    queue = Queue(tmp_path / "outbox.sqlite", config, now=lambda: 1.0, note=notes.append)

    class Away:
        is_connected = is_asking = False
        connects = 0

        def publish_record(self, payload: bytes, *, is_audit: bool) -> bool:
            return False

    def add(sequence: int) -> None:
        queue.add(Made(1, sequence, 1.0, False, b'{"x":"%s"}' % (b"x" * 4_000)), sequence * 1.0)
        queue.step(Away(), sequence * 1.0)

    add(1)
    written = queue.counters["written"]
    with full_disk(longest(tmp_path)):
        for sequence in range(2, N):
            add(sequence)
        assert queue.counters["unwritable"] > 0
        assert queue.waiting == N - 1
    add(N)
    assert (queue.waiting, queue.counters["written"], queue.counters["dropped"]) == (N, N, 0)
    assert written == 1
    assert notes
    queue.close(N + 1.0)
