# SPDX-License-Identifier: Apache-2.0
"""``hardcase cloud enrol``: answer devices that ask for certificates."""

from __future__ import annotations

import argparse
import os

from .events import log_lines, on_stop_signals, say, without_attempts
from .flags import broker_argument, positive, tls_arguments

__all__ = ["HELP", "arguments", "run"]

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
    parser.set_defaults(act=run)


def run(args: argparse.Namespace) -> int:
    """Answer until told to stop; the exit status."""
    from hardcase_cloud.rollout.enrolment.desk import Desk
    from hardcase_cloud.rollout.enrolment.folder import AuthorityFolder
    from hardcase_cloud.rollout.enrolment.worker import EnrolmentWorker
    from hardcase_edge.link.address import parse_address

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
