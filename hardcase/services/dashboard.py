# SPDX-License-Identifier: Apache-2.0
"""``hardcase cloud dashboard``: one page on a fleet, from a store, for whoever has the token."""

from __future__ import annotations

import argparse
import ipaddress
import os
import re
import secrets
from urllib.parse import quote

from hardcase_edge.errors import InputError, one_line

from .events import on_stop_signals, say
from .flags import store_argument

__all__ = ["HELP", "arguments", "run"]

HELP = "Show a fleet on a page of your browser: states, forward rate, cost, agreement, roll-outs."
DEFAULT = "127.0.0.1:8090"
VARIABLE = "HARDCASE_DASHBOARD_TOKEN"
LEAST = 16  # characters of a token
_TOKEN = re.compile(rf"[A-Za-z0-9._~+/=-]{{{LEAST},}}")  # what a header, a cookie and an address can hold


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    store_argument(parser)
    parser.add_argument("--bind", default=DEFAULT, metavar="HOST:PORT", help=f"address to listen at ({DEFAULT})")
    parser.add_argument(
        "--worker", action="append", default=[], metavar="URL",
        help="page of a worker that is shown, too: http://host:port/metrics of cloud worker --metrics; repeatable",
    )  # fmt: skip
    parser.add_argument("--public", action="store_true", help="allow an address that other machines can reach")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.set_defaults(act=run)


def run(args: argparse.Namespace) -> int:
    """Serve until stopped; the exit status."""
    host, port = parse_bind(args.bind, is_public=args.public)
    token = os.environ.get(VARIABLE) or secrets.token_urlsafe(24)
    if not _TOKEN.fullmatch(token):
        raise InputError(
            f"the token in {VARIABLE} has {len(token)} characters; use {LEAST} or more letters, digits and -._~+/=, or "
            "none for a new one"
        )
    try:
        from hardcase_cloud.dashboard.app import make_app
        from hardcase_cloud.dashboard.server import Server
    except ImportError as error:
        raise InputError(f"the dashboard needs {error.name}; pip install 'hardcase-cloud[dashboard]'") from error
    import socket

    from hardcase_cloud.dashboard.figures import Figures
    from hardcase_cloud.dashboard.workers import Workers
    from hardcase_cloud.records.database import Database

    workers = Workers(args.worker) if args.worker else None
    database = Database(args.store, makes=False)
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise InputError(f"{args.bind} cannot be listened at: {one_line(error)}; name another with --bind") from error
    server = Server(make_app(Figures(database, workers), token))
    on_stop_signals(server.stop)
    shown = f"[{host}]" if ":" in host else host
    say(args.json, "ready", {"url": f"http://{shown}:{listener.getsockname()[1]}/?token={quote(token, safe='')}"})
    if workers is not None:
        workers.start()
    server.run(sockets=[listener])
    if workers is not None:
        workers.stop()
    database.close()
    say(args.json, "stopped", {})
    return 0


def parse_bind(text: str, *, is_public: bool) -> tuple[str, int]:
    """Host and port of an address.

    Raises
    ------
    InputError
        It is not an address, or other machines could reach it and nobody has allowed that.
    """
    host, _, port = text.rpartition(":")
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
        number = int(port)
    except ValueError as error:
        raise InputError(f"--bind is {text!r}; give an IP address and a port, such as {DEFAULT}") from error
    if not 0 <= number <= 65_535:
        raise InputError(f"--bind is {text!r}; a port is 0 to 65535")
    if not address.is_loopback and not is_public:
        raise InputError(
            f"{address} can be reached by other machines, and the page has no TLS; put a proxy with TLS before a "
            "loopback address, or add --public"
        )
    return str(address), number
