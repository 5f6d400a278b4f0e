# SPDX-License-Identifier: Apache-2.0
"""``hardcase-edge doctor``: what this machine has for hardcase-edge, what it lacks, and how to install it.

``--build`` compiles the C kernel from the sources that every installation contains, into the package's own folder. A
machine whose wheel was built without a compiler gets the kernel that way.
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

from ..base.files import write_whole
from ..errors import InputError
from ..kernel.machine import KERNEL, PYTHON, VARIABLE, has_kernel
from ..kernel.sources import EXTENSION, FLAGS, FOLDER
from ..session.tflite import INTERPRETERS

BUILT = FOLDER / "_kernel.abi3.so"
BUILD_S = 120
NEEDS = "install a C compiler and Python's headers (Debian: apt install gcc python3-dev)"


def examine() -> dict[str, Any]:
    """A report on this machine: each part by name, with its version or with the command that installs it.

    Returns
    -------
    dict of str to str
        Every value is one line. The value of ``evaluator`` begins with ``kernel`` or ``python``.
    """
    compiler, headers = _compiler(), _headers()
    forced = os.environ.get(VARIABLE)
    evaluator = KERNEL if has_kernel() else PYTHON
    if forced in (KERNEL, PYTHON):
        evaluator = f"{forced} (set by {VARIABLE})"
    elif evaluator == PYTHON:
        can_build = compiler and headers
        install = "" if can_build else f"{NEEDS}, then "
        evaluator = f"{PYTHON}; for the kernel, {install}run: hardcase-edge doctor --build"
    return {
        "hardcase-edge": _version("hardcase-edge") or "not installed",
        "python": f"{platform.python_version()} on {platform.machine()}",
        "evaluator": evaluator,
        "compiler": compiler or f"none; {NEEDS} to build the kernel",
        "paho-mqtt": _version("paho-mqtt") or "none; a broker needs it: pip install paho-mqtt",
        "tflite": _tflite()
        or "none; bundles with a TFLite model need it: pip install ai-edge-litert "
        "(32-bit Raspberry Pi: tflite-runtime)",
    }


def build_kernel() -> Path:
    """Compile the kernel into this package's folder; returns the path of the compiled file.

    Raises
    ------
    InputError
        The compiler or Python.h is missing, the folder is not writable, or the compilation fails.
    """
    compiler, headers = _compiler(), _headers()
    if compiler is None or headers is None:
        raise InputError(f"the kernel needs {'Python.h' if compiler else 'a C compiler'}: {NEEDS}")
    if not os.access(BUILT.parent, os.W_OK):
        raise InputError(f"{BUILT.parent} cannot be written; run this as the user who installed hardcase-edge")
    output = BUILT.with_name("_kernel.new")
    units = [str(FOLDER / unit) for unit in EXTENSION]
    command = [*shlex.split(compiler), *FLAGS, "-shared", "-fPIC", f"-I{headers}", f"-I{FOLDER}", *units]
    run = subprocess.run([*command, "-o", str(output)], capture_output=True, text=True, timeout=BUILD_S, check=False)
    if run.returncode != 0:
        output.unlink(missing_ok=True)
        raise InputError(f"the kernel does not compile on this machine: {' '.join(run.stderr.split())[:300]}")
    write_whole(BUILT, output.read_bytes(), mode=0o755)
    output.unlink()
    return BUILT


def _compiler() -> str | None:
    chosen = os.environ.get("CC")
    if chosen and shutil.which(shlex.split(chosen)[0]):
        return chosen
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
