# SPDX-License-Identifier: Apache-2.0
"""The flags of ``hardcase-edge run`` on decisions for the cloud, and the values that they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    import argparse

__all__ = [
    "ALL", "CHANGES", "FOLDER", "OLDEST_FIRST", "SAMPLE", "add_arguments", "check", "parse_bytes", "parse_share",
    "parse_which",
]  # fmt: skip

ALL, CHANGES = "all", "changes"
OLDEST_FIRST, SAMPLE = "oldest-first", "sample"
FOLDER = "hardcase-outbox"  # without a store
UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
LEAST_BYTES, MOST_BYTES = 64 * 1024, 1024**4
DAYS, RATE = 30.0, 100.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    group = parser.add_argument_group("decisions for the cloud")
    group.add_argument(
        "--publish",
        metavar="WHICH",
        help="send decisions to the broker: all, changes (of the answer or of failed sensors), or a sample such as 1%% "
        "(default: none; with --outbox, all)",
    )
    group.add_argument(
        "--audit", metavar="SHARE", help="send the readings of this share of local decisions to be checked, such as 1%%"
    )
    group.add_argument("--outbox", metavar="BYTES", help="keep what is not stored yet on the disk, such as 64M")
    group.add_argument(
        "--outbox-folder",
        metavar="FOLDER",
        help=f"where (default: outbox in the folder of --store, otherwise {FOLDER})",
    )
    group.add_argument(
        "--outbox-drop",
        choices=(OLDEST_FIRST, SAMPLE),
        default=OLDEST_FIRST,
        help="which records to drop when it is full: the oldest, or all but an even sample (default %(default)s)",
    )
    group.add_argument(
        "--outbox-days",
        type=float,
        default=DAYS,
        metavar="DAYS",
        help="after which a record is dropped unsent (default %(default)s)",
    )
    group.add_argument(
        "--outbox-rate",
        type=float,
        default=RATE,
        metavar="N",
        help="most records sent in a second (default %(default)s)",
    )


def check(args: argparse.Namespace) -> None:
    """Refuse what no publisher can be made of.

    Raises
    ------
    InputError
        A flag is out of range, or stands without another that it needs.
    """
    is_asked = bool(args.publish or args.outbox or args.audit)
    if is_asked and args.broker is None:
        raise InputError("--publish, --audit and --outbox need a broker; name one with --broker")
    if not 0.1 <= args.outbox_rate <= 100_000:
        raise InputError(f"--outbox-rate is {args.outbox_rate}; use 0.1 to 100000 records a second")
    if not 0 < args.outbox_days <= 36_500:
        raise InputError(f"--outbox-days is {args.outbox_days}; use more than 0 and up to 36500")
    if args.outbox_rate != RATE and not is_asked:
        raise InputError("--outbox-rate needs --publish, --audit or --outbox, which make the records that it limits")
    if not args.outbox and (args.outbox_days != DAYS or args.outbox_drop != OLDEST_FIRST):
        raise InputError("--outbox-days and --outbox-drop need --outbox, which keeps records")
    if args.audit:
        parse_share(args.audit, "--audit")
    if args.outbox:
        parse_bytes(args.outbox, "--outbox")
    if args.publish:
        parse_which(args.publish)


def parse_bytes(text: str, flag: str) -> int:
    """A number of bytes with K, M or G behind it, or nothing.

    Raises
    ------
    InputError
        It is not such a number, or is not between 64 KB and 1024 GB.

    Examples
    --------
    >>> parse_bytes("64M", "--outbox")
    67108864
    """
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].upper() in ("K", "M", "G") else (text, "")
    if not (number.isascii() and number.isdigit() and len(number) <= 16):
        raise InputError(f"{flag} is {text[:40]!r}; give a number of bytes such as 500000 or 64M")
    size = int(number) * UNITS[unit]
    if not LEAST_BYTES <= size <= MOST_BYTES:
        raise InputError(f"{flag} is {text[:40]}; use 64K to 1024G")
    return size


def parse_share(text: str, flag: str) -> float:
    """A share of all, 0 to 1, from a percentage.

    Raises
    ------
    InputError
        It is not a percentage above 0 and up to 100.

    Examples
    --------
    >>> parse_share("1%", "--audit")
    0.01
    """
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") and text[:-1].strip() else 0.0
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise InputError(f"{flag} is {text[:40]!r}; give a percentage such as 1%, above 0 and up to 100%")
    return share


def parse_which(text: str) -> float:
    """The share of ``--publish``: 1 for "all" and "changes".

    Raises
    ------
    InputError
        It is neither, nor a percentage.
    """
    return 1.0 if text in (ALL, CHANGES) else parse_share(text, "--publish")
