# SPDX-License-Identifier: Apache-2.0
"""The bundle file: program, manifest and golden cases as one safetensors file with a checksum.

docs/SPEC-bundle-v1.md defines every byte. In short: the header's length in 8 bytes, the header in JSON, the tensors
with the widest type first, and ``checksum`` as the last tensor. The checksum is the SHA-256 of every byte before it,
so a reader always notices a truncated file or a flipped byte. The header's metadata holds the manifest. Reading is
strict: a reader refuses everything that ``pack_bundle`` would not have written, before it uses any of it.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..base.files import read_bounded
from ..base.record import record
from ..base.sha256 import sha256, sha256_twice
from ..errors import BundleError, BundleVersionError
from ..program.decode import decode
from ..program.definition import Program
from ..program.format import POOLS, Pools, Tensor
from .golden import GoldenCase, decode_golden, encode_golden

if TYPE_CHECKING:
    from pathlib import Path

    from ..joint.definition import Joint
    from ..joint.golden import JointCase

BUNDLE_VERSION = 1
MAX_BUNDLE_BYTES = 8 * 1024 * 1024  # checked before a byte is read
MAX_HEADER_BYTES = 256 * 1024
_TYPES = {"F64": "d", "I64": "q", "F32": "f", "I32": "i", "I16": "h", "I8": "b"}
_HEAD = b'{"__metadata__":{"format":"'  # how every header begins, because its keys are sorted
_FORMAT = re.compile("[1-9][0-9]{0,8}")
_NAMES = {code: name for name, code in _TYPES.items()}
_JOINT = {"joint": "qi", "items.words": "qih", "items.readings": "dfh"}  # of SPEC-joint-v1
_CODES = {"program": "i", "golden.words": "qih", "golden.readings": "dfh", **_JOINT}
_ORDER = [*POOLS, *_CODES]
_ENTRY = {"dtype", "shape", "data_offsets"}


@record(frozen=True, slots=True)
class Bundle:
    """A bundle in memory. ``sha256`` identifies its bytes; a draft holds floats and does not run on a device."""

    manifest: dict[str, Any]
    program: Program
    golden: tuple[GoldenCase, ...]
    sha256: str = ""
    is_draft: bool = False
    joint: Joint | None = None  # with it, ``program`` decides one part of an item, and ``items`` are the golden cases
    items: tuple[JointCase, ...] = ()


def pack_bundle(bundle: Bundle) -> bytes:
    """The bytes of a bundle's file; equal bundles give equal bytes.

    Raises
    ------
    BundleError
        The file would be larger than a reader accepts, or the manifest is not plain JSON.
    ProgramError
        A number does not fit its field.
    """
    from ..program.encode import encode  # imported here, because no device writes a bundle

    tensors = encode(bundle.program, is_draft=bundle.is_draft)
    tensors |= encode_golden(bundle.golden, bundle.program)
    if bundle.joint is not None:
        from ..joint.format import encode_joint
        from ..joint.golden import encode_items

        tensors |= {"joint": encode_joint(bundle.joint)} | encode_items(bundle.items, bundle.program)
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
            f"the bundle would have {len(text)} bytes of header and {offset} of tensors, more than the limits of "
            f"{MAX_HEADER_BYTES} for the header and {MAX_BUNDLE_BYTES} in all; use a smaller model or shorter names"
        )
    body = struct.pack("<Q", len(text)) + text + b"".join(values.tobytes() for _, values in ordered)
    return body + sha256(body)


def _in_order(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names in the order of the file: widest type first, so that every tensor is aligned."""
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
    """The bytes of a file whose size a bundle may have.

    Raises
    ------
    InputError
        The file does not exist or cannot be read.
    BundleError
        The file is empty or too large.
    """
    remedy = "name a bundle that hardcase export wrote"
    data = read_bounded(path, MAX_BUNDLE_BYTES, "bundle", remedy=remedy, refusal=BundleError)
    if not data:
        raise BundleError(f"bundle {path} has no bytes; {remedy}")
    return data


def is_bundle_head(head: bytes) -> bool:
    """Whether a file that begins so is a bundle or a draft, even if damaged: what may be replaced by another."""
    return head[8 : 8 + len(_HEAD)] == _HEAD


def unpack_bundle(data: bytes, *, allow_draft: bool = False, allow_joint: bool = False) -> Bundle:
    """The bundle in these bytes. Damage and shape are checked here; ``verifier.verify`` has yet to prove the program.

    A bundle of items of several parts is refused unless ``allow_joint``: its program alone decides nothing.

    Raises
    ------
    BundleError
        The bytes are truncated, damaged or not a bundle, or they hold a draft and ``allow_draft`` is False.
    BundleVersionError
        This runtime does not read the bundle's format.
    """
    if len(data) < 8 + 2 + 32:
        raise BundleError(f"the file has {len(data)} bytes, too few for a bundle; copy it again")
    checksum, file_digest = sha256_twice(data, len(data) - 32)
    if checksum != data[-32:]:
        raise BundleError("the bundle is damaged (its checksum does not match its bytes); copy it again")
    header, start = _header(data)
    meta = header.pop("__metadata__", None)
    if not isinstance(meta, dict) or not isinstance(meta.get("format"), str) or not _FORMAT.fullmatch(meta["format"]):
        raise BundleError("the file is safetensors but not a bundle: it has no format number; name a .hcb file")
    if int(meta["format"]) != BUNDLE_VERSION:
        raise BundleVersionError(int(meta["format"]), BUNDLE_VERSION, BUNDLE_VERSION)
    if set(meta) != {"format", "manifest"} or not isinstance(meta["manifest"], str):
        raise BundleError("the bundle's metadata must hold exactly format and manifest; export it again")
    tensors = _tensors(header, data, start)
    if "program" not in tensors:
        raise BundleError("the bundle has no program; export it again")
    program, is_draft = decode(tensors)
    if ("f64" in tensors and not is_draft) or ("golden.readings" in tensors and "golden.words" not in tensors):
        raise BundleError("the bundle has floats without a draft, or readings without golden cases; export it again")
    if is_draft and not allow_draft:
        raise BundleError("this file is a draft with floating-point numbers; make a bundle of it with hardcase export")
    manifest = _parse(meta["manifest"], "manifest")
    golden = decode_golden(tensors, program)
    joint, items = _joint(tensors, program, allow_joint and not is_draft and not golden)
    return Bundle(manifest, program, golden, file_digest.hex(), is_draft, joint, items)


def _joint(tensors: Pools, program: Program, is_allowed: bool) -> tuple[Joint | None, tuple[JointCase, ...]]:
    """What makes the program one of items, and its golden cases."""
    names = [name for name in _JOINT if name in tensors]
    if not names:
        return None, ()
    if not is_allowed:
        raise BundleError(
            "the bundle decides items of several parts, which cannot be done here; hardcase-edge run and verify, and "
            "hardcase evaluate and inspect do it"
        )
    if names not in (["joint"], list(_JOINT)):
        raise BundleError("the bundle has golden items without a joint program, or half of them; export it again")
    from ..joint.format import decode_joint
    from ..joint.golden import decode_items

    joint = decode_joint(tensors["joint"])
    if joint.chain.labels != program.n_classes or not all(0 <= w.node < len(program.nodes) for w in joint.waits):
        raise BundleError("the bundle's joint program is of another part program; export it again")
    if not all(0 <= s < len(program.sensors) for s in joint.inner(program)):
        raise BundleError("a barrier of the bundle's joint program names a sensor that is not there; export it again")
    if names == ["joint"]:
        return joint, ()
    return joint, decode_items(tensors["items.words"], tensors["items.readings"], program, joint)


def _parse(text: str, what: str) -> dict[str, Any]:
    """A JSON object in hardcase's one form: each key once and in order, no NaN, only valid UTF-8."""
    try:
        value = json.loads(text)
        is_canonical = isinstance(value, dict) and _json(value) == text
    except (ValueError, RecursionError) as error:
        raise BundleError(f"the bundle's {what} is not readable JSON: {error}") from error
    if not is_canonical:
        raise BundleError(f"the bundle's {what} is not a JSON object as hardcase writes it")
    return dict(value)


def _header(data: bytes) -> tuple[dict[str, Any], int]:
    (length,) = struct.unpack_from("<Q", data)
    if length > min(MAX_HEADER_BYTES, len(data) - 8):
        raise BundleError(f"the header claims {length} bytes, but the file has {len(data)}; copy it again")
    try:
        text = data[8 : 8 + length].decode()
    except UnicodeDecodeError as error:
        raise BundleError("the bundle's header is not UTF-8") from error
    if length % 8 or text.endswith(" " * 8):
        raise BundleError(f"the bundle's header of {length} bytes is not padded to a multiple of 8")
    return _parse(text.rstrip(" "), "header"), 8 + length


def _tensors(header: dict[str, Any], data: bytes, start: int) -> Pools:
    """All tensors except the checksum, as views of the file's bytes."""
    checksum = header.pop("checksum", None)
    end = len(data) - start - 32
    if checksum != {"dtype": "U8", "shape": [32], "data_offsets": [end, end + 32]}:
        raise BundleError("the bundle's checksum is not its last tensor")
    tensors: Pools = {}
    spans = {}
    body = memoryview(data)[start:]
    for name, entry in header.items():
        if name not in _ORDER or not isinstance(entry, dict) or set(entry) != _ENTRY:
            raise BundleError(f"the bundle has an unknown or malformed entry {name[:40]!r}; export it again")
        declared, allowed = _TYPES.get(str(entry["dtype"]), ""), POOLS.get(name) or _CODES[name]
        code = declared if declared and declared in allowed else allowed[0]
        shape, offsets = entry["shape"], entry["data_offsets"]
        numbers = [*shape, *offsets] if isinstance(shape, list) and isinstance(offsets, list) else []
        is_left_out = numbers[:1] == [0] and not name.endswith(".readings")  # of a program without features
        if len(numbers) != 3 or set(map(type, numbers)) != {int} or str(entry["dtype"]) != _NAMES[code] or is_left_out:
            raise BundleError(f"tensor {name} has the wrong type {entry['dtype']!r} or shape {shape!r}")
        count, first, last = numbers
        if not 0 <= first <= last <= end or last - first != count * struct.calcsize(code):
            raise BundleError(f"tensor {name} claims bytes {first} to {last} of {end}, which do not fit its shape")
        spans[name] = (first, last)
        tensors[name] = body[first:last].cast(code)  # type: ignore[call-overload]
    at = 0
    for name in _in_order(tensors):
        if spans[name][0] != at:
            raise BundleError(f"tensor {name} begins at byte {spans[name][0]}, {at} is expected")
        at = spans[name][1]
    if at != end:
        raise BundleError(f"the bundle's tensors end at byte {at}, {end} is expected")
    return tensors
