# SPDX-License-Identifier: Apache-2.0
"""Flags that the commands of ``hardcase cloud`` have in common."""

from __future__ import annotations

import argparse

__all__ = ["broker_argument", "positive", "tls_arguments"]


def broker_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--broker``."""
    parser.add_argument(
        "--broker", required=True, metavar="URL", help="mqtt[s]://host:port; user and password may be given by the "
        "environment variables HARDCASE_MQTT_USER and HARDCASE_MQTT_PASSWORD",
    )  # fmt: skip


def tls_arguments(command: argparse.ArgumentParser) -> None:
    """Declare ``--ca``, ``--cert``, ``--key`` and ``--json``."""
    parser = command.add_argument_group("TLS")
    parser.add_argument("--ca", metavar="PEM", help="CA certificate that verifies --broker")
    parser.add_argument("--cert", metavar="PEM", help="client certificate, if --broker requires one")
    parser.add_argument("--key", metavar="PEM", help="private key of --cert")
    command.add_argument("--json", action="store_true", help="one JSON object per line")


def positive(text: str) -> int:
    """A whole number from 1 to a million."""
    value = int(text)
    if not 1 <= value <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{value} is not between 1 and 1000000")
    return value
