# SPDX-License-Identifier: Apache-2.0
"""Emulated Cortex-M boards: compiler flags, linker script and emulator command of each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FILES = Path(__file__).parent / "template"
COMPILER = "arm-none-eabi-gcc"
EMULATOR = "qemu-system-arm"
UNITS = {"K": 1024, "M": 1024**2}


@dataclass(frozen=True)
class Board:
    """A processor core, the compiler's flags for it, and the emulated machine that has this core."""

    core: str
    cpu: tuple[str, ...]
    machine: str
    script: str

    @property
    def memory(self) -> tuple[int, int]:
        """Bytes of flash and of RAM, as the linker script has them."""
        text = (FILES / "boards" / self.script).read_text(encoding="ascii")
        flash, ram = (re.search(rf"{name} \(.*LENGTH = (\d+)([KM])", text) for name in ("FLASH", "RAM"))
        assert flash is not None
        assert ram is not None
        return int(flash[1]) * UNITS[flash[2]], int(ram[1]) * UNITS[ram[2]]

    def link(self) -> list[str]:
        """Flags and source files that link code with a ``main`` into a program for this machine."""
        boards = FILES / "boards"
        newlib = ["-nostartfiles", "-specs=nano.specs", "-specs=rdimon.specs", "-Wl,--gc-sections"]
        return [*newlib, f"-L{boards}", "-T", str(boards / self.script), str(boards / "startup.c")]

    def emulate(self, program: Path) -> list[str]:
        """The command that runs a program; it passes on the program's standard output and exit status."""
        quiet = ["-nographic", "-monitor", "none", "-serial", "none"]
        semihosting = ["-semihosting-config", "enable=on,target=native"]
        return [EMULATOR, "-M", self.machine, *quiet, *semihosting, "-kernel", str(program)]


BOARDS = (
    Board("Cortex-M0", ("-mcpu=cortex-m0", "-mthumb"), "microbit", "microbit.ld"),
    Board("Cortex-M3", ("-mcpu=cortex-m3", "-mthumb"), "mps2-an385", "mps2.ld"),
    Board(
        "Cortex-M4F",
        ("-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-mthumb"),
        "mps2-an386",
        "mps2.ld",
    ),
)
