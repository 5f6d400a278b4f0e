"""Requests and replies: fixed little-endian layouts, lengths checked first. docs/SPEC-wire-v1.md defines every byte.

    request: version u8 | kind u8 = 1 | n_values u16 | deadline_ms u32 | id 16 bytes | HPC sha256 32 bytes | values
    reply:   version u8 | kind u8 = 2 | status u8 | reserved u8 | confidence u16 | reserved u16 | result i64
             | id 16 bytes | HPC sha256 32 bytes

Values are raw readings, each in its declared type; missing is NaN, for i32 the smallest integer. Topics carry the
device's name: a worker answers to the device named by the request's *topic*, never by its payload.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from math import isfinite

from ..base.record import record
from ..errors import InputError, WireError
from ..program.readings import _REQUEST, DTYPES, MAX_REQUEST_BYTES, Reading, request_bytes

__all__ = [
    "ID_BYTES",
    "OK",
    "REFUSED",
    "WIRE_VERSION",
    "Reply",
    "Request",
    "check_device_id",
    "device_of_topic",
    "pack_reply",
    "pack_request",
    "reply_topic",
    "request_topic",
    "status_topic",
    "unpack_reply",
    "unpack_request",
]

WIRE_VERSION = 1
ID_BYTES = 16
MAX_DEADLINE_MS = 3_600_000
ROOT = "hardcase/v1"
OK, REFUSED = 0, 1

_REPLY = struct.Struct("<BBBBHHq16s32s")
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@record(frozen=True, slots=True)
class Request:
    """One hard case on its way to the HPC. ``deadline_ms``: how long from now on the device will wait."""

    id: bytes
    hpc: bytes  # SHA-256 of the model that must answer
    deadline_ms: int
    readings: tuple[Reading, ...]


@record(frozen=True, slots=True)
class Reply:
    """The HPC's answer. ``result``: a class index, or a value; ``confidence`` in basis points."""

    id: bytes
    hpc: bytes
    status: int
    result: int
    confidence: int


def pack_request(request: Request, dtypes: Sequence[str]) -> bytes:
    """A request's bytes; readings must be as ``columns.normalise`` leaves them."""
    values = [DTYPES[d].missing if x is None else x for x, d in zip(request.readings, dtypes, strict=True)]
    head = _REQUEST.pack(WIRE_VERSION, 1, len(values), request.deadline_ms, request.id, request.hpc)
    return head + struct.pack("<" + "".join([DTYPES[d].code for d in dtypes]), *values)


def unpack_request(payload: bytes, dtypes: Sequence[str], hpc: bytes) -> Request:
    """The request in these bytes.

    Raises
    ------
    WireError
        ``oversized``, ``malformed`` or ``other_hpc`` (its ``reason``): drop the message.
    """
    if len(payload) > MAX_REQUEST_BYTES:
        raise WireError("oversized", f"a request has {len(payload)} bytes, at most {MAX_REQUEST_BYTES} are read")
    if len(payload) < _REQUEST.size:
        raise WireError("malformed", f"a request has {len(payload)} bytes, at least {_REQUEST.size} are needed")
    version, kind, n, deadline_ms, id_, model = _REQUEST.unpack_from(payload)
    if version != WIRE_VERSION or kind != 1:
        raise WireError("malformed", f"message version {version}, kind {kind}; {WIRE_VERSION} and 1 are expected")
    if model != hpc:
        raise WireError("other_hpc", f"the request is for HPC {model.hex()[:12]}, this is {hpc.hex()[:12]}")
    wanted = request_bytes(dtypes)
    if n != len(dtypes) or len(payload) != wanted:
        raise WireError("malformed", f"{n} readings in {len(payload)} bytes; {len(dtypes)} in {wanted} are expected")
    if not 1 <= deadline_ms <= MAX_DEADLINE_MS:
        raise WireError("malformed", f"a deadline of {deadline_ms} ms; 1 to {MAX_DEADLINE_MS} are allowed")
    raw = struct.unpack_from("<" + "".join([DTYPES[d].code for d in dtypes]), payload, _REQUEST.size)
    readings = tuple(
        [None if not isfinite(x) or x == DTYPES[d].missing else x for x, d in zip(raw, dtypes, strict=True)]
    )
    return Request(id_, model, deadline_ms, readings)


def pack_reply(reply: Reply) -> bytes:
    """A reply's bytes."""
    return _REPLY.pack(WIRE_VERSION, 2, reply.status, 0, reply.confidence, 0, reply.result, reply.id, reply.hpc)


def unpack_reply(payload: bytes, hpc: bytes, n_classes: int) -> Reply:
    """The reply in these bytes; a class index is checked where ``n_classes`` is not 0.

    Raises
    ------
    WireError
        ``oversized``, ``malformed`` or ``other_hpc``: drop the message.
    """
    if len(payload) != _REPLY.size:
        reason = "oversized" if len(payload) > _REPLY.size else "malformed"
        raise WireError(reason, f"a reply has {len(payload)} bytes, {_REPLY.size} are expected")
    version, kind, status, zero, confidence, zero2, result, id_, model = _REPLY.unpack(payload)
    if (version, kind, zero, zero2) != (WIRE_VERSION, 2, 0, 0) or status not in (OK, REFUSED):
        raise WireError("malformed", f"message version {version}, kind {kind}, status {status} is no reply of ours")
    if model != hpc:
        raise WireError("other_hpc", f"the reply is of HPC {model.hex()[:12]}, {hpc.hex()[:12]} was asked")
    if confidence > 10_000 or (status == OK and n_classes and not 0 <= result < n_classes):
        raise WireError(
            "malformed", f"a reply of class {result}, confidence {confidence}; there are {n_classes} classes"
        )
    return Reply(id_, model, status, result, confidence)


# ---------------------------------------------------------------- topics


def check_device_id(device: str) -> str:
    """The name itself, if it may stand in a topic.

    Raises
    ------
    InputError
        Anything but 1 to 64 of letters, digits, ``.``, ``_`` and ``-``.
    """
    if not _DEVICE.fullmatch(device):
        raise InputError(f"device id {device[:80]!r} is not 1 to 64 letters, digits, '.', '_' or '-'; choose another")
    return device


def request_topic(device: str) -> str:
    """Where a device asks; ``+`` for all devices."""
    return f"{ROOT}/{device}/request"


def reply_topic(device: str) -> str:
    """Where it is answered."""
    return f"{ROOT}/{device}/reply"


def status_topic(device: str) -> str:
    """Where its retained status and its last will stand."""
    return f"{ROOT}/{device}/status"


def device_of_topic(topic: str) -> str:
    """The device that a request topic names.

    Raises
    ------
    WireError
        ``malformed``: not a request topic.
    """
    parts = topic.split("/")
    if len(parts) != 4 or "/".join(parts[:2]) != ROOT or parts[3] != "request" or not _DEVICE.fullmatch(parts[2]):
        raise WireError("malformed", f"topic {topic[:120]!r} is not {request_topic('<device>')}")
    return parts[2]
