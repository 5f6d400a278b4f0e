# SPDX-License-Identifier: Apache-2.0
"""What tests need from the system is what ``make toolchains`` installs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.places import ROOT
from tests.helpers.tools import PACKAGES

SCRIPT = (ROOT / "tests" / "helpers" / "toolchains.sh").read_text()
INSTALLED = re.search(r'^TOOLCHAINS="([^"]*)"$', SCRIPT, re.MULTILINE)[1].split()
MAKEFILE = (ROOT / "Makefile").read_text()
OF_FIRMWARE = {"microbit"}  # targets of the Makefile that the export to C writes


@pytest.mark.parametrize("package", sorted({name for names in PACKAGES.values() for name in names.split()}))
def test_make_toolchains_installs_what_a_test_asks_for(package: str) -> None:
    assert package in INSTALLED


def test_the_makefile_has_twelve_targets_and_its_first_lines_name_each() -> None:
    targets = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split()
    assert len(targets) <= 12
    assert set(re.findall(r"make ([a-z]+)", MAKEFILE.partition("\n#\n")[0])) == set(targets)


@pytest.mark.parametrize("page", sorted({*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "ARCHITECTURE.md"}))
def test_a_page_names_only_targets_that_there_are(page: Path) -> None:
    targets = set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split())
    text = page.read_text()
    named = re.findall(r"(?:`|^)(?:sudo )?make((?: [a-z][\w-]*)+)", text, re.MULTILINE)
    assert {word for words in named for word in words.split()} <= targets | OF_FIRMWARE
