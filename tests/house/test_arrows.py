# SPDX-License-Identifier: Apache-2.0
"""The arrows of ARCHITECTURE.md: who may import whom, lazily or not."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.helpers.places import ROOT
from tests.house.rooms import (
    FLOORS,
    FOLDERS,
    LINES,
    circles,
    duplicates,
    floors,
    grown,
    lines_of,
    module_graph,
    module_name,
    nodes_of,
    room_graph,
    wrong_arrows,
)

OURS = {"hardcase", "hardcase_edge", "hardcase_train", "hardcase_export", "hardcase_cloud"}
MAY_IMPORT = {
    "edge_runtime/hardcase_edge": set(),
    "train/hardcase_train": {
        "hardcase_edge", "numpy", "scipy", "sklearn", "llvmlite", "numba", "joblib", "pyarrow", "tqdm", "threadpoolctl",
        "msgspec",
        "distributed",
    },
    "export/hardcase_export": {"hardcase_edge", "numpy", "onnx", "skl2onnx", "onnxruntime", "flatbuffers", "sklearn",
                               "ai_edge_litert", "skops"},
    "cloud_stub/hardcase_cloud": {"hardcase_edge", "numpy", "onnxruntime", "amqtt", "cryptography"},
}  # fmt: skip
# what single modules of the cloud may import, each of an extra
CLOUD_EXTRAS = {
    "answer/nats_client.py": {"nats"},
    "keep/dashboard/app.py": {"starlette"},
    "keep/dashboard/server.py": {"h11", "starlette", "uvicorn"},
    "keep/records/dialects.py": {"psycopg"},
    "keep/records/parquet.py": {"pyarrow"},
}
# what single modules of the device may import
DEVICE_EXTRAS = {
    "link/paho_client.py": {"paho"},
    "bundle/signature.py": {"cryptography"},
    "base/parcel.py": {"numpy"},  # where an item holds an array
    "session/tflite.py": {"ai_edge_litert", "tflite_runtime", "numpy"},
}
# and a whole room of it, which no other room of the device imports: what it decides on many rows is for other machines
NUMPY_ROOM = "more.batch"
FRONTS = "more.fronts"  # figures of that room; for other machines, too
HEAVY = {"numpy", "scipy", "sklearn", "onnx", "onnxruntime", "skl2onnx", "llvmlite", "numba", "matplotlib", "pyarrow",
         "pandas", "joblib", "paho", "amqtt", "cryptography", "tqdm", "distributed", "jinja2"}  # fmt: skip
PAIRS = 16  # of places with ``rooms.EQUAL`` equal lines, most of them signatures and examples: a number that only falls


def imported_roots(path: Path) -> set[str]:
    """First names of everything a module imports, inside functions too; relative imports are its own package."""
    roots = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            roots.add(str(node.module).split(".")[0])
        elif isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in (
            "import_module",
            "__import__",
        ):
            roots |= {a.value.split(".")[0] for a in node.args if isinstance(a, ast.Constant) and a.value[:1] != "."}
    return roots


def modules(folder: str) -> list[Path]:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files, f"nothing to check in {folder}"
    return files


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_arrows_point_one_way(folder: str) -> None:
    package = folder.split("/")[-1]
    for path in modules(folder):
        allowed = MAY_IMPORT[folder] | {package}
        if package == "hardcase_edge":
            allowed = allowed | DEVICE_EXTRAS.get(path.relative_to(ROOT / folder).as_posix(), set())
            allowed = allowed | ({"numpy"} if path.match(f"{NUMPY_ROOM.replace('.', '/')}/*.py") else set())
        if package == "hardcase_cloud":
            allowed = allowed | CLOUD_EXTRAS.get(path.relative_to(ROOT / folder).as_posix(), set())
        foreign = imported_roots(path) - set(sys.stdlib_module_names) - allowed
        assert not foreign, f"{path.relative_to(ROOT)} imports {sorted(foreign)}"


def test_the_modules_with_more_to_import_exist() -> None:
    assert all((ROOT / "edge_runtime" / "hardcase_edge" / name).exists() for name in DEVICE_EXTRAS)


def test_no_room_of_the_device_imports_the_room_that_needs_numpy() -> None:
    rooms = room_graph(module_graph(ROOT / FOLDERS["hardcase_edge"], "hardcase_edge"))
    assert [room for room, below in rooms.items() if {NUMPY_ROOM, FRONTS} & below] == [FRONTS]
    assert rooms[NUMPY_ROOM] == {"errors", "program", "stream"}


@pytest.mark.parametrize("distribution", FOLDERS)
def test_a_room_imports_only_rooms_below_it(distribution: str) -> None:
    modules_ = module_graph(ROOT / FOLDERS[distribution], distribution)
    rooms = room_graph(modules_)
    assert wrong_arrows(rooms, FLOORS[distribution]) == []
    assert circles(modules_) == []
    planned = {room for floor in FLOORS[distribution] for room in floor} - {"methods.*"}
    assert planned == {r for r in rooms if not r.startswith("methods.")}, "the plan names a room that is not there"


@pytest.mark.parametrize("distribution", FOLDERS)
def test_a_room_has_at_most_a_dozen_modules(distribution: str) -> None:
    folders = [p for p in (ROOT / FOLDERS[distribution]).rglob("*") if p.is_dir() and p.name != "__pycache__"]
    crowded = {p.name: n for p in folders if (n := len([f for f in p.glob("*.py") if f.name != "__init__.py"])) > 12}
    assert not crowded


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("from ..upper import tool", ["lower imports upper"], id="a package above"),
        pytest.param("def lazy():\n    from ..upper.tool import run", ["lower imports upper"], id="inside a function"),
        pytest.param("import house.upper.tool", ["lower imports upper"], id="by its full name"),
        pytest.param("from house import upper", ["lower imports upper"], id="by its distribution"),
        pytest.param("from ..beside.tool import run", ["lower imports beside"], id="a neighbour"),
        pytest.param("from ..attic import run", ["attic is on no floor"], id="a room without a floor"),
        pytest.param("from . import sibling", [], id="a sibling"),
    ],
)
def test_an_arrow_the_wrong_way_is_seen(tmp_path: Path, source: str, expected: list[str]) -> None:
    for name in ("lower", "beside", "upper"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / "tool.py").write_text("def run(): ...")
    (tmp_path / "lower" / "sibling.py").touch()
    (tmp_path / "lower" / "tool.py").write_text(source)
    if "attic" in source:
        (tmp_path / "attic.py").touch()
    plan = (("lower", "beside"), ("upper",))
    assert wrong_arrows(room_graph(module_graph(tmp_path, "house")), plan) == expected


def test_a_circle_is_seen() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert circles(graph) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert floors(graph) == 0
    assert floors({"a": {"b"}, "b": set(), "c": {"a", "b"}}) == 3


def test_the_checker_sees_lazy_and_dynamic_imports(tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text(
        "from . import sibling\nfrom importlib import import_module\n"
        "def lazy():\n    import sklearn.tree\n    from onnx import helper\n    import_module('torch.nn')\n"
    )
    assert imported_roots(path) == {"importlib", "sklearn", "onnx", "torch"}


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_of_the_device_imports_with_the_standard_library_alone() -> None:
    folder = ROOT / "edge_runtime" / "hardcase_edge"
    paths = [
        p
        for p in modules("edge_runtime/hardcase_edge")
        if p.parent not in (folder, *(folder / room.replace(".", "/") for room in (NUMPY_ROOM, FRONTS)))
    ]
    names = [module_name(p, folder) for p in paths]
    assert len(names) > 40
    blocked = sorted(HEAVY - {"paho"} | {"ai_edge_litert", "tflite_runtime"} | (OURS - {"hardcase_edge"}))
    code = (
        f"import sys\nfor name in {blocked!r}: sys.modules[name] = None\n"
        f"for name in {names!r}: __import__('hardcase_edge.' + name)\n"
        "print(sorted({m.split('.')[0] for m in sys.modules if sys.modules[m]} - set(sys.stdlib_module_names)))"
    )
    roots = set(ast.literal_eval(run(code).splitlines()[-1]))
    site = {"__main__", "__mp_main__", "_distutils_hack", "sitecustomize", "usercustomize", "apport_python_hook"}
    editable = {r for r in roots if r.startswith("__editable__")}
    assert roots - site - editable <= {"hardcase_edge", "paho"}


def private_names(code: str) -> list[str]:
    """What in a module that imports paho may be a name that paho keeps to itself: an attribute with an underscore.

    Only ``self`` has attributes of ours, in classes that do not inherit from paho.
    """
    found, foreign = [], set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            foreign |= {(alias.asname or alias.name).split(".")[0] for alias in node.names if alias.name[:4] == "paho"}
            found += [alias.name for alias in node.names if alias.name[:4] == "paho" and "._" in alias.name]
        elif isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "paho":
            foreign |= {alias.asname or alias.name for alias in node.names}
            found += [n for n in (*str(node.module).split("."), *(a.name for a in node.names)) if n[0] == "_"]
        elif isinstance(node, ast.Attribute) and node.attr[0] == "_" and ast.unparse(node.value) != "self":
            found.append(ast.unparse(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"_\w+", node.value):
            found.append(repr(node.value))  # of ``getattr``
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ClassDef):
            found += [ast.unparse(b) for b in node.bases if ast.unparse(b).split(".")[0] in foreign]
    return found


def test_paho_is_reached_in_one_file_and_through_its_public_names() -> None:
    paths = [path for path in modules("edge_runtime/hardcase_edge") if "paho" in imported_roots(path)]
    assert [path.name for path in paths] == ["paho_client.py"]
    assert private_names(paths[0].read_text()) == []
    assert private_names(
        "import paho.mqtt.client as paho\nfrom paho.mqtt._packet import decode\n"
        "from paho.mqtt.client import Client as C\n"
        "class A(paho.Client):\n    pass\nclass B(C):\n    pass\ndef f(c):\n    c._sock = getattr(c, '_thread')\n"
        "class D:\n    def g(self):\n        return self._client.loop(self._client._sock)\n"
    ) == ["_packet", "c._sock", "'_thread'", "self._client._sock", "paho.Client", "C"]


def test_deciding_without_a_broker_imports_no_paho() -> None:
    golden = ROOT / "tests" / "golden" / "v1.hcb"
    load = f"from hardcase_edge.bundle.load import load_bundle\nload_bundle({str(golden)!r})"
    code = f"import sys\n{load}\nprint(*sys.modules)"
    loaded = {name.split(".")[0] for name in run(code).split()}
    assert not loaded & (HEAVY | {"ssl", "asyncio", "http"})


def test_the_cloud_has_one_client_of_mqtt() -> None:
    rooms = (
        "keep.records.keeper rollout.updates.serve rollout.updates.served rollout.enrolment.worker answer.worker "
        "sim.fleet.sockets mqtt.check"
    )
    code = "".join(f"import hardcase_cloud.{name}\n" for name in rooms.split())
    code += "import hardcase_edge.framing.websocket, sys\nprint(*sys.modules)"
    loaded = run(code).split()
    assert not [name for name in loaded if name.startswith("paho") or name == "hardcase_edge.link.connection"]


@pytest.mark.parametrize(
    ("command", "words"), [("hardcase.cli", []), ("hardcase.cli", ["cloud"]), ("hardcase_edge.cli", [])]
)
def test_help_imports_nothing_heavy(command: str, words: list[str]) -> None:
    code = (
        f"import sys\nfrom {command} import main\ntry:\n    main([*{words}, '--help'])\nexcept SystemExit as end:\n"
        "    assert end.code == 0\nprint('MODULES', *sys.modules)"
    )
    loaded = run(code).split("MODULES")[-1].split()
    assert not {name.split(".")[0] for name in loaded} & HEAVY


def test_no_room_has_grown_without_a_word() -> None:
    found = grown(lines_of(ROOT), tomllib.loads(LINES.read_text(encoding="utf-8")))
    assert not found, "; ".join(found) + "; delete lines, or write lines.toml anew and say why in the commit"


def test_a_room_that_grows_shrinks_or_goes_is_named() -> None:
    most = {"hardcase": {"cli": 100, "gone": 7}}
    lines = {"hardcase": {"cli": 101}}
    assert [line.split()[1] for line in grown(lines, most)] == ["cli", "gone"]
    assert grown({"hardcase": {"cli": 60}}, {"hardcase": {"cli": 100}})
    assert not grown({"hardcase": {"cli": 90}}, {"hardcase": {"cli": 100}})


def test_no_more_places_are_alike() -> None:
    found = duplicates(ROOT)
    assert len(found) <= PAIRS, "; ".join(f"{a} and {b} have {n} equal lines" for a, b, n in found)


def test_equal_lines_are_seen_in_one_file_and_in_two_but_for_imports(tmp_path: Path) -> None:
    body = "".join(f"x{k} = {k}\n" for k in range(7))
    for folder, text in (("hardcase", f"{body}y = 1\n# a comment\n\n{body}"), ("benchmarks", body[:-7])):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "m.py").write_text(f"import a\nfrom b import (\n    c,\n    d,\n)\n{text}")
    first, second, other = "hardcase/m.py:6", "hardcase/m.py:16", "benchmarks/m.py:6"
    assert duplicates(tmp_path) == [(second, other, 6), (first, other, 6), (first, second, 7)]
