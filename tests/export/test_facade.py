# SPDX-License-Identifier: Apache-2.0
"""The entry points of hardcase_export: they resolve in any order of imports, and cost nothing before their use."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest

import hardcase_export
from tests.house.test_arrows import HEAVY


@pytest.mark.parametrize("name", hardcase_export.__all__)
def test_an_entry_point_resolves_to_the_function_of_its_module(name: str) -> None:
    module = import_module(f"hardcase_export.{hardcase_export.HOMES[name]}")
    function = getattr(hardcase_export, name)
    assert callable(function)
    assert function is getattr(module, name)
    assert name in module.__all__


def test_the_entry_points_are_few_and_each_has_a_home() -> None:
    assert list(hardcase_export.HOMES) == hardcase_export.__all__ == sorted(hardcase_export.__all__)
    assert len(hardcase_export.__all__) <= 8


@pytest.mark.parametrize("name", hardcase_export.__all__)
def test_no_module_has_the_name_of_an_entry_point(name: str) -> None:
    assert find_spec(f"hardcase_export.{name}") is None, "importing the module would replace the function"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        hardcase_export.no_such_name  # noqa: B018


def test_the_package_alone_imports_nothing_heavy() -> None:
    code = "import sys, hardcase_export; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert not {name.split(".")[0] for name in done.stdout.split()} & HEAVY
