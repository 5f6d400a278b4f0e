# SPDX-License-Identifier: Apache-2.0
"""Flags that the commands of ``hardcase cloud`` have in common."""

from __future__ import annotations

import argparse
import re

from hardcase_edge.errors import InputError

__all__ = ["broker_argument", "number", "parse_time", "positive", "store_argument", "tenant_argument", "tls_arguments"]

UNITS_S = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_TIME = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd])", re.ASCII)


def broker_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--broker``."""
    parser.add_argument(
        "--broker", required=True, metavar="URL", help="mqtt[s]://host:port; user and password may be given by the "
        "environment variables HARDCASE_MQTT_USER and HARDCASE_MQTT_PASSWORD",
    )  # fmt: skip


def store_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--store``."""
    parser.add_argument(
        "--store", required=True, metavar="URL", help="sqlite:FILE, or postgresql://user@host/database; psycopg reads "
        "the password from PGPASSWORD or ~/.pgpass",
    )  # fmt: skip


def tenant_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--tenant``."""
    parser.add_argument(
        "--tenant", default="", type=_tenant, metavar="NAME",
        help="whose devices, named NAME/DEVICE (default: those without a tenant)",
    )  # fmt: skip


def _tenant(text: str) -> str:
    from hardcase_edge.link.wire import check_name

    try:
        return check_name(text, "tenant") if text else text  # argparse checks the default, too
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def tls_arguments(command: argparse.ArgumentParser) -> None:
    """Declare ``--ca``, ``--cert``, ``--key`` and ``--json``."""
    parser = command.add_argument_group("TLS")
    parser.add_argument("--ca", metavar="PEM", help="CA certificate that verifies --broker")
    parser.add_argument("--cert", metavar="PEM", help="client certificate, if --broker requires one")
    parser.add_argument("--key", metavar="PEM", help="private key of --cert")
    command.add_argument("--json", action="store_true", help="one JSON object per line")


def number(text: str) -> float:
    """A number, which may be none that is finite."""
    try:
        return float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is not a number") from error


def positive(text: str) -> int:
    """A whole number from 1 to a million."""
    try:
        value = int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is not a whole number") from error
    if not 1 <= value <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{value} is not between 1 and 1000000")
    return value


def parse_time(text: str, flag: str) -> float:
    """Seconds of a time such as 90s, 30m, 6h or 7d, from 0.

    Raises
    ------
    InputError
        The text is not such a time; ``flag`` has it.

    Examples
    --------
    >>> parse_time("1.5h", "--soak")
    5400.0
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise InputError(f"{flag} is {text[:60]!r}; give a time such as 90s, 30m, 6h or 7d")
    return float(match[1]) * UNITS_S[match[2]]
