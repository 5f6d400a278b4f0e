# SPDX-License-Identifier: Apache-2.0
"""The servers that a ``nats://`` URL names, and a connection to one of them.

nats://[user:password@]host[:port][,host[:port]...]      plain TCP, port 4222
natss://...                                              TLS, which begins after the server's first line
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from hardcase_edge.errors import InputError
from hardcase_edge.link.address import Address, parse_address

from ..mqtt.socket_line import Line
from .protocol import MAX_INFO, Info, Operation, Reader

if TYPE_CHECKING:
    import ssl

__all__ = ["NATS_SHAPE", "connected", "is_nats", "parse_servers", "url_of"]

PORT = 4222
NATS_SHAPE = "nats://host:port or natss://host:port for NATS"
MOST = 16  # servers that a URL names
SCHEMES = {"nats://": "mqtt://", "natss://": "mqtts://"}


def is_nats(url: str) -> bool:
    """Whether a URL names servers of NATS."""
    return url.startswith(tuple(SCHEMES))


def parse_servers(
    url: str,
    *,
    ca: str | Path | None = None,
    cert: str | Path | None = None,
    key: str | Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> list[Address]:
    """The servers in a URL, all with its user; parameters and errors as of ``parse_address``.

    >>> [(a.host, a.port) for a in parse_servers("nats://a,b:4333", environment={})]
    [('a', 4222), ('b', 4333)]
    """
    scheme = next(scheme for scheme in SCHEMES if url.startswith(scheme))
    user, _, hosts = url.removeprefix(scheme).rpartition("@")
    names = hosts.split(",")
    if len(names) > MOST:
        raise InputError(f"the URL names {len(names)} servers; name at most {MOST}, and clients find the others")
    head = SCHEMES[scheme] + (f"{user}@" if user else "")
    servers = []
    for name in names:
        if not name:
            raise InputError(f"{scheme}{hosts[:200]} has a server without a name; nats://a,b,c names three of them")
        try:
            whole = name if name.rpartition("]")[2].count(":") == 1 else f"{name}:{PORT}"
            servers.append(parse_address(head + whole, ca=ca, cert=cert, key=key, environment=environment))
        except InputError as error:
            raise InputError(f"a server of {scheme}{hosts[:200]}: {error}; nats://a,b,c names three of them") from error
    return servers


def url_of(first: Address, servers: Iterable[Address]) -> str:
    """The URL for messages, without user and password."""
    hosts = ",".join(sorted(a.url.partition("://")[2] for a in servers))
    return f"{'natss' if first.is_tls else 'nats'}://{hosts}"


def connected(address: Address, timeout_s: float, max_bytes: int, tls: ssl.SSLContext | None) -> Line[Operation]:
    """Connect, and read the server's first line; TLS begins after it.

    Raises
    ------
    OSError
        The server cannot be reached, hangs up, or is not the one that the certificate is for.
    WireError
        It is not a server of NATS.
    """
    sock: Any = socket.create_connection((address.host, address.port), timeout_s)
    reader = Reader(max_bytes + 4096)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if [type(it) for it in reader.feed(_first_line(sock, monotonic() + timeout_s))] != [Info]:
            raise ConnectionError("the server does not begin as NATS does")
        sock.settimeout(timeout_s)
        if tls is not None:
            sock = tls.wrap_socket(sock, server_hostname=address.host)
        return Line(sock, reader)
    except BaseException:
        sock.close()
        raise


def _first_line(sock: socket.socket, until: float) -> bytes:
    """The first line with its end, read byte by byte: what follows may be TLS."""
    line = b""
    while not line.endswith(b"\r\n"):
        sock.settimeout(max(0.001, until - monotonic()))
        byte = sock.recv(1)
        if not byte:
            raise ConnectionError("the server hung up")
        line += byte
        if len(line) > MAX_INFO:
            raise ConnectionError("the server's first line does not end")
    return line
