# SPDX-License-Identifier: Apache-2.0
"""The native module for the ESP32 decides as Python on an emulated Xtensa; MicroPython's own tool reads all modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hardcase_export.to_micropython.mpy import ARCHITECTURES, native_module
from hardcase_export.to_micropython.xtensa import XTENSAWIN, xtensa_module
from tests.helpers.edge.evaluators import needs_kernel
from tests.helpers.tools import need

from .conftest import SOURCE
from .emulated_xtensa import CODE_AT, TOOLS, replayed

COUNT = 4  # random programs, after the golden one


@needs_kernel
def test_the_module_for_the_esp32_decides_as_python_on_an_emulated_xtensa_with_windowed_calls(tmp_path: Path) -> None:
    """Through the wrapper that boards have, all golden cases and those of some random programs."""
    need(*TOOLS)
    made, n = replayed(tmp_path, COUNT)
    assert made == n
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
