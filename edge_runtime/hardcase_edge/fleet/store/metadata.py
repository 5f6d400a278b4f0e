# SPDX-License-Identifier: Apache-2.0
"""One file of TUF 1.0 metadata: read within bounds, and checked against the keys and the threshold of its role.

A file is a JSON object of ``signatures`` and ``signed``; a signature covers the canonical JSON of ``signed``. Reading
is strict: a key that occurs twice, a number that is not an integer and text that is not UTF-8 are refused. Keys are
Ed25519 only. docs/SPEC-store-v1.md, section 5, says which rules of TUF a device applies.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ...base.record import record
from ...bundle.ed25519 import KEY_BYTES, SIGNATURE_BYTES, is_signed
from ...errors import TrustError, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

ROLES = ("root", "timestamp", "snapshot", "targets")
MAX_METADATA_BYTES = 65_536  # of a file; a root of ten keys takes 3 KB, a target 0.2 KB
MAX_KEYS = 16  # of a role: more would take more than 16 checks of 2 ms each on a computer, ten times that on a Pi
MAX_NUMBER = 2**53  # versions and lengths; what every reader of JSON has exactly
_SPEC = re.compile(r"1\.[0-9]{1,6}(\.[0-9]{1,6})?", re.ASCII)
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)Z", re.ASCII)
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@record(frozen=True, slots=True)
class Metadata:
    """A file whose form has been checked, and whose signatures have not."""

    role: str
    version: int
    expires: int  # seconds since 1970, UTC
    signed: dict[str, Any]
    signatures: dict[str, bytes]  # by key id
    message: bytes  # what signatures cover
    data: bytes  # the file


def parse(data: bytes, role: str) -> Metadata:
    """The metadata in a file, for one of ``ROLES``.

    Raises
    ------
    TrustError
        The file is too long, is not such metadata, or has a value out of bounds.
    """
    if len(data) > MAX_METADATA_BYTES:
        raise TrustError(f"the {role} metadata has {len(data)} bytes, more than {MAX_METADATA_BYTES}; make it smaller")
    try:
        envelope = json.loads(data.decode(), object_pairs_hook=_once, parse_float=_no_float, parse_constant=_no_float)
        signed, entries = envelope["signed"], envelope["signatures"]
        signatures = {str(e["keyid"]): _bytes_of(e["sig"]) for e in entries}
        has_form = isinstance(entries, list) and len(signatures) == len(entries)
        if not has_form or signed["_type"] != role or not _SPEC.fullmatch(signed["spec_version"]):
            raise ValueError(f"it is not {role} metadata of TUF 1, or has two signatures of one key")
        version, expires = _positive(signed["version"]), seconds_of(signed["expires"])
        _FORMS[role](signed)
        message = canonical(signed)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise TrustError(f"the {role} metadata cannot be used ({_reason(error)}); sign and copy it again") from error
    return Metadata(role, version, expires, signed, signatures, message, data)


def _bytes_of(text: str) -> bytes:
    """The bytes of a signature; none where they are not written in hex, as such a signature does not count."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def check_signatures(metadata: Metadata, root: Mapping[str, Any]) -> None:
    """Return if as many keys of the metadata's role as the role's threshold have signed it; raise an error if not.

    Parameters
    ----------
    root : the ``signed`` part of a root whose form has been checked

    Raises
    ------
    TrustError
        Too few keys have signed.
    """
    role = root["roles"][metadata.role]
    signers: set[bytes] = set()
    for name in role["keyids"]:
        signature, key = metadata.signatures.get(name, b""), root["keys"].get(name)
        if key is None or len(signature) != SIGNATURE_BYTES:
            continue
        public = bytes.fromhex(key["keyval"]["public"])
        if public not in signers and is_signed(metadata.message, signature, public):
            signers.add(public)
    if len(signers) < role["threshold"]:
        raise TrustError(
            f"{len(signers)} trusted keys have signed the {metadata.role} metadata, {role['threshold']} must; "
            "sign it with more keys of the role, or take that of this device's fleet"
        )


def canonical(value: object) -> bytes:
    """The bytes that are signed: sorted keys, no spaces, and of escapes only those of quote and backslash.

    >>> canonical({"b": [1, True, None], "a": 'say "x"'})
    b'{"a":"say \\\\"x\\\\"","b":[1,true,null]}'
    """
    return _canonical(value).encode()


def _canonical(value: object) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if value is None or isinstance(value, int):  # bool, too
        return json.dumps(value)
    if isinstance(value, list):
        return f"[{','.join([_canonical(v) for v in value])}]"
    assert isinstance(value, dict)  # what JSON has besides
    return "{" + ",".join([f"{_canonical(k)}:{_canonical(value[k])}" for k in sorted(value)]) + "}"


def seconds_of(text: object) -> int:
    """Seconds since 1970 of a time such as 2030-01-31T00:00:00Z.

    >>> seconds_of("1970-01-02T00:00:01Z")
    86401

    Raises
    ------
    ValueError
        There is no such time, or it is written in another way.
    """
    match = _TIME.fullmatch(text) if isinstance(text, str) else None
    year, month, day, hour, minute, second = map(int, match.groups()) if match else (0, 0, 0, 0, 0, 0)
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    is_time = 1 <= month <= 12 and 1 <= day <= _DAYS[month - 1] + (is_leap and month == 2)
    if not is_time or year < 1970 or hour > 23 or minute > 59 or second > 59:
        raise ValueError("a time is not written as 2030-01-31T00:00:00Z")
    years = year - 1
    days = 365 * years + years // 4 - years // 100 + years // 400 - 719_162  # from 1970-01-01 to the year's first
    days += sum(_DAYS[: month - 1]) + (is_leap and month > 2) + day - 1
    return 86_400 * days + 3_600 * hour + 60 * minute + second


# ---------------------------------------------------------------- the forms of the four roles


def _root(signed: Mapping[str, Any]) -> None:
    if sorted(signed["roles"]) != sorted(ROLES) or not isinstance(signed.get("consistent_snapshot", False), bool):
        raise ValueError("a root has exactly the roles root, snapshot, targets and timestamp")
    for name, key in signed["keys"].items():
        if not isinstance(name, str) or (key["keytype"], key["scheme"]) != ("ed25519", "ed25519"):
            raise ValueError("a key is not an Ed25519 key")
        if len(bytes.fromhex(key["keyval"]["public"])) != KEY_BYTES:
            raise ValueError("a key has the wrong length")
    for role in signed["roles"].values():
        names = role["keyids"]
        if not isinstance(names, list) or len(set(names)) != len(names) or len(names) > MAX_KEYS:
            raise ValueError(f"a role names a key twice, or more than {MAX_KEYS} keys")
        if _positive(role["threshold"]) > len(names):
            raise ValueError("a threshold is larger than the number of keys")


def _timestamp(signed: Mapping[str, Any]) -> None:
    if set(signed["meta"]) != {"snapshot.json"}:
        raise ValueError("a timestamp names snapshot.json alone")
    _file(signed["meta"]["snapshot.json"])
    if "issued" in signed:
        seconds_of(signed["issued"])


def _snapshot(signed: Mapping[str, Any]) -> None:
    for name in {"targets.json", *signed["meta"]}:
        _file(signed["meta"][name])


def _targets(signed: Mapping[str, Any]) -> None:
    for target in signed["targets"].values():
        _natural(target["length"])
        _hashes(target["hashes"])


_FORMS = {"root": _root, "timestamp": _timestamp, "snapshot": _snapshot, "targets": _targets}


def _file(entry: Mapping[str, Any]) -> None:
    _positive(entry["version"])
    if "length" in entry:
        _natural(entry["length"])
    if "hashes" in entry:
        _hashes(entry["hashes"])


def _hashes(hashes: Mapping[str, Any]) -> None:
    if set(hashes) != {"sha256"} or not isinstance(hashes["sha256"], str):
        raise ValueError("hashes are not a SHA-256 alone")


def _natural(number: object) -> int:
    if type(number) is not int or not 0 <= number < MAX_NUMBER:
        raise ValueError("a number is not a whole one below 2^53")
    return number


def _positive(number: object) -> int:
    if not _natural(number):
        raise ValueError("a version or a threshold is 0")
    return _natural(number)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a key occurs twice")
    return entries


def _no_float(text: str) -> None:
    raise ValueError("a number is not a whole one")


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it has no {one_line(error)}"
    return "a value has the wrong type" if isinstance(error, TypeError | AttributeError) else one_line(error)
