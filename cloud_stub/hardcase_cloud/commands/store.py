# SPDX-License-Identifier: Apache-2.0
"""``hardcase cloud store``: keep the decisions and audits of all devices in a database, or write them to a file."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, BinaryIO

from hardcase_edge.base.escape import terminal
from hardcase_edge.errors import InputError

from .shared import log_lines, on_stop_signals, parse_time, positive, say, tenant_argument, without_attempts

if TYPE_CHECKING:
    from ..keep.records.database import Database

HELP = "Keep the decisions of devices in SQLite or PostgreSQL, and acknowledge what is on the disk."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--store", metavar="URL", help="sqlite:FILE, or postgresql://user@host/database")
    where.add_argument("--out", metavar="FILE", help="the same as --store sqlite:FILE")
    parser.add_argument("--broker", metavar="URL", help="mqtt[s]://host:port, as of cloud worker")
    parser.add_argument(
        "--export", metavar="FILE", help="in place of --broker: write all records as .csv or .parquet, and end"
    )
    parser.add_argument("--keep", metavar="TIME", help="remove records after this time, such as 90d (default: never)")
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve Prometheus' metrics at this loopback address")
    parser.add_argument(
        "--max-bytes",
        default="8G",
        metavar="BYTES",
        help="largest file; beyond it, devices keep their records (default 8G)",
    )
    tenant_argument(parser)
    parser.add_argument("--count", type=positive, metavar="N", help="end after this many new records")
    parser.add_argument("--ca", metavar="PEM", help="CA certificate that verifies --broker")
    parser.add_argument("--cert", metavar="PEM", help="client certificate, if --broker requires one")
    parser.add_argument("--key", metavar="PEM", help="private key of --cert")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def run(args: argparse.Namespace) -> int:
    """Keep records until stopped, or export them; the exit status."""
    from hardcase_edge.settings.values import parse_bytes

    from ..keep.records.database import Database

    if (args.broker is None) == (args.export is None):
        raise InputError("name either a broker with --broker, or a file with --export")
    url = args.store or f"sqlite:{args.out}"
    database = Database(url, parse_bytes(args.max_bytes, "--max-bytes"), makes=args.export is None)
    try:
        if args.export is not None:
            return _export(database, args.export)
        return _keep(database, args)
    finally:
        database.close()


def _keep(database: Database, args: argparse.Namespace) -> int:
    from hardcase_edge.fleet.operations.scrape import Page
    from hardcase_edge.link.address import parse_address

    from ..keep.metrics.families import store_text
    from ..keep.records.keeper import Keeper

    def note(line: str) -> None:
        print(f"hardcase cloud: {terminal(line)}", file=sys.stderr, flush=True)

    address = parse_address(args.broker, ca=args.ca, cert=args.cert, key=args.key)
    keep_s = None if args.keep is None else parse_time(args.keep, "--keep")
    if keep_s == 0:
        raise InputError(f"--keep is {args.keep}, which would keep nothing; name a longer time, or leave it out")
    keeper = Keeper(database, address, note=note, keep_s=keep_s, tenant=args.tenant)
    on_stop_signals(keeper.stop)
    without_attempts()
    page = None if args.metrics is None else Page(args.metrics, lambda: store_text(keeper.figures()))
    keeper.start()
    log_lines()
    say(args.json, "ready", {"broker": address.url, "store": database.dialect.name, "pid": os.getpid()})
    keeper.run(args.count)
    if page is not None:
        page.close()
    say(args.json, "stopped", keeper.all_counters())
    return 0


def _export(database: Database, path: str) -> int:
    from hardcase_edge.base.files import check_replaceable

    from ..keep.records.parquet import write_parquet

    check_replaceable(path, remedy="name another file")
    n = write_parquet(database, path) if path.endswith(".parquet") else _write_csv(database, path)
    print(terminal(f"{path}: {n} records"))
    return 0


def _write_csv(database: Database, path: str) -> int:
    """Write all records as CSV, page by page; returns their number."""
    import io

    from hardcase_edge.base.files import write_by

    n = 0

    def fill(file: BinaryIO) -> None:
        nonlocal n
        text = io.TextIOWrapper(file, "utf-8", newline="")
        n = database.export(text)
        text.detach()  # flushed; the file stays open

    write_by(path, fill)
    return n
