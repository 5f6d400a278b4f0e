# SPDX-License-Identifier: Apache-2.0
"""The machines that tests compile for and emulate."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from hardcase_export.to_c.boards import BOARDS, COMPILER, EMULATOR, Board
from tests.helpers.places import ROOT
from tests.helpers.tools import need

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-Wpedantic"]


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
