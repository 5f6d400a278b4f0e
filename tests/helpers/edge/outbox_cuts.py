# SPDX-License-Identifier: Apache-2.0
"""A run of an outbox that is to survive power cuts, and what is left of it in a folder."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hardcase_edge.outbox.boot import next_boot
from hardcase_edge.outbox.file import DamagedError, RecordFile
from hardcase_edge.outbox.records import Made
from hardcase_edge.settings.values import OLDEST_FIRST

from .cut_runs import CutRuns
from .outbox import make_made
from .power_cuts import Disk
from .sqlite_calls import library, noting

__all__ = ["RUNS", "Cuts", "View", "commits", "seen_in"]

View = tuple[int, frozenset[tuple[int, int]], bool]  # the last boot number, the records, whether the next one goes in
RUNS = 3  # starts of the device in a run
COMMITS = 60  # of each start, which the log is checkpointed within
GROUP = 5  # records in a commit
LIMIT = 1 << 30
NEXT = (2**52, 1)  # the record that must go in after any cut


def commits(folder: Path, lengths: Sequence[int] = (COMMITS,) * RUNS) -> Iterator[Callable[[], View]]:
    """Start, commit groups of records, and remove those that the cloud acknowledged; behind each step its view.

    ``lengths``: numbers of commits of each start.
    """
    kept = frozenset[tuple[int, int]]()
    yield lambda: (0, kept, True)
    for n_commits in lengths:
        boot, is_written = next_boot(folder)
        assert is_written
        yield _shows(boot, kept)
        file = RecordFile(folder / "outbox.sqlite", LIMIT, OLDEST_FIRST)
        try:
            for k in range(n_commits):
                made = [_made(boot, 1 + k * GROUP + n) for n in range(GROUP)]
                done = file.after(0, GROUP)[0] if k % 3 == 2 else []
                file.commit(made, [row.id for row in done])
                kept = (kept | {(m.boot, m.sequence) for m in made}) - {row.key for row in done}
                yield _shows(boot, kept)
        finally:
            file.close()


def _shows(boot: int, kept: frozenset[tuple[int, int]]) -> Callable[[], View]:
    return lambda: (boot, kept, True)


def seen_in(folder: Path) -> View:
    """What a folder holds; a damaged record or file is nothing, and the next record must go in."""
    try:
        boot = int((folder / "boot").read_bytes())
    except (FileNotFoundError, ValueError):
        boot = 0
    try:
        file = RecordFile(folder / "outbox.sqlite", LIMIT, OLDEST_FIRST)
    except DamagedError:
        return boot, frozenset(), False
    try:
        rows, bad = file.after(0, 10**6)
        keys = [row.key for row in rows]
        are_right = all(row.record == _made(*row.key) for row in rows)
        file.commit([_made(*NEXT)], [])
        last = file.after(0, 10**6)[0][-1].key
        return boot, frozenset(keys), not bad and are_right and len(keys) == len(set(keys)) and last == NEXT
    except DamagedError:
        return boot, frozenset(), False
    finally:
        file.close()


def _made(boot: int, sequence: int) -> Made:
    return make_made(sequence, boot=boot, payload=b"x" * (3_000 + sequence))


class Cuts(CutRuns[View]):
    """Cuts the power at calls of SQLite and of the device, chosen at random, in some starts of a device."""

    longest, n_cuts = 25, 120  # commits of a start, and states of a run

    def sample(self, seed: int) -> None:
        """Some starts, and some of the states that a cut may leave of them."""
        rng, root = random.Random(seed), self.new_folder()
        before, recorder = self.recorder(root)
        sqlite = library()
        assert sqlite is not None, "this Python has SQLite within itself"
        ends, views = list[int](), list[View]()
        with recorder.recording(), noting(sqlite, recorder):
            for view in commits(root, [rng.randint(1, self.longest) for _ in range(RUNS)]):
                ends.append(len(recorder.log))
                views.append(view())
        chosen = sorted(rng.choices(range(1, len(recorder.log) + 1), k=self.n_cuts))
        disk, at = Disk(before), 0
        for n in chosen:
            for operation, data in recorder.log[at:n]:
                disk.do(operation, data)
            at, done = n, bisect_right(ends, n) - 1
            self.n_states += 1
            if self.view(disk.random_cut(rng)) not in views[done : done + 2]:
                self.wrong.add(f"step {done}")
                return

    def look(self, root: Path) -> View:
        """What the outbox holds."""
        return seen_in(root)
