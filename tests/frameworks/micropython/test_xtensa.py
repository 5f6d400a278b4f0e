# SPDX-License-Identifier: Apache-2.0
"""The native module for the ESP32 decides as Python on an emulated Xtensa; MicroPython's own tool reads all modules."""

from __future__ import annotations

import runpy
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hardcase_export.to_micropython import folder as micropython_folder
from hardcase_export.to_micropython.mpy import ARCHITECTURES, native_module
from hardcase_export.to_micropython.xtensa import XTENSAWIN, windowed_elf, xtensa_module
from tests.helpers.edge.evaluators import needs_kernel
from tests.helpers.tools import need

from .cases import write_cases
from .conftest import SOURCE

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
COUNT = 4  # random programs, after the golden one
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


@pytest.fixture
def call(tmp_path: Path) -> Iterator[Call]:
    """``hardcase_kernel.call``, answered by the module on an emulated processor with windowed calls."""
    emulator, _ = need("qemu-xtensa", "xtensa-lx106-elf-gcc")
    elf = windowed_elf(tmp_path, {HERE / "xtensa_board.c": [], NATIVE / "xtensa.c": []}, START, SCRIPT)
    elf.chmod(0o755)
    named = subprocess.run(
        ["xtensa-lx106-elf-nm", "--defined-only", elf], check=True, capture_output=True, text=True
    ).stdout
    at = {line.split()[-1]: int(line.split()[0], 16) for line in named.splitlines()}
    code, tables = loaded(xtensa_module(), at["text"], at["rodata"])
    process = subprocess.Popen([emulator, "-cpu", "dc233c", elf], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
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

    yield asked
    process.kill()
    process.communicate()


START = "movi a0, 0\ncall8 main"


@needs_kernel
def test_the_module_for_the_esp32_decides_as_python_on_an_emulated_xtensa_with_windowed_calls(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the wrapper that boards have, all golden cases and those of some random programs."""
    kernel, wrapper = ModuleType("hardcase_kernel"), ModuleType("wrapper")
    kernel.call = call  # type: ignore[attr-defined]
    n = write_cases(tmp_path / "cases.jsonl", COUNT)
    monkeypatch.setitem(sys.modules, "hardcase_kernel", kernel)
    wrapper.__dict__.update(runpy.run_path(str(PACKAGE / "hardcase.upy")))
    monkeypatch.setitem(sys.modules, "hardcase", wrapper)
    replay = runpy.run_path(str(HERE / "replay.py"))["replay"]
    assert sum(replay(line, (True,)) for line in (tmp_path / "cases.jsonl").read_text().splitlines()) == n
    assert n >= 64


def test_micropythons_own_tool_reads_each_module_as_this_project_wrote_it(tmp_path: Path) -> None:
    need("xtensa-lx106-elf-gcc")
    if not SOURCE.exists():
        pytest.skip("micropython: make toolchains")
    for name in (*ARCHITECTURES, XTENSAWIN):
        module = xtensa_module() if name == XTENSAWIN else native_module(name)
        (tmp_path / f"{name}.mpy").write_bytes(module)
        command = [sys.executable, SOURCE / "tools" / "mpy-tool.py", "-d", tmp_path / f"{name}.mpy"]
        said = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, timeout=60).stdout
        assert f"header: {module[:4].hex(':')}" in said
        assert "source_file: hardcase_kernel.mpy\n" in said
        assert "qstr_table[2]:\n    hardcase_kernel.mpy\n    call\nobj_table: [mp_fun_table]\n" in said
        size = (module[CODE_AT] & 0x7F) << 14 | (module[CODE_AT + 1] & 0x7F) << 7 | module[CODE_AT + 2]
        assert f"raw data: {size >> 3} {module[CODE_AT + 3 : CODE_AT + 35].hex(':')}" in said
