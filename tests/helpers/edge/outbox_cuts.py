# SPDX-License-Identifier: Apache-2.0
"""A run of an outbox that is to survive power cuts, and what is left of it in a folder."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hardcase_edge.fleet.outbox.boot import next_boot
from hardcase_edge.fleet.outbox.file import DamagedError, RecordFile
from hardcase_edge.fleet.outbox.records import Made
from hardcase_edge.settings.values import OLDEST_FIRST

from .cut_runs import Act, Run, State, Step, some
from .outbox import make_made
from .power_cuts import Recorder, Tree
from .sqlite_calls import library, noting

__all__ = ["OutboxRun", "outbox_runs"]

View = tuple[int, frozenset[tuple[int, int]], bool]  # the last boot number, the records, whether the next one goes in
RUNS = 3  # starts of the device in a run
GROUP = 5  # records in a commit
LIMIT = 1 << 30
NEXT = (2**52, 1)  # the record that must go in after any cut


def commits(folder: Path, lengths: Sequence[int]) -> Iterator[View]:
    """So many commits of groups of records at each start, which remove what the cloud acknowledged; the views."""
    kept = frozenset[tuple[int, int]]()
    yield 0, kept, True
    for n_commits in lengths:
        boot, is_written = next_boot(folder)
        assert is_written
        yield boot, kept, True
        file = RecordFile(folder / "outbox.sqlite", LIMIT, OLDEST_FIRST)
        try:
            for k in range(n_commits):
                made = [_made(boot, 1 + k * GROUP + n) for n in range(GROUP)]
                done = file.after(0, GROUP)[0] if k % 3 == 2 else []
                file.commit(made, [row.id for row in done])
                kept = (kept | {(m.boot, m.sequence) for m in made}) - {row.key for row in done}
                yield boot, kept, True
        finally:
            file.close()


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


class OutboxRun(Run):
    """Some starts of a device; the power is cut at calls of SQLite and of the device that are drawn."""

    def __init__(self, rng: random.Random, longest: int = 25, n_cuts: int = 120) -> None:
        """Commits of a start, at most, and states."""
        self._rng, self._longest, self._n_cuts = rng, longest, n_cuts

    def steps(self, root: Path) -> Iterator[tuple[str, Act]]:
        """All as one step, as nothing flushes SQLite's log between commits; it promises each view."""
        sqlite = library()
        assert sqlite is not None, "this Python has SQLite within itself"

        def act(recorder: Recorder) -> None:
            with noting(sqlite, recorder):
                for view in commits(root, [self._rng.randint(1, self._longest) for _ in range(RUNS)]):
                    recorder.mark(view)

        yield "commits", act

    def states(self, step: Step) -> Iterator[tuple[int, Tree]]:
        return some(step, self._n_cuts, self._rng)

    def look(self, root: Path) -> View:
        return seen_in(root)

    def wrong(self, step: Step, started: object = None) -> Callable[[State], str]:
        """All but the last view that was promised, and the one behind it."""

        def what(state: State) -> str:
            done = bisect_right(step.marks, state.at, key=lambda mark: mark[0]) - 1
            return "" if state.seen in [view for _, view in step.marks[done : done + 2]] else f"commit {done}"

        return what


def outbox_runs(rng: random.Random) -> Iterator[Run]:
    yield OutboxRun(rng)
