# SPDX-License-Identifier: Apache-2.0
"""The shortest trip from a table to a bundle: which files and functions of ours run for one train and one export.

python -m benchmarks run trip      prints files imported, files and functions that run, and each distribution's lines
"""

from __future__ import annotations

import sys
from collections import defaultdict
from contextlib import chdir
from inspect import CO_OPTIMIZED
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import numpy as np
from sklearn.datasets import load_wine

from benchmarks.pages import ROOT

DISTRIBUTIONS = {
    "train": "train/hardcase_train", "export": "export/hardcase_export", "hardcase": "hardcase",
    "edge": "edge_runtime/hardcase_edge", "cloud": "cloud_stub/hardcase_cloud", "benchmarks": "benchmarks",
}  # fmt: skip


class Walk:
    """The functions that ran while it was open, by file; calls of this thread alone."""

    def __init__(self) -> None:
        self.functions: dict[str, set[tuple[str, int]]] = defaultdict(set)

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_function = code.co_flags & CO_OPTIMIZED and code.co_name[0] != "<"  # no class body, no comprehension
        if event == "call" and is_function and "/hardcase" in code.co_filename:
            self.functions[code.co_filename].add((code.co_name, code.co_firstlineno))

    def __enter__(self) -> Walk:
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def by_distribution(self) -> dict[str, tuple[int, int]]:
        """Files and functions of each distribution."""
        found = {}
        for name, folder in DISTRIBUTIONS.items():
            of_it = [f for path, f in self.functions.items() if Path(path).is_relative_to(ROOT / folder)]
            if of_it:
                found[name] = len(of_it), sum(map(len, of_it))
        return found


def run(args: Any) -> int:
    """Print the figures; 1 if the trip does not end with a bundle."""
    from hardcase.cli import main

    with TemporaryDirectory() as holder, chdir(holder):
        folder = Path(holder)
        wine = load_wine()
        rows = np.column_stack([wine.data, wine.target])
        head = ",".join([*(name.replace("/", " ") for name in wine.feature_names), "target"])
        np.savetxt(folder / "wine.csv", rows, delimiter=",", header=head, comments="", fmt="%g")
        assert main(["init", str(folder / "wine.csv"), "--target", "target"]) == 0
        verbs = {
            "train": ["train", str(folder / "hardcase.toml"), "--method", "static", "--effort", "quick", "--out"],
            "export": ["export", str(folder / "build"), "--force", "--out"],
        }
        for verb, words in verbs.items():
            before = set(sys.modules)
            with Walk() as walk:
                status = main([*words, str(folder / ("build" if verb == "train" else "wine.hcb"))])
            new = [m for m in sys.modules.keys() - before if m.startswith("hardcase")]
            found = walk.by_distribution()
            files, functions = (sum(pair[k] for pair in found.values()) for k in (0, 1))
            print(f"{verb}: {len(new)} files imported, {functions} functions run in {files} files")
            print("  " + ", ".join(f"{name} {n} in {m}" for name, (m, n) in found.items()))
            if status:
                return status
    for name, path in DISTRIBUTIONS.items():
        lines = sum(len(p.read_text(encoding="utf-8").splitlines()) for p in (ROOT / path).rglob("*.py"))
        print(f"{name}: {lines} lines of Python")
    return 0
