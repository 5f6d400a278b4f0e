# SPDX-License-Identifier: Apache-2.0
"""A benchmark's page says what its record says: written again from the JSON, it is the page that is committed."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks import cstc
from tests.helpers.places import ROOT

FOLDER = ROOT / "benchmarks"
RENDERED = (
    "budget_hit",
    "streams",
    "recertify",
    "atypical",
    "audits",
    "flywheel",
    "groups",
    "kserve",
    "machine",
    "million",
    "power_cuts",
    "power_cuts_ext4",
    "promise",
    "replay",
    "servo",
    "slow_failures",
    "sockets",
    "workers",
    "users",
    "large",
    "exports",
)


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules of the folder can import one another by name, and are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(FOLDER))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == FOLDER:
            del sys.modules[name]


def script(name: str) -> ModuleType:
    """A script of the folder as a module."""
    spec = importlib.util.spec_from_file_location(f"script_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", RENDERED)
def test_a_page_is_what_its_record_says(name: str, scripts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    module, written = script(name), dict[Path, str]()
    monkeypatch.setattr(Path, "write_text", lambda path, text, **_: written.update({path: text}))
    monkeypatch.setattr(sys, "argv", [name, "--render"])
    module.main()
    assert written == {module.PAGE: module.PAGE.read_text(encoding="utf-8")}


@pytest.mark.parametrize("name", ["dag", "learning"])
def test_a_page_with_pictures_is_what_its_record_says(name: str, scripts: None) -> None:
    module = script(name)
    results = json.loads((FOLDER / "results" / f"{name}.json").read_text())
    results = {case: results[case] for case in getattr(module, "CASES", results) if case in results} | {
        k: v for k, v in results.items() if k == "speed"
    }
    assert module.page(results) == module.PAGE.read_text(encoding="utf-8")


def test_the_page_of_trees_of_classifiers_is_what_its_records_say() -> None:
    assert cstc.write_page(cstc.known()) == cstc.PAGE.read_text(encoding="utf-8")
