"""Where a broker is and how to be let in: a URL, certificates, a user. Everything is checked before it is used.

    mqtt://[user:password@]host[:port]     plain TCP, port 1883
    mqtts://[user:password@]host[:port]    TLS, port 8883

A password in a URL is seen by everyone who can list processes: ``HARDCASE_MQTT_USER`` and ``HARDCASE_MQTT_PASSWORD``
in the environment are used where the URL names no user.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.record import field, record
from ..errors import InputError

if TYPE_CHECKING:
    import ssl

__all__ = ["Address", "parse_address", "tls_context"]

PORTS = {"mqtt": 1883, "mqtts": 8883}
SHAPE = "mqtt://host:port or mqtts://host:port"
MAX_URL = 1000  # characters
MAX_SECRET = 500  # characters of a user or a password: MQTT allows more, nobody types more
_ODD = re.compile(r"[\s\x00-\x1f\x7f]")  # urlsplit drops some of these without a word
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:.]{2,45}")


@record(frozen=True, slots=True, kw_only=True)
class Address:
    """One broker, and what to show it. ``is_tls`` without ``ca`` trusts the system's certificate authorities."""

    host: str
    port: int
    is_tls: bool = False
    user: str = ""
    password: str = field(default="", repr=False)
    ca: str | Path | None = None  # PEM: who may have signed the broker's certificate
    cert: str | Path | None = None  # PEM: this client's certificate
    key: str | Path | None = None  # PEM: its private key; None if it lies in ``cert``

    @property
    def url(self) -> str:
        """For messages: no user, no password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'mqtts' if self.is_tls else 'mqtt'}://{host}:{self.port}"


def parse_address(
    url: str,
    *,
    ca: str | Path | None = None,
    cert: str | Path | None = None,
    key: str | Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Address:
    """The address in a URL.

    Raises
    ------
    InputError
        The URL is none of ours, or certificates are named for a broker without TLS.
    """
    from urllib.parse import unquote, urlsplit

    shown = repr(re.sub(r"//[^/]*@", "//...@", url)[:120])
    try:
        parts = urlsplit(url if len(url) <= MAX_URL else "")
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise InputError(f"broker {shown} is no URL ({error}); {SHAPE} is expected") from error
    if parts.scheme not in PORTS or not _HOST.fullmatch(host) or _ODD.search(url):
        raise InputError(f"broker {shown} is no MQTT URL; {SHAPE} is expected")
    if parts.path not in ("", "/") or parts.query or parts.fragment or port == 0:
        raise InputError(f"broker {shown} has more than a host and a port; {SHAPE} is expected")
    is_tls = parts.scheme == "mqtts"
    if not is_tls and (ca or cert or key):
        raise InputError(f"certificates are named, but broker {shown} is not encrypted; use mqtts://")
    if key and not cert:
        raise InputError("a private key is named without its certificate; name both")
    user = unquote(parts.username or "") or environment.get("HARDCASE_MQTT_USER", "")
    password = unquote(parts.password or "") if parts.username else environment.get("HARDCASE_MQTT_PASSWORD", "")
    if max(len(user), len(password)) > MAX_SECRET or ((password or parts.password) and not user):
        raise InputError(f"the user or password for broker {shown} is too long, or a password has no user")
    return Address(
        host=host,
        port=port or PORTS[parts.scheme],
        is_tls=is_tls,
        user=user,
        password=password,
        ca=ca,
        cert=cert,
        key=key,
    )


def tls_context(address: Address) -> ssl.SSLContext | None:
    """The TLS settings of an address (1.2 or newer, names checked); None without TLS.

    Raises
    ------
    InputError
        A certificate or key file cannot be used.
    """
    if not address.is_tls:
        return None
    import ssl

    what, path = "certificate authority", address.ca
    try:
        context = ssl.create_default_context(cafile=address.ca)
        if address.cert is not None:
            what, path = "client certificate or key", address.cert
            context.load_cert_chain(address.cert, address.key, password="")  # never asks on a terminal
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or "not readable PEM"
        raise InputError(f"{what} {path} cannot be used: {reason}; name a PEM file") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
