"""``hardcase evaluate``: what a bundle does on labelled rows, by the device's own evaluator."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardcase_edge.errors import InputError
from hardcase_edge.meter import to_micro

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hardcase_cloud.service import Answerer
    from hardcase_edge.columns import Reading
    from hardcase_edge.load import Loaded
    from hardcase_edge.manifest import Manifest
    from hardcase_export.rows import Figures, Reply

__all__ = ["HELP", "arguments", "run"]

HELP = "Measure a bundle's accuracy, cost and forward rate on labelled rows."
BATCH = 256  # rows the HPC answers at once


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a .hcb file")
    parser.add_argument("data", metavar="DATA", help="rows with the bundle's features and target: build/test.npz")
    parser.add_argument(
        "--hpc",
        metavar="MODEL",
        help="hpc.onnx or module:function (default: hpc.onnx beside the bundle or DATA, or the answers in test.npz)",
    )
    parser.add_argument("--budget", type=float, metavar="COST", help="hard budget of each decision")
    parser.add_argument("--trust", metavar="KEY", help="public key whose signature the bundle must carry")
    parser.add_argument("--each-dead", action="store_true", help="also with every sensor dead, one at a time")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """Decide every row and print the figures."""
    from hardcase_edge.load import load_bundle

    loaded = load_bundle(args.bundle, trust=args.trust)
    if not loaded.manifest.classes:
        raise InputError(f"{args.bundle} answers values, not classes, and has no accuracy")
    budget = _budget(args.budget, loaded.manifest.unit)
    X, y, known = _rows(Path(args.data), loaded.manifest)
    replies = _replies(loaded, X, known, args)
    figures = _measure(loaded, X, y, replies, budget)
    report: dict[str, Any] = {**figures.to_json(), "unit": loaded.manifest.unit}
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
        raise InputError(f"--budget is {amount}, a cost of at least 0 {unit} is expected")
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

    from hardcase_export.rows import decisions, figures

    hpc, confidence = (None, None) if replies is None else zip(*replies, strict=True)
    with tqdm(total=len(X), unit="row", disable=None, leave=False) as bar:
        made = decisions(
            loaded.bundle.program,
            X,
            hpc,
            confidence,
            budget=budget,
            dead=dead,
            progress=lambda n: bar.update(n - bar.n),
        )
    return figures(made, y)


# ---------------------------------------------------------------- rows


def _rows(path: Path, manifest: Manifest) -> tuple[NDArray[np.float64], NDArray[np.int64], list[Reply]]:
    """X (n, n_features), NaN = missing, y (n,) class index, and the answers of the bundle's HPC if they lie there."""
    from hardcase_export.tables import is_rows, read_rows

    if not path.is_file():
        raise InputError(f"{path} is no file; name rows with the bundle's features, such as build/test.npz")
    if is_rows(path):
        rows = read_rows(path, manifest)
        is_its = manifest.hpc and rows.sha256 == manifest.hpc
        known = zip(rows.hpc.tolist(), rows.confidence.tolist(), strict=True) if is_its else ()
        return rows.X, rows.y, list(known)
    return *_table(path, manifest), []


def _table(path: Path, manifest: Manifest) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """As ``_rows``, of a user's own table: columns are found by name, labels by the bundle's classes."""
    import numpy as np

    from hardcase_train.table import read_table
    from hardcase_train.task import target_labels

    table = read_table(path)
    absent = [name for name in manifest.features if name not in table.names]
    if absent:
        raise InputError(f"{path} lacks {len(absent)} of the bundle's features, first {absent[0]!r}; add its column")
    labels = target_labels(table, manifest.target)
    number = {label: k for k, label in enumerate(manifest.classes)}
    strange = [label for label in labels if label not in number]
    if strange:
        raise InputError(f"{path}: {manifest.target!r} holds {strange[0]!r}, which is no class of the bundle")
    X = table.X[:, [table.names.index(name) for name in manifest.features]]
    return X, np.array([number[label] for label in labels], dtype=np.int64)


# ---------------------------------------------------------------- the HPC


def _replies(
    loaded: Loaded, X: NDArray[np.float64], known: list[Reply], args: argparse.Namespace
) -> list[Reply] | None:
    """What the HPC answers to each row; None for a program that never forwards."""
    from hardcase_edge.program import Forward
    from hardcase_export.rows import readings_of

    program = loaded.bundle.program
    if not any(isinstance(node, Forward) for node in program.nodes):
        return None
    hpc = _open_hpc(loaded, args, has_answers=bool(known))
    if hpc is None:
        return known
    carried: list[list[Reading]] = [[row[f] for f in program.uplink.features] for row in readings_of(program, X)]
    return [reply for k in range(0, len(carried), BATCH) for reply in hpc.answer(carried[k : k + BATCH])]


def _open_hpc(loaded: Loaded, args: argparse.Namespace, has_answers: bool) -> Answerer | None:
    """The function or the file that is named, else the file that lies near; None where answers do without."""
    from hardcase_edge.plugin import is_function_name

    if args.hpc and is_function_name(args.hpc):
        from hardcase_cloud.function import FunctionHpc

        return FunctionHpc(args.hpc, loaded.bundle.program, loaded.manifest)
    places = [args.hpc] if args.hpc else [Path(p).parent / "hpc.onnx" for p in (args.bundle, args.data)]
    return _find_hpc([Path(p) for p in places], loaded.manifest, has_answers and not args.hpc)


def _find_hpc(places: list[Path], manifest: Manifest, has_answers: bool) -> Answerer | None:
    """The model that the bundle names, at the first of these places that has it."""
    from hardcase_cloud.hpc import Hpc
    from hardcase_export.describe import legacy_name

    found = [p for p in dict.fromkeys(places) if p.is_file()]
    for path in found:
        hpc = Hpc(path)
        if hpc.sha256 == manifest.hpc:
            return hpc
    if has_answers:
        return None
    name = legacy_name(manifest.trained)
    if name:
        raise InputError(
            f"the HPC of this bundle is the legacy system {name!r}, and its answers to these rows are not known; name "
            "its function with --hpc module:function, or take the test.npz of its build"
        )
    if not found:
        raise InputError(f"there is no {' or '.join(map(str, dict.fromkeys(places)))}; name the HPC with --hpc")
    raise InputError(
        f"{' and '.join(map(str, found))} is not the HPC of this bundle ({manifest.hpc[:12]}...); name it with --hpc"
    )


# ---------------------------------------------------------------- text


def _lines(r: dict[str, Any]) -> list[str]:
    unit = r["unit"]
    lines = [
        f"accuracy {r['accuracy']:.4f}, cost {r['cost']:.2f} {unit}, forwarded {r['forward_rate']:.1%}, {r['n']} rows"
    ]
    for name, dead in r.get("dead", {}).items():
        lines.append(
            f"  without {name:<20} accuracy {dead['accuracy']:.4f} (loss {r['accuracy'] - dead['accuracy']:+.4f}), "
            f"cost {dead['cost']:.2f} {unit}, forwarded {dead['forward_rate']:.1%}"
        )
    return lines
