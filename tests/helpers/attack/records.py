# SPDX-License-Identifier: Apache-2.0
"""Hostile acknowledgements, records and files of an outbox and of the store of decisions."""

from __future__ import annotations

import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from hardcase_cloud.records.database import Database
from hardcase_cloud.records.incoming import parse_record
from hardcase_edge.errors import WireError
from hardcase_edge.link.wire import decision_topic
from hardcase_edge.outbox.drain import DrainConfig
from hardcase_edge.outbox.queue import Queue

from ..edge.outbox import FakeChannel, make_config, make_made, seconds
from .outcome import Outcome

__all__ = ["attack"]

WINDOW = 20
ODD = [None, True, False, 0, -1, 1.0, 1e308, 10**30, 2**53, "1", "", [], {}, [1, 1, 1], "\ud800", "\0"]


def attack(seconds: float, seed: int) -> list[Outcome]:
    """Each kind for a share of the time."""
    return [kind(seconds / 3, seed) for kind in (hostile_acks, hostile_records, damaged_files)]


def _mutated(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(changed) + 1)
        changed[at : at + rng.randrange(3)] = rng.choice([b"", rng.randbytes(1), b"[", b"]", b",", b"9" * 20])
    return bytes(changed)


def hostile_acks(seconds_: float, seed: int) -> Outcome:
    """Wrong is an acknowledgement that removes what was not sent, or makes the outbox forget a record by itself."""
    rng, n, crashes, wrong, slowest = random.Random(seed), 0, 0, 0, 0.0
    end = time.monotonic() + seconds_
    with tempfile.TemporaryDirectory() as folder:
        config = make_config(drain=DrainConfig(window=WINDOW, burst=WINDOW, rate=1e6))
        queue, channel = Queue(Path(folder) / "o.sqlite", config, now=seconds, note=lambda line: None), FakeChannel()
        made, now = 0, 0.0
        while time.monotonic() < end:
            while queue.waiting < 2 * WINDOW:
                made += 1
                queue.add(make_made(made), now)
            now += 0.01
            queue.step(channel, now)
            flights = set(queue._drain.flights)
            stored, waiting = queue.counters["stored"], queue.waiting
            payload = _ack(rng, sorted(flights))
            began = time.process_time()
            try:
                queue.acknowledged(payload, now)
            except BaseException:
                crashes += 1
            slowest = max(slowest, time.process_time() - began)
            n += 1
            gone = len(flights) - len(queue._drain.flights)
            wrong += not (queue.counters["stored"] - stored == waiting - queue.waiting == gone)
        queue.close(now)
    return Outcome("acknowledgements to an outbox", n, crashes, wrong, slowest)


def _ack(rng: random.Random, flights: list[tuple[int, int]]) -> bytes:
    boot, sequence = rng.choice(flights)
    ranges: list[Any] = [[boot, sequence, sequence + rng.randrange(3)] for _ in range(rng.randrange(1, 4))]
    kind = rng.randrange(4)
    if kind == 0:
        ranges[0][rng.randrange(3)] = rng.choice(ODD)
    elif kind == 1:
        ranges.append(rng.choice(ODD))
    payload = json.dumps(ranges).encode()
    return _mutated(rng, payload) if kind == 2 else payload


def hostile_records(seconds_: float, seed: int) -> Outcome:
    """Wrong is a record that is taken although it names another device, or one that the database cannot export."""
    rng, n, crashes, wrong, slowest = random.Random(seed), 0, 0, 0, 0.0
    end = time.monotonic() + seconds_
    good = {
        "kind": "decision", "device": "pi-1", "boot": 1, "sequence": 1, "at": 1.5, "t": 2e9, "label": "low",
        "failed": ["x"], "latency_ms": 0.1,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        database, taken = Database(Path(folder) / "d.sqlite"), []
        while time.monotonic() < end:
            fields: dict[str, Any] = {**good, "sequence": rng.randrange(1, 10**6)}
            for _ in range(rng.randrange(3)):
                fields[rng.choice(list(good))] = rng.choice(ODD)
            payload = json.dumps(fields).encode()
            payload = _mutated(rng, payload) if rng.random() < 0.5 else payload
            began = time.process_time()
            try:
                record = parse_record(decision_topic("pi-1"), payload)
                wrong += record.device != "pi-1"
                taken.append(record)
            except WireError:
                pass
            except BaseException:
                crashes += 1
            slowest = max(slowest, time.process_time() - began)
            n += 1
            if len(taken) >= 500 or time.monotonic() >= end:
                try:
                    database.keep(taken, 5.0)
                    wrong += any(row["device"] != "pi-1" for row in database.rows())
                    database.dialect.db.execute("DELETE FROM records")
                except BaseException:
                    crashes += 1
                taken.clear()
        database.close()
    return Outcome("records to the store of decisions", n, crashes, wrong, slowest)


def damaged_files(seconds_: float, seed: int) -> Outcome:
    """Files of an outbox with damage anywhere. Wrong is a record that comes out of one and was never put in."""
    rng, n, crashes, wrong, slowest = random.Random(seed), 0, 0, 0, 0.0
    end = time.monotonic() + seconds_
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "o.sqlite"
        queue, channel = Queue(path, make_config(), now=seconds, note=lambda line: None), FakeChannel()
        for k in range(1, 200):
            queue.add(make_made(k, payload=b"record %d " % k * 9), 0.0)
        queue.commit(0.0)
        queue.close(0.0)
        good = path.read_bytes()
        known = {b"record %d " % k * 9 for k in range(1, 201)}
        while time.monotonic() < end:
            data = bytearray(good)
            for _ in range(rng.randrange(1, 20)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            path.write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.1 else data)
            began = time.process_time()
            try:
                config = make_config(drain=DrainConfig(window=400, burst=400, rate=1e6))
                queue, channel = Queue(path, config, now=seconds, note=lambda line: None), FakeChannel()
                queue.add(make_made(200, payload=b"record 200 " * 9), 0.0)
                for now in (0.0, 6.0, 12.0):
                    queue.step(channel, now)
                    for boot, sequence in list(queue._drain.flights):
                        queue.acknowledged(b"[[%d,%d,%d]]" % (boot, sequence, sequence), now)
                queue.close(20.0)
                wrong += not set(channel.sent) <= known or b"record 200 " * 9 not in channel.sent
            except BaseException:
                crashes += 1
            slowest = max(slowest, time.process_time() - began)
            n += 1
    return Outcome("damaged files of an outbox", n, crashes, wrong, slowest)
