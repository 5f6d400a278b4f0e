# SPDX-License-Identifier: Apache-2.0
"""Kills every routine that writes whole files or folders at each of its system calls, and looks what a reader finds.

A process of its own loads ``crash_shim.c`` in front of libc and forks once for each crash: it ends before a call, in
the midst of a write, or as by a power cut, which empties what was not flushed. A reader must find what stood there
before or what was to stand there, and the next run must end as if nothing had been. With time left, several crashes
follow each other, so that recovering is interrupted too.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from tests.helpers.attack.outcome import Attack, Outcome, apart
from tests.helpers.places import ROOT

SHIM = ROOT / "tests" / "helpers" / "crash_shim.c"
KILL, TORN, POWER = range(3)
STATUS = 99  # of a process that was ended on purpose
CHAIN = 4  # crashes that follow each other, at most


@dataclass(frozen=True)
class Routine:
    """A routine that writes, with what surrounds it.

    prepare : makes what stands in a folder before
    run : the routine, on that folder; again after a crash it must end like the first time
    read : what each kind of reader finds there, comparable values
    is_told : whether a reader who finds neither is told in one line what to do
    rest : the names that may be left in the folder after a run that ended
    """

    name: str
    prepare: Callable[[Path], None]
    run: Callable[[Path], None]
    read: Callable[[Path], tuple[Any, ...]]
    is_told: Callable[[Path], bool] = lambda folder: False
    rest: frozenset[str] | None = None


def attack(seconds: float, seed: int) -> list[Outcome]:
    """Every crash of every routine once, and chains of crashes until the seconds are over."""
    return _run("sound", seconds, seed)


def attack_on_the_unsound() -> list[Outcome]:
    """Crashes of routines that are not whole, which must be found: else the attack finds nothing."""
    return _run("unsound", 0, 0)


def _run(which: str, seconds: float, seed: int) -> list[Outcome]:
    with tempfile.TemporaryDirectory() as folder:
        shim = Path(folder) / "shim.so"
        build = ["cc", "-O1", "-shared", "-fPIC", "-o", str(shim), str(SHIM), "-ldl"]
        subprocess.run(build, check=True, capture_output=True, timeout=60)
        return apart(main, seconds, seed, which, folder, LD_PRELOAD=str(shim))


# ---------------------------------------------------------------- the routines


def sound() -> list[Routine]:
    """All routines of the project that write whole files and folders; imports what they need."""
    return [*_files(), *_bundles(), _keys(), _store(), *_folders()]


def unsound() -> list[Routine]:
    """Routines that are not whole: in place, without a flush, and with a moment without any file."""

    def in_place(folder: Path) -> None:
        (folder / "a").write_text("after")

    def unflushed(folder: Path) -> None:
        (folder / "b").write_text("after")
        (folder / "b").rename(folder / "a")

    def between(folder: Path) -> None:
        (folder / "a").unlink(missing_ok=True)
        write_whole(folder / "a", b"after")

    from hardcase_edge.base.files import write_whole

    def prepare(folder: Path) -> None:
        write_whole(folder / "a", b"before")

    return [Routine(run.__name__, prepare, run, lambda f: _text(f / "a")) for run in (in_place, unflushed, between)]


def _text(path: Path) -> tuple[str | None]:
    return (path.read_text() if path.exists() else None,)


def _files() -> list[Routine]:
    from hardcase_edge.base.files import write_new, write_whole

    def write_once(folder: Path) -> None:
        if not (folder / "a").exists():  # the second time it stands there
            write_new(folder / "a", b"after" * 100)

    return [
        Routine(
            "a file over another", lambda f: void((f / "a").write_text("before")),
            lambda f: write_whole(f / "a", b"after" * 100), lambda f: _text(f / "a"),
        ),
        Routine(
            "a new file", lambda f: None, lambda f: write_whole(f / "a", b"after" * 100), lambda f: _text(f / "a"),
        ),
        Routine("a file that must be new", lambda f: None, write_once, lambda f: _text(f / "a")),
    ]  # fmt: skip


def void(_: object) -> None:
    """Nothing, of something."""


def _bundles() -> list[Routine]:
    from hardcase_edge.bundle.file import read_bundle_bytes, unpack_bundle
    from hardcase_edge.bundle.load import load_bundle
    from hardcase_edge.bundle.signature import make_keys
    from hardcase_edge.errors import SignatureError
    from hardcase_export.publish import publish

    golden = unpack_bundle(read_bundle_bytes(ROOT / "tests" / "golden" / "v1.hcb"))
    before, after = (
        replace(golden, golden=(), manifest={**golden.manifest, "name": name}) for name in ("before", "after")
    )
    private, public = make_keys()
    trusted = Path(tempfile.mkdtemp(dir=WORK)) / "fleet.pub"
    trusted.write_bytes(public)

    def write(bundle: Any, key: bytes | None) -> Callable[[Path], None]:
        return lambda f: void(publish(bundle, f / "model.hcb", key))

    def name(path: Path, trust: Path | None) -> str | None:
        try:
            return load_bundle(path, trust=trust).manifest.name if path.exists() else None
        except SignatureError:
            return "refused"

    def read(folder: Path) -> tuple[Any, ...]:
        return tuple(name(folder / "model.hcb", trust) for trust in (None, trusted))

    signed, unsigned = write(before, private), write(before, None)
    rows = [
        ("a signed bundle over a signed one", signed, write(after, private)),
        ("a signed bundle over another", unsigned, write(after, private)),
        ("a bundle over a signed one", signed, write(after, None)),
        ("a first signed bundle", void, write(after, private)),
    ]
    return [Routine(what, first, then, read) for what, first, then in rows]


def _keys() -> Routine:
    import argparse
    import contextlib
    import io

    from hardcase.verbs import keygen
    from hardcase_edge.bundle.signature import public_of

    def make(folder: Path) -> None:
        if not ((folder / "k.key").exists() and (folder / "k.pub").exists()):
            with contextlib.redirect_stdout(io.StringIO()):
                keygen.run(argparse.Namespace(out=str(folder / "k"), json=True))

    def read(folder: Path) -> tuple[str]:
        private, public = (folder / "k.key", folder / "k.pub")
        if not public.exists():
            return ("nothing",)  # a private key alone is whole, and the next run adds its public key
        fits = public_of(private.read_bytes()) == public.read_bytes()
        return ("a pair" if fits and private.stat().st_mode & 0o077 == 0 else "no pair",)

    return Routine("a pair of keys", void, make, read)


def _store() -> Routine:
    from hardcase_edge.base.sha256 import sha256
    from hardcase_edge.fleet.store.folder import Store
    from hardcase_edge.fleet.store.slots import passed

    old, new = b"old" * 100, b"new" * 100

    def prepare(folder: Path) -> None:
        store = Store(folder / "store")
        store.put(old)
        store.start()
        store.apply(lambda slots: passed(slots, sha256(old).hex()))

    def read(folder: Path) -> tuple[Any, ...]:
        """The bundle of the next start; damaged if its bytes are not those that the state names."""
        slots = Store(folder / "store").slots()
        name = slots.ready or slots.runs
        data = (folder / "store" / name / "bundle.hcb").read_bytes()
        return (data if sha256(data).hex() == slots[name].sha256 else "damaged",)

    return Routine("a bundle into a store", prepare, lambda f: Store(f / "store").put(new, b"s" * 64), read)


def _folders() -> list[Routine]:
    from hardcase.training import folders as swap
    from hardcase.training.folders import BUILD, whole_folder
    from hardcase_edge.errors import InputError
    from hardcase_export.drafts.front import read_front

    def fill(folder: Path, text: str) -> None:
        with whole_folder(folder / "build", BUILD) as new:
            (new / "policies").mkdir()
            for name in ("front.json", "policies/a.safetensors"):
                (new / name).write_text(text)

    def prepare(folder: Path) -> None:
        fill(folder, "before")
        (folder / "build" / "mine").mkdir()
        for name in ("fleet.key", "mine/notes.txt"):
            (folder / "build" / name).write_text("precious")

    def read(folder: Path) -> tuple[Any]:
        build = folder / "build"
        return (sorted((p.relative_to(build).as_posix(), p.read_text()) for p in build.rglob("*") if p.is_file()),)

    def is_told(folder: Path) -> bool:
        try:
            read_front(folder / "build" / "front.json")
        except InputError as error:
            aside = folder / ".build.hardcase-old"
            return f"rename {aside} to build" in str(error) and (aside / "fleet.key").read_text() == "precious"
        return False

    exchange = swap._exchange

    def fill_by_renaming(folder: Path) -> None:
        swap._exchange = lambda *_: False
        try:
            fill(folder, "after")
        finally:
            swap._exchange = exchange

    again, rest = (lambda f: fill(f, "after")), frozenset({"build"})
    return [
        Routine("a folder over another", prepare, again, read, rest=rest),
        Routine("a folder by two renames", prepare, fill_by_renaming, read, is_told, rest),
        Routine("a new folder", void, again, read, rest=rest),
    ]


# ---------------------------------------------------------------- the crashes


class Crashes:
    """Crashes of one routine."""

    def __init__(self, routine: Routine) -> None:
        self.routine = routine
        with_before, with_after = self._folder(), self._folder()
        self.before = routine.read(with_before)
        shim = ctypes.CDLL(None)
        shim.crash_arm(ctypes.c_long(0), POWER)
        routine.run(with_after)
        self.kinds = [shim.crash_kind(ctypes.c_long(k)) for k in range(1, shim.crash_count() + 1)]
        shim.crash_disarm()
        self.after = routine.read(with_after)
        for folder in (with_before, with_after):
            shutil.rmtree(folder)

    def _folder(self) -> Path:
        folder = Path(tempfile.mkdtemp(dir=WORK))
        self.routine.prepare(folder)
        return folder

    def cases(self, seconds: float, rng: random.Random) -> Generator[list[tuple[int, int]], None, None]:
        """One crash at every call, and a power cut at the end; torn writes and power cuts where they differ.

        Until the seconds are over, chains of crashes follow.
        """
        end = time.monotonic() + seconds
        for at, kind in enumerate(self.kinds, 1):
            for mode, is_apt in ((KILL, True), (TORN, kind & 1), (POWER, kind & 2)):
                if is_apt:
                    yield [(at, mode)]
        yield [(len(self.kinds) + 1, POWER)]
        while time.monotonic() < end:
            yield [(rng.randrange(1, 60), rng.choice((KILL, TORN, POWER))) for _ in range(rng.randint(2, CHAIN))]

    def chain(self, crashes: list[tuple[int, int]]) -> bool:
        """Whether crashes one after the other in one folder leave what is whole, and a run behind them ends well."""
        folder = self._folder()
        assert {self._crash(folder, *crash) for crash in crashes} <= {0, STATUS}
        is_right = self._is_whole(folder)
        self.routine.run(folder)
        rest = {p.name for p in folder.iterdir()}
        is_right &= self.routine.read(folder) == self.after and self.routine.rest in (None, rest)
        shutil.rmtree(folder)
        return is_right

    def _is_whole(self, folder: Path) -> bool:
        views = zip(self.routine.read(folder), self.before, self.after, strict=True)
        return all(view in (before, after) for view, before, after in views) or self.routine.is_told(folder)

    def _crash(self, folder: Path, at: int, mode: int) -> int:
        """Run the routine in a fork that ends at a call; its exit status."""
        child = os.fork()
        if child == 0:
            try:
                shim = ctypes.CDLL(None)
                shim.crash_arm(ctypes.c_long(at), mode)
                self.routine.run(folder)
                if mode == POWER:  # when all is done
                    shim.crash_now()
            except BaseException:  # the status tells
                os._exit(1)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


WORK: str | None = None  # where folders are made


def main(seconds: str, seed: str, which: str, work: str) -> None:
    """The attack in this process, which has the shim; prints the outcomes as JSON."""
    global WORK
    WORK = work
    every = [Crashes(routine) for routine in (sound if which == "sound" else unsound)()]
    part = float(seconds) / len(every)
    attacks = (
        Attack(one.routine.name, partial(one.cases, part), one.chain, is_timed=False, least=inf) for one in every
    )
    print(json.dumps([asdict(row) for attack in attacks for row in attack(0, int(seed))]))
