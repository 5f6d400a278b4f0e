# SPDX-License-Identifier: Apache-2.0
"""What is wrong between a device and its broker: name, port, TLS, certificates, user and password, told apart.

Each step needs the one before it, and the first that fails is the fault.
"""

from __future__ import annotations

import base64
import binascii
import re
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from ...base.files import check_private, read_bounded
from ...errors import HardcaseError
from ...link.address import Address, tls_context
from .fault import Fault

if TYPE_CHECKING:
    import ssl

STEP_S = 5.0
SOON_S = 14 * 86_400
EXPIRED, TOO_EARLY, OTHER_NAME = 10, 9, (62, 64)  # X509_V_ERR_*
UNKNOWN = (7, 18, 19, 20, 21)  # self-signed, or no authority that the device trusts, or another of the same name
REFUSED = {134: "user or password are wrong", 135: "the user may not connect", 133: "the id is not allowed"}


def broker(address: Address) -> Iterator[Fault]:
    """The first thing that keeps a device from its broker, and certificates that end soon."""
    try:
        context = tls_context(address)
        if address.key is not None:
            check_private(address.key, "private key")
    except HardcaseError as error:
        yield Fault.of(error, address.key or address.cert or address.ca or address.url)
        return
    own = list(_files(address))
    yield from own
    fault = _network(address, context)
    if fault is None:
        fault = _login(address)
    if fault is not None:
        yield fault


def _files(address: Address) -> Iterator[Fault]:
    """Certificates of this device's own files that have ended, or will."""
    for path in files_of(address):
        end = end_of(path)
        if end is not None and end < time() + SOON_S:
            word = "has ended" if end < time() else "ends within 14 days"
            yield Fault(f"the certificate {word}", str(path), "put down a new one")


def _network(address: Address, context: ssl.SSLContext | None) -> Fault | None:
    try:
        addresses = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        what = f"the name {address.host} is not known: {getattr(error, 'strerror', None) or error}"
        return Fault(what, address.url, "correct the URL, or the name server: cat /etc/resolv.conf")
    try:
        sock = socket.create_connection((address.host, address.port), timeout=STEP_S)
    except OSError as error:
        why = "nobody answers" if isinstance(error, TimeoutError) else error.strerror or str(error)
        what = f"{addresses[0][4][0]} port {address.port} cannot be reached: {why}"
        return Fault(what, address.url, "start the broker, correct the port, or open the firewall")
    with sock:
        return None if context is None else _handshake(address, sock, context)


def _handshake(address: Address, sock: socket.socket, context: ssl.SSLContext) -> Fault | None:
    import ssl

    try:
        with context.wrap_socket(sock, server_hostname=address.host) as tls:
            tls.settimeout(0.2)
            _hear(tls)  # a TLS 1.3 server refuses a client's certificate after the handshake
    except ssl.SSLCertVerificationError as error:
        return _certificate(address, error.verify_code, error.verify_message)
    except (OSError, ValueError) as error:
        reason = str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
        if "CERTIFICATE" in reason.upper():
            what = f"the broker refuses this device's certificate: {reason.lower().replace('_', ' ')}"
            return Fault(what, str(address.cert or "no --cert"), "name one that the broker's authority has signed")
        what = f"no TLS connection: {reason.lower().replace('_', ' ')}"
        return Fault(what, address.url, "use the broker's TLS port, or mqtt:// if it has none")
    return None


def _hear(tls: ssl.SSLSocket) -> None:
    try:
        tls.recv(1)
    except TimeoutError:
        return


def _certificate(address: Address, code: int, message: str) -> Fault:
    if code == EXPIRED:
        return Fault("the broker's certificate has ended", address.url, "renew it on the broker; check the clock first")
    if code == TOO_EARLY:
        return Fault("the broker's certificate is not valid yet", address.url, "set this machine's clock")
    if code in OTHER_NAME:
        what = f"the broker's certificate is not for {address.host}"
        return Fault(what, address.url, "use the name in the certificate")
    if code in UNKNOWN:
        what = "this device does not trust who signed the broker's certificate"
        return Fault(what, str(address.ca or "the system's authorities"), "name the authority's file with --ca")
    return Fault(f"the broker's certificate is refused: {message}", address.url, "renew it on the broker")


def _login(address: Address) -> Fault | None:
    """What the broker says to a CONNECT."""
    try:
        from .probe import connect_reason
    except ImportError:
        return Fault("paho-mqtt is not installed", address.url, "pip install paho-mqtt")
    try:
        reason = connect_reason(address, STEP_S)
    except (OSError, ValueError) as error:
        what = f"no MQTT connection: {' '.join(str(error).split())[:200]}"
        return Fault(what, address.url, "use the port, and for WebSockets the path, on which the broker speaks MQTT")
    if reason is None:
        return Fault("the server answers, but not MQTT", address.url, "use the broker's port for MQTT")
    if reason:
        user = f"user {address.user!r}" if address.user else "no user"
        what = f"the broker refuses the connection of {user}: {REFUSED.get(reason, f'reason {reason}')}"
        return Fault(what, address.url, "set HARDCASE_MQTT_USER and HARDCASE_MQTT_PASSWORD, or the broker's rules")
    return None


# When the certificate in a PEM file ends, by the standard library: the one date is picked out of its DER.


MAX_BYTES = 1 << 20
SEQUENCE, UTC_TIME, CONTEXT_0 = 0x30, 0x17, 0xA0
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----\s([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----")


def files_of(address: Address) -> Iterator[Path]:
    """The certificate files that an address names."""
    for path in (address.cert, address.ca):
        if path is not None:
            yield Path(path)


def end_of(path: Path) -> float | None:
    """Unix seconds at which the first certificate of a file ends; None if it cannot be read."""
    try:
        match = _PEM.search(read_bounded(path, MAX_BYTES, "certificate", remedy="name a PEM file"))
        return None if match is None else _end(base64.b64decode(match[1]))
    except (HardcaseError, binascii.Error, IndexError, ValueError):
        return None


def _end(der: bytes) -> float:
    """``notAfter`` of an X.509 certificate (RFC 5280, section 4.1).

    Raises
    ------
    ValueError, IndexError
        These bytes are not one.
    """
    _, body, _ = _element(der, 0)  # the certificate
    _, body, _ = _element(body, 0)  # what is signed of it
    at = 0
    tag, _, after = _element(body, at)
    if tag == CONTEXT_0:  # the version
        at = after
    for _ in range(3):  # serial number, algorithm, issuer
        _, _, at = _element(body, at)
    tag, validity, _ = _element(body, at)
    if tag != SEQUENCE:
        raise ValueError("no validity")
    _, _, at = _element(validity, 0)
    tag, text, _ = _element(validity, at)
    year = "%y" if tag == UTC_TIME else "%Y"
    return datetime.strptime(text.decode("ascii"), f"{year}%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _element(data: bytes, at: int) -> tuple[int, bytes, int]:
    """Tag, contents and end of a DER element."""
    tag, size, at = data[at], data[at + 1], at + 2
    if size >= 0x80:
        count = size & 0x7F
        if not 1 <= count <= 4:
            raise ValueError("a length that is not DER")
        size, at = int.from_bytes(data[at : at + count], "big"), at + count
    if at + size > len(data):
        raise ValueError("it is cut")
    return tag, data[at : at + size], at + size
