"""Where the embedded broker listens, and whom it asks for what: refused if it would be open to the world."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from hardcase_edge.errors import InputError

from .access import MAX_PACKET_BYTES

__all__ = ["DEFAULT_BIND", "Listen", "parse_bind", "tls_context"]

DEFAULT_BIND = "127.0.0.1:1883"


@dataclass(frozen=True, kw_only=True)
class Listen:
    """Where and how the broker listens.

    Parameters
    ----------
    host, port : where; port 0 takes a free one
    cert, key : PEM files of the server's certificate and key, both or none
    users : file of names and passwords (``users.add_user``), or None
    max_packet_bytes : longer packets close their connection
    """

    host: str = "127.0.0.1"
    port: int = 1883
    cert: str | Path | None = None
    key: str | Path | None = None
    users: str | Path | None = None
    max_packet_bytes: int = MAX_PACKET_BYTES

    def __post_init__(self) -> None:
        """Refuse what would be open to the world.

        Raises
        ------
        InputError
            A certificate without its key, or a listener beyond loopback without TLS and users.
        """
        if (self.cert is None) != (self.key is None):
            raise InputError("a certificate needs its key: give both --cert and --key, or neither")
        if not self.is_loopback and (self.cert is None or self.users is None):
            raise InputError(
                f"a listener on {self.host} can be reached from outside: give --cert, --key and --users, or bind "
                f"to {DEFAULT_BIND}"
            )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_bind(bind: str) -> tuple[str, int]:
    """Host and port of ``host:port``; an IPv6 host stands in brackets.

    Raises
    ------
    InputError
        It is not of that form.
    """
    host, colon, port = bind.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65_536):
        raise InputError(f"--bind {bind[:80]!r} is not host:port; for example {DEFAULT_BIND}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def tls_context(listen: Listen) -> ssl.SSLContext | None:
    """The listener's TLS settings; None without a certificate.

    Raises
    ------
    InputError
        Certificate or key cannot be used.
    """
    if listen.cert is None or listen.key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(listen.cert, listen.key)
    except OSError as error:  # SSLError is one
        raise InputError(
            f"certificate {listen.cert} and key {listen.key} cannot be used: {error.strerror or error}; give PEM "
            "files that belong together"
        ) from error
    return context
