# SPDX-License-Identifier: Apache-2.0
"""Rules of the house that a machine can check."""

from __future__ import annotations

import ast
import re
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from tests.helpers.places import ROOT
from tests.house.rooms import nodes_of, parsed

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


def modules(package: str) -> list[Path]:
    files = sorted((ROOT / package).rglob("*.py"))
    assert len(files) > 20
    return files


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_module_is_short_enough_to_be_one_idea(package: str) -> None:
    assert not [names(p) for p in modules(package) if len(p.read_text(encoding="utf-8").splitlines()) > MAX_LINES]


def test_a_source_file_names_its_licence() -> None:
    sources = [p for p in tracked() if p.suffix in (".py", ".c", ".h", ".sh", ".ld")]
    heads = {names(p): "".join(p.read_text(encoding="utf-8").splitlines(True)[:2]) for p in sources}
    assert not [name for name, head in heads.items() if "SPDX-License-Identifier: Apache-2.0" not in head]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_module_s_first_line_can_stand_alone(package: str) -> None:
    docs = {names(p): ast.get_docstring(parsed(p)) or "" for p in modules(package)}
    first = {name: doc.partition("\n")[0] for name, doc in docs.items()}
    assert not {name: line for name, line in first.items() if not line.endswith((".", "?")) or len(line) > 116}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_can_be_imported(package: str) -> None:
    for path in modules(package):
        if path.stem not in ("__init__", "__main__"):
            import_module(".".join(path.relative_to((ROOT / package).parent).with_suffix("").parts))


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_makes_code_from_data(package: str) -> None:
    for path, node in [(p, node) for p in modules(package) for node in nodes_of(p)]:
        if isinstance(node, ast.Import):
            roots = {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            roots = {str(node.module).split(".")[0]}
        else:
            roots = set()
        assert not roots & CODE_FROM_DATA, f"{names(path)}:{node.lineno}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("eval", "exec"), f"{names(path)}:{node.lineno}"
        if isinstance(node, ast.Call):
            given = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
            assert given.get("allow_pickle") is not True, f"{names(path)}:{node.lineno}"
            assert given.get("shell") is not True, f"{names(path)}:{node.lineno}"


def test_no_compiled_function_rounds_as_llvm_likes() -> None:
    """With fastmath it rounds by what it inlines, that is by what numba's cache has: other bytes for one seed."""
    keywords = [(k, path) for path in modules("train/hardcase_train") for k in nodes_of(path)]
    assert not [
        f"{names(p)}:{k.value.lineno}" for k, p in keywords if isinstance(k, ast.keyword) and k.arg == "fastmath"
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_says_what_it_is_and_what_it_offers(package: str) -> None:
    for path in modules(package):
        tree = parsed(path)
        if path.name == "__init__.py" and not tree.body:
            continue
        assert ast.get_docstring(tree), f"{names(path)}: a module begins with its rules"
        public = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name[0] != "_"]
        assert not [n.name for n in public if not ast.get_docstring(n)], names(path)


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


# ---------------------------------------------------------------- kinds

KINDS = {"class", "value", "rank"}
THE_KINDS = "edge_runtime/hardcase_edge/program/kinds.py"
OTHER_IDEAS = {  # modules where the same word is something else
    "edge_runtime/hardcase_edge/bundle/manifest.py": "a key of the manifest",
    "edge_runtime/hardcase_edge/fleet/outbox/records.py": "a key of a record",
    "edge_runtime/hardcase_edge/record_keys.py": "a key of a record",
    "train/hardcase_train/hpc/legacy.py": "a column of a legacy system's table",
    "export/hardcase_export/sources/onnx_trees.py": "an attribute of an ONNX node",
    "export/hardcase_export/picking/promise_words.py": "what a promise is divided by",
    "hardcase/measuring/measure.py": "the title of a column",
    "hardcase/reports/cases_part.py": "the title of a column",
    "hardcase/training/survey.py": "a likely name of a target's column",
}


def kinds_named(nodes: list[ast.AST]) -> list[int]:
    """Lines with a kind's name as a text, unless it is a key: of a dict, a subscript, ``get``, ``pop`` or ``in``."""
    keys: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Subscript):
            keys.add(id(node.slice))
        elif isinstance(node, ast.Dict):
            keys |= {id(key) for key in node.keys}
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            keys.add(id(node.left))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
            keys |= {id(arg) for arg in node.args[:1]}
    texts = [n for n in nodes if isinstance(n, ast.Constant) and n.value in KINDS]
    return sorted(n.lineno for n in texts if id(n) not in keys)


def test_no_module_but_one_names_a_kind() -> None:
    modules = {p.relative_to(ROOT).as_posix(): p for folder in PACKAGES for p in (ROOT / folder).rglob("*.py")}
    lines = {name: kinds_named(nodes_of(path)) for name, path in modules.items()}
    named = {name for name, found in lines.items() if found}
    assert THE_KINDS in named
    assert sorted(named - {THE_KINDS}) == sorted(OTHER_IDEAS), lines


LEARNED_KINDS = "train/hardcase_train/policy/kinds.py"  # in training, this module says what a kind is
OF_ONE_KIND = {  # modules of train and export that name a kind because they are of that kind, and what they are
    "train/hardcase_train/settings/config.py": "the task unless [data] names another",
    "train/hardcase_train/data/problem.py": "a problem's kind, by its classes and its measure",
    "train/hardcase_train/estimator.py": "classifiers",
    "train/hardcase_train/regressor.py": "regressors",
    "export/hardcase_export/hpc_file/given.py": "f0 given as a file, of values",
    "export/hardcase_export/hpc_file/layout.py": "the file of an f0 of values",
    "export/hardcase_export/hpc_file/regressor.py": "the file of a regressor",
}
READS_TARGETS = ("data", "settings", "tasks")  # rooms of train that say what a table's target must hold
TRAITS = {"has_classes", "has_unit", "needs_groups", "is_value", "is_rank"}


def imports_a_kind(nodes: list[ast.AST]) -> bool:
    """Whether a module imports one of the three kinds."""
    names = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    return bool(names & {"CLASS", "VALUE", "RANK"})


def reads_a_trait(nodes: list[ast.AST]) -> bool:
    """Whether a module reads an attribute by which kinds differ; a loss has one of the same name."""
    traits = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr in TRAITS]
    return any(getattr(node.value, "id", "") != "loss" for node in traits)


def test_train_and_export_name_a_kind_only_where_they_are_of_it() -> None:
    folders = ("train", "export/hardcase_export")
    modules = {p.relative_to(ROOT).as_posix(): p for folder in folders for p in (ROOT / folder).rglob("*.py")}
    named = {name for name, path in modules.items() if imports_a_kind(nodes_of(path))}
    assert sorted(named) == sorted(OF_ONE_KIND)


def test_learners_ask_one_module_what_a_kind_is() -> None:
    folder = ROOT / "train/hardcase_train"
    modules = {p for p in folder.rglob("*.py") if p.relative_to(folder).parts[0] not in READS_TARGETS}
    told_apart = {p for p in modules if reads_a_trait(nodes_of(p))}
    assert told_apart == {ROOT / LEARNED_KINDS}


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("if problem.is_value: pass", True),
        ("if task.problem.kind.has_classes: pass", True),
        ("from ..program.kinds import VALUE, Kind", True),
        ("if loss.has_classes: pass", False),
        ("from ..program.kinds import answers_number, kind_of\nlearned(problem).has_margins", False),
    ],
)
def test_a_module_that_tells_kinds_apart_is_found(text: str, is_found: bool) -> None:
    nodes = list(ast.walk(ast.parse(text)))
    assert (imports_a_kind(nodes) or reads_a_trait(nodes)) is is_found


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ('if node.kind == "value": pass', 1),
        ('def f(task="class"): pass', 1),
        ('is_one = task in ("value", "rank")', 2),
        ('Answer(part, "value")', 1),
        ('row["value"], row.get("class"), "value" in row, {"class": 1}', 0),
    ],
)
def test_a_module_that_names_a_kind_is_found(text: str, n: int) -> None:
    assert len(kinds_named(list(ast.walk(ast.parse(text))))) == n


NEEDS_ITS_NEIGHBOUR = re.compile(r'^ *"""The same\b.*|\bdef test_(?:it|its|they|so_does)_\w+', re.M)


def test_no_docstring_and_no_name_of_a_test_needs_its_neighbour() -> None:
    sources = {names(p): p.read_text(encoding="utf-8") for p in tracked() if p.suffix == ".py"}
    found = [f"{name}: {words}" for name, text in sources.items() for words in NEEDS_ITS_NEIGHBOUR.findall(text)]
    assert not found, "; ".join(found) + ": say what it is to who has not read what stands above it"


def test_what_needs_its_neighbour_is_found() -> None:
    source = 'class A:\n    """The same, of text."""\n\n\ndef test_it' + '_works():\n    """Of the same text."""\n'
    assert [found.strip() for found in NEEDS_ITS_NEIGHBOUR.findall(source)] == [
        '"""The same, of text."""', "def test_it" + "_works",
    ]  # fmt: skip
