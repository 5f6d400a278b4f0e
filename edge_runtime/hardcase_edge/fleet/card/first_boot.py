# SPDX-License-Identifier: Apache-2.0
"""The first boot: try the kernel on the bundle's golden cases, compile the runtime's Python, say what was done.

A kernel that fails, or that ends its process because the processor is another one, is taken away: then the device
decides in pure Python. The report is ``first-boot.json`` in the store's folder, and ``run`` has it in its status.
"""

from __future__ import annotations

import compileall
import contextlib
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

from ...base.files import read_bounded
from ...errors import HardcaseError, InputError
from ..release.content import KERNEL
from ..release.unpacked import try_command
from ..store.first_boot import MAX_REPORT_BYTES, REPORT
from .places import RUNTIME, STORE, check_links, put

TRY_S = 300  # golden cases take a second on the slowest Pi


def try_kernel(runtime: Path, bundle: Path) -> str:
    """Check the bundle with the kernel; if that fails, without it, and take the kernel away.

    Returns
    -------
    str
        Why there is no kernel; "" if there is one and it gave every golden answer.

    Raises
    ------
    InputError
        The bundle cannot be used without the kernel either.
    """
    kernel = runtime / KERNEL
    reason = "there is none for this processor"
    if kernel.exists():
        evaluator, reason = _try(runtime, bundle)
        if evaluator:
            return "" if evaluator == "kernel" else "it was not loaded here, or the bundle needs Python"
        kernel.unlink()
    evaluator, failure = _try(runtime, bundle)
    if not evaluator:
        raise InputError(f"the bundle cannot be used here: {failure}; export it again, and flash it")
    return reason


def finish(root: Path, report: dict[str, Any]) -> dict[str, Any]:
    """Try the kernel and compile what was put below the root, and write the report; returns it.

    Raises
    ------
    InputError
        The bundle cannot be used, or the report cannot be written.
    """
    check_links(root)
    runtime = root / RUNTIME
    reason = try_kernel(runtime, runtime / "card" / "model.hcb")
    compileall.compile_dir(str(runtime.resolve()), quiet=2)
    report = {
        **report,
        "python": platform.python_version(),
        "processor": platform.machine(),
        "evaluator": "python" if reason else "kernel",
        "reason": reason[:200],
        "t": int(time.time()),
    }
    put(root, f"{STORE}/{REPORT}", json.dumps(report, sort_keys=True).encode())
    return report


def _try(runtime: Path, bundle: Path) -> tuple[str, str]:
    """The evaluator with which the bundle passed its golden cases, or "" and why it did not."""
    environment = {**os.environ, "PYTHONPATH": str(runtime), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("HARDCASE_EVALUATOR", None)
    command = [sys.executable, "-m", "hardcase_edge.cli", "verify", str(bundle), "--json"]
    told, reason = try_command(command, environment, TRY_S)
    try:
        return ("", reason) if reason else (str(json.loads(told)["evaluator"]), "")
    except (ValueError, KeyError, TypeError):
        return "", "it could not be tried: its report is not readable"


def main(argv: list[str]) -> int:
    """What ``hardcase-first-boot.service`` runs where a folder was flashed."""
    root = Path(argv[0] if argv else "/")
    try:
        report: dict[str, Any] = {}
        with contextlib.suppress(HardcaseError, ValueError):
            path = root / RUNTIME / "card" / "put.json"
            report = json.loads(read_bounded(path, MAX_REPORT_BYTES, "report", remedy="flash again"))
        finish(root, report)
    except HardcaseError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
