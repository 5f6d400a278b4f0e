# SPDX-License-Identifier: Apache-2.0
"""A process with an outbox, killed at random moments: what it said is on the disk is on the disk."""

from __future__ import annotations

import random
import subprocess
import sys
import time

from hardcase_edge.fleet.outbox.file import RecordFile
from hardcase_edge.settings.values import OLDEST_FIRST

WRITER = """
import sys
from pathlib import Path
from tests.helpers.edge.outbox import make_config, make_made, seconds
from hardcase_edge.fleet.outbox.queue import Queue
queue = Queue(Path(sys.argv[1]), make_config(group=7), now=seconds, note=print)
first = int(sys.argv[2])
for k in range(first, first + 1_000_000):
    queue.add(make_made(k, boot=first, payload=b"x" * (k % 900)), 0.0)
    if k % 7 == 0 and queue.commit(0.0):
        print(k, flush=True)
"""


def test_a_process_that_is_killed_loses_nothing_that_it_said_is_on_the_disk(tmp_path):
    path, rng = tmp_path / "outbox.sqlite", random.Random(3)
    expected: list[tuple[int, int]] = []
    for k in range(3):
        first = 10**6 * (k + 1)
        command = [sys.executable, "-c", WRITER, str(path), str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            said = process.stdout.readline()
            time.sleep(rng.random() * 0.1)
            process.kill()
            said += process.stdout.read()
        told = [int(line) for line in said.splitlines(keepends=True) if line.endswith("\n")]
        expected += [(first, sequence) for sequence in range(first, told[-1] + 1)]
        file = RecordFile(path, 1 << 30, OLDEST_FIRST)
        rows, bad = file.after(0, 10**7)
        file.close()
        assert not bad
        kept = [row.key for row in rows]
        assert len(kept) == len(set(kept))
        assert set(expected) <= set(kept)
        assert len(kept) - len(expected) < 8, "nothing is there but the group that it could not tell any more"
        assert all(row.record.payload == b"x" * (row.record.sequence % 900) for row in rows)
        expected = kept
