# SPDX-License-Identifier: Apache-2.0
"""Hostile acknowledgements, records and files of an outbox and of the store of decisions."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.incoming import parse_record
from hardcase_edge.errors import WireError
from hardcase_edge.fleet.outbox.drain import DrainConfig
from hardcase_edge.fleet.outbox.queue import Queue
from hardcase_edge.link.wire import decision_topic

from ..edge.outbox import FakeChannel, make_config, make_made, seconds
from .outcome import Attack, each, mutated

WINDOW = 20
BATCH = 500  # records that the database takes at once
ODD = [None, True, False, 0, -1, 1.0, 1e308, 10**30, 2**53, "1", "", [], {}, [1, 1, 1], "\ud800", "\0"]


def _ack(rng: random.Random, flights: list[tuple[int, int]]) -> bytes:
    boot, sequence = rng.choice(flights)
    ranges: list[Any] = [[boot, sequence, sequence + rng.randrange(3)] for _ in range(rng.randrange(1, 4))]
    kind = rng.randrange(4)
    if kind == 0:
        ranges[0][rng.randrange(3)] = rng.choice(ODD)
    elif kind == 1:
        ranges.append(rng.choice(ODD))
    payload = json.dumps(ranges).encode()
    return mutated(rng, payload) if kind == 2 else payload


def acks(rng: random.Random) -> Generator[Any, None, None]:
    """Acknowledgements to an outbox that sends."""
    with tempfile.TemporaryDirectory() as folder:
        config = make_config(drain=DrainConfig(window=WINDOW, burst=WINDOW, rate=1e6))
        queue, channel = Queue(Path(folder) / "o.sqlite", config, now=seconds, note=lambda line: None), FakeChannel()
        made, now = 0, 0.0
        while True:
            while queue.waiting < 2 * WINDOW:
                made += 1
                queue.add(make_made(made), now)
            now += 0.01
            queue.step(channel, now)
            flights = queue._drain.flights
            yield queue, _ack(rng, sorted(flights)), now, (queue.counters["stored"], queue.waiting, len(flights))


def removes_what_was_sent(case: Any, _: object) -> bool:
    """Nothing else goes, and the outbox forgets no record by itself."""
    queue, _, _, (stored, waiting, flights) = case
    return bool(queue.counters["stored"] - stored == waiting - queue.waiting == flights - len(queue._drain.flights))


def records(rng: random.Random) -> Generator[tuple[bytes, Database, list[Any]], None, None]:
    """Payloads for a database, and what of them was taken."""
    good = {
        "kind": "decision", "device": "pi-1", "boot": 1, "sequence": 1, "at": 1.5, "t": 2e9, "label": "low",
        "failed": ["x"], "latency_ms": 0.1,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, closing(Database(Path(folder) / "d.sqlite")) as database:
        taken = list[Any]()
        try:
            while True:
                fields: dict[str, Any] = {**good, "sequence": rng.randrange(1, 10**6)}
                for _ in range(rng.randrange(3)):
                    fields[rng.choice(list(good))] = rng.choice(ODD)
                payload = json.dumps(fields).encode()
                yield mutated(rng, payload) if rng.random() < 0.5 else payload, database, taken
        finally:
            assert _are_kept(database, taken)


def is_its_own(case: tuple[bytes, Database, list[Any]], record: Any) -> bool:
    """No record is taken although it names another device, and the database exports each."""
    if isinstance(record, WireError):
        return True
    case[2].append(record)
    return record.device == "pi-1" and (len(case[2]) < BATCH or _are_kept(*case[1:]))


def _are_kept(database: Database, taken: list[Any]) -> bool:
    database.keep(taken, 5.0)
    are_right = all(row["device"] == "pi-1" for row in database.rows())
    database.dialect.db.execute("DELETE FROM records")
    taken.clear()
    return are_right


def files(rng: random.Random) -> Generator[Path, None, None]:
    """Files of an outbox with damage anywhere."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "o.sqlite"
        queue = Queue(path, make_config(), now=seconds, note=lambda line: None)
        for k in range(1, 200):
            queue.add(make_made(k, payload=_text(k)), 0.0)
        queue.commit(0.0)
        queue.close(0.0)
        good = path.read_bytes()
        while True:
            data = bytearray(good)
            for _ in range(rng.randrange(1, 20)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            path.write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.1 else data)
            yield path


def _text(k: int) -> bytes:
    return b"record %d " % k * 9


def drained(path: Path) -> list[bytes]:
    """What an outbox of this file, and of one more record, sends."""
    config = make_config(drain=DrainConfig(window=400, burst=400, rate=1e6))
    queue, channel = Queue(path, config, now=seconds, note=lambda line: None), FakeChannel()
    queue.add(make_made(200, payload=_text(200)), 0.0)
    for now in (0.0, 6.0, 12.0):
        queue.step(channel, now)
        for boot, sequence in list(queue._drain.flights):
            queue.acknowledged(b"[[%d,%d,%d]]" % (boot, sequence, sequence), now)
    queue.close(20.0)
    return channel.sent


def was_put_in(_: Path, sent: list[bytes]) -> bool:
    """No record comes out that was never put in, and the newest does."""
    return set(sent) <= set(map(_text, range(1, 201))) and _text(200) in sent


attack = each(
    Attack(
        "acknowledgements to an outbox", acks, lambda case: case[0].acknowledged(*case[1:3]), removes_what_was_sent,
        caught=BaseException,
    ),
    Attack(
        "records to the store of decisions", records, lambda case: parse_record(decision_topic("pi-1"), case[0]),
        is_its_own, (WireError,), caught=BaseException,
    ),
    Attack("damaged files of an outbox", files, drained, was_put_in, caught=BaseException),
)  # fmt: skip
