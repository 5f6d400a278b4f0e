# SPDX-License-Identifier: Apache-2.0
"""``hardcase cloud retrain``: train on what came back from a fleet, compare, export, and offer it to a canary."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardcase_edge.errors import InputError

from ...options import report
from ...services.flags import positive, store_argument, tls_arguments

if TYPE_CHECKING:
    from hardcase_cloud.records.came_back import CameBack
    from hardcase_edge.bundle.load import Loaded

__all__ = ["HELP", "arguments", "run"]

HELP = "Train on audits and forwarded cases in a store, compare old and new, and roll the new bundle out."
LEAST_ROWS = 200
WORSE = 1  # exit status if the new policy is not better: nothing is offered to a device


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("config", type=Path, metavar="TOML", help="hardcase.toml, for sensors, costs and methods")
    store_argument(parser)
    parser.add_argument(
        "--bundle", required=True, action="append", metavar="FILE",
        help="what devices run; repeatable for others whose audits count; the first is compared with the new one",
    )  # fmt: skip
    parser.add_argument("--hpc", required=True, type=Path, metavar="FILE", help="f0 of these bundles: hpc.onnx")
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
    rows.add_argument("--with-old", action="store_true", help="train on the rows of TOML's own table, too")
    training = parser.add_argument_group("training")
    training.add_argument("--effort", metavar="HOW", help="quick, normal or thorough; overrides [policy] effort")
    training.add_argument("--jobs", type=positive, metavar="N", help="threads (default: one for each core)")
    training.add_argument("--time-limit", metavar="TIME", help="of the training, such as 10m")
    wish = training.add_mutually_exclusive_group()
    wish.add_argument("--max-loss", type=float, metavar="SHARE", help="as of hardcase export")
    wish.add_argument("--budget", type=float, metavar="COST", help="as of hardcase export")
    rolling = parser.add_argument_group("the roll-out")
    rolling.add_argument(
        "--worse-by", type=float, default=0.01, metavar="SHARE", help="how far right answers may fall (0.01)"
    )
    rolling.add_argument("--anyway", action="store_true", help="go on even if the new policy is not better")
    rolling.add_argument("--sign", metavar="FILE", help="private key to sign the bundle with, from hardcase keygen")
    rolling.add_argument("--metadata", type=Path, metavar="DIR", help="list the bundle in this folder of hardcase keys")
    rolling.add_argument("--private", type=Path, metavar="DIR", help="of hardcase keys (default: DIR-keys)")
    rolling.add_argument("--group", metavar="NAME", help="roll out to these devices, as of rollout group")
    rolling.add_argument("--canary", default="1%", metavar="N", help="devices of the first wave (1%%)")
    rolling.add_argument("--supersede", action="store_true", help="end roll-outs that have one of these devices")
    rolling.add_argument("--broker", metavar="URL", help="with --group: mqtt[s]://host:port")
    tls_arguments(parser)
    parser.set_defaults(act=run)


def run(args: argparse.Namespace) -> int:
    """Run the whole round, or what is left of it; the exit status."""
    if (args.group is None) != (args.broker is None):
        raise InputError("a roll-out needs both --group and --broker; without them, the bundle is made and compared")
    from ...training.lock import locked
    from .compare import compare, lines_of
    from .steps import inputs_of, noted, train, weights_of

    olds = _old_bundles(args)
    rows = _read(args, olds)
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{args.out} cannot be made: {error.strerror}; name another folder") from error
    inputs = inputs_of(args, rows)
    with locked(args.out):
        is_new = noted(args.out) != inputs
        if is_new:
            train(args, olds[0], rows, inputs)
    figures = compare(olds[0], args.out / "model.hcb", rows, weights_of(args, rows), args.hpc, args.worse_by)
    n_cases = sum(row.is_case for row in rows)
    values: dict[str, Any] = {
        "rows": len(rows), "cases": n_cases, "by_person": sum(row.is_by_person for row in rows), "trained": is_new,
        "bundle": str(args.out / "model.hcb"), **figures,
    }  # fmt: skip
    head = f"{len(rows)} labelled rows: {len(rows) - n_cases} audits, {n_cases} cases"
    report(args, values, [head, *lines_of(figures)])
    if not figures["is_better"] and not args.anyway:
        return WORSE
    return 0 if args.group is None else _roll_out(args)


def _old_bundles(args: argparse.Namespace) -> list[Loaded]:
    """The bundles of ``--bundle``, which must ask one f0 the same request."""
    from hashlib import sha256

    from hardcase_edge.base.files import read_bounded
    from hardcase_edge.bundle.load import load_bundle

    loaded = [load_bundle(path) for path in args.bundle]
    first = loaded[0]
    if not first.manifest.classes:
        raise InputError(f"{args.bundle[0]} answers values, and labels are known for classes alone")
    model = sha256(read_bounded(args.hpc, 1 << 31, "model", remedy="name the hpc.onnx of a build")).hexdigest()
    for path, each in zip(args.bundle, loaded, strict=True):
        if each.manifest.hpc != model:
            raise InputError(f"{path} does not forward to {args.hpc}; name the hpc.onnx of its build")
        if each.manifest.classes != first.manifest.classes or _carried(each) != _carried(first):
            raise InputError(f"{path} sends other requests than {args.bundle[0]}; name bundles of one build")
    return loaded


def _carried(loaded: Loaded) -> list[str]:
    return [loaded.manifest.features[f] for f in loaded.machine.program.uplink.features]


def _read(args: argparse.Namespace, olds: list[Loaded]) -> list[CameBack]:
    """The labelled rows in the store."""
    from hardcase_cloud.records.came_back import came_back
    from hardcase_cloud.records.database import Database

    names = [each.bundle.sha256 for each in olds]
    manifest, width = olds[0].manifest, len(_carried(olds[0]))
    database = Database(args.store, makes=False)
    try:
        rows = came_back(
            database, names, manifest.hpc, width, [str(c) for c in manifest.classes], most=args.rows,
            per_device=args.per_device,
        )  # fmt: skip
    finally:
        database.close()
    if len(rows) < LEAST_ROWS:
        raise InputError(
            f"the store has {len(rows)} labelled rows of these bundles, and {LEAST_ROWS} are needed; let devices audit "
            "(--audit), have f0 answer (hardcase cloud label), and keep cases (hardcase cloud worker --cases)"
        )
    if args.audited is None and len({row.is_case for row in rows}) == 2:
        raise InputError("the store has audits and cases; say with --audited which share devices audit, such as 5%")
    return rows


def _roll_out(args: argparse.Namespace) -> int:
    """Sign the bundle, and begin its roll-out, or go on with it; the exit status."""
    from hashlib import sha256

    from hardcase_cloud.records.database import Database
    from hardcase_cloud.records.registry import OPEN, Registry

    from ...services import rollout
    from .steps import sign

    bundle = args.out / "model.hcb"
    digest = sha256(bundle.read_bytes()).hexdigest()
    database = Database(args.store, makes=False)
    try:
        before = next((r for r in Registry(database).rollouts() if (r.bundle, r.members) == (digest, args.group)), None)
    finally:
        database.close()
    if before is not None and before.state not in OPEN:
        report(args, {"rollout": before.id, "state": before.state}, [f"roll-out {before.id} of it: {before.state}"])
        return 0 if before.state == "done" else WORSE
    where = ["--store", args.store, "--broker", args.broker, *(["--json"] if args.json else [])]
    for name in ("ca", "cert", "key"):
        where += [f"--{name}", str(getattr(args, name))] if getattr(args, name) else []
    if before is None:
        if args.metadata is not None:
            sign(bundle, args.metadata, args.private)
            where += ["--metadata", str(args.metadata)]
        where += ["--supersede"] * args.supersede + ["--group", args.group, "--canary", args.canary]
    words = ["start", str(bundle), *where] if before is None else ["serve", str(before.id), *where]
    parser = argparse.ArgumentParser()
    rollout.arguments(parser)
    return rollout.run(parser.parse_args(words))
