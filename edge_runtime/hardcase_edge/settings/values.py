# SPDX-License-Identifier: Apache-2.0
"""The words and numbers that settings of a run take, and what refuses others; each check takes a value and its flag."""

from __future__ import annotations

from ..errors import InputError

ALL, CHANGES = "all", "changes"
OLDEST_FIRST, SAMPLE = "oldest-first", "sample"
WATCH, ACT = "watch", "act"
ALARM, FORWARD = "alarm", "forward"  # what to do about a broken promise
OUTBOX_FOLDER, BUDGET_FILE = "hardcase-outbox", "hardcase-budget.json"  # without a store
UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
LEAST_BYTES, MOST_BYTES = 64 * 1024, 1024**4


def check_rate(rate: float, flag: str) -> None:
    """Refuse a number of records a second that is not 0.1 to 100000."""
    if not 0.1 <= rate <= 100_000:
        raise InputError(f"{flag} is {rate}; use 0.1 to 100000 records a second")


def check_days(days: float, flag: str) -> None:
    """Refuse a number of days that is not above 0 and up to 36500."""
    if not 0 < days <= 36_500:
        raise InputError(f"{flag} is {days}; use more than 0 and up to 36500")


def check_hourly(cost: float, flag: str) -> None:
    """Refuse a cost in an hour that is not above 0 and up to 1e9."""
    if not 0 < cost <= 1e9:
        raise InputError(f"{flag} is {cost}; use more than 0 and up to 1e9")


def check_energy(mwh: float, flag: str) -> None:
    """Refuse an energy, in mWh, that is not above 0 and up to 1e9."""
    if not 0 < mwh <= 1e9:
        raise InputError(f"{flag} is {mwh} mWh; use more than 0 and up to 1e9")


def parse_date(text: str, flag: str) -> float:
    """Seconds since 1970 of a date in ISO 8601; without a zone it is in UTC.

    Raises
    ------
    InputError
        It is not such a date.

    >>> parse_date("2027-01-01", "--until"), parse_date("2027-01-01T01:00+01:00", "--until")
    (1798761600.0, 1798761600.0)
    """
    from datetime import UTC, datetime

    try:
        date = datetime.fromisoformat(text)
        return (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise InputError(f"{flag} is {text[:40]!r}; give a date such as 2027-03-31 or 2027-03-31T06:00") from None


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


def parse_which(text: str, flag: str) -> float:
    """The share of the decisions that are sent: 1 for "all" and "changes".

    Raises
    ------
    InputError
        It is neither, nor a percentage.
    """
    return 1.0 if text in (ALL, CHANGES) else parse_share(text, flag)
