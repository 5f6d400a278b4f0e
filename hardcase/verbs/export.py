"""``hardcase export``: one point of a trained front becomes a bundle for devices, or C for microcontrollers."""

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

if TYPE_CHECKING:
    from hardcase_export.bundle import Exported
    from hardcase_export.picking.held_out import HeldOut
    from hardcase_export.picking.risk_choice import RiskTerms

__all__ = ["HELP", "arguments", "run"]

HELP = "Write a bundle or C sources of one point of a trained front, or of a model of your own."
DEFAULT_MAX_LOSS = 0.01  # of --c, which needs no wish


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "build", metavar="BUILD", nargs="?", help="the folder that hardcase train wrote; for --c, or a bundle"
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
        help="the cheapest point promised to get no more local answers wrong",
    )
    add_model(parser, wish)
    parser.add_argument("--delta", type=float, metavar="SHARE", help="chance that the promise fails (default 0.05)")
    parser.add_argument("--max-forward", type=float, metavar="SHARE", help="promise also that no more is forwarded")
    parser.add_argument("--excess", action="store_true", help="--risk is of errors beyond f0's on the same cases")
    parser.add_argument(
        "--calibration", metavar="FILE", help="labelled rows to promise on (default: the build's calibration.npz)"
    )
    parser.add_argument(
        "--hpc",
        metavar="MODEL",
        help="hpc.onnx or module:function, to answer those rows (default: the build's, or the answers in FILE)",
    )
    out = parser.add_mutually_exclusive_group()
    out.add_argument("--out", metavar="FILE", help="the bundle to write, such as model.hcb")
    out.add_argument("--c", type=Path, metavar="FOLDER", help="C sources for a microcontroller, with the bundle")
    parser.add_argument("--inline", action="store_true", help="with --c: small tree ensembles as code, not tables")
    add_targets(parser)
    parser.add_argument("--key", metavar="FILE", help="private key to sign with, from hardcase keygen")
    parser.add_argument("--method", metavar="NAME", help="look at the points of this method only")
    parser.add_argument(
        "--min-agreement",
        type=float,
        metavar="SHARE",
        help="share of valid and of test rows on which the integers must decide as the floats do (default 0.999; of "
        "--model's rows: all, or 0.999 for a linear model)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the choice of golden cases (default 0)")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """Export and report."""
    if args.model is not None:
        return run_model(args)
    _check_build(args)
    from ..exports.c import c_lines, c_report, export_c

    targets, made = Targets(args), None
    if args.c is None:
        if args.inline:
            raise InputError("--inline is a form of --c; give both")
        if args.out is None and not targets.folders:
            raise InputError("nothing is asked for; name a bundle with --out, or a folder with --c, --onnx or --tflite")
        done: Exported | None = _export(args, args.out, targets)
    else:
        _settle_wish(args, targets)
        done, made = export_c(Path(args.build), args.c, args.inline, lambda path: _export(args, path, targets))
    if args.json:
        models = {str(folder): entries for folder, entries in targets.entries.items()}
        said = {} if done is None else {**_report(done), "models": models}
        print(json.dumps(said if made is None else {**said, "c": c_report(args.c, made)}))
    else:
        lines = [] if done is None else [_text(done), *targets.text()]
        print("\n".join(lines if made is None else [*lines, *c_lines(args.c, made)]))
    return 0


def _settle_wish(args: argparse.Namespace, targets: Targets) -> None:
    """A bundle is picked already; of a build, C sources need no wish."""
    is_wished = (args.max_loss, args.budget, args.risk) != (None, None, None)
    if Path(args.build).is_file() and (is_wished or targets.folders):
        raise InputError(
            f"{args.build} is a bundle, in which nothing is left to pick: --c and --inline are all it takes"
        )
    if not is_wished:
        args.max_loss = DEFAULT_MAX_LOSS


def _export(args: argparse.Namespace, out: str | Path | None, targets: Targets) -> Exported:
    """The bundle of the point that was asked for."""
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
    )


def _check_build(args: argparse.Namespace) -> None:
    if args.build is None:
        raise InputError("no BUILD is named; give the folder that hardcase train wrote, or a model with --model")
    given = [flag for flag in ("sensors", "rows") if getattr(args, flag) is not None]
    if given:
        raise InputError(f"--{given[0]} goes with --model; a build knows its sensors and rows")


def _terms(args: argparse.Namespace) -> RiskTerms | None:
    from hardcase_export.picking.risk_choice import RiskTerms

    if args.hpc is not None and args.calibration is None:
        raise InputError("--hpc answers the rows of --calibration; give both or neither")
    if args.risk is not None:
        terms = RiskTerms(args.risk, 0.05 if args.delta is None else args.delta, args.max_forward, args.excess)
        terms.check()
        return terms
    extra = {"--delta": args.delta, "--max-forward": args.max_forward, "--calibration": args.calibration}
    given = [flag for flag, value in extra.items() if value is not None] + ["--excess"] * args.excess
    if given:
        raise InputError(f"{given[0]} is a term of a promise; give --risk with it")
    return None


def _held_out(args: argparse.Namespace) -> HeldOut:
    """The user's own rows, with the answers of the build's f0."""
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
    manifest = replace(manifest, hpc=front.legacy or file_sha256(build / "hpc.onnx"))  # of a draft without it, too
    X, y, known = labelled_rows(path, manifest)
    said = np.array(replies_to(draft, manifest, X, known, args.hpc, [build]), dtype=np.int64).reshape(-1, 2)
    return HeldOut(Rows(X, y, said[:, 0], said[:, 1]), path.name, file_sha256(path))


def _report(done: Exported) -> dict[str, Any]:
    return {
        "bundle": None if done.path is None else str(done.path),
        "sha256": done.sha256,
        "bytes": done.n_bytes,
        "signed": done.is_signed,
        "golden": done.n_golden,
        "method": done.point.method,
        "params": done.point.params,
        "unit": done.unit,
        "cost": {
            "worst": to_unit(done.report.worst_cost),
            "mean": done.test.after.cost,
            "best": to_unit(done.report.best_cost),
        },
        "agreement": {"valid": done.valid.agreement, "test": done.test.agreement},
        "valid": done.valid.after.to_json(),
        "test": done.test.after.to_json(),
        "promise": done.promise,
        "weights": None if done.weights is None else asdict(done.weights),
        "parity": {"valid": done.valid.to_json(), "test": done.test.to_json()},
    }


def _text(done: Exported) -> str:
    from hardcase_export.picking.risk_choice import say_promise

    r = _report(done)
    cost, same, unit = r["cost"], r["agreement"], r["unit"]
    lines = [
        f"{r['bundle'] or 'no bundle written'}: {r['bytes']} bytes, {'signed' if r['signed'] else 'not signed'}, "
        f"{r['golden']} golden cases",
        f"  sha256     {r['sha256']}",
        f"  picked     {r['method']} {json.dumps(r['params'], sort_keys=True)}",
        *_passed_over(done.passed_over),
        f"  cost       worst {cost['worst']:g}, mean {cost['mean']:.2f}, best {cost['best']:g} {unit}",
        f"  agreement  {same['test']:.2%} of test rows decided as the floats do ({same['valid']:.2%} of valid rows, "
        f"on which thresholds were aligned), {r['parity']['test']['labels']:.2%} answered alike",
    ]
    for rows in ("valid", "test"):
        f, was = r[rows], r["parity"][rows]["before"]
        lines.append(
            f"  {rows:<9}  accuracy {f['quality']:.4f}, {f['cost']:.2f} {unit}, "
            f"{f['forward_rate']:.1%} forwarded, {f['n']} rows; floats {was['quality']:.4f}, {was['cost']:.2f} {unit}"
        )
    if done.weights is not None:
        w = done.weights
        lines.append(f"  weights    {w.after} of {w.before} kept; with all of them {w.bytes_before} bytes")
    promise = say_promise(done.promise)
    if promise is not None:
        lines.append(f"  promise    {promise}")
    return "\n".join(lines)


def _passed_over(n: int) -> list[str]:
    """A line where a better point could not be exported."""
    return [f"  passed over {n} cheaper or better points, whose integers decide otherwise than their floats"] * (n > 0)
