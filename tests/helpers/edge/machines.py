# SPDX-License-Identifier: Apache-2.0
"""The machines that tests compile for and emulate, and what becomes of a test whose tools are not here.

It is left out; ``conftest`` says so at the end of the run, with how to have the tools.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from hardcase_export.to_c.boards import BOARDS, COMPILER, EMULATOR, Board
from tests.helpers.places import ROOT

__all__ = ["ROOT", "STRICT", "TARGETS", "Target", "need", "python_of"]

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-Wpedantic"]

_AARCH64 = "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
_ARMHF = "gcc-arm-linux-gnueabihf libc6-dev-armhf-cross"
_CORTEX = "gcc-arm-none-eabi libnewlib-arm-none-eabi"
PACKAGES = {
    "cc": "gcc libc6-dev",
    "make": "make",
    "aarch64-linux-gnu-gcc": _AARCH64,
    "arm-linux-gnueabihf-gcc": _ARMHF,
    "arm-none-eabi-gcc": _CORTEX,
    "qemu-aarch64": "qemu-user",
    "qemu-arm": "qemu-user",
    "qemu-system-arm": "qemu-system-arm",
    "chromium": "chromium",
}


def need(*tools: str) -> None:
    """Go on only if these commands are here."""
    absent = [t for t in tools if shutil.which(t) is None]
    if absent:
        packages = sorted({p for t in absent for p in PACKAGES[t].split()})
        pytest.skip(f"{' and '.join(absent)}: apt install {' '.join(packages)}, or, as root, make toolchains")


def python_of(processor: str) -> list[str]:
    """The command that starts Debian's Python of another processor."""
    emulator = {"arm64": "qemu-aarch64", "armhf": "qemu-arm"}[processor]
    need(emulator)
    folder = ROOT / "build" / f"python-{processor}"
    if not (folder / "usr" / "bin" / "python3").exists():
        pytest.skip(f"Python for {processor} is needed: make toolchains")
    return [emulator, "-L", str(folder), str(folder / "usr" / "bin" / "python3"), "-B"]


@dataclass(frozen=True)
class Target:
    """A machine: its compiler with flags, and its board or the command before a program's path that runs it."""

    name: str
    compiler: tuple[str, ...]
    emulator: tuple[str, ...] = ()
    board: Board | None = None

    def need(self) -> None:
        """Go on only if its tools are here."""
        need(self.compiler[0], *self.emulator[:1], *([EMULATOR] if self.board else []))

    def compile(self, sources: list[Path], out: Path, *flags: str) -> Path:
        """An executable; every warning is an error."""
        link = self.board.link() if self.board else []
        command = [*self.compiler, *STRICT, *flags, *map(str, sources), *link, "-lm", "-o", str(out)]
        made = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert made.returncode == 0, made.stderr
        return out

    def run(self, program: Path) -> str:
        """What it prints; it must end with status 0."""
        command = self.board.emulate(program) if self.board else [*self.emulator, str(program)]
        made = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
        assert made.returncode == 0, f"status {made.returncode}: {made.stdout[-2000:]}{made.stderr[-2000:]}"
        return made.stdout


TARGETS = (
    Target("here", ("cc",)),
    Target("aarch64", ("aarch64-linux-gnu-gcc", "-static"), ("qemu-aarch64",)),
    Target("armhf", ("arm-linux-gnueabihf-gcc", "-static"), ("qemu-arm",)),
    *[Target(b.core.lower(), (COMPILER, *b.cpu, "-ffunction-sections"), board=b) for b in BOARDS],
)
