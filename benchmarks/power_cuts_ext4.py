# SPDX-License-Identifier: Apache-2.0
"""Power cuts on a real ext4: every write and flush that reaches the disk, and what the next mount finds.

    sudo python -m benchmarks run power_cuts_ext4 [--states 1000] [--seconds 200]

Six updates of a store, commits of an outbox and two flashes of a root run on an ext4 on a loop device over
``logged_image.py``. A state is the image after any number of the logged writes, of which some since the last flush are
dropped, each by a coin: a disk with a cache may have any of them. Each state is mounted, which replays the journal, and
looked at. The same without the flush of folders, with SQLite at ``synchronous=NORMAL``, and without ``sync``, which
must be found. Needs root, e2fsprogs, fuse3 and mfusepy.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.logged_image import FLUSH, NAME, records
from benchmarks.pages import markdown
from hardcase_edge.base.sha256 import sha256
from hardcase_edge.fleet.outbox import file as outbox_file
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.store.slots import passed
from tests.helpers.edge.outbox_cuts import RUNS, commits, seen_in
from tests.helpers.edge.store_cuts import MEMORY, view_of
from tests.helpers.flash_cuts import is_root_right, root_flashes, root_seen

IMAGE_BYTES = 16 * 1024 * 1024
UPDATES = 6
BUNDLE_BYTES = 200_000
NORMAL = tuple(s.replace("synchronous=FULL", "synchronous=NORMAL") for s in outbox_file.SETTINGS)
HEAD = """# Power cuts on ext4

`sudo python -m benchmarks run power_cuts_ext4` wrote this page, on one core of {machine} with Linux {linux}.
Six updates of a store (put, start, passed; bundles of 200 KB), and {runs} starts of a device with an outbox that \
commits records and removes acknowledged ones, and two flashes of a mounted root, each \
run on an ext4, whose disk is a file that logs every write and flush.
A state is the disk after any number of these, without some of the writes since the last flush, each by a coin.
The next mount replays the journal.
Then a store must start, run what it ran or what the step under way brings, have lost nothing acknowledged, and take \
the next bundle.
An outbox must open undamaged, hold exactly the records before or behind the commit under way, number the next start \
higher than the last, and take the next record.
Of a flashed root nothing may run that is not whole, a finished flash must be there, and a repeat must mend the rest.

"""
ROWS = ("store", "outbox", "flash of a root", "store without the flush of folders",
        "outbox with `synchronous=NORMAL`", "flash of a root without `sync`")  # fmt: skip


@dataclass(frozen=True)
class Scenario:
    """A run, and how to look at what is left of it.

    Parameters
    ----------
    steps : takes an empty folder; yields at once and behind each step a function that gives what the folder shows
    look : what a folder shows after a cut; may change it
    is_right : whether that is right, by what was acknowledged last and what the step under way brings
    """

    steps: Callable[[Path], Iterator[Callable[[], Any]]]
    look: Callable[[Path], Any]
    is_right: Callable[[Any, set[Any]], bool]


def call(*words: object) -> str:
    """A command that must succeed."""
    return subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True).stdout.strip()


@contextlib.contextmanager
def mounted(image: Path, folder: Path) -> Iterator[Path]:
    """An ext4 on a loop device over a file, unmounted behind the block."""
    loop = call("losetup", "--find", "--show", image)
    try:
        call("mount", "-t", "ext4", loop, folder)
        try:
            yield folder
        finally:
            call("umount", folder)
    finally:
        call("losetup", "--detach", loop)


@contextlib.contextmanager
def logged(image: Path, log: Path, folder: Path) -> Iterator[Path]:
    """The file of ``logged_image.py``."""
    log.touch()
    server = subprocess.Popen([sys.executable, Path(__file__).with_name("logged_image.py"), image, log, folder])
    try:
        until = time.monotonic() + 10
        while not (folder / NAME[1:]).exists() and time.monotonic() < until:
            time.sleep(0.01)
        yield folder / NAME[1:]
    finally:
        call("umount", folder)
        server.wait(10)


def updates(root: Path) -> Iterator[Callable[[], Any]]:
    """Six updates of a store."""
    rng = random.Random(5)

    def view() -> Any:
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:  # looking changes a store
            if (root / "store").exists():
                shutil.copytree(root / "store", Path(folder) / "store")
            return view_of(Path(folder) / "store")

    yield view
    for k in range(UPDATES):
        data = rng.randbytes(BUNDLE_BYTES)
        digest = sha256(data).hex()
        Store(root / "store").put(data, b"s" * 64, (1, k), b"trust %d" % k)
        yield view
        Store(root / "store").start()
        yield view
        Store(root / "store").apply(lambda slots, digest=digest: passed(slots, digest))  # type: ignore[misc]
        yield view


def is_between(seen: Any, allowed: set[Any]) -> bool:
    """A put changes the trust before the slot, so either may be new."""
    return seen[0] in {v[0] for v in allowed} and seen[1] in {v[1] for v in allowed} and seen[2]


STORE = Scenario(updates, lambda root: view_of(root / "store"), is_between)
FLASH = Scenario(root_flashes, root_seen, is_root_right)
OUTBOX = Scenario(commits, seen_in, lambda seen, allowed: seen in allowed)


def record_run(work: Path, image: Path, scenario: Scenario) -> tuple[list[tuple[int, bytes]], list[int], list[Any]]:
    """The log of a run, how many records it had when each step was acknowledged, and what is right behind each."""
    (work / "fuse").mkdir(exist_ok=True)
    (work / "run").mkdir(exist_ok=True)
    log = work / "log"
    log.unlink(missing_ok=True)
    acknowledged, views = list[int](), list[Any]()
    with logged(image, log, work / "fuse") as file, mounted(file, work / "run") as root:
        for view in scenario.steps(root):
            acknowledged.append(log.stat().st_size)
            views.append(view())
    data = log.read_bytes()
    parsed = list(records(data))
    ends, at = [], 0
    for _, part in parsed:
        at += 12 + len(part)
        ends.append(at)
    return parsed, [sum(end <= size for end in ends) for size in acknowledged], views


def disks(
    image: bytes, log: list[tuple[int, bytes]], lengths: list[int], rng: random.Random
) -> Iterator[tuple[int, bytes]]:
    """The disk after so many records, without some of the writes since the last flush; lengths in rising order."""
    flushed, pending, at = bytearray(image), list[tuple[int, bytes]](), 0
    for n in lengths:
        for offset, part in log[at:n]:
            if offset == FLUSH:
                for o, p in pending:
                    flushed[o : o + len(p)] = p
                pending = []
            else:
                pending.append((offset, part))
        at, disk = n, bytearray(flushed)
        for o, p in pending:
            if rng.random() < 0.5:
                disk[o : o + len(p)] = p
        yield n, bytes(disk)


def states(work: Path, image: Path, scenario: Scenario, n: int, seed: int, seconds: float) -> dict[str, Any]:
    """Try so many states of one run, or as many as the time allows: every number of records, again and again."""
    rng = random.Random(seed)
    log, acknowledged, views = record_run(work, image, scenario)
    last, began, n_states, wrong = acknowledged[-1], time.monotonic(), 0, 0
    while n_states < n and time.monotonic() < began + seconds:
        lengths = sorted(rng.sample(range(last + 1), min(last + 1, n - n_states)))
        for length, disk in disks(image.read_bytes(), log, lengths, rng):
            (work / "state").write_bytes(disk)
            done = max(0, sum(a <= length for a in acknowledged) - 1)
            allowed = {views[done], views[min(done + 1, len(views) - 1)]}
            with mounted(work / "state", work / "run") as root:
                seen = scenario.look(root)
            n_states += 1
            wrong += not scenario.is_right(seen, allowed)
            if time.monotonic() > began + seconds:
                break
    flushes = sum(offset == FLUSH for offset, _ in log[:last])
    elapsed = time.monotonic() - began
    return {"writes": last - flushes, "flushes": flushes, "states": n_states, "wrong": wrong, "seconds": elapsed}


def measure(n: int, seed: int, seconds: float) -> dict[str, Any]:
    """The figures of each row."""
    if os.geteuid() != 0:
        raise SystemExit("power_cuts_ext4.py mounts file systems; run it as root")
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        work, image = Path(folder), Path(folder) / "image"
        image.write_bytes(bytes(IMAGE_BYTES))
        call("mkfs.ext4", "-q", "-F", "-b", "1024", "-J", "size=1", image)

        def part(scenario: Scenario, share: int) -> dict[str, Any]:
            return states(work, image, scenario, n // share, seed, seconds / share)

        store, outbox, flash = part(STORE, 2), part(OUTBOX, 4), part(FLASH, 4)
        with patch("hardcase_edge.base.files.sync_folder"), patch("hardcase_edge.fleet.store.folder.sync_folder"):
            without = part(STORE, 8)
        with patch.object(outbox_file, "SETTINGS", NORMAL):
            normal = part(OUTBOX, 8)
        with patch("os.sync"):
            unsynced = part(FLASH, 8)
    linux = platform.release().partition("-")[0]
    rows = dict(zip(ROWS, (store, outbox, flash, without, normal, unsynced), strict=True))
    return {"machine": platform.machine(), "linux": linux, "rows": rows}


def page(measured: dict[str, Any]) -> str:
    """The Markdown page."""
    rows = [
        [name, *(f"{row[key]:,}" for key in ("writes", "flushes", "states", "wrong")), f"{row['seconds']:.0f}"]
        for name, row in measured["rows"].items()
    ]
    titles = ("what", "writes", "flushes", "states", "wrong", "s")
    return HEAD.format(**measured, runs=RUNS) + markdown(titles, rows) + "\n"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--states", type=int, default=1_000)
    parser.add_argument(
        "--seconds",
        type=float,
        default=200.0,
        help="of the states that must be right; half as many more for the others",
    )
    parser.add_argument("--seed", type=int, default=0)


def run(args: Any) -> Any:
    """Measure."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(2))  # unmounts what is mounted
    return measure(args.states, args.seed, args.seconds)
