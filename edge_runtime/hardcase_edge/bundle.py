"""The bundle: a program and all it needs, in one safetensors file. docs/SPEC-bundle-v1.md defines every byte.

Layout: 8-byte length, JSON header, tensors widest first, and as the last tensor ``checksum``: the SHA-256 of every
byte before it, so that a cut or a flipped byte is always seen. The JSON metadata holds the manifest. Reading is
strict: anything that a writer of ours would not have written is refused, before it is used.
"""

from __future__ import annotations

import hashlib
import json
import struct
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .codec import POOLS, decode, encode
from .errors import BundleError, BundleVersionError, InputError
from .golden import GoldenCase, decode_golden, encode_golden
from .program import Program

__all__ = ["BUNDLE_VERSION", "MAX_BUNDLE_BYTES", "Bundle", "pack_bundle", "read_bundle_bytes", "unpack_bundle"]

BUNDLE_VERSION = 1
MAX_BUNDLE_BYTES = 8 * 1024 * 1024  # checked before a byte is read
MAX_HEADER_BYTES = 256 * 1024
_TYPES = {"F64": "d", "I64": "q", "F32": "f", "I32": "i", "I16": "h", "I8": "b"}
_NAMES = {code: name for name, code in _TYPES.items()}
_ORDER = [*POOLS, "program", "golden.words", "golden.readings"]


@dataclass(frozen=True)
class Bundle:
    """A bundle in memory. ``sha256`` names its bytes; ``is_draft``: floats inside, not for a device."""

    manifest: dict[str, Any]
    program: Program
    golden: tuple[GoldenCase, ...]
    sha256: str = ""
    is_draft: bool = False


def pack_bundle(bundle: Bundle) -> bytes:
    """The file's bytes; the same bundle always gives the same bytes."""
    tensors = encode(bundle.program, is_draft=bundle.is_draft)
    tensors |= encode_golden(bundle.golden, bundle.program)
    ordered = sorted(tensors.items(), key=lambda kv: (-kv[1].itemsize, _ORDER.index(kv[0])))
    header: dict[str, Any] = {"__metadata__": {"format": str(BUNDLE_VERSION), "manifest": _json(bundle.manifest)}}
    offset = 0
    for name, values in ordered:
        size = len(values) * values.itemsize
        header[name] = {
            "dtype": _NAMES[values.typecode],
            "shape": [len(values)],
            "data_offsets": [offset, offset + size],
        }
        offset += size
    header["checksum"] = {"dtype": "U8", "shape": [32], "data_offsets": [offset, offset + 32]}
    text = _json(header).encode()
    text += b" " * (-len(text) % 8)
    body = struct.pack("<Q", len(text)) + text + b"".join(values.tobytes() for _, values in ordered)
    return body + hashlib.sha256(body).digest()


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def read_bundle_bytes(path: str | Path) -> bytes:
    """A file's bytes, if it is of a size that a bundle may have.

    Raises
    ------
    InputError
        There is no such file, or it cannot be read.
    BundleError
        It is empty or too large.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BUNDLE_BYTES + 1)
    except OSError as error:
        raise InputError(f"bundle {path} cannot be read: {error.strerror}") from error
    if not 0 < len(data) <= MAX_BUNDLE_BYTES:
        size = "no bytes" if not data else f"more than {MAX_BUNDLE_BYTES} bytes"
        raise BundleError(f"bundle {path} has {size}; write it again with hardcase export")
    return data


def unpack_bundle(data: bytes, *, allow_draft: bool = False) -> Bundle:
    """The bundle in these bytes: checked for damage and shape, not yet verified.

    Raises
    ------
    BundleError
        Cut, damaged or not a bundle.
    BundleVersionError
        Of a format this runtime does not read.
    """
    if len(data) < 8 + 2 + 32:
        raise BundleError(f"the file has {len(data)} bytes, too few for a bundle; copy it again")
    if hashlib.sha256(data[:-32]).digest() != data[-32:]:
        raise BundleError("the bundle is damaged (its checksum does not match its bytes); copy it again")
    header, start = _header(data)
    meta = header.pop("__metadata__", None)
    if not isinstance(meta, dict) or not isinstance(meta.get("format"), str) or not meta["format"].isdigit():
        raise BundleError("the file is safetensors, but not a bundle: it has no format number")
    if int(meta["format"]) != BUNDLE_VERSION:
        raise BundleVersionError(int(meta["format"]), BUNDLE_VERSION, BUNDLE_VERSION)
    tensors = _tensors(header, data, start)
    if "program" not in tensors:
        raise BundleError("the bundle has no program")
    program, is_draft = decode(tensors)
    if is_draft and not allow_draft:
        raise BundleError("this is a draft with floating-point numbers; make a bundle of it with hardcase export")
    manifest = _parse(str(meta.get("manifest", "")), "manifest")
    golden = decode_golden(tensors, program)
    return Bundle(manifest, program, golden, hashlib.sha256(data).hexdigest(), is_draft)


def _parse(text: str, what: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({k for k, _ in pairs}) != len(pairs):
            raise ValueError("a key stands twice")
        return dict(pairs)

    def refuse(constant: str) -> object:
        raise ValueError(f"{constant} is not JSON")

    try:
        value = json.loads(text, object_pairs_hook=once, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"the bundle's {what} is not readable JSON: {error}") from error
    if not isinstance(value, dict):
        raise BundleError(f"the bundle's {what} is not a JSON object")
    return value


def _header(data: bytes) -> tuple[dict[str, Any], int]:
    (length,) = struct.unpack_from("<Q", data)
    if length > min(MAX_HEADER_BYTES, len(data) - 8):
        raise BundleError(f"the header says {length} bytes, the file has {len(data)}; copy it again")
    try:
        text = data[8 : 8 + length].decode()
    except UnicodeDecodeError as error:
        raise BundleError("the bundle's header is not UTF-8") from error
    return _parse(text, "header"), 8 + length


def _tensors(header: dict[str, Any], data: bytes, start: int) -> dict[str, array]:  # type: ignore[type-arg]
    checksum = header.pop("checksum", None)
    end = len(data) - start - 32
    if checksum != {"dtype": "U8", "shape": [32], "data_offsets": [end, end + 32]}:
        raise BundleError("the bundle's checksum is not its last tensor")
    out: dict[str, array] = {}  # type: ignore[type-arg]
    spans = []
    for name, entry in header.items():
        if name not in _ORDER or not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise BundleError(f"the bundle has an entry {name[:40]!r} that is not one of ours")
        values = array(_TYPES.get(str(entry["dtype"]), "b"))
        expected = POOLS.get(name, {"program": "i", "golden.words": "q"}.get(name, values.typecode))
        shape, offsets = entry["shape"], entry["data_offsets"]
        numbers = [*shape, *offsets] if isinstance(shape, list) and isinstance(offsets, list) else []
        if len(numbers) != 3 or not all(type(x) is int for x in numbers) or str(entry["dtype"]) != _NAMES[expected]:
            raise BundleError(f"tensor {name} has the type {entry['dtype']!r} and shape {shape!r}")
        count, first, last = numbers
        if not 0 <= first <= last <= end or last - first != count * values.itemsize:
            raise BundleError(f"tensor {name} lies at {first} to {last} of {end} bytes")
        spans.append((first, last))
        values.frombytes(data[start + first : start + last])
        out[name] = values
    at = 0
    for first, last in sorted(spans):
        if first != at:
            raise BundleError(f"the bundle's tensors leave a hole or overlap at byte {at}")
        at = last
    if at != end:
        raise BundleError(f"the bundle's tensors end at byte {at} of {end}")
    return out
