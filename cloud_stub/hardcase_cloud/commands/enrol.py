# SPDX-License-Identifier: Apache-2.0
"""``hardcase cloud enrol``: answer devices that ask for certificates."""

from __future__ import annotations

import argparse
import os

from .shared import broker_argument, log_lines, on_stop_signals, positive, say, tls_arguments, without_attempts

HELP = "Answer devices that ask for certificates: exchange claims, and renew."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--authority", required=True, metavar="DIR", help="folder of hardcase ca init, which signs")
    broker_argument(parser)
    parser.add_argument(
        "--days", type=positive, default=365, help="for which a device's certificate holds (default %(default)s)"
    )
    parser.add_argument("--count", type=positive, metavar="N", help="exit after this many answers")
    tls_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Answer until told to stop; the exit status."""
    from hardcase_edge.link.address import parse_address

    from ..rollout.enrolment.desk import Desk
    from ..rollout.enrolment.folder import AuthorityFolder
    from ..rollout.enrolment.worker import EnrolmentWorker

    address = parse_address(args.broker, ca=args.ca, cert=args.cert, key=args.key)
    desk = Desk(AuthorityFolder(args.authority), args.days)
    worker = EnrolmentWorker(desk, address, lambda line: say(args.json, "request", {"answer": line}))
    on_stop_signals(worker.stop)
    without_attempts()
    worker.start()
    log_lines()
    say(args.json, "ready", {"broker": address.url, "authority": args.authority, "pid": os.getpid()})
    worker.run(args.count)
    say(args.json, "stopped", worker.counters())
    return 0
