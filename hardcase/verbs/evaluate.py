# SPDX-License-Identifier: Apache-2.0
"""``hardcase evaluate``: accuracy, cost and forward rate on labelled rows, by the device's evaluator."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import to_micro

from ..exports.labelled_rows import labelled_rows, replies_to

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hardcase_edge.batch.quality import Quality
    from hardcase_edge.bundle.load import Loaded
    from hardcase_export.integers.decide import Figures, Reply

__all__ = ["HELP", "arguments", "run"]

HELP = "Measure a bundle's accuracy, cost and forward rate on labelled rows."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a .hcb file")
    parser.add_argument(
        "data", metavar="DATA", help="rows with the bundle's features and target, such as build/test.npz"
    )
    parser.add_argument(
        "--hpc",
        metavar="MODEL",
        help="hpc.onnx or module:function (default: hpc.onnx beside the bundle or DATA, or the answers in test.npz)",
    )
    parser.add_argument("--budget", type=float, metavar="COST", help="hard budget of each decision")
    parser.add_argument("--trust", metavar="KEY", help="public key whose signature the bundle must carry")
    parser.add_argument("--each-dead", action="store_true", help="also measure with each sensor dead, one at a time")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Decide every row and print the figures."""
    from hardcase_edge.bundle.load import load_bundle

    loaded = load_bundle(args.bundle, trust=args.trust)
    if not loaded.manifest.classes:
        raise InputError(f"{args.bundle} answers values, not classes, so it has no accuracy; evaluate a classifier")
    budget = _budget(args.budget, loaded.manifest.unit)
    X, y, stored = labelled_rows(Path(args.data), loaded.manifest)
    replies = _replies(loaded, X, stored, args)
    figures = _measure(loaded, X, y, replies, budget)
    report: dict[str, Any] = {**figures.to_json(), "unit": loaded.manifest.unit, "measure": quality_of(loaded).name}
    if args.each_dead:
        report["dead"] = {
            name: _measure(loaded, X, y, replies, budget, dead=(k,)).to_json()
            for k, name in enumerate(loaded.manifest.sensors)
        }
    print(json.dumps(report) if args.json else "\n".join(_lines(report)))
    return 0


def _budget(amount: float | None, unit: str) -> int | None:
    if amount is None:
        return None
    if not 0 <= amount < 1e12:
        raise InputError(f"--budget is {amount}; expected a cost of at least 0 {unit}")
    return to_micro(amount)


def _measure(
    loaded: Loaded,
    X: NDArray[np.float64],
    y: NDArray[np.int64],
    replies: list[Reply] | None,
    budget: int | None,
    dead: tuple[int, ...] = (),
) -> Figures:
    from tqdm import tqdm

    from hardcase_export.integers.decide import decisions, figures

    hpc, confidence = (None, None) if replies is None else zip(*replies, strict=True)
    with tqdm(total=len(X), unit="row", disable=None, leave=False) as bar:
        decided = decisions(
            loaded.bundle.program,
            X,
            hpc,
            confidence,
            budget=budget,
            dead=dead,
            progress=lambda n: bar.update(n - bar.n),
        )
    return figures(decided, y, quality_of(loaded))


def quality_of(loaded: Loaded) -> Quality:
    """What the bundle was trained for, as its claims say; accuracy if they do not."""
    from hardcase_edge.batch.quality import ACCURACY, quality_from_json

    manifest = loaded.manifest
    return quality_from_json(manifest.claims.get("measure", ACCURACY.to_json()), manifest.name, len(manifest.classes))


# ---------------------------------------------------------------- the HPC


def _replies(
    loaded: Loaded, X: NDArray[np.float64], stored: list[Reply], args: argparse.Namespace
) -> list[Reply] | None:
    """The HPC's reply to each row; None for a program that never forwards."""
    from hardcase_edge.program.definition import Forward

    program = loaded.bundle.program
    if not any(isinstance(node, Forward) for node in program.nodes):
        return None
    near = [Path(p).parent for p in (args.bundle, args.data)]
    return replies_to(program, loaded.manifest, X, stored, args.hpc, near)


# ---------------------------------------------------------------- text


def _lines(r: dict[str, Any]) -> list[str]:
    unit, name = r["unit"], r["measure"]
    lines = [
        f"{name} {r['quality']:.4f}, cost {r['cost']:.2f} {unit}, forwarded {r['forward_rate']:.1%}, {r['n']} rows"
    ]
    if "errors" in r:
        lines.append(f"  errors cost {r['errors']:.2f} {unit}, {r['cost'] + r['errors']:.2f} {unit} in all")
    for sensor, dead in r.get("dead", {}).items():
        lines.append(
            f"  without {sensor:<20} {name} {dead['quality']:.4f} (loss {r['quality'] - dead['quality']:+.4f}), "
            f"cost {dead['cost']:.2f} {unit}, forwarded {dead['forward_rate']:.1%}"
        )
    return lines
