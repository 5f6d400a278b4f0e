"""Three Cortex-M that an emulator knows: how to compile for each and how to run what was compiled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["BOARDS", "COMPILER", "EMULATOR", "FILES", "Board"]

FILES = Path(__file__).parent / "template"
COMPILER = "arm-none-eabi-gcc"
EMULATOR = "qemu-system-arm"


@dataclass(frozen=True)
class Board:
    """A processor, the compiler's flags for it, and the emulator's machine that has one."""

    core: str
    cpu: tuple[str, ...]
    machine: str
    script: str

    def link(self) -> list[str]:
        """Flags and source that make a program for this machine of what has a ``main``."""
        boards = FILES / "boards"
        newlib = ["-nostartfiles", "-specs=nano.specs", "-specs=rdimon.specs", "-Wl,--gc-sections"]
        return [*newlib, f"-L{boards}", "-T", str(boards / self.script), str(boards / "startup.c")]

    def emulate(self, program: Path) -> list[str]:
        """The command that runs a program; it prints on standard output and ends with the program's status."""
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
