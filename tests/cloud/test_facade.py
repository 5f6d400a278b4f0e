# SPDX-License-Identifier: Apache-2.0
"""The facade of the cloud: ten names, each imported from its room when it is first used, and told in docs/cloud.md."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

import hardcase_cloud
from tests.helpers.places import ROOT

PACKAGE = ROOT / "cloud_stub" / "hardcase_cloud"


@pytest.mark.parametrize("name", hardcase_cloud.__all__)
def test_a_name_of_the_facade_is_its_rooms_own_and_documented(name: str) -> None:
    value = getattr(hardcase_cloud, name)
    assert getattr(sys.modules[value.__module__], name) is value
    assert name in dir(hardcase_cloud)
    assert f"| `{name}` |" in (ROOT / "docs" / "cloud.md").read_text(encoding="utf-8")


def test_the_facade_is_small_and_hides_no_product() -> None:
    assert len(hardcase_cloud.__all__) <= 10
    assert not {path.name for path in PACKAGE.iterdir() if path.is_dir()} & set(hardcase_cloud.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Gadget'"):
        _ = hardcase_cloud.Gadget  # type: ignore[attr-defined]


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    [block] = [
        node for node in tree.body if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
    ]
    imported = {a.name for node in block.body if isinstance(node, ast.ImportFrom) for a in node.names}
    assert imported == set(hardcase_cloud.__all__)


def test_importing_the_facade_imports_no_room() -> None:
    code = "import sys, hardcase_cloud; print(*[m for m in sys.modules if m.startswith('hardcase_cloud.')])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.split() == []
