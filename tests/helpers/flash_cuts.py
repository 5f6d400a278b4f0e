# SPDX-License-Identifier: Apache-2.0
"""Power cuts at every call of a flash: a boot partition that is mounted as a folder, and one inside an image.

Until what starts the card's script is there, nothing of it runs; from then on the archive must be whole. A repeat of
the flash must mend whatever a cut has left.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from hardcase.flashing import fat
from hardcase.flashing.boot import FIRST
from hardcase.flashing.contents import Card
from hardcase.flashing.target import flash_partition, verify_partition
from hardcase.flashing.volumes import FolderVolume, Volume, open_image
from hardcase_edge.base.sha256 import sha256
from hardcase_edge.fleet.release.archive import zip_of
from tests.helpers.cards import CLOUD_INIT, RASPBERRY_PI, boot_image
from tests.helpers.edge.cut_runs import Act, Run, State, Step, some
from tests.helpers.edge.power_cuts import Operation, Tree, read_tree, without_leftovers

Files = frozenset[tuple[str, bytes | None]]
Seen = tuple[Files, Files | str]
Opener = Callable[[bool], AbstractContextManager[Volume]]
SIZE = 2_300_000  # of an image's partition

HOOKS = {"user-data": b"first.sh", "cmdline.txt": b"systemd.run="}  # what starts the script, once the file has this


@dataclass
class FolderRun(Run):
    """A flash to a folder of a system, over other cards that were flashed before."""

    files: dict[str, bytes]
    card: Card
    over: tuple[Card, ...] = ()

    def steps(self, root: Path) -> Iterator[tuple[str, Act]]:
        self.make(root)
        for card in self.over:
            self.flash(root, card)
        yield self.card.name, lambda _: self.flash(root, self.card)

    def make(self, root: Path) -> None:
        """The system, before any flash."""
        for name, data in self.files.items():
            (root / name).write_bytes(data)

    def opener(self, root: Path) -> Opener:
        """What opens its boot partition."""
        return lambda can_write: nullcontext(FolderVolume(root))

    def files_of(self, root: Path) -> Files:
        """What is there."""
        return without_leftovers(read_tree(root))

    def flash(self, root: Path, card: Card) -> None:
        flash_partition(self.opener(root), "card", card)

    def look(self, root: Path) -> Seen:
        """What is there, and what is there when the flash is repeated, or why it is not."""
        before: Files = frozenset()
        try:
            before = self.files_of(root)
            self.flash(root, self.card)
            verify_partition(self.opener(root), "card")
        except Exception as error:  # whatever it is, it is no cut that a repeat mends
            return before, repr(error)
        return before, self.files_of(root)

    def wrong(self, step: Step, started: object = None) -> Callable[[State], str]:
        """Damage to the system's own files, a start of what is not whole, and what a repeat does not mend."""
        before, after = dict(step.old[0]), dict(step.new[0])
        archives = [None, *(card.archive for card in (*self.over, self.card))]
        kept = [path for path in before if "/" not in path]

        def what(state: State) -> str:
            files, mended = dict(state.seen[0]), state.seen[1]
            is_hooked = any(text in (files.get(path) or b"") for path, text in HOOKS.items())
            archive, script = files.get("hardcase/card.pyz"), files.get("hardcase/first.sh")
            if any(files.get(path) not in (before[path], after[path]) for path in kept):
                return "the system's files"
            if archive not in archives or (is_hooked and archive is None):
                return "the archive"
            if script not in (FIRST.encode(), None) or (is_hooked and script is None):
                return "the script"
            if state.is_last and state.seen != step.new:
                return "lost what was flashed"
            return "" if mended == step.new[0] else f"is not mended: {mended if isinstance(mended, str) else ''}"

        return what


@dataclass
class ImageRun(FolderRun):
    """A flash to a FAT partition in an image, cut behind each call; its kinds of calls are flushes."""

    rng: random.Random = field(default_factory=random.Random)

    def make(self, root: Path) -> None:
        boot_image(root / "pi.img", self.files, n_bytes=SIZE)

    def opener(self, root: Path) -> Opener:
        return opener(root / "pi.img")

    def files_of(self, root: Path) -> Files:
        with self.opener(root)(False) as volume:
            found = [
                (name, volume.read(name, 10**6)) for name in (*self.files, "hardcase/card.pyz", "hardcase/first.sh")
            ]
        return frozenset((name, data) for name, data in found if data is not None)

    def states(self, step: Step) -> Iterator[tuple[int, Tree]]:
        return sectors(step, self.rng)

    def kind(self, call: Operation) -> str:
        return kind_of_image(call)


def sectors(step: Step, rng: random.Random) -> Iterator[tuple[int, Tree]]:
    """Two states of an image behind each call; a sector is written or not."""
    return some(step, sorted([*range(len(step.log) + 1)] * 2), rng, 512)


def kind_of_image(call: Operation) -> str:
    """The kind of a flush of an image is what it follows."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals["__name__"] != fat.__name__:
        frame = frame.f_back
    return f"{call[0]} behind {frame.f_back.f_code.co_name.lstrip('_')}" if frame and frame.f_back else call[0]


def folder_runs(rng: random.Random) -> Iterator[Run]:
    """Two flashes of one system."""
    system, one, two = rng.choice([CLOUD_INIT, RASPBERRY_PI]), small_card("one"), small_card("two")
    yield FolderRun(system, one)
    yield FolderRun(system, two, (one,))


def image_runs(rng: random.Random) -> Iterator[Run]:
    """Two flashes of one image."""
    one, two = small_card("one"), small_card("two")
    yield ImageRun(RASPBERRY_PI, one, rng=rng)
    yield ImageRun(RASPBERRY_PI, two, (one,), rng)


def small_card(name: str) -> Card:
    """A card that is quick to write, and that says its name when it is verified."""
    data = name.encode() * 900
    manifest = {"format": 1, "name": name, "bundle": "", "runtime": "", "run": [], "identity": "",
                "files": {"card/model.hcb": sha256(data).hex()}}  # fmt: skip
    archive = zip_of({"card/model.hcb": data, "card/manifest.json": json.dumps(manifest).encode()})
    return Card(archive, b"", "", name, ())


def opener(path: Path) -> Opener:
    """What opens the boot partition of an image."""
    return lambda can_write: open_image(path, can_write=can_write)
