# SPDX-License-Identifier: Apache-2.0
"""``hardcase export --model``: import a model that was trained elsewhere as a bundle."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import to_unit
from hardcase_export.foreign_model import ImportedBundle, NamedRows, import_model
from hardcase_export.importing.sensor_layout import read_layout
from hardcase_train.data.table import read_table

from ..measuring.bars import clock_bar
from ..options import report
from .targets import given_target

WIDTHS = {
    "exact": "exact shares", "linear": "weights of 16 bits",
    "float32": "a TFLite model, which devices run by ai-edge-litert", "int8": "a scorer of integers",
}  # fmt: skip
BUILD_FLAGS = (
    "delta",
    "max_forward",
    "excess",
    "risk_per",
    "risk_tolerance",
    "calibration",
    "hpc",
    "method",
    "no_mix",
    "prices",
    "monitors",
    "atypical",
)  # of which nothing but a build has what they need


def given(args: argparse.Namespace, flags: Iterable[str]) -> str | None:
    """The first of these flags that was given; None if none was."""
    return next((flag for flag in flags if (value := getattr(args, flag)) is not None and value is not False), None)


def run_model(args: argparse.Namespace) -> int:
    """Import and report."""
    if args.build is not None:
        raise InputError(f"both BUILD ({args.build}) and --model are given; give only one")
    misplaced = given(args, BUILD_FLAGS) or given_target(args)
    if misplaced:
        raise InputError(f"--{misplaced.replace('_', '-')} requires BUILD; leave it out with --model")
    if args.out is None:
        raise InputError("no output given: use --out")
    how = {"leaves": args.leaves, "n_check": args.check}
    how = {name: value for name, value in how.items() if value is not None}
    with clock_bar("import"):
        bundle = import_model(
            Path(args.model),
            args.out,
            layout=None if args.sensors is None else read_layout(args.sensors),
            rows=None if args.rows is None else _rows(args.rows),
            min_agreement=args.min_agreement,
            key=args.key,
            seed=args.seed,
            force=args.force,
            **how,
        )
    report(args, _report(bundle), _text(bundle))
    return 0


def _rows(path: str) -> NamedRows:
    table = read_table(path)
    return table.names, table.X


def _report(bundle: ImportedBundle) -> dict[str, Any]:
    imported = bundle.imported
    return {
        "bundle": str(bundle.path),
        "sha256": bundle.sha256,
        "bytes": bundle.n_bytes,
        "signed": bundle.is_signed,
        "golden": bundle.n_golden,
        "source": imported.source.name,
        "leaves": imported.summed.bits,
        "bound": imported.bound,
        "labels": imported.proof,
        "match": imported.match.to_json(),
        "cost": to_unit(bundle.report.worst_cost),
        "unit": imported.layout.unit,
        "operations": bundle.report.operations,
    }


def _text(bundle: ImportedBundle) -> list[str]:
    r = _report(bundle)
    match, what = r["match"], "labels" if bundle.imported.layout.classes else "values"
    width = WIDTHS.get(r["leaves"], f"leaves of {r['leaves']} bits")
    where = " on these rows" if r["leaves"] in ("float32", "int8") else ""
    proof = {
        "every row": "; proved for every other row",
        "every row but ties": "; proved for every other row except ties",
    }
    ties = f"; {match['ties']} ties are decided differently" if match["ties"] else ""
    same, signed = match["rows"] - match["differ"] - match["ties"], "signed" if r["signed"] else "not signed"
    return [
        f"{r['bundle']}: {r['bytes']} bytes, {signed}, {r['golden']} golden cases",
        f"  sha256     {r['sha256']}",
        f"  source     {r['source']}, {width}; scores within {r['bound']:.2g} of the source's{where}",
        f"  {what:<9}  {same} of {match['rows']} as those of {match['beside']}{proof.get(r['labels'], '')}{ties}",
        f"  cost       {r['cost']:g} {r['unit']}, {r['operations']} operations",
    ]
