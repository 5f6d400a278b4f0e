# SPDX-License-Identifier: Apache-2.0
"""A model of what a power cut leaves of a folder, from the calls that a real run made to change it.

``Recorder`` notes the calls; ``Disk`` takes them and gives every folder that a cut may leave. The model is weaker than
file systems are: a name that was made, removed or renamed since its folder was last flushed may be there or
not, each by itself, in any combination; the bytes of a file since it was last flushed may be cut off anywhere, or be
zeros in part, as where a disk has the length and not the data. Of the writes to places within a file one may be
missing, or all behind one, or all but one, and the last may be torn; not every combination is tried.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

CALLS = ("open", "close", "pwrite", "ftruncate", "fsync", "replace", "unlink", "mkdir", "rmdir")
ABOVE = cache(lambda path: [str(folder) for folder in Path(path).parents][:-1])  # but the root
PARTS = 16  # lengths at which a write is cut off
Operation = tuple[str, ...]  # what, path, and a second path
Tree = dict[str, bytes | None]  # path below the root to a file's bytes; None: a folder
Patch = tuple[int, bytes | None]  # a place in a file and the bytes that come there; None: the file ends there


@dataclass
class Recorder:
    """Notes the calls that change names and bytes below a folder, except those that it is to leave out.

    A rename that is left out is noted as if the code had written the file itself, in place.
    """

    root: Path
    is_left_out: Callable[[Operation], bool] = lambda operation: False
    log: list[tuple[Operation, bytes]] = field(default_factory=list)
    marks: list[tuple[int, Any]] = field(default_factory=list)
    _open: dict[int, Path] = field(default_factory=dict)
    _content: dict[Path, bytes] = field(default_factory=dict)

    def mark(self, promise: Any) -> None:
        """From now on this is promised."""
        self.marks.append((len(self.log), promise))

    def note(self, what: str, *paths: Path, data: bytes = b"") -> None:
        operation = self._operation(what, *paths)
        if not self.is_left_out(operation):
            self.log.append((operation, data))

    def _operation(self, what: str, *paths: Path) -> Operation:
        return what, *(path.relative_to(self.root).as_posix() for path in paths)

    def _note_rename(self, old: Path, new: Path, *, is_new: bool) -> None:
        operation = self._operation("rename", old, new)
        if not self.is_left_out(operation):
            self.log.append((operation, b""))
            return
        _, temporary, place = operation
        for k, ((what, *paths), data) in enumerate(self.log):
            if paths == [temporary]:
                self.log[k] = ("write" if what == "create" and not is_new else what, place), data

    def _note_bytes(self, path: Path) -> None:
        data = path.read_bytes()
        if data != self._content.get(path, b""):
            self._content[path] = data
            self.note("write", path, data=data)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Every call is made, and noted."""
        real = {name: getattr(os, name) for name in CALLS}

        def is_ours(path: object) -> bool:
            return Path(os.fspath(path)).is_relative_to(self.root)  # type: ignore[arg-type]

        def open_(path, flags, *rest, **named):
            is_new = is_ours(path) and flags & os.O_CREAT and not os.path.exists(path)
            descriptor = real["open"](path, flags, *rest, **named)
            self._open.pop(descriptor, None)  # of a file that was closed by another way than ``os.close``
            if is_ours(path):
                self._open[descriptor] = Path(path)
            if is_new:
                self._content.pop(Path(path), None)
                self.note("create", Path(path))
            elif is_ours(path) and os.path.isfile(path):
                self._content.setdefault(Path(path), Path(path).read_bytes())
            return descriptor

        def fsync(descriptor):
            path = self._open[descriptor]
            if not path.is_dir():
                self._note_bytes(path)
            self.note("sync", path)

        def pwrite(descriptor, data, at):
            done = real["pwrite"](descriptor, data, at)
            if path := self._open.get(descriptor):
                self._content[path] = path.read_bytes()
                self.note("patch", path, data=at.to_bytes(8, "little") + data)
            return done

        def ftruncate(descriptor, length):
            real["ftruncate"](descriptor, length)
            if path := self._open.get(descriptor):
                self._note_bytes(path)

        def close(descriptor):
            self._open.pop(descriptor, None)
            real["close"](descriptor)

        def replace(old, new):
            self._note_bytes(Path(old))
            is_new = not os.path.exists(new)
            real["replace"](old, new)
            self._content[Path(new)] = self._content.pop(Path(old), b"")
            self._note_rename(Path(old), Path(new), is_new=is_new)

        def unlink(path, *rest, **named):
            real["unlink"](path, *rest, **named)
            self.note("unlink", Path(path))

        def mkdir(path, *rest, **named):
            real["mkdir"](path, *rest, **named)
            self.note("mkdir", Path(path))

        def rmdir(path, *rest, **named):
            real["rmdir"](path, *rest, **named)
            self.note("unlink", Path(path))

        with pytest.MonkeyPatch.context() as patch:
            for name, function in zip(
                CALLS, (open_, close, pwrite, ftruncate, fsync, replace, unlink, mkdir, rmdir), strict=True
            ):
                patch.setattr(os, name, function)
            yield


class Disk:
    """Names and bytes that are on the disk for certain, and changes that may be."""

    def __init__(self, tree: Tree) -> None:
        self.bytes: list[list[bytes]] = []  # of each file: what is on the disk, and what was written since
        self.patches: dict[int, list[Patch]] = {}  # of a file, since it was flushed
        self.names: dict[str, int | None] = {}  # as the running system sees them; None: a folder
        for path, data in tree.items():
            self.names[path] = None if data is None else self._file(data)
        self.durable = dict(self.names)
        self.pending: list[tuple[str, str, str, int | None]] = []  # folder, name that goes, name that comes, file

    def _file(self, data: bytes) -> int:
        self.bytes.append([data])
        return len(self.bytes) - 1

    def do(self, operation: Operation, data: bytes) -> None:
        """One call."""
        what, path = operation[:2]
        if what == "sync" and self.names.get(path) is not None:
            file = self.names[path]
            self.bytes[file] = [patched(self.bytes[file][-1], self.patches.pop(file, []))]  # type: ignore[index,arg-type]
        elif what == "sync":
            for change in [c for c in self.pending if c[0] == path]:
                apply(self.durable, change)
                self.pending.remove(change)
        elif what == "write":
            self.bytes[self.names[path]].append(data)  # type: ignore[index]
        elif what in ("patch", "truncate"):
            part = data[8:] if what == "patch" else None
            self.patches.setdefault(self.names[path], []).append((int.from_bytes(data[:8], "little"), part))  # type: ignore[arg-type]
        else:
            gone = path if what in ("rename", "unlink") else ""
            comes = {"rename": operation[-1], "unlink": ""}.get(what, path)
            file = self.names[path] if gone else None if what == "mkdir" else self._file(b"")
            change = (str(Path(path).parent), gone, comes, file)
            apply(self.names, change)
            self.pending.append(change)

    def now(self) -> Tree:
        """The folder as the running system sees it."""
        return {
            path: None if file is None else patched(self.bytes[file][-1], self.patches.get(file, []))
            for path, file in self.names.items()
        }

    def cuts(self) -> Iterator[Tree]:
        """Every folder that a cut may leave now."""
        for chosen in product((False, True), repeat=len(self.pending)):
            names = dict(self.durable)
            for change, is_done in zip(self.pending, chosen, strict=True):
                if is_done:
                    apply(names, change)
            there = {p: f for p, f in names.items() if all(q in names for q in ABOVE(p))}
            files = [(path, file) for path, file in there.items() if file is not None]
            for contents in product(*[self._versions(file) for _, file in files]):
                yield {path: None for path, file in there.items() if file is None} | {
                    path: data for (path, _), data in zip(files, contents, strict=True)
                }

    def random_cut(self, rng: random.Random, sector: int = 1) -> Tree:
        """A folder that a cut may leave now: each name and each write that was not flushed by a coin, one torn.

        ``sector``: bytes that are written all or none of them.
        """
        names = dict(self.durable)
        for change in self.pending:
            if rng.random() < 0.5:
                apply(names, change)
        there = {p: f for p, f in names.items() if all(q in names for q in ABOVE(p))}
        return {path: None if file is None else self._random_version(file, rng, sector) for path, file in there.items()}

    def _random_version(self, file: int, rng: random.Random, sector: int) -> bytes:
        patches = self.patches.get(file)
        if not patches:
            return rng.choice(self._versions(file))
        some = (
            [p for p in patches if rng.random() < 0.5]
            if rng.random() < 0.5
            else patches[: rng.randint(0, len(patches))]
        )
        if some and some[-1][1] is not None and rng.random() < 0.3:
            length = rng.randrange(len(some[-1][1])) // sector * sector
            some = [*some[:-1], (some[-1][0], some[-1][1][:length])]
        return patched(self.bytes[file][-1], some)

    def _versions(self, file: int) -> list[bytes]:
        versions = self.bytes[file]
        if self.patches.get(file):
            return [*versions, *(patched(versions[-1], some) for some in subsets(self.patches[file]))]
        if len(versions) == 1:
            return versions
        last, half = versions[-1], len(versions[-1]) // 2
        holes = [bytes(len(last)), last[:half] + bytes(len(last) - half), bytes(half) + last[half:]]
        return [*versions, *[last[: len(last) * k // PARTS] for k in range(PARTS)], *holes]


def patched(data: bytes, patches: list[Patch]) -> bytes:
    out = bytearray(data)
    for at, part in patches:
        end = at + len(part or b"")
        out.extend(bytes(max(0, end - len(out))))
        if part is None:
            del out[at:]
        else:
            out[at:end] = part
    return bytes(out)


def subsets(patches: list[Patch]) -> Iterator[list[Patch]]:
    """Those before any one, with the last whole or torn; all but one; one alone."""
    at, last = patches[-1]
    if last is not None:
        yield [*patches[:-1], (at, last[: len(last) // 2])]
    for k in range(1, len(patches) + 1):
        yield patches[:k]
        yield [*patches[: k - 1], *patches[k:]]
        yield [patches[k - 1]]


def apply(names: dict[str, int | None], change: tuple[str, str, str, int | None]) -> None:
    _, gone, comes, file = change
    names.pop(gone, None)
    if comes:
        names[comes] = file


def without_leftovers(tree: Tree) -> frozenset[tuple[str, bytes | None]]:
    """What counts of a folder: all but temporary files."""
    return frozenset((path, data) for path, data in tree.items() if path.rpartition("/")[2][0] != ".")


def kind_of(operation: Operation) -> str:
    """A call without the random part of a temporary file's name, and with one name for what is there many times."""
    what, *paths = operation
    names = []
    for path in paths:
        place = Path(path)
        name = place.name[:-9] if place.name.startswith(".") and len(place.name) > 9 else place.name
        name = re.sub(r"^\d{4}$", "number", re.sub(r"^[0-9a-f]{64}$", "SHA256", name))
        is_in_slot = place.parent.name in ("a", "b")
        names.append("slot" if name in ("a", "b") else f"slot/{name}" if is_in_slot else name or "top")
    return " ".join([what, *names])


def read_tree(root: Path) -> Tree:
    """What is below a folder."""
    paths = sorted(root.rglob("*"))
    return {p.relative_to(root).as_posix(): None if p.is_dir() else p.read_bytes() for p in paths}


def materialise(tree: Tree, root: Path) -> None:
    """Make a folder of a tree."""
    root.mkdir(parents=True)
    for path, data in sorted(tree.items()):
        if data is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(data)
