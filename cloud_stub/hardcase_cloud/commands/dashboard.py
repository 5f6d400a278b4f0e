# SPDX-License-Identifier: Apache-2.0
"""``hardcase cloud dashboard``: one page on a fleet, from a store, for whoever has the token."""

from __future__ import annotations

import argparse
import ipaddress
import os
import re
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from hardcase_edge.base.files import write_whole
from hardcase_edge.errors import InputError, one_line

from .shared import on_stop_signals, say, store_argument

if TYPE_CHECKING:
    import socket

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
    parser.add_argument(
        "--bundle", action="append", default=[], metavar="FILE",
        help="a bundle whose names of readings and classes the page to label shows; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--ingress", default="", metavar="ADDRESS",
        help="IP address of a proxy that has logged its users in, such as Home Assistant's: its requests need no token",
    )  # fmt: skip
    parser.add_argument("--public", action="store_true", help="allow an address that other machines can reach")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def run(args: argparse.Namespace) -> int:
    """Serve until stopped; the exit status."""
    host, port = parse_bind(args.bind, is_public=args.public)
    ingress = parse_ingress(args.ingress)
    given = os.environ.get(VARIABLE)
    token = given or secrets.token_urlsafe(24)
    check_token(VARIABLE, token, "none for a new one")
    try:
        from ..keep.dashboard.app import make_app
        from ..keep.dashboard.server import Server
    except ImportError as error:
        raise InputError(f"the dashboard needs {error.name}; pip install 'hardcase-cloud[dashboard]'") from error
    from hardcase_edge.bundle.load import load_bundle

    from ..keep.dashboard.bundles import known_of
    from ..keep.dashboard.figures import Figures
    from ..keep.dashboard.workers import Workers
    from ..keep.records.database import Database

    bundles = [known_of(load_bundle(path)) for path in args.bundle]
    workers = Workers(args.worker) if args.worker else None
    database = Database(args.store, makes=False)
    listener, url = listener_at(host, port)
    server = Server(make_app(Figures(database, workers, bundles), token, ingress=ingress))
    on_stop_signals(server.stop)
    with way_in(url, token, is_given=bool(given), as_json=args.json):
        if workers is not None:
            workers.start()
        server.run(sockets=[listener])
    if workers is not None:
        workers.stop()
    database.close()
    say(args.json, "stopped", {})
    return 0


@contextmanager
def way_in(url: str, token: str, *, is_given: bool, as_json: bool) -> Iterator[None]:
    """Tell where the page is, and how its token gets to whoever started the command, and to nobody else.

    What is printed may end in a journal that others read, so a token is printed to a terminal alone. A token that was
    made here is in a page that only its owner may read, which leads to the dashboard, while the ``with`` block runs.
    """
    if is_given:
        say(as_json, "ready", {"url": url})
        print(f"hardcase cloud: open {url}?token=..., with the token in {VARIABLE}", file=sys.stderr, flush=True)
        yield
        return
    address = f"{url}?token={quote(token, safe='')}"
    page = (
        '<!doctype html><meta charset="utf-8"><title>hardcase</title>'
        f'<meta http-equiv="refresh" content="0; url={address}"><a href="{address}">{address}</a>\n'
    )
    with private_folder() as folder:
        path = folder / f"hardcase-dashboard-{urlsplit(url).port}.html"
        write_whole(path, page.encode(), mode=0o600)
        try:
            if sys.stdout.isatty() and not as_json:
                say(as_json, "ready", {"url": address})
            else:
                say(as_json, "ready", {"url": url, "open": str(path)})
                line = f"hardcase cloud: open {path} in your browser; it has the token, and only you may read it"
                print(line, file=sys.stderr, flush=True)
            yield
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def private_folder() -> Iterator[Path]:
    """The folder of this session that its user alone may read; without one, a new one while the ``with`` block runs."""
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    try:
        found = os.stat(session)
        is_private = found.st_uid == os.geteuid() and not found.st_mode & 0o077 and os.access(session, os.W_OK)
    except OSError:
        is_private = False
    if is_private:
        yield Path(session)
        return
    with tempfile.TemporaryDirectory(prefix="hardcase-") as name:
        yield Path(name)


def check_token(variable: str, token: str, other: str) -> None:
    """Refuse a token that a header cannot hold or that is short; ``other`` says what a user may do without one."""
    if not _TOKEN.fullmatch(token):
        raise InputError(
            f"the token in {variable} has {len(token)} characters; use {LEAST} or more letters, digits and -._~+/=, or "
            f"{other}"
        )


def listener_at(host: str, port: int) -> tuple[socket.socket, str]:
    """A socket that listens, and its URL.

    Raises
    ------
    InputError
        The address cannot be listened at.
    """
    import socket

    shown = f"[{host}]" if ":" in host else host
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise InputError(
            f"{shown}:{port} cannot be listened at: {one_line(error)}; name another with --bind"
        ) from error
    return listener, f"http://{shown}:{listener.getsockname()[1]}/"


def parse_ingress(text: str) -> str:
    """The address of a proxy as a peer has it; empty for none.

    Raises
    ------
    InputError
        It is not an IP address.
    """
    try:
        return str(ipaddress.ip_address(text)) if text else ""
    except ValueError as error:
        raise InputError(f"--ingress is {text!r}; give the proxy's IP address, such as 172.30.32.2") from error


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
            f"{address} can be reached by other machines, and there is no TLS; put a proxy with TLS before a "
            "loopback address, or add --public"
        )
    return str(address), number
