# SPDX-License-Identifier: Apache-2.0
"""``hardcase gate``: from a log of answers of models or APIs to a policy of who is asked next, and when to stop."""

from __future__ import annotations

import argparse
from pathlib import Path

from hardcase_edge.errors import InputError

from ...options import add_force, add_json, report
from ..export import add_promise, add_wish, terms_of
from ..train import add_setting

__all__ = ["EXAMPLES", "HELP", "INTERRUPTED", "TERMS", "arguments", "run"]

HELP = "Train who is asked next, and when to stop, from a log of answers of models or APIs."
EXAMPLES = """\
hardcase gate calls.csv --budget 5                     # the best for a mean price of 5 a request
hardcase gate calls.csv --max-loss 0.01 --out cheap    # the cheapest within 0.01 of a model of all answers"""
TERMS = (
    "f0: here a model of the answers of all APIs, a measure of what could be had, which nobody asks; front: the "
    "policies that no other beats in both accuracy and price"
)
INTERRUPTED = "run the same command again"
OUT = "gate"
OWN = ("calls.parquet", "hardcase.toml", "build", "model.hcb", "model.hcb.sig", "gate.json")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    from hardcase_train.settings.config import Config

    parser.add_argument("calls", type=Path, metavar="CALLS", help="table with NAME_label, NAME_price, ... and truth")
    parser.add_argument("--out", type=Path, default=Path(OUT), metavar="FOLDER", help=f"folder to write ({OUT})")
    add_wish(parser.add_argument_group("which policy (one of them)"))
    add_promise(parser.add_argument_group("a promise (with --risk)"))
    trained = parser.add_argument_group("training")
    trained.add_argument("--unit", default="price", metavar="TEXT", help="unit of the prices (default: price)")
    add_setting(trained, "--seed", Config, "seed", type=int, metavar="N")
    add_setting(trained, "--effort", Config, "effort", metavar="HOW")
    trained.add_argument("--method", action="append", metavar="NAME", help="as for hardcase train (repeatable)")
    trained.add_argument("--jobs", type=int, metavar="N", help="threads here (default: one per core, one for few rows)")
    parser.add_argument("--prices", action="store_true", help="let running budgets move the policy's thresholds")
    parser.add_argument("--key", metavar="FILE", help="private key to sign with, from hardcase keygen")
    add_force(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Write the table and its configuration, train, export, and write the gate's file."""
    from hardcase_export.bundle import make_bundle
    from hardcase_export.checked import ExportedCases
    from hardcase_train.methods import BASELINES

    from ...exports.said import export_lines, export_values
    from ...gate.answers import read_log, write_problem
    from ...gate.file import BUNDLE, FILE, GateFile, write_gate_file
    from ...training.build import build, configure
    from .figures import agreement_of, alone_of, classes_of, front_of

    terms, out = terms_of(args), args.out
    log = read_log(args.calls)
    _check_folder(out, args.force)
    toml, table = write_problem(log, out, args.unit)
    (out / FILE).unlink(missing_ok=True)  # until the new bundle stands
    config = configure(toml, seed=args.seed, methods=tuple(args.method or ()), effort=args.effort)
    where = {"jobs": args.jobs, "quiet": args.json, "force": args.force}
    front, made = build(config, (*config.methods, *BASELINES), out / "build", table=table, **where)[1:]
    wish = {name: getattr(args, name) for name in ("max_loss", "budget", "hard_budget", "key")}
    exported = make_bundle(made, terms=terms, monitors=True, prices=args.prices, **wish).write(out / BUNDLE)
    assert isinstance(exported, ExportedCases)
    values = export_values(exported, made)
    front_points = front_of(front["points"])
    alone, (reference, agreement) = alone_of(out, log), agreement_of(out, log, exported.test.local, terms)
    gate = GateFile(args.unit, exported.sha256, classes_of(out), log.apis, reference, agreement)
    write_gate_file(out, gate)
    lines = [
        *log.notes,
        "on test rows, each alone:",
        *(f"  {name:20s} {one['accuracy']:.4f}  at {one['price']:g} {args.unit}" for name, one in alone.items()),
        "the front:",
        *(f"  {p['method']:20s} {p['test']['quality']:.4f}  at {p['test']['cost']:.3f} {args.unit}"
          for p in front_points),
        *export_lines(values, False),
        *([f"  audits     {reference} agrees with at least {agreement:.4f} of the answers"] if agreement else []),
        f'next: hardcase.Gate("{out}", {{"{log.apis[0].name}": function, ...}}).decide(request)',
    ]  # fmt: skip
    picked = {
        **values,
        "alone": alone,
        "stands_in": log.stands_in,
        "reference": reference,
        "agreement": agreement,
        "notes": list(log.notes),
    }
    report(args, {"out": str(out), "front": front_points, **picked}, lines)
    return 0


def _check_folder(out: Path, force: bool) -> None:
    """Refuse a folder in which something else lies."""
    if out.is_dir() and not force:
        other = next((p.name for p in sorted(out.iterdir()) if not p.name.lstrip(".").startswith(OWN)), None)
        if other is not None:
            raise InputError(f"{out} holds {other!r}, which no gate has; name another folder, or use --force")
    elif out.exists() and not out.is_dir():
        raise InputError(f"{out} is not a folder; name another one")
