# SPDX-License-Identifier: Apache-2.0
"""A flashed card in an emulated machine: seconds of its life, and what power cuts leave of it.

    make machine
    sudo python -m benchmarks run machine [--cuts 20] [--seed 1]

Three machines run at once: one lives through first boot, a driver that hangs, and two updates; one is given runtimes
and settings over the air; the power of the third is cut. The command ends with status 1 if a cut has left anything
wrong.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.pages import ROOT, markdown, rest
from tests.helpers.machine.cuts import cut_power
from tests.helpers.machine.life import live
from tests.helpers.machine.releases import CUTS as RELEASE_CUTS
from tests.helpers.machine.releases import live_on_releases

BASE = ROOT / "build" / "machine"
HEAD = """# A flashed card in an emulated machine

`make machine`, as root, boots a card with a FAT boot partition and an ext4 root of Debian 12, in the shape of \
Raspberry Pi OS, under QEMU: seconds say that all of it works, not how long a Pi takes.
The machine is x86-64 with 512 MB: a Pi's firmware, kernel and card wear are not shown.

"""
RELEASES = """
## Release files over the air

From an offer of [release files](../over-the-air.md#everything-that-a-device-runs) to the facts that say what runs for \
good, with `--trial-s 30`:

"""
RELEASE_CUTS_TEXT = """
Then the power is cut in steps of further updates; the device must run the old runtime or the new one, and the new one \
in the end.

"""
CUTS = """
## Power cuts

SIGKILL to QEMU at random moments: while the first boot's script works, then while a process puts release after \
release into the store and tries each.
What the guest has written stays (`cache=writethrough`), so a card that forgets what it acknowledged is not shown.

"""


def measure(n_cuts: int, seed: int) -> dict[str, Any]:
    """The machines' figures."""
    n_first = n_cuts // 5
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(3) as pool:
        places = [Path(folder, name) for name in ("life", "cuts", "releases")]
        for place in places:
            place.mkdir()
        steps = pool.submit(live, BASE, places[0])
        cuts = pool.submit(cut_power, BASE, places[1], n_first, n_cuts - n_first, seed)
        n_releases = min(len(RELEASE_CUTS), n_cuts // 4)
        releases = pool.submit(live_on_releases, BASE, places[2], n_releases, seed)
        figures = {"steps": steps.result(), "cuts": cuts.result().figures(), "releases": releases.result()}
    return {**figures, "cores": os.cpu_count(), "seconds": time.monotonic() - began}


def page(figures: dict[str, Any]) -> str:
    """The page."""
    cuts = figures["cuts"]
    rows = [(step, f"{seconds:.0f}") for step, seconds in figures["steps"].items()]
    steps = [(step, f"{seconds:.0f}") for step, seconds in figures["releases"]["steps"].items()]
    counts = [
        ("cuts in the first boot", cuts["in_first_boot"]),
        ("cuts while the store was written", cuts["in_writes"]),
        ("starts after a cut", cuts["starts"]),
        ("newest release that the machine had acknowledged", cuts["acknowledged"]),
        ("trials that failed because three of their starts were cut", cuts["ended"]),
        *((f"*{what}*", n) for what, n in cuts["wrong"].items()),
    ]
    return (
        HEAD
        + f"It had {figures['cores']} cores, and took {figures['seconds']:.0f} s with three such machines at once.\n\n"
        + markdown(("step", "seconds"), rows)
        + "\n"
        + RELEASES
        + markdown(("offered", "seconds"), steps)
        + "\n"
        + RELEASE_CUTS_TEXT
        + rest(
            "cuts of these updates", markdown(("cut when", "ran after it"), list(figures["releases"]["cuts"].items()))
        )
        + CUTS
        + markdown(("", "number"), [(what, str(n)) for what, n in counts])
        + "\n"
    )


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument(
        "--cuts", type=int, default=20, help="of the power, a fifth in first boot (default %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of their moments (default %(default)s)")


def run(args: Any) -> Any:
    """Measure."""
    return measure(args.cuts, args.seed)


def problems(figures: dict[str, Any]) -> list[str]:
    """What a cut has left wrong."""
    return list(figures["cuts"]["lines"])
