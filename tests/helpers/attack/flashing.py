# SPDX-License-Identifier: Apache-2.0
"""Attack on flashing: power cuts at every write to a card, and cards whose file systems are damaged."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from hardcase.flashing.target import flash_partition, verify_partition
from hardcase_edge.errors import HardcaseError
from tests.helpers.cards import RASPBERRY_PI, START, boot_image
from tests.helpers.edge.cut_runs import Cuts
from tests.helpers.flash_cuts import SIZE, image_runs, opener, small_card

from .outcome import Attack, Outcome


def attack(seconds: float, seed: int) -> list[Outcome]:
    """A third of the time each."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        part = seconds / 3
        return [
            cuts(Path(folder), part, seed),
            *(row for x in ("", "uefi") for row in damage(Path(folder), x)(part, seed)),
        ]


def cuts(folder: Path, seconds: float, seed: int) -> Outcome:
    """Each prefix of the writes of two flashes, with any of the last unflushed ones missing; a repeat must mend it."""
    done, end, k = Cuts(folder, routine=image_runs), time.monotonic() + seconds, seed
    while time.monotonic() < end or not done.n_states:
        done.sample(k)
        k += 1
    return Outcome("flashing: power cuts at every write", done.n_states, 0, len(done.wrong))


def damage(folder: Path, gpt_type: str = "") -> Attack:
    """A few bytes of the table's or the file system's own changed: one line, or a card that verifies and reads back.

    ``gpt_type``: of the boot partition, where the card has a GPT.
    """
    image = boot_image(folder / "damaged.img", RASPBERRY_PI, n_bytes=SIZE, gpt_type=gpt_type)
    whole, card = image.read_bytes(), small_card("one")
    root = whole.index(b"CMDLINE TXT") // 512 * 512
    places = [*range(440, 512), *range(START + 11, START + 64), *range(START + 510, START + 560),
              *range(root, root + 256)]  # fmt: skip

    def images(rng: random.Random) -> Generator[Path, None, None]:
        while True:
            data = bytearray(whole)
            for k in rng.sample(places, rng.choice([1, 1, 2, 5])):
                data[k] = rng.randrange(256)
            image.write_bytes(data)
            yield image

    def flash(path: Path) -> str:
        flash_partition(opener(path), "card", card)
        return str(verify_partition(opener(path), "card")["name"])

    what = f"flashing: damaged {'cards with a GPT' if gpt_type else 'file systems'}"
    return Attack(
        what, images, flash, lambda _, name: isinstance(name, HardcaseError) or name == "one", (HardcaseError,)
    )
