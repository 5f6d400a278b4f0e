# SPDX-License-Identifier: Apache-2.0
"""The facades: a few names each, which a room owns and which are imported from it when they are first used."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

import hardcase_cloud
import hardcase_edge
import hardcase_export
from hardcase_edge.errors import HardcaseError
from tests.helpers.places import ROOT
from tests.house.test_arrows import HEAVY

MOST = {hardcase_edge: 12, hardcase_cloud: 10, hardcase_export: 8}
FACADES = pytest.mark.parametrize("facade", MOST, ids=lambda facade: facade.__name__)
NAMES = pytest.mark.parametrize(("facade", "name"), [(facade, name) for facade in MOST for name in facade.__all__])


def modules_after(code: str) -> set[str]:
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return set(run.stdout.split())


@NAMES
def test_a_name_of_a_facade_is_its_rooms_own(facade: ModuleType, name: str) -> None:
    value = getattr(facade, name)
    assert callable(value)
    assert getattr(sys.modules[value.__module__], name) is value
    assert name in dir(facade)


@NAMES
def test_no_module_has_the_name_of_an_entry_point(facade: ModuleType, name: str) -> None:
    assert find_spec(f"{facade.__name__}.{name}") is None, "importing the module would replace it"


@pytest.mark.parametrize("name", hardcase_export.__all__)
def test_a_home_of_the_exporter_promises_its_name(name: str) -> None:
    home = import_module(f"hardcase_export.{hardcase_export.HOMES[name]}")
    assert getattr(home, name) is getattr(hardcase_export, name)
    assert getattr(home, name).__module__ == home.__name__


@pytest.mark.parametrize("name", hardcase_cloud.__all__)
def test_a_name_of_the_cloud_is_documented(name: str) -> None:
    assert f"| `{name}` |" in (ROOT / "docs" / "cloud.md").read_text(encoding="utf-8")


@FACADES
def test_a_facade_is_small_and_in_order(facade: ModuleType) -> None:
    assert len(facade.__all__) <= MOST[facade]
    assert facade.__all__ == sorted(facade.__all__)


def test_the_homes_and_names_of_the_exporter_are_the_same() -> None:
    assert list(hardcase_export.HOMES) == hardcase_export.__all__


def test_the_errors_of_the_device_have_one_base() -> None:
    errors = [getattr(hardcase_edge, name) for name in hardcase_edge.__all__ if name.endswith("Error")]
    assert all(issubclass(error, HardcaseError) for error in errors)


@FACADES
def test_an_unknown_name_is_an_attribute_error(facade: ModuleType) -> None:
    with pytest.raises(AttributeError, match="no attribute 'Gadget'"):
        _ = facade.Gadget


@FACADES
def test_type_checkers_see_the_same_names(facade: ModuleType) -> None:
    tree = ast.parse(Path(str(facade.__file__)).read_text(encoding="utf-8"))
    [block] = [
        node for node in tree.body if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
    ]
    imported = {a.name for node in block.body if isinstance(node, ast.ImportFrom) for a in node.names}
    assert imported == set(facade.__all__)


@FACADES
def test_importing_a_facade_imports_no_room_and_nothing_heavy(facade: ModuleType) -> None:
    loaded = modules_after(f"import {facade.__name__}")
    assert not {name for name in loaded if name.startswith(f"{facade.__name__}.")}
    assert not {name.split(".")[0] for name in loaded} & HEAVY


def test_deciding_does_not_import_the_device() -> None:
    assert "hardcase_edge.device.device" not in modules_after("from hardcase_edge import load_bundle, drive")


def test_pages_and_exports_of_a_bundle_import_nothing_that_learns() -> None:
    """It would take a user of ``hardcase playground`` twice as long."""
    loaded = modules_after("import hardcase.playground.page, hardcase.verbs.fleet.page, hardcase_export.runtimes")
    assert not {"sklearn", "scipy", "numba", "joblib"} & set(loaded)
