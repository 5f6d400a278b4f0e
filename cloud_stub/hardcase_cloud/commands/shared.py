# SPDX-License-Identifier: Apache-2.0
"""What the commands of ``hardcase cloud`` share: flags and what they name, events and log messages as lines, signals.

Commands import what is large inside ``run``, so that help and the other commands do without it.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardcase_edge.base.escape import terminal
from hardcase_edge.errors import InputError

if TYPE_CHECKING:
    from hardcase_edge.link.address import Address

    from ..answer.asking import Answerer

UNITS_S = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_TIME = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd])", re.ASCII)
NATS = ("nats://", "natss://")  # its own protocol, of workers
NATS_PORT = 4222
MAX_TOML_BYTES = 1_000_000


def broker_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--broker``."""
    parser.add_argument(
        "--broker", required=True, metavar="URL", help="mqtt[s]://host:port, for a worker also nats[s]://; user and "
        "password may be given by the environment variables HARDCASE_MQTT_USER and HARDCASE_MQTT_PASSWORD",
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


# ---------------------------------------------------------------- what flags name


def broker_of(args: argparse.Namespace) -> tuple[Address, str]:
    """The broker, or NATS server, of a worker that ``--broker`` and the flags of TLS name, and its URL for messages.

    Raises
    ------
    InputError
        ``--broker`` is no such URL.
    """
    from dataclasses import replace
    from urllib.parse import urlsplit

    from hardcase_edge.link.address import parse_address

    url = args.broker
    if not is_nats(url):
        address = parse_address(url, ca=args.ca, cert=args.cert, key=args.key)
        return address, address.url
    try:
        address = parse_address(f"mqtt{url[len('nats') :]}", ca=args.ca, cert=args.cert, key=args.key)
    except InputError as error:
        raise InputError(str(error).replace("mqtt", "nats")) from error
    if urlsplit(url).port is None:
        address = replace(address, port=NATS_PORT)
    return address, address.url.replace("mqtt", "nats", 1)


def is_nats(url: str) -> bool:
    """Whether a URL names a server of NATS's own protocol."""
    return url.lower().startswith(NATS)


def hpc_named(text: str) -> str:
    """What ``--hpc`` names; of a hardcase.toml its ``[hpc] url``. For argparse.

    Raises
    ------
    ArgumentTypeError
        The file cannot be read, or has none.
    """
    if not text.endswith(".toml") or "://" in text:
        return text
    from hardcase_edge.base.files import read_bounded
    from hardcase_edge.base.toml import parse_toml

    try:
        tree = parse_toml(text, read_bounded(Path(text), MAX_TOML_BYTES, "configuration", remedy="name f0 itself"))
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    table = tree.get("hpc")
    url = table.get("url") if isinstance(table, dict) else None
    if not isinstance(url, str) or "://" not in url:
        raise argparse.ArgumentTypeError(f"{text} has no [hpc] url of a large model; add it, or name f0 itself")
    return url


def open_model(hpc: str, bundle: str, *, limit_s: float | None = None, threads: int = 1) -> Answerer:
    """The f0 of this name.

    Parameters
    ----------
    hpc : a path, ``module:function``, or the URL of a back end, such as ``kserve+http://host/v2/models/NAME``
    bundle : path of a bundle that forwards to it; a file needs none
    limit_s : seconds that one call of a function or a server may take; None: its default
    threads : of a file's model

    Raises
    ------
    InputError
        It cannot be used.
    """
    from hardcase_edge.sensors.plugin import is_function_name

    from ..backends.backend import backend_of

    backend = backend_of(hpc)
    if backend is None and not is_function_name(hpc):
        from ..answer.onnx_model import Hpc

        return Hpc(hpc, threads=threads)
    if backend is not None:
        return backend.open(hpc, bundle, backend.limit_s if limit_s is None else limit_s)
    from ..answer.function import LIMIT_S, function_for

    return function_for(hpc, bundle, limit_s=LIMIT_S if limit_s is None else limit_s)


# ---------------------------------------------------------------- what a command says


class _Lines(logging.Formatter):
    """Each message on one line, whatever is in it."""

    def format(self, record: logging.LogRecord) -> str:
        return terminal(super().format(record))


def log_lines(command: str = "hardcase cloud") -> None:
    """Have log messages on standard error, one line each, behind the name of the command."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines(f"{command}: %(message)s"))
    logging.basicConfig(handlers=[handler])


def without_attempts() -> None:
    """Keep quiet of attempts to connect until ``log_lines``: the error at the start says what is wrong."""
    logging.getLogger("hardcase_cloud.mqtt.attempts").addHandler(logging.NullHandler())


def on_stop_signals(stop: Callable[[], None]) -> None:
    """Call this at SIGTERM and Ctrl-C."""
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: stop())


def warn(text: str) -> None:
    """Print a line of warning to standard error."""
    print(terminal(f"hardcase cloud: {text}"), file=sys.stderr, flush=True)


saying = threading.Lock()  # events come from several threads


def say(as_json: bool, event: str, fields: dict[str, Any]) -> None:
    """Print one line to stdout; if its reader is gone or its disk is full, continue without output."""
    if as_json:
        line = json.dumps({"event": event, **fields})
    else:
        line = terminal(f"{event}: " + ", ".join(f"{key} {value}" for key, value in fields.items()))
    with saying:
        try:
            print(line, flush=True)
        except OSError:  # on a supervisor's thread too, which must go on
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, sys.stdout.fileno())
            os.close(null)
