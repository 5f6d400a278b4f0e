# SPDX-License-Identifier: Apache-2.0
"""``hardcase release``: all that a device runs in one file, which is signed and offered as a bundle is."""

from __future__ import annotations

import argparse
import json
import shlex

from hardcase_edge.base.escape import terminal
from hardcase_edge.base.files import check_replaceable, write_whole
from hardcase_edge.errors import InputError

__all__ = ["EXAMPLES", "HELP", "arguments", "run"]

HELP = "Make one file of a bundle, the runtime, plug-ins, settings and --ca, to be signed and offered over the air."
EXAMPLES = """\
hardcase release --runtime --machine aarch64 --out runtime.hcr
hardcase release model.hcb --file my_sensors.py --run '--sensors my_sensors:read --interval 60' --out pumps.hcr
hardcase release --ca ca.pem --run '--config run.toml' --out settings.hcr"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("bundle", nargs="?", help="the .hcb file (default: devices go on with the one that they run)")
    parser.add_argument("--out", metavar="FILE.hcr", required=True, help="where the release goes")
    parser.add_argument("--runtime", action="store_true", help="with hardcase-edge and paho as they are installed here")
    parser.add_argument(
        "--machine", action="append", default=[], choices=("aarch64", "armv6", "x86_64"),
        help="the only processors that may take it, whose kernels come along; repeatable (default: all)",
    )  # fmt: skip
    parser.add_argument("--wheels", metavar="DIR", help="take kernels from the wheels of make wheels, and compile none")
    parser.add_argument(
        "--file", metavar="FILE", action="append", default=[], help="a file that --run names, as of flash; repeatable"
    )
    parser.add_argument(
        "--run", dest="words", metavar="ARGS", default="",
        help="arguments of hardcase-edge run, as of flash; they replace the devices' settings but for each one's own",
    )  # fmt: skip
    parser.add_argument("--ca", metavar="PEM", help="the authority of the broker's certificate")
    parser.add_argument("--force", action="store_true", help="replace any file at --out")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Write the release."""
    from hardcase_edge.base.sha256 import sha256
    from hardcase_edge.fleet.release.archive import is_archive

    from ...flashing.kernels import PROCESSORS
    from ...flashing.target import kernels_for
    from .making import make_release

    try:
        words = tuple(shlex.split(args.words))
    except ValueError as error:
        raise InputError(f"--run: {str(error).lower()}; quote it as for a shell") from error
    check_replaceable(args.out, "a release", is_archive, force=args.force, remedy="name another file, or use --force")
    kernels, notes = kernels_for(tuple(args.machine or PROCESSORS), args.wheels) if args.runtime else (None, [])
    data = make_release(
        args.bundle, words, kernels, machines=args.machine, extra=args.file, authority=args.ca
    )  # fmt: skip
    write_whole(args.out, data)
    report = {"release": args.out, "sha256": sha256(data).hex(), "bytes": len(data), "notes": notes}
    if args.json:
        print(json.dumps(report))
        return 0
    print(terminal(f"{args.out}: {len(data)} bytes, {report['sha256']}"))
    for note in notes:
        print(terminal(f"note: {note}"))
    return 0
