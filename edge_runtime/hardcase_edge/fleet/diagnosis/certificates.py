# SPDX-License-Identifier: Apache-2.0
"""When the certificate in a PEM file ends, by the standard library: the one date is picked out of its DER."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from ...base.files import read_bounded
from ...errors import HardcaseError
from ...link.address import Address

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
