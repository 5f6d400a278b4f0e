# SPDX-License-Identifier: Apache-2.0
"""The flags of ``hardcase-edge run`` on running budgets, and the values that they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    import argparse

__all__ = ["BUDGET_FILE", "add_arguments", "date_of", "is_asked"]

MOST_MWH = 1e9
BUDGET_FILE = "hardcase-budget.json"  # without a store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    group = parser.add_argument_group("running budgets")
    group.add_argument(
        "--budget-per-hour", type=float, metavar="COST",
        help="what decisions may cost in an hour, in the bundle's unit; the bundle's thresholds move to keep to it",
    )  # fmt: skip
    group.add_argument(
        "--battery", type=float, metavar="MWH",
        help="energy for decisions until --until; --interval stretches where it falls behind",
    )  # fmt: skip
    group.add_argument("--until", metavar="DATE", help="date, or date and time in UTC, such as 2027-03-31T06:00")
    group.add_argument(
        "--max-forward-rate", metavar="SHARE", help="the highest share of decisions that ask the cloud, such as 5%%"
    )
    group.add_argument(
        "--budget-file",
        metavar="FILE",
        help="what is left, kept over restarts (default: budget.json in the folder of --store, otherwise "
        f"{BUDGET_FILE})",
    )


def is_asked(args: argparse.Namespace) -> bool:
    """Whether any running budget is given.

    Raises
    ------
    InputError
        A flag is out of range, or one stands without the other that it needs.
    """
    if args.budget_per_hour is not None and not 0 < args.budget_per_hour <= 1e9:
        raise InputError(f"--budget-per-hour is {args.budget_per_hour}; use more than 0 and up to 1e9")
    if args.battery is not None and not 0 < args.battery <= MOST_MWH:
        raise InputError(f"--battery is {args.battery} mWh; use more than 0 and up to 1e9")
    if (args.battery is None) != (args.until is None):
        raise InputError("--battery and --until need each other: an energy, and the date until which it is to last")
    return not (args.budget_per_hour is None and args.battery is None and args.max_forward_rate is None)


def date_of(text: str) -> float:
    """Seconds since 1970 of a date in ISO 8601; without a zone it is in UTC.

    Raises
    ------
    InputError
        It is not such a date.

    >>> date_of("2027-01-01"), date_of("2027-01-01T01:00+01:00")
    (1798761600.0, 1798761600.0)
    """
    from datetime import UTC, datetime

    try:
        date = datetime.fromisoformat(text)
        return (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise InputError(f"--until is {text[:40]!r}; give a date such as 2027-03-31 or 2027-03-31T06:00") from None
