# SPDX-License-Identifier: Apache-2.0
"""Rules of the house that a machine can check."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.helpers.places import ROOT

PACKAGES = [
    "edge_runtime/hardcase_edge",
    "train/hardcase_train",
    "export/hardcase_export",
    "cloud_stub/hardcase_cloud",
    "hardcase",
]
MAX_LINES = 400
CODE_FROM_DATA = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
# a machine's own folders, but not the /home of an example or /dev, /etc, /sys that every Debian has
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|home/\w+|Users/\w+|mnt/\w+|opt/\w+/\w+)/[\w.-]+")
REGISTRY = re.compile(
    r"https?://[^\s\"')>]*/(?:simple|packages)/|--(?:extra-)?index-url|\"resolved\": ?\"http",
)


def tracked() -> list[Path]:
    """Text files that the repository holds, or would hold."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode == 0:
        paths = [ROOT / line for line in listed.stdout.splitlines()]
    else:  # unpacked without its history
        paths = [p for p in ROOT.rglob("*") if not {".venv", "build", "__pycache__"} & set(p.parts)]
    texts = {".py", ".md", ".toml", ".txt", ".cfg", ".yml", ".yaml", ".json", ".c", ".h", ".sh", ""}
    return [p for p in paths if p.is_file() and p.suffix in texts and p.stat().st_size < 1_000_000]


def modules() -> list[Path]:
    files = [p for package in PACKAGES for p in sorted((ROOT / package).rglob("*.py"))]
    assert len(files) > 20
    return files


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", modules(), ids=names)
def test_a_module_is_short_enough_to_be_one_idea(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


SOURCES = [p for p in tracked() if p.suffix in (".py", ".c", ".h", ".sh", ".ld")]


@pytest.mark.parametrize("path", SOURCES, ids=names)
def test_a_source_file_names_its_licence(path: Path) -> None:
    assert "SPDX-License-Identifier: Apache-2.0" in "".join(path.read_text(encoding="utf-8").splitlines(True)[:2])


@pytest.mark.parametrize("path", modules(), ids=names)
def test_a_module_s_first_line_can_stand_alone(path: Path) -> None:
    first = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
    assert first.endswith((".", "?"))
    assert len(first) <= 116


@pytest.mark.parametrize("path", modules(), ids=names)
def test_no_module_makes_code_from_data(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            roots = {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            roots = {str(node.module).split(".")[0]}
        else:
            roots = set()
        assert not roots & CODE_FROM_DATA, f"line {node.lineno}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("eval", "exec"), f"line {node.lineno}"
        if isinstance(node, ast.Call):
            given = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
            assert given.get("allow_pickle") is not True, f"line {node.lineno}"
            assert given.get("shell") is not True, f"line {node.lineno}"


@pytest.mark.parametrize("path", modules(), ids=names)
def test_every_module_says_what_it_is_and_what_it_offers(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if path.name == "__init__.py" and not text.strip():
        return
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a module begins with its rules"
    public = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name[0] != "_"]
    assert all(ast.get_docstring(n) for n in public), [n.name for n in public if not ast.get_docstring(n)]


def test_no_file_names_a_machines_folder_or_a_registry() -> None:
    own = {Path(__file__).resolve()}
    found = []
    for path in tracked():
        if path.resolve() in own:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [f"{names(path)}: {m.group()}" for m in (MACHINE_PATH.search(text), REGISTRY.search(text)) if m]
    assert not found


def test_the_patterns_find_what_they_are_for() -> None:
    folder, registry = "/" + "root/project", "https://host/" + "simple/"
    assert MACHINE_PATH.search(f"cd {folder}")
    assert not MACHINE_PATH.search("hardcase/v1/work/request and ./work/x and https://example.org/work/x")
    assert REGISTRY.search(registry)
    assert REGISTRY.search("pip install --" + "index-url x")
