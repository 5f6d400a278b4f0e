# SPDX-License-Identifier: Apache-2.0
"""The messages of an update: an offer of a bundle, a chunk of it, and a device's wish for chunks.

    offer: version u8 | kind u8 = 3 | chunk bytes u16 | bundle bytes u32 | sha256 32 bytes | roots u16 | flags u16
           | digest of each chunk, 8 bytes | roots, timestamp, snapshot, targets, signature, each with a length u32
    chunk: version u8 | kind u8 = 4 | zero u16 | index u32 | bundle 16 bytes | bytes of the bundle
    fetch: version u8 | kind u8 = 5 | number u16 | zero u32 | bundle 16 bytes | an index u16 for each chunk

docs/SPEC-wire-v1.md, sections 6 to 8, defines every byte. ``bundle`` is the first half of its SHA-256. A chunk's digest
is the first 8 bytes of its SHA-256: whoever could write a false chunk could write a false offer as well, and the
bundle's own digest decides at the end.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ...base.record import record
from ...base.sha256 import sha256
from ...bundle.file import MAX_BUNDLE_BYTES
from ...errors import WireError
from ...link.wire import WIRE_VERSION

OFFER, CHUNK, FETCH = 3, 4, 5
REPLACES = 1  # the flag of an offer by which a device takes another program, too
MAX_MESSAGE_BYTES = 64_000  # with its topic and its properties it fits into the 65536 bytes that a device reads
MIN_CHUNK_BYTES, MAX_CHUNK_BYTES = 4_096, 32_768  # larger ones have made brokers cut connections
MAX_ROOTS = 64  # in an offer, as in an update of the metadata
MOST_WANTED = 64  # chunks in one fetch
DIGEST_BYTES, NAME_BYTES = 8, 16

_OFFER = struct.Struct("<BBHI32sHH")
_CHUNK = struct.Struct("<BBHI16s")
_FETCH = struct.Struct("<BBHI16s")
_LENGTH = struct.Struct("<I")


@record(frozen=True, slots=True, kw_only=True)
class Offer:
    """A bundle, the digests of its chunks, and what says that a device may take it."""

    size: int  # bytes
    sha256: bytes
    chunk_bytes: int
    digests: bytes  # ``DIGEST_BYTES`` of each chunk
    roots: tuple[bytes, ...] = ()  # files of TUF metadata; those that the device has already are skipped
    timestamp: bytes = b""  # empty: the offer has no metadata
    snapshot: bytes = b""
    targets: bytes = b""
    signature: bytes = b""  # the bundle's detached signatures; empty: none
    replaces: bool = False  # whether it may be another program than the one that runs

    @property
    def n_chunks(self) -> int:
        """How many chunks the bundle has."""
        return len(self.digests) // DIGEST_BYTES

    def length(self, index: int) -> int:
        """The bytes of one chunk."""
        return min(self.chunk_bytes, self.size - index * self.chunk_bytes)

    def is_right(self, index: int, data: bytes) -> bool:
        """Whether these are the bytes of a chunk."""
        at = index * DIGEST_BYTES
        return len(data) == self.length(index) and sha256(data)[:DIGEST_BYTES] == self.digests[at : at + DIGEST_BYTES]


@record(frozen=True, slots=True)
class Chunk:
    """A part of a bundle."""

    bundle: bytes  # the first half of the bundle's SHA-256
    index: int
    data: bytes


@record(frozen=True, slots=True)
class Fetch:
    """What a device asks for."""

    bundle: bytes
    wanted: tuple[int, ...]  # indices of chunks


def name_of(sha: bytes) -> bytes:
    """How chunks and fetches name a bundle."""
    return sha[:NAME_BYTES]


def digests_of(data: bytes, chunk_bytes: int) -> bytes:
    """The digests of a bundle's chunks."""
    starts = range(0, len(data), chunk_bytes)
    return b"".join([sha256(data[k : k + chunk_bytes])[:DIGEST_BYTES] for k in starts])


def kind_of(payload: bytes) -> int:
    """What a message claims to be.

    Raises
    ------
    WireError
        It is too long, or too short to be anything.
    """
    if len(payload) > MAX_MESSAGE_BYTES:
        raise WireError("oversized", f"a message has {len(payload)} bytes, at most {MAX_MESSAGE_BYTES} are read")
    if len(payload) < _CHUNK.size or payload[0] != WIRE_VERSION:
        raise _malformed()
    return payload[1]


def pack_offer(offer: Offer) -> bytes:
    """The bytes of an offer; the caller sees that they are at most ``MAX_MESSAGE_BYTES``."""
    head = _OFFER.pack(
        WIRE_VERSION, OFFER, offer.chunk_bytes, offer.size, offer.sha256, len(offer.roots), offer.replaces
    )
    parts = [*offer.roots, offer.timestamp, offer.snapshot, offer.targets, offer.signature]
    return b"".join([head, offer.digests, *[_LENGTH.pack(len(part)) + part for part in parts]])


def unpack_offer(payload: bytes) -> Offer:
    """The offer in these bytes.

    Raises
    ------
    WireError
        The message is not an offer of a bundle that a device could take.
    """
    if kind_of(payload) != OFFER or len(payload) < _OFFER.size:
        raise _malformed()
    _, _, chunk_bytes, size, sha, n_roots, flags = _OFFER.unpack_from(payload)
    if not MIN_CHUNK_BYTES <= chunk_bytes <= MAX_CHUNK_BYTES or not 1 <= size <= MAX_BUNDLE_BYTES:
        raise _malformed()
    end = _OFFER.size + DIGEST_BYTES * -(-size // chunk_bytes)
    if flags & ~REPLACES or n_roots > MAX_ROOTS or len(payload) < end:
        raise _malformed()
    *roots, timestamp, snapshot, targets, signature = _parts(payload, end, n_roots + 4)
    if not bool(timestamp) == bool(snapshot) == bool(targets):
        raise _malformed()
    return Offer(
        size=size, sha256=sha, chunk_bytes=chunk_bytes, digests=payload[_OFFER.size : end], roots=tuple(roots),
        timestamp=timestamp, snapshot=snapshot, targets=targets, signature=signature, replaces=flags == REPLACES,
    )  # fmt: skip


def _parts(payload: bytes, at: int, n: int) -> list[bytes]:
    parts = []
    for _ in range(n):
        if len(payload) < at + _LENGTH.size:
            raise _malformed()
        end = at + _LENGTH.size + _LENGTH.unpack_from(payload, at)[0]
        if end > len(payload):
            raise _malformed()
        parts.append(payload[at + _LENGTH.size : end])
        at = end
    if at != len(payload):
        raise _malformed()
    return parts


def pack_chunk(chunk: Chunk) -> bytes:
    """The bytes of a chunk."""
    return _CHUNK.pack(WIRE_VERSION, CHUNK, 0, chunk.index, chunk.bundle) + chunk.data


def unpack_chunk(payload: bytes) -> Chunk:
    """The chunk in these bytes.

    Raises
    ------
    WireError
        The message is not a chunk.
    """
    if kind_of(payload) != CHUNK:
        raise _malformed()
    _, _, zero, index, bundle = _CHUNK.unpack_from(payload)
    data = payload[_CHUNK.size :]
    if len(data) > MAX_CHUNK_BYTES:
        raise WireError("oversized", f"a chunk has {len(data)} bytes, at most {MAX_CHUNK_BYTES} are read")
    if zero:
        raise _malformed()
    return Chunk(bundle, index, data)


def pack_fetch(bundle: bytes, wanted: Sequence[int]) -> bytes:
    """The bytes of a wish for these chunks, at most ``MOST_WANTED``.

    >>> unpack_fetch(pack_fetch(bytes(16), [3, 1])).wanted
    (3, 1)
    """
    return _FETCH.pack(WIRE_VERSION, FETCH, len(wanted), 0, bundle) + struct.pack(f"<{len(wanted)}H", *wanted)


def unpack_fetch(payload: bytes) -> Fetch:
    """The wish in these bytes.

    Raises
    ------
    WireError
        The message is not a fetch.
    """
    if kind_of(payload) != FETCH:
        raise _malformed()
    _, _, n, zero, bundle = _FETCH.unpack_from(payload)
    if zero or not 1 <= n <= MOST_WANTED or len(payload) != _FETCH.size + 2 * n:
        raise _malformed()
    return Fetch(bundle, struct.unpack_from(f"<{n}H", payload, _FETCH.size))


def _malformed() -> WireError:
    return WireError("malformed", "a message of an update does not follow its layout")
