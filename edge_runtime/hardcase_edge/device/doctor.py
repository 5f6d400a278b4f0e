"""What this machine has for hardcase-edge, what it lacks, and what to do about it: ``hardcase-edge doctor``.

With ``--build`` the kernel is compiled from the C sources that every installation carries, into the package's own
folder: for a machine whose wheel was made without a compiler.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sysconfig
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..kernel.machine import KERNEL, PYTHON, VARIABLE, has_kernel
from ..session.tflite import INTERPRETERS

__all__ = ["build_kernel", "examine"]

SOURCES = Path(__file__).parent.parent / "kernel"
BUILT = SOURCES / "_kernel.abi3.so"
MODULES = ("module.c", "hardcase.c")
FLAGS = ["-std=c99", "-O2", "-shared", "-fPIC", "-DPy_LIMITED_API=0x030B0000"]
BUILD_S = 120
NEEDS = "install a C compiler and Python's headers (Debian: apt install gcc python3-dev)"


def examine() -> dict[str, Any]:
    """Each part by name: what there is, or what to do to have it.

    Returns
    -------
    dict
        ``evaluator`` is ``kernel`` or ``python``; all values are text of one line.
    """
    compiler, headers = _compiler(), _headers()
    forced = os.environ.get(VARIABLE)
    evaluator = KERNEL if has_kernel() else PYTHON
    if forced in (KERNEL, PYTHON):
        evaluator = f"{forced} ({VARIABLE} says so)"
    elif evaluator == PYTHON:
        ready = compiler and headers
        evaluator = f"{PYTHON}; for the kernel, {'' if ready else NEEDS + ', then '}run: hardcase-edge doctor --build"
    return {
        "hardcase-edge": _version("hardcase-edge") or "not installed",
        "python": f"{platform.python_version()} on {platform.machine()}",
        "evaluator": evaluator,
        "compiler": compiler or f"none; {NEEDS} to build the kernel",
        "paho-mqtt": _version("paho-mqtt") or "none; a broker needs it: pip install paho-mqtt",
        "cryptography": _version("cryptography") or "none; --trust needs it: pip install cryptography",
        "tflite": _tflite()
        or "none; bundles with a TFLite model need it: pip install ai-edge-litert "
        "(32-bit Raspberry Pi: tflite-runtime)",
    }


def build_kernel() -> Path:
    """Compile the kernel into this package's folder; the file.

    Raises
    ------
    InputError
        There is no compiler, no header, or no right to write; or it does not compile.
    """
    compiler, headers = _compiler(), _headers()
    if compiler is None or headers is None:
        raise InputError(f"the kernel needs {'Python.h' if compiler else 'a C compiler'}: {NEEDS}")
    if not os.access(BUILT.parent, os.W_OK):
        raise InputError(f"{BUILT.parent} cannot be written: run this as the user who installed hardcase-edge")
    made = BUILT.with_name("_kernel.new")
    command = [*shlex.split(compiler), *FLAGS, f"-I{headers}", f"-I{SOURCES}", *[str(SOURCES / m) for m in MODULES]]
    done = subprocess.run([*command, "-o", str(made)], capture_output=True, text=True, timeout=BUILD_S, check=False)
    if done.returncode != 0:
        made.unlink(missing_ok=True)
        raise InputError(f"the kernel does not compile here: {' '.join(done.stderr.split())[:300]}")
    made.replace(BUILT)
    return BUILT


def _compiler() -> str | None:
    named = os.environ.get("CC")
    if named and shutil.which(shlex.split(named)[0]):
        return named
    return next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)


def _headers() -> Path | None:
    folder = Path(sysconfig.get_paths()["include"])
    return folder if (folder / "Python.h").exists() else None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _tflite() -> str | None:
    return next((name.partition(".")[0] for name in INTERPRETERS if find_spec(name.partition(".")[0])), None)
