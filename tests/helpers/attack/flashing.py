# SPDX-License-Identifier: Apache-2.0
"""Attack on flashing: power cuts at every write to a card, and cards whose file systems are damaged."""

from __future__ import annotations

import os
import random
import tempfile
import time
from pathlib import Path

import pytest

from hardcase.flashing.partition import flash_partition, verify_partition
from hardcase_edge.errors import HardcaseError
from tests.helpers.cards import RASPBERRY_PI, START, boot_image
from tests.helpers.flash_cuts import SIZE, ImageCuts, opener, small_card

from .outcome import Outcome

__all__ = ["attack", "cuts"]


def attack(seconds: float, seed: int) -> list[Outcome]:
    """A third of the time each."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        part = seconds / 3
        return [cuts(Path(folder), part, seed), *[damage(Path(folder), part, seed, gpt_type=x) for x in ("", "uefi")]]


def cuts(folder: Path, seconds: float, seed: int) -> Outcome:
    """Each prefix of the writes of two flashes, with any of the last unflushed ones missing; a repeat must mend it."""
    done, end, k = ImageCuts(folder), time.monotonic() + seconds, seed
    while time.monotonic() < end or not done.n_states:
        done.sample(k)
        k += 1
    return Outcome("flashing: power cuts at every write", done.n_states, 0, len(done.wrong))


def damage(folder: Path, seconds: float, seed: int, gpt_type: str = "") -> Outcome:
    """A few bytes of the table's or the file system's own changed: one line, or a card that verifies and reads back.

    ``gpt_type``: of the boot partition, where the card has a GPT.
    """
    image = boot_image(folder / "damaged.img", RASPBERRY_PI, n_bytes=SIZE, gpt_type=gpt_type)
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
    return Outcome(
        f"flashing: damaged {'cards with a GPT' if gpt_type else 'file systems'}", tried, crashes, wrong, slowest
    )
