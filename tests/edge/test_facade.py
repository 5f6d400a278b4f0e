# SPDX-License-Identifier: Apache-2.0
"""The facade of the device: twelve names, each imported from its room when it is first used."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

import hardcase_edge
from hardcase_edge.device.device import Device
from hardcase_edge.errors import HardcaseError
from tests.helpers.places import ROOT

PACKAGE = ROOT / "edge_runtime" / "hardcase_edge"


@pytest.mark.parametrize("name", hardcase_edge.__all__)
def test_a_name_of_the_facade_is_its_rooms_own(name: str) -> None:
    value = getattr(hardcase_edge, name)
    assert getattr(sys.modules[value.__module__], name) is value
    assert name in dir(hardcase_edge)


def test_the_facade_is_small_and_its_errors_have_one_base() -> None:
    assert len(hardcase_edge.__all__) <= 12
    errors = [getattr(hardcase_edge, name) for name in hardcase_edge.__all__ if name.endswith("Error")]
    assert all(issubclass(error, HardcaseError) for error in errors)
    assert hardcase_edge.Device is Device


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Gadget'"):
        _ = hardcase_edge.Gadget  # type: ignore[attr-defined]


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    [block] = [
        node for node in tree.body if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
    ]
    imported = {a.name for node in block.body if isinstance(node, ast.ImportFrom) for a in node.names}
    assert imported == set(hardcase_edge.__all__)


def test_importing_the_facade_imports_no_room() -> None:
    code = "import sys, hardcase_edge; print(*[m for m in sys.modules if m.startswith('hardcase_edge.')])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.split() == []
    code = "import sys; from hardcase_edge import load_bundle, drive; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "hardcase_edge.device.device" not in run.stdout.split()
