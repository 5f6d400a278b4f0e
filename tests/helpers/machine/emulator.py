# SPDX-License-Identifier: Apache-2.0
"""A card's machine under QEMU without hardware help: what a Pi's firmware does, a serial console, and a power switch.

The firmware of a Pi reads ``cmdline.txt`` from the boot partition at each start and hands it to the kernel; so does
``power_on``. A reboot ends QEMU. The guest reaches the loopback of this machine as 10.0.2.2, and nothing reaches the
guest.

A cut is SIGKILL: what the guest's kernel has not written yet is lost, and what QEMU has been given stays (a card that
forgets what it has acknowledged is not shown).
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from contextlib import AbstractContextManager
from pathlib import Path

BOOT = "@@1M"  # where the boot partition begins, as mtools has it
POLL_S = 0.05
START_S = 0.5  # after which QEMU has found all that it needs


class Machine(AbstractContextManager["Machine"]):
    """One card in one machine.

    Parameters
    ----------
    base : the folder that base.sh has made
    folder : for the console's text
    card : the image
    """

    def __init__(self, base: Path, folder: Path, card: Path) -> None:
        self.card, self._base, self._console = card, base, folder / "console.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self.n_boots = 0

    @property
    def is_on(self) -> bool:
        """Whether it has power."""
        return self._process is not None and self._process.poll() is None

    def console(self) -> str:
        """What the machine has printed since it was last powered on."""
        return self._console.read_text(errors="replace") if self._console.exists() else ""

    def power_on(self, *more: str) -> None:
        """Start with the card's ``cmdline.txt`` and these words after it.

        Raises
        ------
        RuntimeError
            QEMU does not run here, which says nothing about the card.
        """
        assert not self.is_on, "the machine is on"
        words = subprocess.run(
            ["mtype", "-i", f"{self.card}{BOOT}", "::cmdline.txt"], capture_output=True, check=True, text=True
        ).stdout.split()
        self._console.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [
                _tool("qemu-system-x86_64"), "-machine", "pc,accel=tcg,graphics=off", "-cpu", "qemu64", "-smp", "1",
                "-m", "512", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
                "-serial", f"file:{self._console}",
                "-drive", f"file={self.card},format=raw,if=virtio,cache=writethrough",
                "-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci",
                "-kernel", str(self._base / "vmlinuz"), "-initrd", str(self._base / "initrd"),
                "-append", " ".join([*words, *more]),
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        time.sleep(START_S)
        if not self.is_on and self._process.stderr is not None:
            raise RuntimeError(f"QEMU has not started: {self._process.stderr.read().decode(errors='replace')}")
        self.n_boots += 1

    def run_until(self, pattern: str, timeout_s: float) -> re.Match[str]:
        """Wait until the console shows a pattern.

        Raises
        ------
        TimeoutError
            It has not come, or the machine is off; the console's last lines are in the message.
        """
        end = time.monotonic() + timeout_s
        is_last = False
        while not is_last:
            is_last = time.monotonic() > end or not self.is_on
            match = re.search(pattern, self.console())
            if match:
                return match
            time.sleep(POLL_S)
        last = "\n".join(self.console().splitlines()[-15:])
        raise TimeoutError(f"the machine has not shown {pattern!r} in {timeout_s:.0f} s; its last lines:\n{last}")

    def cut(self) -> None:
        """Cut the power."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.communicate()

    def __exit__(self, *_: object) -> None:
        self.cut()


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise FileNotFoundError(f"{name} is missing: make machine, as root")
    return path
