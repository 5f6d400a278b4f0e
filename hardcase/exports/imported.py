"""``hardcase export --model``: a model that was trained elsewhere becomes a bundle."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import to_unit

if TYPE_CHECKING:
    from hardcase_export.foreign_model import ImportedBundle, NamedRows

__all__ = ["add_model", "run_model"]

BUILD_FLAGS = ("delta", "max_forward", "excess", "calibration", "hpc", "method", "onnx", "tflite", "c", "inline")


def add_model(parser: argparse.ArgumentParser, wish: argparse._MutuallyExclusiveGroup) -> None:
    """Declare the flags of an imported model; ``wish``: what is exported, one of several."""
    wish.add_argument(
        "--model", metavar="FILE", help="instead of BUILD: a model of your own, .onnx, .skops or LightGBM's text"
    )
    parser.add_argument("--sensors", metavar="FILE", help="with --model: a TOML of sensors, costs, names, ranges")
    parser.add_argument("--rows", metavar="FILE", help="with --model: a table of readings to compare on")
    parser.add_argument(
        "--leaves",
        choices=("auto", "16", "31"),
        default="auto",
        help="with --model: bits of a leaf; auto takes the fewest that keep the labels (default)",
    )
    parser.add_argument(
        "--check", type=int, default=10_000, metavar="N", help="with --model: rows to compare on (default 10000)"
    )


def run_model(args: argparse.Namespace) -> int:
    """Import and report."""
    from hardcase_export.foreign_model import import_model
    from hardcase_export.importing.sensor_layout import read_layout

    if args.build is not None:
        raise InputError(f"a build ({args.build}) and --model are given; one of them is exported")
    given = [flag for flag in BUILD_FLAGS if getattr(args, flag)]
    if given:
        raise InputError(f"--{given[0].replace('_', '-')} goes with a build; leave it out with --model")
    if args.out is None:
        raise InputError("nothing is asked for; name a bundle with --out")
    done = import_model(
        Path(args.model),
        args.out,
        layout=None if args.sensors is None else read_layout(args.sensors),
        rows=None if args.rows is None else _rows(args.rows),
        leaves=args.leaves,
        min_agreement=args.min_agreement,
        n_check=args.check,
        key=args.key,
        seed=args.seed,
    )
    print(json.dumps(_report(done)) if args.json else _text(done))
    return 0


def _rows(path: str) -> NamedRows:
    from hardcase_train.data.table import read_table

    table = read_table(path)
    return table.names, table.X


def _report(done: ImportedBundle) -> dict[str, Any]:
    found = done.imported
    return {
        "bundle": str(done.path),
        "sha256": done.sha256,
        "bytes": done.n_bytes,
        "signed": done.is_signed,
        "golden": done.n_golden,
        "source": found.source.name,
        "leaves": found.summed.bits,
        "bound": found.bound,
        "labels": found.proof,
        "match": found.match.to_json(),
        "cost": to_unit(done.report.worst_cost),
        "unit": found.layout.unit,
        "operations": done.report.operations,
    }


def _text(done: ImportedBundle) -> str:
    r = _report(done)
    match, what = r["match"], "labels" if done.imported.layout.classes else "values"
    wide = {"exact": "exact shares", "linear": "weights of 16 bits"}.get(r["leaves"], f"leaves of {r['leaves']} bits")
    known = {
        "every row": ", and on every other row, proved",
        "every row but ties": ", and on every other row but ties, proved",
    }
    ties = f"; {match['ties']} ties go another way than its rounding" if match["ties"] else ""
    same, signed = match["rows"] - match["differ"] - match["ties"], "signed" if r["signed"] else "not signed"
    return "\n".join(
        [
            f"{r['bundle']}: {r['bytes']} bytes, {signed}, {r['golden']} golden cases",
            f"  sha256     {r['sha256']}",
            f"  source     {r['source']}, {wide}; scores within {r['bound']:.2g} of its own",
            f"  {what:<9}  {same} of {match['rows']} as those of {match['beside']}{known.get(r['labels'], '')}{ties}",
            f"  cost       {r['cost']:g} {r['unit']}, {r['operations']} operations",
        ]
    )
