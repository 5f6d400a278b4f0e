# SPDX-License-Identifier: Apache-2.0
"""``hardcase cloud store``: keep the decisions and audits of all devices in one SQLite file, or write them as CSV."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hardcase_edge.base.escape import terminal
from hardcase_edge.errors import InputError

from .events import log_lines, on_stop_signals, say

if TYPE_CHECKING:
    from hardcase_cloud.records.database import Database

__all__ = ["HELP", "arguments", "run"]

HELP = "Keep the decisions of devices in an SQLite file, and acknowledge what is on the disk."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--out", required=True, metavar="FILE", help="the SQLite file; made if it does not exist")
    parser.add_argument("--broker", metavar="URL", help="mqtt[s]://host:port, as of cloud worker")
    parser.add_argument("--export", metavar="CSV", help="in place of --broker: write what is in the file, and end")
    parser.add_argument(
        "--max-bytes", default="8G", metavar="BYTES", help="of the file; then devices keep their records (default 8G)"
    )
    parser.add_argument("--count", type=int, metavar="N", help="end after this many new records")
    parser.add_argument("--ca", metavar="PEM", help="CA certificate that verifies --broker")
    parser.add_argument("--cert", metavar="PEM", help="client certificate, if --broker requires one")
    parser.add_argument("--key", metavar="PEM", help="private key of --cert")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.set_defaults(act=run)


def run(args: argparse.Namespace) -> int:
    """Keep records until stopped, or export them; the exit status."""
    from hardcase_cloud.records.database import Database
    from hardcase_edge.outbox.flags import parse_bytes

    if (args.broker is None) == (args.export is None):
        raise InputError("name either a broker with --broker, or a CSV file with --export")
    if args.export is not None and not Path(args.out).exists():
        raise InputError(f"there is no store {args.out} to export; name the file of an earlier --out")
    database = Database(args.out, parse_bytes(args.max_bytes, "--max-bytes"))
    try:
        if args.export is not None:
            return _export(database, args.export)
        return _keep(database, args)
    finally:
        database.close()


def _keep(database: Database, args: argparse.Namespace) -> int:
    from hardcase_cloud.records.keeper import Keeper
    from hardcase_edge.link.address import parse_address

    def note(line: str) -> None:
        print(f"hardcase cloud: {terminal(line)}", file=sys.stderr, flush=True)

    address = parse_address(args.broker, ca=args.ca, cert=args.cert, key=args.key)
    keeper = Keeper(database, address, note=note)
    on_stop_signals(keeper.stop)
    logging.getLogger("hardcase_edge.link.connection").addHandler(logging.NullHandler())  # errors at start are raised
    keeper.start()
    log_lines()
    say(args.json, "ready", {"broker": address.url, "store": args.out, "pid": os.getpid()})
    keeper.run(args.count)
    say(args.json, "stopped", keeper.all_counters())
    return 0


def _export(database: Database, path: str) -> int:
    import io

    from hardcase_edge.base.files import check_replaceable, write_whole

    text = io.StringIO(newline="")
    check_replaceable(path)
    n = database.export(text)
    write_whole(path, text.getvalue().encode())
    print(f"{path}: {n} records")
    return 0
