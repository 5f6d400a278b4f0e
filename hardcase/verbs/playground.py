# SPDX-License-Identifier: Apache-2.0
"""``hardcase playground``: a page on which one changes readings, breaks sensors, moves budgets, and sees decisions."""

from __future__ import annotations

import argparse
from pathlib import Path

from hardcase_edge.errors import InputError

from ..options import add_force, add_json, add_trust, report

__all__ = ["EXAMPLES", "HELP", "INTERRUPTED", "TERMS", "arguments", "run"]

HELP = "Write a page on which one moves readings, sensors and budgets, and sees what a bundle decides."
EXAMPLES = """\
hardcase playground model.hcb --out policy.html
hardcase playground model.hcb --build build   # with real cases, f0's answers and the front: build/playground.html"""
TERMS = "f0: the large model in the cloud; front: the policies that no other beats in both accuracy and cost"
INTERRUPTED = "no page was written"
NAME = "playground.html"  # beside a build's report, which links to it


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a .hcb file")
    parser.add_argument(
        "--build",
        type=Path,
        metavar="BUILD",
        help="the folder that hardcase train wrote: cases, f0's answers, the front",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help=f"the page (default: {NAME} in the folder of --build)")
    add_force(parser)
    add_trust(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Verify the bundle as a device would, and write its page."""
    from hardcase_edge.base.files import check_replaceable, write_whole
    from hardcase_edge.bundle.load import load_bundle

    from ..playground.page import playground_page
    from ..reports.page import is_page_head

    if args.out is None and args.build is None:
        raise InputError("name the page with --out, or a build with --build")
    out = args.out or args.build / NAME
    check_replaceable(out, "a page that hardcase wrote", is_page_head, force=args.force)
    loaded = load_bundle(args.bundle, trust=args.trust, allow_joint=True)
    if loaded.joint is not None:
        raise InputError("items of several parts have no page to play on; name a bundle of rows")
    page = playground_page(loaded, args.build).encode()
    write_whole(out, page)
    values = {"page": str(out), "bytes": len(page), "sha256": loaded.bundle.sha256}
    report(args, values, [f"{out}: {len(page)} bytes; open it in a browser"])
    return 0
