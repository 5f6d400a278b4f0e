# SPDX-License-Identifier: Apache-2.0
"""Packages that a test installs for a while, with entry points for the hooks of hardcase."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest


def install(
    site: Path, monkeypatch: pytest.MonkeyPatch, package: str, hook: str, points: dict[str, str], source: str = ""
) -> None:
    """Make a package of one module importable, which offers ``points``: a value such as "module:OBJECT" by name."""
    info = site / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[hardcase.{hook}]", *lines]) + "\n")
    (site / f"{package}.py").write_text(source)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setitem(sys.modules, package, None)  # so that what is imported below is forgotten after the test
    del sys.modules[package]
    importlib.invalidate_caches()
