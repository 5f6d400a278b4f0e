"""The bundle: a program and all it needs, in one safetensors file. docs/SPEC-bundle-v1.md defines every byte.

Layout: 8-byte length, JSON header, tensors widest first, and as the last tensor ``checksum``: the SHA-256 of every
byte before it, so that a cut or a flipped byte is always seen. The JSON metadata holds the manifest. Reading is
strict: anything that a writer of ours would not have written is refused, before it is used.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..base.record import record
from ..errors import BundleError, BundleVersionError, InputError
from ..program.decode import decode
from ..program.definition import Program
from ..program.encode import encode
from ..program.format import POOLS, Pools, Tensor
from .golden import GoldenCase, decode_golden, encode_golden
from .sha256 import sha256, sha256_twice

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BUNDLE_VERSION", "MAX_BUNDLE_BYTES", "Bundle", "pack_bundle", "read_bundle_bytes", "unpack_bundle"]

BUNDLE_VERSION = 1
MAX_BUNDLE_BYTES = 8 * 1024 * 1024  # checked before a byte is read
MAX_HEADER_BYTES = 256 * 1024
_TYPES = {"F64": "d", "I64": "q", "F32": "f", "I32": "i", "I16": "h", "I8": "b"}
_FORMAT = re.compile("[1-9][0-9]{0,8}")
_NAMES = {code: name for name, code in _TYPES.items()}
_ORDER = [*POOLS, "program", "golden.words", "golden.readings"]
_CODES = {"program": "i", "golden.words": "qih", "golden.readings": "dfh"}
_ENTRY = {"dtype", "shape", "data_offsets"}


@record(frozen=True, slots=True)
class Bundle:
    """A bundle in memory. ``sha256`` names its bytes; ``is_draft``: floats inside, not for a device."""

    manifest: dict[str, Any]
    program: Program
    golden: tuple[GoldenCase, ...]
    sha256: str = ""
    is_draft: bool = False


def pack_bundle(bundle: Bundle) -> bytes:
    """The file's bytes; the same bundle always gives the same bytes.

    Raises
    ------
    BundleError
        It would be larger than a reader accepts, or its manifest is not plain JSON.
    """
    tensors = encode(bundle.program, is_draft=bundle.is_draft)
    tensors |= encode_golden(bundle.golden, bundle.program)
    ordered = [(name, tensors[name]) for name in _in_order(tensors)]
    header: dict[str, Any] = {"__metadata__": {"format": str(BUNDLE_VERSION), "manifest": _manifest(bundle.manifest)}}
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
    if len(text) > MAX_HEADER_BYTES or offset > MAX_BUNDLE_BYTES - len(text) - 40:
        raise BundleError(
            f"the bundle would have {len(text)} bytes of header and {offset} of tensors, at most {MAX_HEADER_BYTES} "
            f"and {MAX_BUNDLE_BYTES} together are read; use a smaller model or shorter names"
        )
    body = struct.pack("<Q", len(text)) + text + b"".join(values.tobytes() for _, values in ordered)
    return body + sha256(body)


def _in_order(tensors: Mapping[str, Tensor]) -> list[str]:
    """Names as they lie in the file: widest first, so that every tensor is aligned."""
    return sorted(tensors, key=lambda name: (-tensors[name].itemsize, _ORDER.index(name)))


def _manifest(manifest: dict[str, Any]) -> str:
    try:
        text = _json(manifest)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BundleError(f"the manifest cannot be written as JSON: {error}") from error
    return text


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
    checksum, name = sha256_twice(data, len(data) - 32)
    if checksum != data[-32:]:
        raise BundleError("the bundle is damaged (its checksum does not match its bytes); copy it again")
    header, start = _header(data)
    meta = header.pop("__metadata__", None)
    if not isinstance(meta, dict) or not isinstance(meta.get("format"), str) or not _FORMAT.fullmatch(meta["format"]):
        raise BundleError("the file is safetensors, but not a bundle: it has no format number")
    if int(meta["format"]) != BUNDLE_VERSION:
        raise BundleVersionError(int(meta["format"]), BUNDLE_VERSION, BUNDLE_VERSION)
    if set(meta) != {"format", "manifest"} or not isinstance(meta["manifest"], str):
        raise BundleError("the bundle's metadata are not its format and its manifest")
    tensors = _tensors(header, data, start)
    if "program" not in tensors:
        raise BundleError("the bundle has no program")
    program, is_draft = decode(tensors)
    if is_draft and not allow_draft:
        raise BundleError("this is a draft with floating-point numbers; make a bundle of it with hardcase export")
    manifest = _parse(meta["manifest"], "manifest")
    golden = decode_golden(tensors, program)
    return Bundle(manifest, program, golden, name.hex(), is_draft)


def _parse(text: str, what: str) -> dict[str, Any]:
    """A JSON object in the one form that we write: no key twice, none out of order, no NaN, nothing beyond UTF-8."""
    try:
        value = json.loads(text)
        is_ours = isinstance(value, dict) and _json(value) == text
    except (ValueError, RecursionError) as error:
        raise BundleError(f"the bundle's {what} is not readable JSON: {error}") from error
    if not is_ours:
        raise BundleError(f"the bundle's {what} is not a JSON object as hardcase writes it")
    return dict(value)


def _header(data: bytes) -> tuple[dict[str, Any], int]:
    (length,) = struct.unpack_from("<Q", data)
    if length > min(MAX_HEADER_BYTES, len(data) - 8):
        raise BundleError(f"the header says {length} bytes, the file has {len(data)}; copy it again")
    try:
        text = data[8 : 8 + length].decode()
    except UnicodeDecodeError as error:
        raise BundleError("the bundle's header is not UTF-8") from error
    if length % 8 or text.endswith(" " * 8):
        raise BundleError(f"the bundle's header of {length} bytes is not padded to a multiple of 8")
    return _parse(text.rstrip(" "), "header"), 8 + length


def _tensors(header: dict[str, Any], data: bytes, start: int) -> Pools:
    """All tensors but the checksum, as views of the file's bytes."""
    checksum = header.pop("checksum", None)
    end = len(data) - start - 32
    if checksum != {"dtype": "U8", "shape": [32], "data_offsets": [end, end + 32]}:
        raise BundleError("the bundle's checksum is not its last tensor")
    out: Pools = {}
    spans = {}
    tensors = memoryview(data)[start:]
    for name, entry in header.items():
        if name not in _ORDER or not isinstance(entry, dict) or set(entry) != _ENTRY:
            raise BundleError(f"the bundle has an entry {name[:40]!r} that is not one of ours")
        said, allowed = _TYPES.get(str(entry["dtype"]), ""), POOLS.get(name) or _CODES[name]
        code = said if said and said in allowed else allowed[0]
        shape, offsets = entry["shape"], entry["data_offsets"]
        numbers = [*shape, *offsets] if isinstance(shape, list) and isinstance(offsets, list) else []
        if len(numbers) != 3 or not all(type(x) is int for x in numbers) or str(entry["dtype"]) != _NAMES[code]:
            raise BundleError(f"tensor {name} has the type {entry['dtype']!r} and shape {shape!r}")
        count, first, last = numbers
        if not 0 <= first <= last <= end or last - first != count * struct.calcsize(code):
            raise BundleError(f"tensor {name} lies at {first} to {last} of {end} bytes")
        spans[name] = (first, last)
        out[name] = tensors[first:last].cast(code)  # type: ignore[call-overload]
    at = 0
    for name in _in_order(out):
        if spans[name][0] != at:
            raise BundleError(f"tensor {name} begins at byte {spans[name][0]}, {at} is expected")
        at = spans[name][1]
    if at != end:
        raise BundleError(f"the bundle's tensors end at byte {at} of {end}")
    return out
