# SPDX-License-Identifier: Apache-2.0
"""The native module for the ESP32 on an emulated Xtensa with windowed calls, and decisions that it makes there."""

from __future__ import annotations

import runpy
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from hardcase_export.to_micropython import folder as micropython_folder
from hardcase_export.to_micropython.xtensa import windowed_elf, xtensa_module

from .cases import write_cases

__all__ = ["CODE_AT", "TOOLS", "replayed"]

TOOLS = ("qemu-xtensa", "xtensa-lx106-elf-gcc")
HERE = Path(__file__).parent
NATIVE = Path(micropython_folder.__file__).parent / "native"
PACKAGE = Path(micropython_folder.__file__).parent / "package"
CODE_AT = len(b"M\x06\x2b\x1f\x02\x01\x26hardcase_kernel.mpy\0\x08call\0\0")  # as it begins on Xtensa
SCRIPT = """\
PHDRS { all PT_LOAD FLAGS(7); }
SECTIONS {
    . = 0x400000;
    .text : { KEEP(*(.first)) . = ALIGN(4); *(.text .text.* .literal .literal.* .rodata .rodata.* .data .data.*) } :all
    .bss : { *(.bss .bss.* COMMON) } :all
    /DISCARD/ : { *(.xtensa.info) *(.xt.*) *(.comment) *(.eh_frame*) }
}
"""
START = "movi a0, 0\ncall8 main"
Call = Callable[[int, Any, Any, int, Any], int]


def loaded(module: bytes, text_at: int, tables_at: int) -> tuple[bytes, bytes]:
    """Code and constants of a module as MicroPython's loader lays them to these addresses."""
    at = CODE_AT

    def number() -> int:
        nonlocal at
        value = 0
        while True:
            at += 1
            value = value << 7 | module[at - 1] & 0x7F
            if module[at - 1] < 0x80:
                return value

    size = number()
    assert size & 7 == 2  # viper, without children
    code = bytearray(module[at : at + (size >> 3)])
    at += size >> 3
    assert number() == 0x30  # relocations and constants
    n = number()
    tables = module[at : at + n]
    at += n
    while module[at] != 0xFF:
        moved = {1: text_at, 5: tables_at}[number()]
        place = 4 * (number() >> 1)
        struct.pack_into("<I", code, place, struct.unpack_from("<I", code, place)[0] + moved)
    assert at == len(module) - 1
    return bytes(code), tables


@contextmanager
def emulated(folder: Path) -> Iterator[Call]:
    """``hardcase_kernel.call``, answered by the module on an emulated processor with windowed calls."""
    elf = windowed_elf(folder, {HERE / "xtensa_board.c": [], NATIVE / "xtensa.c": []}, START, SCRIPT)
    elf.chmod(0o755)
    named = subprocess.run(
        ["xtensa-lx106-elf-nm", "--defined-only", elf], check=True, capture_output=True, text=True
    ).stdout
    at = {line.split()[-1]: int(line.split()[0], 16) for line in named.splitlines()}
    code, tables = loaded(xtensa_module(), at["text"], at["rodata"])
    process = subprocess.Popen([TOOLS[0], "-cpu", "dc233c", elf], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    to, out = process.stdin, process.stdout
    to.write(struct.pack("<2i", len(code), len(tables)) + code + tables)
    last: Any = None

    def asked(op: int, image: Any, session: Any, number: int, data: Any) -> int:
        nonlocal last
        image_bytes = 0 if image is last else len(image)
        sizes = [-1 if buffer is None else len(buffer) for buffer in (session, data)]
        to.write(struct.pack("<5i", op, number, image_bytes, *sizes))
        to.write((bytes(image) if image_bytes else b"") + bytes(session or b"") + bytes(data or b""))
        to.flush()
        last = image
        (made,) = struct.unpack("<i", out.read(4))
        if session is not None:
            session[:] = out.read(len(session))
        return int(made)

    try:
        yield asked
    finally:
        process.kill()
        process.communicate()


def replayed(folder: Path, count: int, ways: tuple[bool, ...] = (True,)) -> tuple[int, int]:
    """How many decisions the wrapper that boards have makes as expected there, and how many there are.

    They are all golden ones and those of ``count`` random programs, with readings as the bytes of a struct, and where
    ``ways`` has False, as numbers.
    """
    n = write_cases(folder / "cases.jsonl", count) * len(ways)
    kernel, wrapper = ModuleType("hardcase_kernel"), ModuleType("wrapper")
    with emulated(folder) as kernel.call, patch.dict(sys.modules, hardcase_kernel=kernel):  # type: ignore[attr-defined]
        wrapper.__dict__.update(runpy.run_path(str(PACKAGE / "hardcase.upy")))
        with patch.dict(sys.modules, hardcase=wrapper):
            replay = runpy.run_path(str(HERE / "replay.py"))["replay"]
        made = sum(replay(line, ways) for line in (folder / "cases.jsonl").read_text().splitlines())
    return made, n
