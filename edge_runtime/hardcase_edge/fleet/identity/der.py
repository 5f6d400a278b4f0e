# SPDX-License-Identifier: Apache-2.0
"""What a device must know of a certificate, read from its DER (X.690, RFC 5280) without a library.

Only the broker's and the authority's word make a certificate valid; here a device looks whether it is the one that it
asked for. What is not read is not checked. Lengths are definite and of at most 65,535 bytes.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64

from ...base.record import record
from ...errors import InputError, one_line

INTEGER, OID, UTC_TIME, GENERALIZED_TIME, SEQUENCE, SET = 0x02, 0x06, 0x17, 0x18, 0x30, 0x31
TEXTS = (0x0C, 0x13, 0x16)  # UTF8String, PrintableString, IA5String
VERSION = 0xA0
COMMON_NAME = bytes((0x55, 0x04, 0x03))  # 2.5.4.3
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


@record(frozen=True, slots=True)
class Facts:
    """What is read of a certificate; times are Unix seconds."""

    name: str  # the subject's common name
    begins: int
    ends: int
    key: bytes  # the public key, as DER


def read_certificate(der: bytes) -> Facts:
    """The facts of a certificate.

    Raises
    ------
    InputError
        The bytes are not a certificate with one common name.
    """
    try:
        certificate = _one(der, SEQUENCE)
        fields = _all(_first(certificate, SEQUENCE))
        if fields[0][0] == VERSION:
            del fields[0]
        _serial, _algorithm, _issuer, validity, subject, key = fields[:6]
        begins, ends = _all(_content(validity, SEQUENCE))
        return Facts(_common_name(_content(subject, SEQUENCE)), _time(begins), _time(ends), _whole(key, SEQUENCE))
    except (ValueError, IndexError, OverflowError) as error:
        raise InputError(f"a certificate cannot be read ({one_line(error)}); get another") from error


def read_request(der: bytes) -> tuple[str, bytes]:
    """The common name and the public key (DER) of a certificate request (PKCS#10).

    Raises
    ------
    InputError
        The bytes are not such a request.
    """
    try:
        _version, subject, key = _all(_first(_one(der, SEQUENCE), SEQUENCE))[:3]
        return _common_name(_content(subject, SEQUENCE)), _whole(key, SEQUENCE)
    except (ValueError, IndexError) as error:
        raise InputError(f"a certificate request cannot be read ({one_line(error)}); make another") from error


def from_pem(pem: bytes) -> bytes:
    """The DER of the first certificate in a PEM file.

    Raises
    ------
    InputError
        The file holds no certificate.
    """
    text = pem.decode("ascii", errors="replace")
    begin, end = text.find(_BEGIN), text.find(_END)
    try:
        if not 0 <= begin < end:
            raise ValueError("no certificate")
        return a2b_base64(text[begin + len(_BEGIN) : end])
    except ValueError as error:  # binascii.Error is one
        raise InputError("a certificate is not readable PEM; get another") from error


def to_pem(der: bytes) -> bytes:
    """A certificate as PEM.

    >>> from_pem(to_pem(b"any bytes" * 9)) == b"any bytes" * 9
    True
    """
    text = b2a_base64(der, newline=False).decode()
    lines = [text[k : k + 64] for k in range(0, len(text), 64)]
    return "\n".join((_BEGIN, *lines, _END, "")).encode()


# ---------------------------------------------------------------- DER

Element = tuple[int, bytes, bytes]  # tag, content, and the whole with its head


def _take(data: bytes) -> tuple[Element, bytes]:
    """The first element, and what is behind it."""
    tag, length, head = data[0], data[1], 2
    if tag & 0x1F == 0x1F:
        raise ValueError("a long tag")
    if length >= 0x80:
        n_bytes = length & 0x7F
        head += n_bytes
        length = int.from_bytes(data[2:head], "big")
        if n_bytes not in (1, 2) or length < (0x80, 0x100)[n_bytes - 1]:
            raise ValueError("a length in another form than DER's")
    end = head + length
    if len(data) < end:
        raise ValueError("cut off")
    return (tag, data[head:end], data[:end]), data[end:]


def _all(data: bytes) -> list[Element]:
    elements = []
    while data:
        element, data = _take(data)
        elements.append(element)
    return elements


def _content(element: Element, tag: int) -> bytes:
    if element[0] != tag:
        raise ValueError("another element than expected")
    return element[1]


def _whole(element: Element, tag: int) -> bytes:
    _content(element, tag)
    return element[2]


def _one(data: bytes, tag: int) -> bytes:
    """The content of the only element."""
    element, rest = _take(data)
    if rest:
        raise ValueError("bytes behind the end")
    return _content(element, tag)


def _first(data: bytes, tag: int) -> bytes:
    return _content(_take(data)[0], tag)


def _common_name(subject: bytes) -> str:
    names = []
    for attributes in _all(subject):
        for attribute in _all(_content(attributes, SET)):
            kind, value = _all(_content(attribute, SEQUENCE))
            if _content(kind, OID) == COMMON_NAME and value[0] in TEXTS:
                names.append(value[1].decode("utf-8"))
    if len(names) != 1:
        raise ValueError("not one common name")
    return names[0]


def _time(element: Element) -> int:
    digits = element[1].decode("ascii")
    if element[0] == UTC_TIME and len(digits) == 13:
        digits = ("19" if digits >= "50" else "20") + digits
    elif element[0] != GENERALIZED_TIME:
        raise ValueError("not a time")
    if len(digits) != 15 or not digits[:14].isdecimal() or digits[14] != "Z":
        raise ValueError("not a time")
    year, month = int(digits[:4]), int(digits[4:6])
    day, hour, minute, second = (int(digits[k : k + 2]) for k in range(6, 14, 2))
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
        raise ValueError("not a time")
    return ((_days(year, month) + day) * 24 + hour) * 3_600 + minute * 60 + second


def _days(year: int, month: int) -> int:
    """Days from 1970 to the last day before a month, counted in years that begin in March (``calendar`` takes 5 ms)."""
    since = year - (month < 3)
    days = 365 * since + since // 4 - since // 100 + since // 400 + (153 * ((month - 3) % 12) + 2) // 5
    return days - 719_469
