# SPDX-License-Identifier: Apache-2.0
"""A run of an outbox that is to survive power cuts, what is left of it in a folder, and how SQLite's writes are noted.

SQLite writes by its own layer over the system (a VFS), which Python does not see. ``noting`` puts a layer over that
layer, by ctypes in the library that Python's own ``sqlite3`` has loaded: each call is made, and then noted. A folder
counts as flushed where SQLite's layer has opened it and ended the call without an error.
"""

from __future__ import annotations

import ctypes
import random
import sqlite3
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p, cast
from pathlib import Path

from hardcase_edge.fleet.outbox.file import DamagedError, RecordFile
from hardcase_edge.fleet.outbox.opening import next_boot
from hardcase_edge.fleet.outbox.records import Made
from hardcase_edge.settings.values import OLDEST_FIRST

from .cut_runs import Act, Run, State, Step, some
from .outbox import make_made
from .power_cuts import Recorder, Tree

CREATE = 0x4
NAME = b"noting"

Open = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)  # its name must outlive the call: a pointer
Delete = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int)
Write = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
Truncate = CFUNCTYPE(c_int, c_void_p, c_int64)
Sync = CFUNCTYPE(c_int, c_void_p, c_int)
OpenFolder = CFUNCTYPE(c_int, c_char_p, c_void_p)
SetCall = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p)
GetCall = CFUNCTYPE(c_void_p, c_void_p, c_char_p)


class Vfs(Structure):
    """``sqlite3_vfs``, version 3."""

    _fields_ = (
        ("version", c_int), ("file_bytes", c_int), ("longest_path", c_int), ("next", c_void_p), ("name", c_char_p),
        ("data", c_void_p), ("open", Open), ("delete", Delete), ("others", c_void_p * 10), ("time", c_void_p),
        ("set_call", SetCall), ("get_call", GetCall), ("next_call", c_void_p),
    )  # fmt: skip


class Methods(Structure):
    """``sqlite3_io_methods``, version 3."""

    _fields_ = (("version", c_int), ("close", c_void_p), ("read", c_void_p), ("write", Write), ("truncate", Truncate),
                ("sync", Sync), ("others", c_void_p * 13))  # fmt: skip


class File(Structure):
    """``sqlite3_file``: whatever the layer keeps of an open file stands behind it."""

    _fields_ = (("methods", POINTER(Methods)),)


def library() -> ctypes.CDLL | None:
    """The library that ``sqlite3`` uses; None where it is a part of Python, or cannot be told."""
    sqlite3.connect(":memory:").close()
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    paths = {line.split()[-1] for line in lines if "libsqlite3" in line}
    return ctypes.CDLL(paths.pop()) if len(paths) == 1 else None


@contextmanager
def noting(sqlite: ctypes.CDLL, recorder: Recorder) -> Iterator[None]:
    """All connections that are opened meanwhile note their calls; they are to be closed before the end."""
    sqlite.sqlite3_vfs_find.restype = POINTER(Vfs)
    below = sqlite.sqlite3_vfs_find(None).contents
    above = Vfs()
    ctypes.memmove(ctypes.byref(above), ctypes.byref(below), ctypes.sizeof(Vfs))
    files: dict[int, tuple[Path, Methods]] = {}
    kept: list[object] = []  # what SQLite points to
    folders: list[Path] = []  # opened to be flushed by the call under way

    def note_folders() -> None:
        for folder in folders:
            recorder.note("sync", folder)
        folders.clear()

    def open_(vfs: int, name: int | None, file: int, flags: int, out: int) -> int:
        path = Path(ctypes.string_at(name).decode()) if name else None
        is_new = path is not None and bool(flags & CREATE) and not path.exists()
        status: int = below.open(vfs, name, file, flags, out)
        if status or path is None or not path.is_relative_to(recorder.root):
            return status
        if is_new:
            recorder.note("create", path)
        real = cast(file, POINTER(File)).contents.methods.contents
        methods = Methods()
        ctypes.memmove(ctypes.byref(methods), ctypes.byref(real), ctypes.sizeof(Methods))
        methods.write, methods.truncate, methods.sync = write, truncate, sync
        files[file] = path, real
        kept.append(methods)
        cast(file, POINTER(File)).contents.methods = ctypes.pointer(methods)
        return status

    def write_(file: int, data: int, n: int, at: int) -> int:
        path, real = files[file]
        status: int = real.write(file, data, n, at)
        if not status:
            recorder.note("patch", path, data=(at or 0).to_bytes(8, "little") + ctypes.string_at(data, n))
        return status

    def truncate_(file: int, size: int) -> int:
        path, real = files[file]
        status: int = real.truncate(file, size)
        if not status:
            recorder.note("truncate", path, data=size.to_bytes(8, "little"))
        return status

    def sync_(file: int, flags: int) -> int:
        path, real = files[file]
        status: int = real.sync(file, flags)
        if not status:
            recorder.note("sync", path)
            note_folders()
        return status

    def delete_(vfs: int, name: bytes, is_synced: int) -> int:
        path = Path(name.decode())
        was_there = path.exists()
        status: int = below.delete(vfs, name, is_synced)
        if not status and was_there and path.is_relative_to(recorder.root):
            recorder.note("unlink", path)
            note_folders()
        return status

    def open_folder(name: bytes, out: int) -> int:
        status: int = real_open_folder(name, out)
        folder = Path(name.decode()).parent
        if not status and folder.is_relative_to(recorder.root):
            folders.append(folder)
        return status

    write, truncate, sync = Write(write_), Truncate(truncate_), Sync(sync_)
    above.name, above.open, above.delete = NAME, Open(open_), Delete(delete_)
    address = ctypes.addressof(below)
    real_open_folder = cast(below.get_call(address, b"openDirectory"), OpenFolder)
    folder_call = OpenFolder(open_folder)
    kept += [above, above.open, above.delete, folder_call]
    assert sqlite.sqlite3_vfs_register(ctypes.byref(above), 1) == 0
    below.set_call(address, b"openDirectory", cast(folder_call, c_void_p))
    try:
        yield
    finally:
        below.set_call(address, b"openDirectory", None)
        sqlite.sqlite3_vfs_unregister(ctypes.byref(above))
        sqlite.sqlite3_vfs_register(ctypes.byref(below), 1)


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
        places = sorted(self._rng.choices(range(1, len(step.log) + 1), k=self._n_cuts))
        return some(step, places, self._rng)

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
