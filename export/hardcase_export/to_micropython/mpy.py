# SPDX-License-Identifier: Apache-2.0
"""The kernel as native modules of MicroPython: the C files as they are, compiled by Zig, as ``.mpy`` of version 6.3.

The code has neither variables nor addresses: it runs wherever a board loads it, and needs no relocation. Each module is
linked at two addresses, and refused if the bytes are not the same.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from hardcase_edge.errors import InputError
from hardcase_edge.kernel.sources import FOLDER

from ..zig import STRING_H, compile_c

NATIVE = Path(__file__).parent / "native"
ARCHITECTURES = {  # by MicroPython's name: its number in a .mpy file, and Zig's flags
    "x64": (2, "-target x86_64-freestanding-none -fPIC"),
    "armv6m": (4, "-target thumb-freestanding-eabi -mcpu=cortex_m0 -fropi"),
    "armv7m": (5, "-target thumb-freestanding-eabi -mcpu=cortex_m3 -fropi"),
    "armv7emsp": (7, "-target thumb-freestanding-eabihf -mcpu=cortex_m4 -fropi"),
    "rv32imc": (11, "-target riscv32-freestanding-none -mcpu=generic_rv32+m+c -fPIC"),
}
FREESTANDING = "-std=c99 -O2 -g0 -ffreestanding -DMICROPY_ENABLE_DYNRUNTIME=1 -ffunction-sections"
FLAGS = f"{FREESTANDING} -fno-unroll-loops"
LINKED = "-fno-stack-protector -static -Wl,-no-pie -Wl,--gc-sections -Wl,-e,mpy_init"
BASES = (0, 0x10000)  # addresses at which it is linked
SCRIPT = """\
SECTIONS {
    . = %d;
    .text : { *(.text.mpy_init) *(.text .text.*) *(.rodata .rodata.*) }
    /DISCARD/ : { *(.ARM.*) *(.eh_frame*) *(.comment) *(.note*) }
}
"""
LOADED = 1  # a segment of an ELF file
VERSION, ABI, SMALL_INT_BITS = 6, 3, 31
VIPER = 2  # code that takes its own arguments
RELOCATED, NO_MORE = 0x10, 0xFF  # a list of relocations, though empty: a board keeps only such code from its collector
HAS_TABLES = 0x20  # constants apart from the code
NAMES = ("hardcase_kernel.mpy", "call")
FUNCTION_TABLE = 0  # an object of the module


@cache
def native_module(architecture: str, parts: tuple[str, ...] = ()) -> bytes:
    """A ``.mpy`` file, the same bytes each time, with these parts of the kernel, or all of them.

    Raises
    ------
    InputError
        Zig is missing, or does not compile it.
    """
    number, target = ARCHITECTURES[architecture]
    what = f"the kernel for MicroPython on {architecture}"
    codes = []
    with TemporaryDirectory() as folder:
        (Path(folder) / "string.h").write_text(STRING_H, encoding="ascii")
        for base in BASES:
            script, out = Path(folder) / "flat.ld", Path(folder) / "flat.elf"
            script.write_text(SCRIPT % base, encoding="ascii")
            sources = [f"-I{folder}", f"-I{NATIVE}", f"-I{FOLDER}", str(NATIVE / "hardcase_kernel.c")]
            flags = [*f"{target} {FLAGS} {LINKED} -Wl,-T,{script}".split(), *parts_flags(parts)]
            compile_c(what, [*flags, *sources, "-o", str(out)])
            codes.append(_code(out.read_bytes(), base))
    if codes[0] is None or len(set(codes)) > 1:
        raise InputError(f"{what} would not run at each address; install another ziglang")
    return write_mpy(number, codes[0])


def parts_flags(parts: tuple[str, ...]) -> list[str]:
    """Flags by which these parts are compiled, in place of those of hardcase_config.h; all of them for none."""
    return ["-DHARDCASE_CONFIG_H", f"-DHC_PARTS=({'|'.join(parts)})"] if parts else []


def _code(elf: bytes, base: int) -> bytes | None:
    """The bytes of the one loaded segment, at whose beginning the module's entry lies; None if there are others."""
    is_wide = elf[4] == 2
    entry, at = struct.unpack_from("<QQ" if is_wide else "<II", elf, 24)
    size, count = struct.unpack_from("<HH", elf, 54 if is_wide else 42)
    found = []
    for k in range(count):
        if is_wide:
            kind, _, offset, address, _, n, n_memory = struct.unpack_from("<IIQQQQQ", elf, at + size * k)
        else:
            kind, offset, address, _, n, n_memory = struct.unpack_from("<6I", elf, at + size * k)
        if kind == LOADED and n_memory:
            found.append((address, elf[offset : offset + n] if n == n_memory else None))
    return found[0][1] if len(found) == 1 and found[0][0] == base and entry & ~1 == base else None


def write_mpy(number: int, code: bytes, tables: bytes = b"", relocations: Sequence[tuple[int, int]] = ()) -> bytes:
    """A ``.mpy`` file of code, constants apart from it, and relocations: the kind of each, and its word in the code."""
    names = b"".join(_number(len(name) << 1) + name.encode("ascii") + b"\0" for name in NAMES)
    head = (
        bytes([ord("M"), VERSION, number << 2 | ABI, SMALL_INT_BITS, len(NAMES), 1]) + names + bytes([FUNCTION_TABLE])
    )
    apart = bytes([RELOCATED | HAS_TABLES]) + _number(len(tables)) + tables if tables else bytes([RELOCATED])
    moved = b"".join(bytes([kind]) + _number(word << 1) for kind, word in relocations)
    return head + _number(len(code) << 3 | VIPER) + code + apart + moved + bytes([NO_MORE])


def _number(value: int) -> bytes:
    """Seven bits a byte, the highest first."""
    made = [value & 0x7F]
    while value := value >> 7:
        made.insert(0, value & 0x7F | 0x80)
    return bytes(made)
