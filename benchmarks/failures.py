# SPDX-License-Identifier: Apache-2.0
"""What a bundle's evidence of failures takes and gives: bytes in the file, and confidences with all sensors dead.

    python benchmarks/failures.py [--build build/rig] [--out benchmarks/results/failures.json] [--render]

For the pick of each method at ``--max-loss 0.005`` on the rig: the bytes of the keys ``without`` and ``ranges`` of the
manifest; and on test rows with every sensor dead and no cloud, the share of right answers, the mean confidence of the
program's own tables, and the mean confidence that a device reports. The build is trained (quick) if it is not there.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from pages import ROOT, command, markdown, options, results

from hardcase_edge.bundle.evidence import reported
from hardcase_edge.bundle.load import load_bundle
from hardcase_export.integers.decide import decisions

CONFIG = ROOT / "examples" / "hydraulic" / "hardcase.toml"
PAGE = ROOT / "docs" / "benchmarks" / "failures.md"
METHODS = ("static", "cascade", "adapt-gbrt", "dag")
HEAD = """# Evidence of failures

`python benchmarks/failures.py` wrote this page from the rig's policies (quick effort), each method's pick at \
`--max-loss 0.005`.
*bytes* are those of the keys `without` and `ranges` in the manifest.
The other columns are of test rows with every sensor dead and no cloud: the share of right answers, the mean \
confidence by the program's own tables, and the mean confidence that a device reports.

"""


def measure(build: Path) -> dict[str, Any]:
    """The figures of each method's pick."""
    if not (build / "front.json").exists():
        build.parent.mkdir(parents=True, exist_ok=True)
        command("train", CONFIG, "--out", build, "--effort", "quick", "--quiet")
    with np.load(build / "test.npz") as rows:
        X, y = rows["X"], rows["y"]
    with tempfile.TemporaryDirectory() as folder:
        return {method: _figures(build, Path(folder) / f"{method}.hcb", method, X, y) for method in METHODS}


def _figures(build: Path, bundle: Path, method: str, X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    command("export", build, "--max-loss", 0.005, "--method", method, "--out", bundle)
    loaded = load_bundle(bundle)
    program, manifest = loaded.bundle.program, loaded.manifest
    written = loaded.bundle.manifest
    evidence = {key: written[key] for key in ("without", "ranges") if key in written}
    dead = decisions(program, X, None, dead=range(len(program.sensors)), cloud=False)
    stated = [reported(d, manifest.without, (), ())[1] for d in dead]
    known = [c for c in stated if c is not None]
    return {
        "bytes": len(json.dumps(evidence, separators=(",", ":"))),
        "right": float(np.mean(np.array([d.result for d in dead]) == y)),
        "table": float(np.mean([d.confidence for d in dead])) / 10_000,
        "reported": float(np.mean(known)) / 10_000 if known else None,
    }


def page(measured: dict[str, Any]) -> str:
    """The Markdown page."""
    rows = [
        [
            method,
            f"{r['bytes']:,}",
            f"{r['right']:.4f}",
            f"{r['table']:.4f}",
            "null" if r["reported"] is None else f"{r['reported']:.4f}",
        ]
        for method, r in measured.items()
    ]
    return HEAD + markdown(("method", "bytes", "right", "own tables", "reported"), rows) + "\n"


def main() -> None:
    """Measure, print, write JSON and Markdown."""
    parser: argparse.ArgumentParser = options(__doc__, "failures")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "rig", help="trained first, if it is not there")
    args = parser.parse_args()
    text = page(results(args, lambda: measure(args.build)))
    PAGE.write_text(text)
    print(text.removeprefix(HEAD))


if __name__ == "__main__":
    main()
