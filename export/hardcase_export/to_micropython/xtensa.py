# SPDX-License-Identifier: Apache-2.0
"""The kernel as a native module for ``xtensawin``, the ESP32 and its like, by Debian's ``gcc-xtensa-lx106``.

That compiler knows windowed calls, its assembler does not: ``_windowed`` writes the four instructions of them that the
compiler uses as bytes, and a ``call8`` as the ``call0`` to the same place, which one bit makes it after linking.
Such a processor reads code by words only, so that tables lie apart from it, as MicroPython's own modules have them: the
module is linked at several addresses, and words that differ are its relocations.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from hardcase_edge.errors import InputError
from hardcase_edge.kernel.sources import FOLDER

from ..zig import STRING_H
from .mpy import FREESTANDING, NATIVE, parts_flags, write_mpy

XTENSAWIN, NUMBER = "xtensawin", 10  # MicroPython's name, and its number in a .mpy file
TOOL = "xtensa-lx106-elf-"
FLAGS = "-mabi=windowed -fno-jump-tables -fno-tree-loop-distribute-patterns -mtext-section-literals"
CALL = "hc_call8_"  # marks a call0 that is to be a call8
CALL0, CALL8, CALL_BITS = 0x05, 0x20, 0x3F
START = '.section .first, "ax"\n.align 4\n_start: {}\n'
SCRIPT = """\
SECTIONS {
    . = %d;
    .text : { KEEP(*(.first)) . = ALIGN(4); *(.text .text.* .literal .literal.*) . = ALIGN(4); }
    . = %d;
    .rodata : { *(.rodata .rodata.*) }
    /DISCARD/ : { *(.xtensa.info) *(.xt.*) *(.comment) *(.eh_frame*) }
}
"""
TABLES, STEP = 0x100000, 0x10000
TO_TEXT, TO_TABLES = 1, 5  # a relocation of the word at the place that follows
COMPILE_S = 120


def can_compile_xtensa() -> bool:
    """Whether the compiler and its linker are installed."""
    return all(shutil.which(TOOL + name) for name in ("gcc", "ld"))


@cache
def xtensa_module(parts: tuple[str, ...] = ()) -> bytes:
    """A ``.mpy`` file, the same bytes each time, with these parts of the kernel, or all of them.

    Raises
    ------
    InputError
        The compiler is missing, or makes what cannot be one.
    """
    with TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "string.h").write_text(STRING_H, encoding="ascii")
        flags = [f"-I{folder}", f"-I{NATIVE}", f"-I{FOLDER}", *parts_flags(parts)]
        sources = {NATIVE / "hardcase_kernel.c": flags, NATIVE / "xtensa.c": []}
        made = []
        for text, tables in ((0, TABLES), (STEP, TABLES), (0, TABLES + STEP)):
            elf = windowed_elf(folder, sources, "j mpy_init", SCRIPT % (text, tables))
            made.append([_section(folder, elf, name) for name in (".text", ".rodata")])
    (code, tables_), (moved, _), (other, _) = made
    if len({rodata for _, rodata in made}) > 1 or len(code) % 4:
        raise InputError("the kernel for MicroPython on xtensawin would not run at each address")
    out, relocations = bytearray(code), []
    for at in range(0, len(code), 4):
        (word,) = struct.unpack_from("<I", code, at)
        for changed, kind, base in ((moved, TO_TEXT, 0), (other, TO_TABLES, TABLES)):
            if changed[at : at + 4] != code[at : at + 4]:
                struct.pack_into("<I", out, at, word - base)
                relocations.append((kind, at // 4))
    return write_mpy(NUMBER, bytes(out), tables_, relocations)


def windowed_elf(folder: Path, sources: dict[Path, list[str]], start: str, script: str) -> Path:
    """A program with windowed calls of these sources and their flags, which begins with an instruction."""
    objects = [_assembled(folder, "start", _windowed(START.format(start)))]
    for path, flags in sources.items():
        if not (folder / f"{path.stem}.o").exists():
            text = folder / f"{path.stem}.c.s"
            _run("gcc", *f"{FREESTANDING} {FLAGS}".split(), *flags, "-S", path, "-o", text)
            _assembled(folder, path.stem, _windowed(text.read_text(encoding="ascii")))
        objects.append(folder / f"{path.stem}.o")
    elf, rules = folder / "linked.elf", folder / "linked.ld"
    rules.write_text(script, encoding="ascii")
    _run(
        "ld", "--no-relax", "--gc-sections", "--no-warn-rwx-segments", "-e", "_start", "-T", rules, *objects, "-o", elf
    )
    data = bytearray(elf.read_bytes())
    (segments,) = struct.unpack_from("<I", data, 28)
    offset, address = struct.unpack_from("<4xII", data, segments)
    for line in _run("nm", "--defined-only", elf).splitlines():
        place, _, name = line.split()
        if name.startswith(CALL):
            at = int(place, 16) - address + offset
            if data[at] & CALL_BITS != CALL0:
                raise InputError("a call in the kernel for xtensawin is none; install another gcc-xtensa-lx106")
            data[at] |= CALL8
    elf.write_bytes(data)
    return elf


def _windowed(text: str) -> str:
    """Assembly whose instructions of windowed calls are bytes."""
    lines = text.splitlines()
    for k, line in enumerate(lines):
        word, *operands = line.replace(",", " ").split() or [""]
        if word == "entry":
            lines[k] = _bytes(0x36 | 1 << 8 | int(operands[1]) >> 3 << 12, 3)
        elif word == "callx8":
            lines[k] = _bytes(0xE0 | int(operands[0].removeprefix("a")) << 8, 3)
        elif word == "call8":
            lines[k] = f"{CALL}{k}: call0 {operands[0]}"
        elif word in ("retw", "retw.n"):
            lines[k] = _bytes(0x90, 3) if word == "retw" else _bytes(0xF01D, 2)
        elif re.match(r"callx?(4|12)|movsp|[ls]32e|rotw", word):
            raise InputError(f"the kernel for xtensawin has {word}, which this cannot write; install another compiler")
    return "\n".join(lines) + "\n"


def _bytes(instruction: int, size: int) -> str:
    return f".byte {', '.join(map(str, instruction.to_bytes(size, 'little')))}"


def _assembled(folder: Path, name: str, text: str) -> Path:
    source, out = folder / f"{name}.s", folder / f"{name}.o"
    source.write_text(text, encoding="ascii")
    _run("as", "--text-section-literals", "--no-longcalls", "--no-target-align", source, "-o", out)
    return out


def _section(folder: Path, elf: Path, name: str) -> bytes:
    out = folder / "section.bin"
    _run("objcopy", "-O", "binary", "-j", name, elf, out)
    return out.read_bytes()


def _run(tool: str, *words: object) -> str:
    """What a tool prints."""
    try:
        made = subprocess.run(
            [TOOL + tool, *map(str, words)], capture_output=True, text=True, timeout=COMPILE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError("the kernel for xtensawin needs a compiler: apt install gcc-xtensa-lx106") from error
    if made.returncode != 0:
        raise InputError(f"the kernel for xtensawin does not compile: {' '.join(made.stderr.split())[:300]}")
    return made.stdout
