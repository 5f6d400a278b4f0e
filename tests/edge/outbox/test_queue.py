# SPDX-License-Identifier: Apache-2.0
"""The outbox without threads: what is stored goes, what is not stays, and no disk or message ends it."""

from __future__ import annotations

import errno
import json

import pytest

from hardcase_cloud.sim.fleet.scenario import parse_scenario
from hardcase_cloud.sim.replay.world import replay
from hardcase_edge.fleet.outbox import file as outbox_file
from hardcase_edge.fleet.outbox.acks import MAX_RANGES, pack_acks
from hardcase_edge.fleet.outbox.drain import DrainConfig
from hardcase_edge.fleet.outbox.queue import Queue
from tests.helpers.edge.outbox import FakeChannel, make_config, make_made, on_files, seconds

MOST_UNWRITTEN = make_config().most_unwritten
FAST = DrainConfig(window=100, burst=100, rate=1e5)
BREAKS = "[fleet]\ndevices = 4\ndecisions = 50\npublish = 1\n[network]\nloss = 0.2\nduplicate = 0.1\n" + "".join(
    f'[[fault]]\nkind = "{kind}"\nevery_s = {every}\nfor_s = 2\nshare = 0.5\n'
    for kind, every in (("power-cut", 5), ("partition", 4), ("broker", 6), ("store", 3))
)


@pytest.fixture
def make_queue(tmp_path):
    """A queue on the same file every time."""
    notes, queues = [], []

    def make(**settings) -> Queue:
        queue = Queue(tmp_path / "outbox.sqlite", make_config(**settings), now=seconds, note=notes.append)
        queue.notes = notes
        queues.append(queue)
        return queue

    yield make
    for queue in queues:
        queue.close(1e9)


def filled(queue: Queue, n: int, first: int = 1) -> Queue:
    for k in range(first, first + n):
        queue.add(make_made(k, made=seconds(), payload=b'{"n":%d}' % k), 0.0)
    return queue


def numbers(channel: FakeChannel) -> list[int]:
    return [json.loads(payload)["n"] for payload in channel.sent]


def test_what_is_acknowledged_before_its_group_is_due_never_reaches_the_disk(make_queue):
    queue, channel = make_queue(drain=FAST), FakeChannel()
    filled(queue, 3).step(channel, 0.0)
    queue.acknowledged(b"[[1,1,1]]", 0.1)
    queue.step(channel, 0.1)
    assert numbers(channel) == [1, 2, 3]
    queue.acknowledged(b"[[1,2,3]]", 0.2)
    queue.step(channel, 5.0)
    assert (queue.counters["written"], queue.counters["stored"], queue.waiting) == (0, 3, 0)


def test_the_broker_acknowledges_nothing_the_store_does(make_queue):
    queue, channel = make_queue(drain=FAST), FakeChannel()
    filled(queue, 3).step(channel, 0.0)
    for now in range(1, 100):
        queue.step(channel, float(now))
    assert queue.waiting == 3
    assert queue.counters["written"] == 3


def test_records_wait_on_the_disk_for_another_start_and_go_oldest_first(make_queue):
    offline = FakeChannel()
    offline.is_connected = False
    first = filled(make_queue(), 100)
    first.step(offline, 0.0)
    first.close(0.1)
    queue, channel = make_queue(drain=FAST), FakeChannel()
    filled(queue, 5, 101)
    queue.step(channel, 0.0)
    assert numbers(channel) == [1]
    queue.acknowledged(b"[[1,1,1]]", 0.1)
    queue.step(channel, 0.1)
    queue.acknowledged(b"[[1,1,500]]", 0.2)
    queue.step(channel, 0.2)
    queue.acknowledged(b"[[1,1,500]]", 0.3)
    assert numbers(channel) == list(range(1, 106))
    queue.step(channel, 9.0)
    assert queue.waiting == 0
    queue.close(9.1)
    again = make_queue()
    again.step(offline, 10.0)
    assert again.waiting == 0


def test_an_acknowledgement_of_what_was_not_sent_removes_nothing(make_queue):
    queue, channel = make_queue(), FakeChannel()
    filled(queue, 10).step(channel, 0.0)
    assert numbers(channel) == [1]
    queue.acknowledged(b"[[1,2,9007199254740991],[2,1,1]]", 0.1)
    assert (queue.waiting, queue.counters["stored"]) == (10, 0)


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"{}", b"[1]", b"[[1,2]]", b"[[1,3,2]]", b"[[0,1,1]]", b"[[1,1,true]]", b"[[1,1,1.0]]", b"\xff", b"null",
        b"[" * 10_000, b"[[1,1," + b"9" * 5000 + b"]]", json.dumps([[1, 1, 1]] * (MAX_RANGES + 1)).encode(),
        b" " * 20_000 + b"[[1,1,1]]", "[[1,1,1]]".encode("utf-16"), b"\xef\xbb\xbf[[1,1,1]]",
    ],
)  # fmt: skip
def test_an_acknowledgement_that_breaks_a_rule_is_counted_and_dropped(make_queue, payload):
    queue, channel = make_queue(), FakeChannel()
    filled(queue, 1).step(channel, 0.0)
    queue.acknowledged(payload, 0.1)
    assert (queue.waiting, queue.counters["malformed_acks"]) == (1, 1)


def test_the_longest_acknowledgements_are_read():
    keys = [(2**53 - 1, 2**53 - 1 - 2 * k) for k in range(1000)]
    queue_range = [len(payload) for payload in pack_acks(keys)]
    assert len(queue_range) == 4
    assert max(queue_range) <= 16_384


def test_a_full_disk_ends_nothing_and_records_are_sent_from_memory(make_queue, monkeypatch):
    queue, channel = make_queue(drain=FAST), FakeChannel()
    channel.is_connected = False
    queue.step(channel, 0.0)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(queue._file, "commit", full)
        filled(queue, MOST_UNWRITTEN + 10)
        for now in range(1, 30):
            queue.step(channel, float(now))
        assert queue.counters["unwritable"] in range(4, 8), "it is tried again every five seconds"
        assert (queue.waiting, queue.counters["dropped"]) == (MOST_UNWRITTEN, 10)
        channel.is_connected = True
        queue.step(channel, 30.0)
        queue.acknowledged(b"[[1,11,11]]", 30.1)
        queue.step(channel, 30.2)
        assert numbers(channel)[:3] == [11, 12, 13]
    queue.step(channel, 60.0)
    assert queue.counters["written"] == MOST_UNWRITTEN - 1
    assert [line.partition("; ")[2] or line.rpartition(" ")[2] for line in queue.notes] == ["decisions go on", "again"]


def test_a_damaged_file_is_moved_aside_and_counted_and_a_new_one_begins(make_queue, tmp_path):
    path = tmp_path / "outbox.sqlite"
    for _ in range(2):
        path.write_bytes(b"SQLite format 3\0 and then rubbish" * 200)
        queue, channel = make_queue(drain=FAST), FakeChannel()
        channel.is_connected = False
        filled(queue, 3).step(channel, 0.0)
        queue.step(channel, 6.0)
        assert (queue.counters["damaged"], queue.counters["written"], queue.waiting) == (1, 3, 3)
        queue.close(7.0)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["outbox.bad", "outbox.sqlite"]
    assert "is damaged" in queue.notes[0]


def test_a_file_that_is_damaged_while_it_is_used_costs_only_what_was_not_sent(make_queue, tmp_path):
    queue, channel = make_queue(drain=FAST), FakeChannel()
    filled(queue, 3).step(channel, 0.0)
    queue.acknowledged(b"[[1,1,1]]", 0.1)
    queue.step(channel, 0.1)
    assert numbers(channel) == [1, 2, 3]
    queue.commit(0.2)
    queue._file._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with (tmp_path / "outbox.sqlite").open("r+b") as file:
        file.seek(0)
        file.write(bytes(8192))
    queue._file._db.execute("PRAGMA shrink_memory")
    filled(queue, 1, 4)
    for now in (5.0, 11.0, 17.0):
        queue.step(channel, now)
    assert queue.counters["damaged"] == 1
    assert queue.waiting == 3, "2 and 3 are in flight and so in memory, 4 is new"


def test_a_damaged_row_is_counted_and_the_others_go(make_queue):
    queue, channel = make_queue(), FakeChannel()
    channel.is_connected = False
    filled(queue, 5).step(channel, 0.0)
    queue.commit(0.1)
    queue._file._db.execute("UPDATE records SET payload = CAST('{\"n\":9}' AS BLOB) WHERE id = 1")
    queue._file._db.execute("UPDATE records SET sequence = 'x' WHERE id = 2")
    queue.close(0.2)
    again, channel = make_queue(drain=FAST), FakeChannel()
    again.step(channel, 0.0)
    again.acknowledged(b"[[1,3,3]]", 0.1)
    again.step(channel, 0.1)
    assert numbers(channel) == [3, 4, 5]
    again.step(channel, 3.0)
    assert (again.counters["damaged"], again.waiting) == (2, 2)


def test_what_cannot_be_sent_now_is_sent_later(make_queue):
    queue, channel = make_queue(drain=FAST), FakeChannel()
    channel.takes = False
    assert 0 < filled(queue, 2).step(channel, 0.0) < 1
    channel.takes = True
    queue.step(channel, 0.1)
    assert numbers(channel) == [1]
    assert queue.counters["sent"] == 1


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """Replays in which all breaks, of devices whose outbox is a file."""
    without = [s.replace("FULL", "OFF") for s in outbox_file.SETTINGS]
    monkeypatch.setattr(outbox_file, "SETTINGS", without)  # the machine itself stays on
    return lambda seed: replay(parse_scenario("outbox.toml", BREAKS.encode()), seed, on_files(tmp_path))


@pytest.mark.parametrize("seed", range(2))
def test_whatever_breaks_nothing_that_was_on_the_disk_is_lost_and_nothing_is_there_twice(broken, seed):
    report = broken(seed)
    assert report.problem == ""
    assert min(report.counts[kind] for kind in ("power-cut", "partition", "broker", "store")) > 2
    assert report.counts["records"] > 100


def test_a_file_that_loses_a_record_would_be_found(broken, monkeypatch):
    commit = outbox_file.RecordFile.commit
    monkeypatch.setattr(
        outbox_file.RecordFile, "commit", lambda self, add, *rest, **named: commit(self, add[1:], *rest, **named)
    )
    assert "durable records are lost" in broken(0).problem
