# SPDX-License-Identifier: Apache-2.0
"""Power cuts at every call of a flash: a boot partition that is mounted as a folder, and one inside an image.

Until what starts the card's script is there, nothing of it runs; from then on the archive must be whole. A repeat of
the flash must mend whatever a cut has left.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from hardcase.flashing.boot import FIRST
from hardcase.flashing.contents import Card
from hardcase.flashing.target import flash_partition, verify_partition
from hardcase.flashing.volumes import FolderVolume, Volume, open_image
from hardcase_edge.base.sha256 import sha256
from hardcase_edge.errors import HardcaseError
from hardcase_edge.fleet.release.archive import zip_of
from tests.helpers.cards import CLOUD_INIT, RASPBERRY_PI, Disk, boot_image
from tests.helpers.edge.cut_runs import Act, Run, State, Step
from tests.helpers.edge.power_cuts import read_tree, without_leftovers

__all__ = ["SIZE", "FolderRun", "ImageCuts", "folder_runs", "opener", "small_card"]

Seen = tuple[frozenset[tuple[str, bytes | None]], frozenset[tuple[str, bytes | None]] | str]
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
        for name, data in self.files.items():
            (root / name).write_bytes(data)
        for card in self.over:
            _flash(root, card)
        yield self.card.name, lambda _: _flash(root, self.card)

    def look(self, root: Path) -> Seen:
        """What is there, and what is there when the flash is repeated, or why it is not."""
        before = without_leftovers(read_tree(root))
        try:
            _flash(root, self.card)
        except HardcaseError as error:
            return before, str(error)
        return before, without_leftovers(read_tree(root))

    def wrong(self, step: Step, started: object = None) -> Callable[[State], str]:
        """Damage to the system's own files, a start of what is not whole, and what a repeat does not mend."""
        before, after, archives = step.before, step.after, [None, *(card.archive for card in (*self.over, self.card))]
        kept = [path for path in before if "/" not in path and not path.startswith(".")]

        def what(state: State) -> str:
            tree, mended = state.tree, state.seen[1]
            is_hooked = any(text in (tree.get(path) or b"") for path, text in HOOKS.items())
            archive, script = tree.get("hardcase/card.pyz"), tree.get("hardcase/first.sh")
            if any(tree.get(path) not in (before[path], after[path]) for path in kept):
                return "the system's files"
            if archive not in archives or (is_hooked and archive is None):
                return "the archive"
            if script not in (FIRST.encode(), None) or (is_hooked and script is None):
                return "the script"
            if state.is_last and state.seen != step.new:
                return "lost what was flashed"
            return "" if mended == step.new[0] else f"is not mended: {mended if isinstance(mended, str) else ''}"

        return what


def folder_runs(rng: random.Random) -> Iterator[Run]:
    """Two flashes of one system."""
    system, one, two = rng.choice([CLOUD_INIT, RASPBERRY_PI]), small_card("one"), small_card("two")
    yield FolderRun(system, one)
    yield FolderRun(system, two, (one,))


class ImageCuts:
    """Cuts of a flash to a FAT partition in an image, and of another one over it; its kinds of calls are flushes.

    Any of the writes since the last flush may be missing, each by a coin.
    """

    def __init__(self, tmp: Path, is_left_out: Callable[[str], bool] = lambda kind: False) -> None:
        self.n_states, self.wrong, self.kinds = 0, set[str](), set[str]()
        self._tmp, self._is_left_out = tmp, is_left_out
        self._image = boot_image(tmp / "pi.img", RASPBERRY_PI, n_bytes=SIZE)
        self._one, self._two, self._disk = small_card("one"), small_card("two"), Disk(self._image)
        with pytest.MonkeyPatch.context() as context:
            self._disk.record(context, is_flush_left_out=self._is_flush_left_out)
            for card in (self._one, self._two):
                flash_partition(opener(self._image), "card", card)

    def sample(self, seed: int) -> None:
        """A state at each call."""
        rng, cut = random.Random(seed), self._tmp / "cut.img"
        for at in range(len(self._disk.log) + 1):
            cut.write_bytes(self._disk.cut(at, rng))
            self.n_states += 1
            try:
                what = self._wrong(cut, is_done=at == len(self._disk.log))
            except Exception as error:  # whatever it is, it is no cut that a repeat mends
                what = repr(error)
            if what:
                self.wrong.add(what)

    def _wrong(self, cut: Path, *, is_done: bool) -> str:
        with open_image(cut, can_write=False) as volume:
            line, archive = volume.read("cmdline.txt", 999) or b"", volume.read("hardcase/card.pyz", 10**6)
            script = volume.read("hardcase/first.sh", 10**6)
        nothing = [] if HOOKS["cmdline.txt"] in line else [None]
        if b"root=PARTUUID=1-02" not in line:
            return "the system's files"
        if archive not in (self._one.archive, self._two.archive, *nothing) or script not in (FIRST.encode(), *nothing):
            return "the archive or the script"
        if is_done and verify_partition(opener(cut), "card")["name"] != "two":
            return "lost what was flashed"
        flash_partition(opener(cut), "card", self._two)
        return "" if verify_partition(opener(cut), "card")["name"] == "two" else "is not mended"

    def _is_flush_left_out(self, kind: str) -> bool:
        self.kinds.add(kind)
        return self._is_left_out(kind)


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


def _flash(folder: Path, card: Card) -> None:
    flash_partition(lambda can_write: nullcontext(FolderVolume(folder)), "card", card)
