"""The arrows of DESIGN.md section 2: who may import whom, lazily or not."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OURS = {"hardcase", "hardcase_edge", "hardcase_train", "hardcase_export", "hardcase_cloud"}
MAY_IMPORT = {
    "edge_runtime/hardcase_edge": set(),
    "train/hardcase_train": {
        "hardcase_edge", "numpy", "scipy", "sklearn", "llvmlite", "numba", "joblib", "pyarrow", "tqdm", "threadpoolctl",
        "distributed", "ray",
    },
    "export/hardcase_export": {"hardcase_edge", "numpy", "onnx", "skl2onnx", "onnxruntime", "flatbuffers", "sklearn",
                               "ai_edge_litert", "skops"},
    "cloud_stub/hardcase_cloud": {"hardcase_edge", "numpy", "onnxruntime", "amqtt", "paho"},
}  # fmt: skip
# what single modules of the device may import
DEVICE_EXTRAS = {
    "connection.py": {"paho"},
    "client.py": {"paho"},
    "signature.py": {"cryptography"},
    "tflite.py": {"ai_edge_litert", "tflite_runtime", "numpy"},
}
HEAVY = {"numpy", "scipy", "sklearn", "onnx", "onnxruntime", "skl2onnx", "llvmlite", "numba", "matplotlib", "pyarrow",
         "pandas", "joblib", "paho", "amqtt", "cryptography", "tqdm", "distributed", "ray"}  # fmt: skip


def imported_roots(path: Path) -> set[str]:
    """First names of everything a module imports, inside functions too; relative imports are its own package."""
    roots = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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
            allowed = allowed | DEVICE_EXTRAS.get(path.name, set())
        foreign = imported_roots(path) - set(sys.stdlib_module_names) - allowed
        assert not foreign, f"{path.relative_to(ROOT)} imports {sorted(foreign)}"


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
    names = [p.stem for p in modules("edge_runtime/hardcase_edge") if p.stem not in ("__init__", "__main__")]
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


def test_deciding_without_a_broker_imports_no_paho() -> None:
    golden = Path(__file__).parent / "golden" / "v1.hcb"
    load = f"from hardcase_edge.bundle.load import load_bundle\nload_bundle({str(golden)!r})"
    code = f"import sys\n{load}\nprint(*sys.modules)"
    loaded = {name.split(".")[0] for name in run(code).split()}
    assert not loaded & (HEAVY | {"ssl", "asyncio", "http"})


@pytest.mark.parametrize("command", ["hardcase.cli", "hardcase_edge.cli"])
def test_help_imports_nothing_heavy(command: str) -> None:
    code = (
        f"import sys\nfrom {command} import main\ntry:\n    main(['--help'])\nexcept SystemExit as end:\n"
        "    assert end.code == 0\nprint('MODULES', *sys.modules)"
    )
    words = run(code).split("MODULES")[-1].split()
    assert not {name.split(".")[0] for name in words} & HEAVY
