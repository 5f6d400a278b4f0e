# SPDX-License-Identifier: Apache-2.0
"""``hardcase cloud check-broker``: test a broker for what hardcase needs, and say what will not work there."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from hardcase_edge.base.escape import terminal

from .shared import tls_arguments

HELP = "Test a broker for everything that hardcase needs, and say what will not work there."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("broker", metavar="URL", help="mqtt[s]://host:port, or ws[s]:// for WebSockets")
    tls_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Ask and tell; 1 if nothing will work."""
    from hardcase_edge.link.address import parse_address

    from ..mqtt.check import YES, check_broker

    findings = check_broker(parse_address(args.broker, ca=args.ca, cert=args.cert, key=args.key))
    if args.json:
        print(json.dumps([asdict(finding) for finding in findings]))
    for finding in () if args.json else findings:
        line = f"{finding.does:<7} {finding.what}" + (f": {finding.detail}" if finding.detail else "")
        if finding.does != YES and finding.without:
            line += f"; without it: {finding.without}"
        print(terminal(line))
    return int(any(finding.is_needed and finding.does != YES for finding in findings))
