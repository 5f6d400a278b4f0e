# SPDX-License-Identifier: Apache-2.0
"""The address of an MQTT broker: its URL, user and certificates, all checked before the first connection.

    mqtt://[user:password@]host[:port]          plain TCP, port 1883
    mqtts://[user:password@]host[:port]         TLS, port 8883
    ws://[user:password@]host[:port][/path]     WebSockets, port 80, path /mqtt
    wss://[user:password@]host[:port][/path]    WebSockets over TLS, port 443, path /mqtt

Everyone who can list processes can read a password in a URL. If the URL names no user, the environment variables
``HARDCASE_MQTT_USER`` and ``HARDCASE_MQTT_PASSWORD`` supply the credentials.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.record import field, record
from ..errors import InputError

if TYPE_CHECKING:
    import ssl

    from ..base.clock import Clock

PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
TLS = {"mqtts", "wss"}
PATH = "/mqtt"  # of a WebSocket, where brokers listen unless they are told otherwise
SHAPE = "mqtt://host:port or mqtts://host:port, or ws:// or wss:// for WebSockets"
MAX_URL = 1000  # characters
MAX_SECRET = 500  # characters of a user or a password; MQTT allows more, but nobody types more
_BLANK_OR_CONTROL = re.compile(r"[\s\x00-\x1f\x7f]")  # urlsplit silently drops some of these
_PATH = re.compile(r"/[A-Za-z0-9._~/%+-]{1,200}")
_LABEL = r"[A-Za-z0-9_-]{1,63}"  # of a name; longer ones have no encoding
_NAME = re.compile(rf"(?=[A-Za-z0-9].{{0,252}}\Z){_LABEL}(?:\.{_LABEL})*(?<=[A-Za-z0-9])")
_NUMBERS = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")  # of IPv6


@record(frozen=True, slots=True, kw_only=True)
class Address:
    """A broker's address and this client's credentials.

    ``is_tls`` without ``ca`` trusts the system's certificate authorities.
    """

    host: str
    port: int
    is_tls: bool = False
    path: str = ""  # of a WebSocket; empty: plain MQTT
    user: str = ""
    password: str = field(default="", repr=False)
    ca: str | Path | None = None  # PEM file of the authorities that may sign the broker's certificate
    cert: str | Path | None = None  # PEM file of this client's certificate
    key: str | Path | None = None  # PEM file of its private key; None: the key is in ``cert``

    @property
    def url(self) -> str:
        """The URL for messages, without user and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme = ("wss" if self.is_tls else "ws") if self.path else ("mqtts" if self.is_tls else "mqtt")
        return f"{scheme}://{host}:{self.port}{self.path}"


def is_host(text: str) -> bool:
    """Whether this may be the name or the number of a machine.

    >>> [is_host(text) for text in ("broker.example", "::1", "broker..example", "a" * 64)]
    [True, True, False, False]
    """
    return bool(_NAME.fullmatch(text) or (len(text) <= 45 and _NUMBERS.fullmatch(text)))


def parse_address(
    url: str,
    *,
    ca: str | Path | None = None,
    cert: str | Path | None = None,
    key: str | Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Address:
    """The address in a URL.

    Parameters
    ----------
    url : ``mqtt://``, ``mqtts://``, ``ws://`` or ``wss://``, a host, and optionally a user, a password and a port; of a
        WebSocket also a path
    ca, cert, key : paths of PEM files, for ``mqtts://`` and ``wss://`` only; see ``Address``
    environment : where to look up credentials if the URL names no user

    Raises
    ------
    InputError
        The URL is not an MQTT URL, a certificate is named for a broker without TLS, or the credentials are unusable.

    Examples
    --------
    >>> address = parse_address("mqtts://pump-7:secret@broker.example", environment={})
    >>> address.host, address.port, address.is_tls, address.user
    ('broker.example', 8883, True, 'pump-7')
    >>> address.url
    'mqtts://broker.example:8883'
    >>> parse_address("http://broker.example")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    hardcase_edge.errors.InputError: broker 'http://broker.example' is not an MQTT URL; use mqtt://host:port ...
    """
    from urllib.parse import unquote, urlsplit

    shown = repr(re.sub(r"//[^/]*@", "//...@", url)[:120])
    try:
        parts = urlsplit(url if len(url) <= MAX_URL else "")
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise InputError(f"broker {shown} is not a URL ({error}); use {SHAPE}") from error
    if parts.scheme not in PORTS or not is_host(host) or _BLANK_OR_CONTROL.search(url):
        raise InputError(f"broker {shown} is not an MQTT URL; use {SHAPE}")
    is_websocket = parts.scheme in ("ws", "wss")
    has_path = parts.path not in ("", "/")
    if (has_path and not (is_websocket and _PATH.fullmatch(parts.path))) or parts.query or parts.fragment or port == 0:
        raise InputError(f"broker {shown} has more than a host and a valid port; use {SHAPE}")
    is_tls = parts.scheme in TLS
    if not is_tls and (ca or cert or key):
        raise InputError(f"certificates are named, but broker {shown} is not encrypted; use mqtts:// or wss://")
    if key and not cert:
        raise InputError("a private key is named without its certificate; name both")
    user = unquote(parts.username or "") or environment.get("HARDCASE_MQTT_USER", "")
    password = unquote(parts.password or "") if parts.username else environment.get("HARDCASE_MQTT_PASSWORD", "")
    if max(len(user), len(password)) > MAX_SECRET or ((password or parts.password) and not user):
        raise InputError(
            f"the user or password for broker {shown} exceeds {MAX_SECRET} characters, or a password has no user; "
            "correct them"
        )
    return Address(
        host=host,
        port=port or PORTS[parts.scheme],
        is_tls=is_tls,
        path=(parts.path if has_path else PATH) if is_websocket else "",
        user=user,
        password=password,
        ca=ca,
        cert=cert,
        key=key,
    )


def tls_context(address: Address, clock: Clock | None = None) -> ssl.SSLContext | None:
    """The TLS settings of an address (TLS 1.2 or newer, host names checked); None for an address without TLS.

    ``clock``: by which certificates expire (``dates.py``); None: the machine's is right.

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
            context.load_cert_chain(address.cert, address.key, password="")  # never prompts on a terminal
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or "not readable PEM"
        raise InputError(f"{what} {path} cannot be used: {reason}; name a PEM file") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if clock is not None:
        check_dates_by(context, clock)
    return context


# Dates of certificates on a device whose clock may be wrong: OpenSSL checks chain and name, and this the dates.
#
# A certificate is refused from its ``notAfter`` on, by the device's clock or its floor (``base/clock.py``), whichever
# is later, as is each certificate of the chain. ``notBefore`` is not looked at: by a clock that is behind, a
# certificate that was renewed while the device was switched off is not valid yet, and the device would never be
# connected again.


if TYPE_CHECKING:
    import ssl

    from ..base.clock import Clock

NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which Python's ssl does not name


def check_dates_by(context: ssl.SSLContext, clock: Clock) -> None:
    """Have sockets of this context check the dates of the other side's certificates by this clock.

    A socket whose handshake ends with a certificate that has expired raises ``ssl.SSLCertVerificationError``.
    """
    import ssl

    class Dated(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            now = clock.now()
            for certificate in _chain(self):
                if ssl.cert_time_to_seconds(certificate["notAfter"]) <= now:
                    subject = " ".join(str(value) for part in certificate["subject"] for _, value in part)
                    raise ssl.SSLCertVerificationError(
                        f"the certificate of {subject[:100]} expired at {certificate['notAfter']}; renew it, or set "
                        "the device's clock if it is ahead"
                    )

    context.sslsocket_class = Dated
    context.verify_flags |= ssl.VerifyFlags(NO_CHECK_TIME)


def _chain(socket: ssl.SSLSocket) -> list[dict[str, Any]]:
    """The certificates that OpenSSL has used, from the other side's own to the authority's, as ``getpeercert`` has it.

    The chain is in ``SSLSocket`` itself from Python 3.13 on, as undecoded bytes; the object below has it decoded.
    """
    below: Any = getattr(socket, "_sslobj", None)
    chain = getattr(below, "get_verified_chain", None)
    if chain is None:
        return [dict(socket.getpeercert() or {})]
    return [certificate.get_info() for certificate in chain()]
