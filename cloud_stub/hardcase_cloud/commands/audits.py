# SPDX-License-Identifier: Apache-2.0
"""``hardcase cloud audits``: check that devices have kept exactly the audits that their seeds draw."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from hardcase_edge.errors import InputError

from .shared import say, store_argument

HELP = "Check that devices have kept exactly the audits that their published seeds draw, and print the seeds in use."
WRONG = 1  # exit status if an audit is missing for good, or is there without having been drawn
MOST_BYTES = 64_000_000


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    store_argument(parser)
    parser.add_argument(
        "--audit", metavar="SHARE", help="of local decisions, as of hardcase-edge run, of devices whose facts tell none"
    )
    parser.add_argument(
        "--told", type=Path, metavar="FILE",
        help="lines of an earlier --json, with the SHA-256 of seeds in use",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def run(args: argparse.Namespace) -> int:
    """Check all devices; the exit status."""
    from hardcase_edge.settings.values import parse_share

    from ..keep.records.database import Database
    from ..rollout.waves.drawn import checked_audits

    share = None if args.audit is None else parse_share(args.audit, "--audit")
    told = {} if args.told is None else _told(args.told)
    database, is_wrong = Database(args.store, makes=False), False
    for found in checked_audits(database, share, told):
        is_wrong |= found.state == "wrong"
        fields = {"device": found.device, "boot": found.boot, "share": found.share}
        fields |= {"draws": found.draws, "audits": found.audits}
        more = {"why": found.why} if found.why else {}
        fields |= {"state": found.state, "missing": found.missing, **more, "sha256": found.sha256}
        say(args.json, "checked", fields)
    database.close()
    return WRONG if is_wrong else 0


def _told(path: Path) -> dict[tuple[str, int], str]:
    """By device and boot the first SHA-256 in lines of this command.

    Raises
    ------
    InputError
        The file cannot be read, or has other lines.
    """
    from hardcase_edge.base.files import read_bounded

    told: dict[tuple[str, int], str] = {}
    remedy = "give the output of hardcase cloud audits --json"
    for line in read_bounded(path, MOST_BYTES, "file of seeds", remedy=remedy).splitlines():
        try:
            fields = json.loads(line)
            told.setdefault((str(fields["device"]), int(fields["boot"])), str(fields["sha256"]))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            raise InputError(f"{path} has a line that names no device, boot and sha256; {remedy}") from None
    return told
