# SPDX-License-Identifier: Apache-2.0
"""``hardcase playground``: a page on which one changes readings, breaks sensors, moves budgets, and sees decisions."""

from __future__ import annotations

import argparse
from pathlib import Path

from hardcase_edge.errors import InputError

from ..options import add_force, add_json, add_trust, report

HELP = "Write a page on which one moves readings, sensors and budgets, and sees what a bundle decides."
EXAMPLES = """\
hardcase playground model.hcb --out policy.html
hardcase playground model.hcb --build build   # with real cases, f0's answers and the front: build/playground.html"""
TERMS = "f0: the large model in the cloud; front: the policies that no other beats in both accuracy and cost"
INTERRUPTED = "no page was written"
NAME, REPORT = "playground.html", "report.html"  # of a build; the report gets the page, too
MAX_REPORT_BYTES = 64 * 1024 * 1024


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
    values = {"page": str(out), "bytes": len(page), "sha256": loaded.bundle.sha256, "report": None}
    lines = [f"{out}: {len(page)} bytes; open it in a browser"]
    if args.build is not None and _put(args.build / REPORT, page.decode()):
        values["report"] = str(args.build / REPORT)
        lines.append(f"{args.build / REPORT}: has the page at a click")
    report(args, values, lines)
    return 0


def _put(path: Path, page: str) -> bool:
    """Put the page into the report of the build; False if there is none, or it is not as hardcase wrote it."""
    from hardcase_edge.base.files import read_bounded, write_whole

    from ..reports.page import is_page_head, with_playground

    if not path.is_file():
        return False
    text = read_bounded(path, MAX_REPORT_BYTES, "report", remedy="train again")
    whole = with_playground(text.decode(errors="replace"), page) if is_page_head(text) else None
    if whole is not None:
        write_whole(path, whole.encode())
    return whole is not None
