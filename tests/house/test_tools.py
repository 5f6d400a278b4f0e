# SPDX-License-Identifier: Apache-2.0
"""What tests need from the system is what ``make toolchains`` installs."""

from __future__ import annotations

import re

import pytest

from tests.helpers.places import ROOT
from tests.helpers.tools import PACKAGES

INSTALLED = re.search(r"^TOOLCHAINS := ((?:.*\\\n)*.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()


@pytest.mark.parametrize("package", sorted({name for names in PACKAGES.values() for name in names.split()}))
def test_make_toolchains_installs_what_a_test_asks_for(package: str) -> None:
    assert package in INSTALLED
