# SPDX-License-Identifier: Apache-2.0
"""``hardcase cloud retrain``: train on what came back from a fleet, compare, export, and offer it to a canary."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardcase_cloud.commands import rollout
from hardcase_cloud.commands.shared import positive, store_argument, tls_arguments
from hardcase_edge.errors import InputError

from ...options import report
from ..export import add_contents, add_promise, add_wish
from ..train import add_training
from .rows import ALL, MISSING, NONE

if TYPE_CHECKING:
    from hardcase_edge.bundle.load import Loaded

__all__ = ["HELP", "arguments", "run"]

HELP = "Train on audits and forwarded cases in a store, compare old and new, and roll the new bundle out."
WORSE = 1  # exit status if the new policy is not better: nothing is offered to a device


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("config", type=Path, metavar="TOML", help="hardcase.toml of the old bundle: costs and methods")
    store_argument(parser)
    parser.add_argument(
        "--bundle", required=True, action="append", metavar="FILE",
        help="what devices run; repeatable for others whose audits count; the first is compared with the new one",
    )  # fmt: skip
    parser.add_argument(
        "--hpc", type=Path, metavar="FILE", help="f0 of these bundles, which stays: hpc.onnx (needed if they ask it)"
    )
    parser.add_argument(
        "--out", required=True, type=Path, metavar="FOLDER", help="folder to write: rows, build and bundle"
    )
    rows = parser.add_argument_group("rows")
    rows.add_argument("--audited", metavar="SHARE", help="share of local decisions that devices audit (run --audit)")
    rows.add_argument(
        "--rows", type=positive, default=100_000, metavar="N", help="read the newest N rows at most (100000)"
    )
    rows.add_argument(
        "--per-device", type=positive, default=1_000, metavar="N", help="of these, N of one device at most (1000)"
    )
    rows.add_argument(
        "--with-old", nargs="?", choices=(ALL, MISSING, NONE), const=ALL, default=MISSING,
        help="rows of TOML's own table to train on, too: all; those of classes of which too few came back (missing, "
        "the default); or none",
    )  # fmt: skip
    add_training(parser)
    add_wish(parser.add_argument_group("which point (one of them; default: as the old bundle)"))
    add_promise(parser.add_argument_group("a promise (with --risk; default: that of the old bundle)"))
    add_contents(parser.add_argument_group("what the bundle holds (what the old one holds in any case)"))
    rolling = parser.add_argument_group("the roll-out")
    rolling.add_argument(
        "--worse-by", type=float, default=0.01, metavar="SHARE", help="how far right answers may fall (0.01)"
    )
    rolling.add_argument(
        "--anyway", action="store_true", help="go on even if the new policy is not better, or no worker serves its f0"
    )
    rolling.add_argument("--sign", metavar="FILE", help="private key to sign the bundle with, from hardcase keygen")
    rolling.add_argument("--metadata", type=Path, metavar="DIR", help="list the bundle in this folder of hardcase keys")
    rolling.add_argument("--private", type=Path, metavar="DIR", help="of hardcase keys (default: DIR-keys)")
    rolling.add_argument("--group", metavar="NAME", help="roll out to these devices, as of rollout group")
    rolling.add_argument("--broker", metavar="URL", help="with --group: mqtt[s]://host:port")
    rollout.add_plan(parser)
    tls_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the whole round, or what is left of it; the exit status."""
    if (args.group is None) != (args.broker is None):
        raise InputError("a roll-out needs both --group and --broker; without them, the bundle is made and compared")
    from ...training.folders import locked
    from .compare import compare, lines_of
    from .rows import read_rows, with_old_rows
    from .steps import inputs_of, noted, settings, train

    olds = _old_bundles(args)
    config, methods = settings(args, olds[0])
    found = with_old_rows(read_rows(args, olds), args, olds[0], config.file)
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{args.out} cannot be made: {error.strerror}; name another folder") from error
    inputs = inputs_of(args, found)
    with locked(args.out):
        note = noted(args.out)
        is_new = note.get("inputs") != inputs
        lines = train(args, olds[0], found, config, methods, inputs) if is_new else note["lines"]
    figures = compare(olds[0], args.out / "model.hcb", found, args.hpc, args.worse_by)
    values: dict[str, Any] = {
        **found.figures(), "trained": is_new, "bundle": str(args.out / "model.hcb"), "notes": lines, **figures,
    }  # fmt: skip
    report(args, values, [*found.lines(), *lines, *lines_of(figures)])
    if not figures["is_better"] and not args.anyway:
        return WORSE
    if found.f0_has_fallen and args.agreement is None:
        args.agreement = "none"  # whoever agrees with an f0 that is wrong is no better for it
    return 0 if args.group is None else _roll_out(args)


def _old_bundles(args: argparse.Namespace) -> list[Loaded]:
    """The bundles of ``--bundle``, which must send the same request, those that ask an f0 to one and the same."""
    from hashlib import sha256

    from hardcase_edge.base.files import read_bounded
    from hardcase_edge.bundle.load import load_bundle

    from .rows import carried

    loaded = [load_bundle(path) for path in args.bundle]
    first = loaded[0]
    if not first.manifest.classes:
        raise InputError(f"{args.bundle[0]} answers values, and labels are known for classes alone")
    model = ""
    if args.hpc is not None:
        data = read_bounded(args.hpc, 1 << 31, "model", remedy="name the hpc.onnx of a build")
        model = sha256(data).hexdigest()
    for path, each in zip(args.bundle, loaded, strict=True):
        if each.manifest.hpc not in ("", model):  # "": it asks nobody
            what = "asks an f0" if args.hpc is None else f"does not forward to {args.hpc}"
            raise InputError(f"{path} {what}; name the hpc.onnx of its build with --hpc")
        if each.manifest.classes != first.manifest.classes or carried(each) != carried(first):
            raise InputError(f"{path} sends other requests than {args.bundle[0]}; name bundles of one build")
    return loaded


def _roll_out(args: argparse.Namespace) -> int:
    """Sign the bundle, and begin its roll-out, or go on with it; the exit status."""
    from hashlib import sha256

    from hardcase_cloud.keep.records.database import Database
    from hardcase_cloud.keep.records.rollouts import OPEN, Rollouts

    from .steps import sign

    bundle = args.out / "model.hcb"
    digest = sha256(bundle.read_bytes()).hexdigest()
    database = Database(args.store, makes=False)
    try:
        before = next((r for r in Rollouts(database).rollouts() if (r.bundle, r.members) == (digest, args.group)), None)
    finally:
        database.close()
    if before is not None and before.state not in OPEN:
        report(args, {"rollout": before.id, "state": before.state}, [f"roll-out {before.id} of it: {before.state}"])
        return 0 if before.state == "done" else WORSE
    where = ["--store", args.store, "--broker", args.broker]
    if before is None:
        if args.metadata is not None:
            sign(bundle, args.metadata, args.private)
            where += ["--metadata", str(args.metadata)]
        where += ["--group", args.group]
    words = ["start", str(bundle), *where] if before is None else ["serve", str(before.id), *where]
    parser = argparse.ArgumentParser()
    rollout.arguments(parser)
    settings = parser.parse_args(words)
    ours = {"bundle", "budget", "metadata", "act"}  # mean something else here
    vars(settings).update({k: v for k, v in vars(args).items() if k in vars(settings) and k not in ours})
    return rollout.run(settings)
