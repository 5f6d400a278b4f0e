# SPDX-License-Identifier: Apache-2.0
"""What tests of MicroPython share: an export, and MicroPython for an emulated board."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.export.js_cases import exported_golden
from tests.helpers.places import ROOT
from tests.helpers.tools import need

SOURCE = ROOT / "build" / "micropython-source"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of the golden bundle."""
    return exported_golden(tmp_path_factory, "micropython")


@pytest.fixture
def firmware() -> Path:
    """MicroPython for the emulated board."""
    need("qemu-system-arm", "arm-none-eabi-gcc")
    if not (SOURCE / "firmware.elf").exists():
        pytest.skip("micropython: make toolchains")
    return SOURCE / "firmware.elf"
