# SPDX-License-Identifier: Apache-2.0
"""``hardcase export``: write one point of a trained front as a bundle, or as C for microcontrollers."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import to_unit

from ..exports.imported import add_model, run_model
from ..exports.runtimes import Targets, add_targets
from ..options import add_force

if TYPE_CHECKING:
    from hardcase_export.bundle import Exported
    from hardcase_export.picking.held_out import HeldOut
    from hardcase_export.picking.risk_choice import RiskTerms

__all__ = ["HELP", "arguments", "run"]

HELP = "Write a bundle or C sources of one point of a trained front, or of your own model."
DEFAULT_MAX_LOSS = 0.01  # with --c, if no point is asked for


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "build",
        metavar="BUILD",
        nargs="?",
        help="the folder that hardcase train wrote; with --c, a bundle is also accepted",
    )
    wish = parser.add_mutually_exclusive_group()
    wish.add_argument(
        "--max-loss", type=float, metavar="SHARE", help="the cheapest point at most this far below f0 (0.01: 1 %%)"
    )
    wish.add_argument("--budget", type=float, metavar="COST", help="the most accurate point of at most this mean cost")
    wish.add_argument(
        "--risk",
        type=float,
        metavar="SHARE",
        help="the cheapest point with a promise that at most this share of local answers is wrong",
    )
    add_model(parser, wish)
    parser.add_argument(
        "--delta", type=float, metavar="SHARE", help="with --risk: probability that the promise fails (default 0.05)"
    )
    parser.add_argument(
        "--max-forward",
        type=float,
        metavar="SHARE",
        help="with --risk: promise also that at most this share is forwarded",
    )
    parser.add_argument(
        "--excess", action="store_true", help="with --risk: bound only the errors beyond f0's on the same cases"
    )
    parser.add_argument(
        "--calibration",
        metavar="FILE",
        help="with --risk: labelled rows for the test (default: the build's calibration.npz)",
    )
    parser.add_argument(
        "--hpc",
        metavar="MODEL",
        help="with --calibration: hpc.onnx or module:function that answers its rows (default: the build's, or the "
        "answers in FILE)",
    )
    out = parser.add_mutually_exclusive_group()
    out.add_argument("--out", metavar="FILE", help="the bundle to write, such as model.hcb")
    out.add_argument(
        "--c", type=Path, metavar="FOLDER", help="folder to write with C sources for a microcontroller and the bundle"
    )
    parser.add_argument(
        "--inline", action="store_true", help="with --c: write small tree ensembles as code instead of tables"
    )
    add_targets(parser)
    parser.add_argument("--key", metavar="FILE", help="private key to sign with, from hardcase keygen")
    parser.add_argument("--method", metavar="NAME", help="consider the points of this method only")
    parser.add_argument(
        "--min-agreement",
        type=float,
        metavar="SHARE",
        help="least share of validation and test rows on which integers and floats must decide alike (default 0.999; "
        "with --model: 1, or 0.999 for a linear model)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the choice of golden cases (default 0)"
    )
    add_force(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Export and report."""
    if args.model is not None:
        return run_model(args)
    _check_build(args)
    from ..exports.c import c_lines, c_report, export_c

    targets, sources = Targets(args), None
    if args.c is None:
        if args.inline:
            raise InputError("--inline requires --c")
        if args.out is None and not targets.folders:
            raise InputError("no output given: use --out, --c, --onnx or --tflite")
        exported: Exported | None = _export(args, args.out, targets)
    else:
        _settle_wish(args, targets)
        exported, sources = export_c(
            Path(args.build), args.c, args.inline, lambda path: _export(args, path, targets), force=args.force
        )
    if args.json:
        models = {str(folder): entries for folder, entries in targets.entries.items()}
        values = {} if exported is None else {**_report(exported), "models": models}
        print(json.dumps(values if sources is None else {**values, "c": c_report(args.c, sources)}))
    else:
        lines = [] if exported is None else [_text(exported), *targets.text()]
        print("\n".join(lines if sources is None else [*lines, *c_lines(args.c, sources)]))
    return 0


def _settle_wish(args: argparse.Namespace, targets: Targets) -> None:
    """For --c: the default wish for a build; none is allowed for a bundle, which is a point already."""
    is_wished = (args.max_loss, args.budget, args.risk) != (None, None, None)
    if Path(args.build).is_file() and (is_wished or targets.folders):
        raise InputError(f"{args.build} is a bundle; only --c and --inline apply")
    if not is_wished:
        args.max_loss = DEFAULT_MAX_LOSS


def _export(args: argparse.Namespace, out: str | Path | None, targets: Targets) -> Exported:
    """Export the bundle of the requested point."""
    from hardcase_export.bundle import MIN_AGREEMENT, export_bundle

    terms = _terms(args)
    return export_bundle(
        args.build,
        out,
        max_loss=args.max_loss,
        budget=args.budget,
        key=args.key,
        method=args.method,
        min_agreement=MIN_AGREEMENT if args.min_agreement is None else args.min_agreement,
        seed=args.seed,
        terms=terms,
        held_out=None if args.calibration is None else _held_out(args),
        beside=targets,
        force=args.force,
    )


def _check_build(args: argparse.Namespace) -> None:
    if args.build is None:
        raise InputError("BUILD is missing; name the folder that hardcase train wrote, or a model with --model")
    misplaced = [flag for flag in ("sensors", "rows") if getattr(args, flag) is not None]
    if misplaced:
        raise InputError(f"--{misplaced[0]} requires --model; a build contains its sensors and rows")


def _terms(args: argparse.Namespace) -> RiskTerms | None:
    from hardcase_export.picking.risk_choice import RiskTerms

    if args.hpc is not None and args.calibration is None:
        raise InputError("--hpc requires --calibration, whose rows it answers")
    if args.risk is not None:
        terms = RiskTerms(args.risk, 0.05 if args.delta is None else args.delta, args.max_forward, args.excess)
        terms.check()
        return terms
    extra = {"--delta": args.delta, "--max-forward": args.max_forward, "--calibration": args.calibration}
    misplaced = [flag for flag, value in extra.items() if value is not None] + ["--excess"] * args.excess
    if misplaced:
        raise InputError(f"{misplaced[0]} requires --risk")
    return None


def _held_out(args: argparse.Namespace) -> HeldOut:
    """The rows of --calibration, with the answers of the build's f0."""
    import numpy as np

    from hardcase_export.drafts.front import read_front
    from hardcase_export.drafts.rows import Rows
    from hardcase_export.integers.point import read_draft
    from hardcase_export.picking.held_out import HeldOut, file_sha256
    from hardcase_export.picking.pick import candidates

    from ..exports.labelled_rows import labelled_rows, replies_to

    build, path = Path(args.build), Path(args.calibration)
    front = read_front(build / "front.json")
    draft, manifest = read_draft(build, candidates(front, args.method)[0], front.legacy)
    manifest = replace(manifest, hpc=front.legacy or file_sha256(build / "hpc.onnx"))  # drafts may lack it
    X, y, stored = labelled_rows(path, manifest)
    replies = np.array(replies_to(draft, manifest, X, stored, args.hpc, [build]), dtype=np.int64).reshape(-1, 2)
    return HeldOut(Rows(X, y, replies[:, 0], replies[:, 1]), path.name, file_sha256(path))


def _report(exported: Exported) -> dict[str, Any]:
    return {
        "bundle": None if exported.path is None else str(exported.path),
        "sha256": exported.sha256,
        "bytes": exported.n_bytes,
        "signed": exported.is_signed,
        "golden": exported.n_golden,
        "method": exported.point.method,
        "params": exported.point.params,
        "unit": exported.unit,
        "cost": {
            "worst": to_unit(exported.report.worst_cost),
            "mean": exported.test.after.cost,
            "best": to_unit(exported.report.best_cost),
        },
        "agreement": {"valid": exported.valid.agreement, "test": exported.test.agreement},
        "valid": exported.valid.after.to_json(),
        "test": exported.test.after.to_json(),
        "promise": exported.promise,
        "weights": None if exported.weights is None else asdict(exported.weights),
        "parity": {"valid": exported.valid.to_json(), "test": exported.test.to_json()},
    }


def _text(exported: Exported) -> str:
    from hardcase_export.picking.risk_choice import say_promise

    r = _report(exported)
    cost, same, unit = r["cost"], r["agreement"], r["unit"]
    lines = [
        f"{r['bundle'] or 'no bundle written'}: {r['bytes']} bytes, {'signed' if r['signed'] else 'not signed'}, "
        f"{r['golden']} golden cases",
        f"  sha256     {r['sha256']}",
        f"  picked     {r['method']} {json.dumps(r['params'], sort_keys=True)}",
        *_passed_over(exported.passed_over),
        f"  cost       worst {cost['worst']:g}, mean {cost['mean']:.2f}, best {cost['best']:g} {unit}",
        f"  agreement  {same['test']:.2%} of test rows decided as by the floats ({same['valid']:.2%} of valid rows, "
        f"on which thresholds were aligned), {r['parity']['test']['labels']:.2%} with the same label",
    ]
    for rows in ("valid", "test"):
        f, was = r[rows], r["parity"][rows]["before"]
        lines.append(
            f"  {rows:<9}  accuracy {f['quality']:.4f}, {f['cost']:.2f} {unit}, "
            f"{f['forward_rate']:.1%} forwarded, {f['n']} rows; floats {was['quality']:.4f}, {was['cost']:.2f} {unit}"
        )
    if exported.weights is not None:
        w = exported.weights
        lines.append(f"  weights    {w.after} of {w.before} kept; with all of them {w.bytes_before} bytes")
    promise = say_promise(exported.promise)
    if promise is not None:
        lines.append(f"  promise    {promise}")
    return "\n".join(lines)


def _passed_over(n: int) -> list[str]:
    """A line where a better point could not be exported."""
    return [f"  passed over {n} cheaper or better points, whose integers decide otherwise than their floats"] * (n > 0)
