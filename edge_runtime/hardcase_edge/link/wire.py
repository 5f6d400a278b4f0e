# SPDX-License-Identifier: Apache-2.0
"""The wire format: requests and replies as bytes in fixed little-endian layouts, and the topics they go to.

    request: version u8 | kind u8 = 1, or 6 of an audit | n_values u16 | deadline_ms u32 | id 16 bytes
             | HPC sha256 32 bytes | values
    reply:   version u8 | kind u8 = 2 | status u8 | reserved u8 | confidence u16 | reserved u16 | result i64
             | id 16 bytes | HPC sha256 32 bytes

docs/SPEC-wire-v1.md defines every byte. Values are raw readings, each in its declared type; a missing one is NaN, or
the smallest integer for i32. Readers check a message's length before anything else. Topics carry the device's name: a
worker replies to the device that the request's *topic* names, because a broker can enforce topics but not payloads. The
name of a tenant's device begins with the tenant's, so that its topics have a level more than those of others.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from math import isfinite

from ..base.record import record
from ..errors import InputError, WireError
from ..program.readings import _REQUEST, DTYPES, MAX_DEADLINE_MS, MAX_REQUEST_BYTES, Reading, request_bytes

WIRE_VERSION = 1
ID_BYTES = 16
ROOT = "hardcase/v1"
CASE, REPLY, AUDIT = 1, 2, 6  # kinds of messages; 3, 4 and 5 are those of enrolment and updates
OK, REFUSED, BUSY, OTHER_HPC = 0, 1, 2, 3
MAX_BUSY_MS = 60_000  # for which a worker may ask to be left alone

_REPLY = struct.Struct("<BBBBHHq16s32s")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DEVICE = re.compile(f"(?:{_NAME.pattern}/)?{_NAME.pattern}")


@record(frozen=True, slots=True)
class Request:
    """One hard case on its way to the HPC, or an audit of what the device has decided itself."""

    id: bytes  # 16 random bytes; the same for every transmission of a request
    hpc: bytes  # SHA-256 of the model that must answer
    deadline_ms: int  # how long the device will wait from now on
    readings: tuple[Reading, ...]  # in the uplink's order, None for missing
    is_audit: bool = False  # no decision waits for the reply, and no worker keeps it as a case


@record(frozen=True, slots=True)
class Reply:
    """The HPC's answer to the request with this id."""

    id: bytes
    hpc: bytes
    status: int  # OK, REFUSED or BUSY; OTHER_HPC where ``hpc`` is what the worker serves in place of the right one
    result: int  # a class index, or a value in a program of values; of BUSY the ms after which to ask again
    confidence: int  # basis points

    @property
    def answer(self) -> tuple[int, int] | None:
        """Result and confidence; None if this is no answer."""
        return (self.result, self.confidence) if self.status == OK else None


def pack_request(request: Request, dtypes: Sequence[str]) -> bytes:
    """The bytes of a request.

    Parameters
    ----------
    request : readings as ``readings.normalise`` returns them
    dtypes : the type of each reading: "i32", "f32" or "f64"

    Examples
    --------
    >>> request = Request(id=bytes(16), hpc=bytes(32), deadline_ms=2_000, readings=(21.5, None))
    >>> payload = pack_request(request, ["f32", "i32"])
    >>> len(payload)
    64
    >>> unpack_request(payload, ["f32", "i32"], hpc=bytes(32)) == request
    True
    """
    values = [DTYPES[d].missing if x is None else x for x, d in zip(request.readings, dtypes, strict=True)]
    kind = AUDIT if request.is_audit else CASE
    head = _REQUEST.pack(WIRE_VERSION, kind, len(values), request.deadline_ms, request.id, request.hpc)
    return head + struct.pack("<" + "".join([DTYPES[d].code for d in dtypes]), *values)


def unpack_request(payload: bytes, dtypes: Sequence[str], hpc: bytes) -> Request:
    """The request in these bytes.

    Parameters
    ----------
    payload : the message
    dtypes : the type of each reading
    hpc : SHA-256 of the model that answers here

    Raises
    ------
    WireError
        Drop the message; ``reason`` is ``oversized``, ``malformed`` or ``other_hpc``.
    """
    if len(payload) > MAX_REQUEST_BYTES:
        raise WireError("oversized", f"a request has {len(payload)} bytes, at most {MAX_REQUEST_BYTES} are read")
    if len(payload) < _REQUEST.size:
        raise WireError("malformed", f"a request has {len(payload)} bytes, at least {_REQUEST.size} are needed")
    version, kind, n, deadline_ms, id_, model = _REQUEST.unpack_from(payload)
    if version != WIRE_VERSION or kind not in (CASE, AUDIT):
        expected = f"{WIRE_VERSION} and {CASE} or {AUDIT} are expected"
        raise WireError("malformed", f"a request has version {version} and kind {kind}, {expected}")
    if model != hpc:
        raise WireError("other_hpc", f"a request is for HPC {model.hex()[:12]}, but {hpc.hex()[:12]} answers here")
    n_bytes = request_bytes(dtypes)
    if n != len(dtypes) or len(payload) != n_bytes:
        raise WireError(
            "malformed",
            f"a request has {n} readings in {len(payload)} bytes, {len(dtypes)} in {n_bytes} are expected",
        )
    if not 1 <= deadline_ms <= MAX_DEADLINE_MS:
        raise WireError("malformed", f"a request has a deadline of {deadline_ms} ms, 1 to {MAX_DEADLINE_MS} is allowed")
    raw = struct.unpack_from("<" + "".join([DTYPES[d].code for d in dtypes]), payload, _REQUEST.size)
    readings = tuple(
        [None if not isfinite(x) or x == DTYPES[d].missing else x for x, d in zip(raw, dtypes, strict=True)]
    )
    return Request(id_, model, deadline_ms, readings, kind == AUDIT)


def pack_reply(reply: Reply) -> bytes:
    """The bytes of a reply.

    >>> reply = Reply(id=bytes(16), hpc=bytes(32), status=OK, result=1, confidence=9_700)
    >>> payload = pack_reply(reply)
    >>> len(payload), unpack_reply(payload, hpc=bytes(32), n_classes=2) == reply
    (64, True)
    """
    return _REPLY.pack(WIRE_VERSION, REPLY, reply.status, 0, reply.confidence, 0, reply.result, reply.id, reply.hpc)


def unpack_reply(payload: bytes, hpc: bytes, n_classes: int) -> Reply:
    """The reply in these bytes.

    Parameters
    ----------
    payload : the message
    hpc : SHA-256 of the model that was asked
    n_classes : number of classes, by which the result is checked; 0 in a program of values

    Raises
    ------
    WireError
        Drop the message; ``reason`` is ``oversized``, ``malformed`` or ``other_hpc``.
    """
    if len(payload) != _REPLY.size:
        reason = "oversized" if len(payload) > _REPLY.size else "malformed"
        raise WireError(reason, f"a reply has {len(payload)} bytes, {_REPLY.size} are expected")
    version, kind, status, zero, confidence, zero2, result, id_, model = _REPLY.unpack(payload)
    if (version, kind, zero, zero2) != (WIRE_VERSION, REPLY, 0, 0) or status not in (OK, REFUSED, BUSY, OTHER_HPC):
        raise WireError("malformed", f"a reply has an unknown version {version}, kind {kind} or status {status}")
    if model != hpc:
        raise WireError("other_hpc", f"a reply is from HPC {model.hex()[:12]}, but {hpc.hex()[:12]} was asked")
    if status == OTHER_HPC or confidence > 10_000 or (status == OK and n_classes and not 0 <= result < n_classes):
        raise WireError(
            "malformed", f"a reply has class {result} of {n_classes} and confidence {confidence} of at most 10000"
        )
    if status == BUSY and (confidence or not 1 <= result <= MAX_BUSY_MS):
        raise WireError("malformed", f"a busy reply says to wait {result} ms, 1 to {MAX_BUSY_MS} are allowed")
    return Reply(id_, model, status, result, confidence)


def other_hpc_reply(request: bytes, hpc: bytes) -> tuple[bytes, float]:
    """What a worker replies to a request for another HPC than its own, and for how many seconds somebody waits.

    Parameters
    ----------
    request : the message that ``unpack_request`` has refused as ``other_hpc``
    hpc : SHA-256 of the model that answers here
    """
    _, _, _, deadline_ms, id_, _ = _REQUEST.unpack_from(request)
    return pack_reply(Reply(id_, hpc, OTHER_HPC, 0, 0)), min(max(deadline_ms, 1), MAX_DEADLINE_MS) / 1000


def other_hpc_in(payload: bytes) -> tuple[bytes, bytes] | None:
    """The id of a request, and the HPC that a worker serves in place of the one which that named; None if not told.

    ``unpack_reply`` has refused the message as ``other_hpc``.

    >>> other_hpc_in(pack_reply(Reply(id=bytes(16), hpc=bytes(32), status=OTHER_HPC, result=0, confidence=0)))[0]
    b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00'
    """
    _, _, status, _, confidence, _, result, id_, hpc = _REPLY.unpack(payload)
    return (id_, hpc) if (status, confidence, result) == (OTHER_HPC, 0, 0) else None


# ---------------------------------------------------------------- topics


def check_device_id(device: str) -> str:
    """The name itself, if it is a device's: ``NAME``, or ``TENANT/NAME``.

    Raises
    ------
    InputError
        A part of it is not 1 to 64 letters, digits, ``.``, ``_`` and ``-`` that begin with a letter or digit.
    """
    if not _DEVICE.fullmatch(device):
        raise InputError(
            f"device id {device[:80]!r} is not 1 to 64 letters, digits, '.', '_' or '-' that begin with a letter or "
            "digit; choose another"
        )
    return device


def check_name(name: str, what: str = "device id") -> str:
    """The name itself, if it is one level of a topic: a tenant's, or that of a device without a tenant.

    Raises
    ------
    InputError
        It is not 1 to 64 such characters; ``what`` names it in the message.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{what} {name[:80]!r} is not 1 to 64 letters, digits, '.', '_' or '-' that begin with a letter or digit; "
            "choose another"
        )
    return name


def tenant_of(device: str) -> str:
    """The tenant of a device, "" if it has none.

    >>> tenant_of("acme/pump-7"), tenant_of("pump-7")
    ('acme', '')
    """
    return device.partition("/")[0] if "/" in device else ""


def devices_of(tenant: str) -> str:
    """What stands for all devices of a tenant in a topic; of "" for all devices without one.

    >>> request_topic(devices_of("acme")), request_topic(devices_of(""))
    ('hardcase/v1/acme/+/request', 'hardcase/v1/+/request')
    """
    return f"{tenant}/+" if tenant else "+"


def request_topic(device: str) -> str:
    """The topic on which a device sends requests; ``+`` stands for all devices.

    >>> request_topic("pump-7")
    'hardcase/v1/pump-7/request'
    """
    return f"{ROOT}/{device}/request"


def reply_topic(device: str) -> str:
    """The topic on which a device receives replies."""
    return f"{ROOT}/{device}/reply"


def status_topic(device: str) -> str:
    """The topic of a device's retained state and of its last will."""
    return f"{ROOT}/{device}/status"


def facts_topic(device: str) -> str:
    """The topic of a device's retained facts, which its last will leaves alone."""
    return f"{ROOT}/{device}/facts"


def decision_topic(device: str) -> str:
    """The topic of a device's decisions."""
    return f"{ROOT}/{device}/decision"


def audit_topic(device: str) -> str:
    """The topic of a device's audits, which carry readings."""
    return f"{ROOT}/{device}/audit"


def ack_topic(device: str) -> str:
    """The topic on which a device hears which of its decisions and audits are stored."""
    return f"{ROOT}/{device}/ack"


def update_topic(device: str) -> str:
    """The topic on which a device receives offers of bundles and their chunks."""
    return f"{ROOT}/{device}/update"


def install_topic(device: str) -> str:
    """The topic on which somebody asks a device to fetch what it was offered, whatever the hours; any payload does."""
    return f"{ROOT}/{device}/install"


def fetch_topic(device: str) -> str:
    """The topic on which a device asks for chunks of the bundle that it was offered."""
    return f"{ROOT}/{device}/fetch"


def device_of_topic(topic: str, of: Callable[[str], str] = request_topic) -> str:
    """The device that a topic names.

    Parameters
    ----------
    of : which kind of topic it is: ``request_topic``, or another function of this module

    Raises
    ------
    WireError
        The topic is not of this kind; ``reason`` is ``malformed``.
    """
    parts = topic.split("/")
    device = "/".join(parts[2:-1])
    if not _DEVICE.fullmatch(device) or topic != of(device):
        raise WireError("malformed", f"topic {topic[:120]!r} is not {of('<device>')}")
    return device
