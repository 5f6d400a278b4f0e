"""``hardcase export``: one point of a trained front becomes a bundle for devices."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from hardcase_edge.meter import to_unit

if TYPE_CHECKING:
    from hardcase_export.write import Exported

__all__ = ["HELP", "arguments", "run"]

HELP = "Write the bundle of one point of a trained front."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("build", metavar="BUILD", help="the folder that hardcase train wrote")
    wish = parser.add_mutually_exclusive_group(required=True)
    wish.add_argument(
        "--max-loss", type=float, metavar="SHARE", help="the cheapest point at most this far below f0 (0.01: 1 %%)"
    )
    wish.add_argument("--budget", type=float, metavar="COST", help="the most accurate point of at most this mean cost")
    parser.add_argument("--out", required=True, metavar="FILE", help="the bundle to write, such as model.hcb")
    parser.add_argument("--key", metavar="FILE", help="private key to sign with, from hardcase keygen")
    parser.add_argument("--method", metavar="NAME", help="look at the points of this method only")
    parser.add_argument(
        "--min-agreement",
        type=float,
        default=0.999,
        metavar="SHARE",
        help="share of valid and of test rows on which the integers must decide as the floats do (default 0.999)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the choice of golden cases (default 0)")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """Export and report."""
    from hardcase_export.write import export_bundle

    done = export_bundle(
        args.build,
        args.out,
        max_loss=args.max_loss,
        budget=args.budget,
        key=args.key,
        method=args.method,
        min_agreement=args.min_agreement,
        seed=args.seed,
    )
    print(json.dumps(_report(done)) if args.json else _text(done))
    return 0


def _report(done: Exported) -> dict[str, Any]:
    return {
        "bundle": str(done.path),
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
        "parity": {"valid": done.valid.to_json(), "test": done.test.to_json()},
    }


def _text(done: Exported) -> str:
    r = _report(done)
    cost, same, unit = r["cost"], r["agreement"], r["unit"]
    lines = [
        f"{r['bundle']}: {r['bytes']} bytes, {'signed' if r['signed'] else 'not signed'}, {r['golden']} golden cases",
        f"  sha256     {r['sha256']}",
        f"  picked     {r['method']} {json.dumps(r['params'], sort_keys=True)}",
        f"  cost       worst {cost['worst']:g}, mean {cost['mean']:.2f}, best {cost['best']:g} {unit}",
        f"  agreement  {same['test']:.2%} of test rows decided as the floats do ({same['valid']:.2%} of valid rows, "
        "on which thresholds were aligned)",
    ]
    for rows in ("valid", "test"):
        f = r[rows]
        lines.append(
            f"  {rows:<9}  accuracy {f['accuracy']:.4f}, {f['cost']:.2f} {unit}, "
            f"{f['forward_rate']:.1%} forwarded, {f['n']} rows"
        )
    return "\n".join(lines)
