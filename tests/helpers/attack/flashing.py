# SPDX-License-Identifier: Apache-2.0
"""Attack on flashing: power cuts at every write to a card, and cards whose file systems are damaged."""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from hardcase.flashing.contents import Card
from hardcase.flashing.partition import flash_partition, verify_partition
from hardcase.flashing.volumes import Volume, open_image
from hardcase.flashing.wheels import zip_of
from hardcase_edge.bundle.sha256 import sha256
from hardcase_edge.errors import HardcaseError
from tests.helpers.cards import RASPBERRY_PI, START, Disk, boot_image

from .outcome import Outcome

__all__ = ["attack", "cuts", "small_card"]

SIZE = 2_300_000
Opener = Callable[[bool], AbstractContextManager[Volume]]


def attack(seconds: float, seed: int) -> list[Outcome]:
    """Half of the time each."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        return [cuts(Path(folder), patch, seconds / 2, seed), damage(Path(folder), seconds / 2, seed)]


def small_card(name: str) -> Card:
    """A card that is quick to write, and that says its name when it is verified."""
    data = name.encode() * 900
    manifest = {"format": 1, "name": name, "bundle": "", "runtime": "", "run": [], "identity": "",
                "files": {"card/model.hcb": sha256(data).hex()}}  # fmt: skip
    archive = zip_of({"card/model.hcb": data, "card/manifest.json": json.dumps(manifest).encode()})
    return Card(archive, b"", "", name, ())


def cuts(folder: Path, patch: pytest.MonkeyPatch, seconds: float, seed: int) -> Outcome:
    """Each prefix of the writes of two flashes, with any of the last unflushed ones missing; a repeat must mend it."""
    image = boot_image(folder / "pi.img", RASPBERRY_PI, n_bytes=SIZE)
    one, two, disk = small_card("one"), small_card("two"), Disk(image)
    with patch.context() as context:
        disk.record(context)
        flash_partition(opener(image), "card", one)
        flash_partition(opener(image), "card", two)
    rng, cut, end = random.Random(seed), folder / "cut.img", time.monotonic() + seconds
    n_states = crashes = wrong = 0
    while time.monotonic() < end or not n_states:
        for at in range(len(disk.log) + 1):
            cut.write_bytes(disk.cut(at, rng))
            n_states += 1
            try:
                with open_image(cut, can_write=False) as volume:
                    line, archive = volume.read("cmdline.txt", 999) or b"", volume.read("hardcase/card.pyz", 10**6)
                right = (one.archive, two.archive, *([] if b"systemd.run=" in line else [None]))
                wrong += b"root=PARTUUID=1-02" not in line or archive not in right
                flash_partition(opener(cut), "card", two)
                wrong += verify_partition(opener(cut), "card")["name"] != "two"
            except Exception:
                crashes += 1
    return Outcome("flashing: power cuts at every write", n_states, crashes, wrong)


def damage(folder: Path, seconds: float, seed: int) -> Outcome:
    """A few bytes of the file system's own changed: one line, or a card that verifies and reads back."""
    image = boot_image(folder / "damaged.img", RASPBERRY_PI, n_bytes=SIZE)
    whole, card, rng = image.read_bytes(), small_card("one"), random.Random(seed)
    root = whole.index(b"CMDLINE TXT") // 512 * 512
    places = [*range(440, 512), *range(START + 11, START + 64), *range(START + 510, START + 560),
              *range(root, root + 256)]  # fmt: skip
    tried = crashes = wrong = 0
    slowest, end = 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        data = bytearray(whole)
        for k in rng.sample(places, rng.choice([1, 1, 2, 5])):
            data[k] = rng.randrange(256)
        image.write_bytes(data)
        tried += 1
        started = time.process_time()
        try:
            flash_partition(opener(image), "card", card)
            wrong += verify_partition(opener(image), "card")["name"] != "one"
        except HardcaseError:
            pass
        except Exception:
            crashes += 1
        slowest = max(slowest, time.process_time() - started)
    return Outcome("flashing: damaged file systems", tried, crashes, wrong, slowest)


def opener(path: Path) -> Opener:
    """What opens the boot partition of an image."""
    return lambda can_write: open_image(path, can_write=can_write)
