# SPDX-License-Identifier: Apache-2.0
"""Power cuts at random moments of a first boot and of a store that is written, in the emulated machine.

After each cut the machine is powered on again. It must come as far as it would have, and what its store runs must not
be older than what it had said, on its console, to have received or tried; but a trial of which three starts were cut
before they could end fails by the store's own rule, and says so.
"""

from __future__ import annotations

import random
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.helpers.cloud.brokers import running_mosquitto

from .emulator import BOOT, Machine
from .fleet import Fleet
from .life import BOOT_S, FIRST_BOOT_S, LOG, Watch, copy_of

SCRIPT_S = 8.0  # the first boot's script on a machine with a core to itself
WRITES_S = 4.0  # of a store that is written, at most, before the power is cut
WRITER = ("panic=1", "init=/usr/bin/python3", "--", "/usr/local/lib/hardcase/card_writer.py")
DECIDES = "Started hardcase-edge.service"
MAX_STARTS = 3  # of a trial that are cut before it can pass
ENDED = rf"BACK the trial of slot [ab] has failed: {MAX_STARTS} starts did not end well"
LOST, OLDER, DOES_NOT_START = "acknowledged and lost", "older than acknowledged", "does not start"


class Cuts:
    """What cuts have done to one machine."""

    def __init__(self) -> None:
        self.in_first_boot = self.in_writes = self.starts = 0
        self.acknowledged = 1  # the newest release that the machine said to have received or tried
        self.wrong = {LOST: 0, OLDER: 0, DOES_NOT_START: 0}
        self.lines: list[str] = []
        self.ended = 0  # trials that ended because their starts were cut
        self._is_tried = True
        self._n_cut = 0  # consoles in which the trial under way did not end

    def figures(self) -> dict[str, Any]:
        """For a page."""
        names = ("in_first_boot", "in_writes", "starts", "acknowledged", "ended", "wrong", "lines")
        return {name: getattr(self, name) for name in names}

    def note(self, what: str, line: str) -> None:
        """Something is wrong."""
        self.wrong[what] += 1
        self.lines.append(f"{what}: {line}")

    def check(self, release: int, trusts: int, *, says_ended: bool = False) -> None:
        """Compare what runs at a start, and what is trusted, with what was acknowledged before.

        ``says_ended``: whether the machine says that the trial has failed because its starts did not end well.
        """
        self.starts += 1
        if says_ended and not self._is_tried and self._n_cut >= MAX_STARTS and trusts >= self.acknowledged > release:
            self.ended += 1
            self.acknowledged, self._is_tried = release, True
        elif min(release, trusts) < self.acknowledged:
            line = f"release {release} runs, {trusts} is trusted, and {self.acknowledged} was acknowledged"
            self.note(OLDER if self._is_tried else LOST, line)

    def read(self, console: str) -> None:
        """Take note of what the machine says to have done."""
        for word, release in re.findall(r"(PUT|GOOD) (\d+)\r?\n", console):
            self._is_tried, self.acknowledged = word == "GOOD", max(self.acknowledged, int(release))
            self._n_cut = 0
        self._n_cut += not self._is_tried


def cut_power(base: Path, folder: Path, n_first: int, n_writes: int, seed: int) -> Cuts:
    """Flash a card, cut the power so often in its first boot, and then while its store is written.

    Raises
    ------
    TimeoutError
        The machine has not come to the first boot's script.
    """
    rng, cuts = random.Random(seed), Cuts()
    card, fleet = copy_of(base, folder), Fleet(folder, n_releases=40 * n_writes)
    with running_mosquitto(folder) as broker, Watch(broker) as watch, Machine(base, folder, card) as machine:
        fleet.flash(card, broker.port)
        _cut_first_boot(machine, rng, n_first, cuts)
        for _ in range(n_writes):
            machine.power_on(*WRITER)
            try:
                runs = machine.run_until(r"RUNS \d+\.(\d+) TRUSTS (\d+)\r?\n", BOOT_S)
                cuts.check(int(runs[1]), int(runs[2]), says_ended=re.search(ENDED, machine.console()) is not None)
                time.sleep(rng.uniform(0, WRITES_S))
            except TimeoutError as error:
                cuts.note(DOES_NOT_START, str(error))
            machine.cut()
            cuts.in_writes += 1
            cuts.read(machine.console())
        _start_whole(machine, watch, cuts)
    return cuts


def _cut_first_boot(machine: Machine, rng: random.Random, n: int, cuts: Cuts) -> None:
    """Cut the power while the script of the first boot works, at most n times, and then let it end."""
    for k in range(n + 1):
        machine.power_on(LOG)
        if b"systemd.run=" in _on_boot(machine, "cmdline.txt"):
            machine.run_until("Starting kernel-command-line.service", BOOT_S)
        end = time.monotonic() + (rng.uniform(0, SCRIPT_S) if k < n else FIRST_BOOT_S)
        while machine.is_on and time.monotonic() < end and DECIDES not in machine.console():
            time.sleep(0.02)
        if not machine.is_on or DECIDES in machine.console():
            break
        machine.cut()
        cuts.in_first_boot += 1
    machine.cut()
    if b'"store"' in _on_boot(machine, "hardcase/done.txt"):
        cuts.starts += cuts.in_first_boot
    else:
        cuts.note(DOES_NOT_START, f"the first boot has not ended: {machine.console()[-1000:]}")


def _on_boot(machine: Machine, name: str) -> bytes:
    words = ["mtype", "-i", f"{machine.card}{BOOT}", f"::{name}"]
    return subprocess.run(words, capture_output=True, check=False).stdout


def _start_whole(machine: Machine, watch: Watch, cuts: Cuts) -> None:
    """After all cuts the system starts, and the device decides with what was acknowledged last."""
    since = time.monotonic()
    machine.power_on(LOG)
    try:
        watch.wait("decision", lambda body: True, BOOT_S, since)
        store = watch.wait("facts", lambda body: True, BOOT_S, since).body["store"]
    except TimeoutError as error:
        cuts.note(DOES_NOT_START, f"no decision after all cuts: {error}; {machine.console()[-1000:]}")
        return
    release = int(store["release"].partition(".")[2])
    cuts.check(release, release)
