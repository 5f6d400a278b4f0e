# SPDX-License-Identifier: Apache-2.0
"""The archive of a card or a release: one zip file with what a device runs, and a digest of each file.

Python runs a card's as it is (``python3 card.pyz``). docs/flashing.md says what it holds. Whoever reads it checks every
digest first, so that a file that a card has not kept, or a copy that was cut short, puts nothing down.
"""

from __future__ import annotations

import io
import json
import lzma
import re
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

from ...base.record import record
from ...base.sha256 import sha256
from ...errors import InputError, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

MANIFEST = "card/manifest.json"
MAX_ARCHIVE_BYTES = 32 * 1024 * 1024
MAX_FILES = 1_000
MAGIC = b"PK\x03\x04"  # no bundle begins so: it would have a manifest of 67 MB
# What zipfile raises of bytes that are no zip file, and of one that is cut, damaged or odd. RuntimeError: a file is
# encrypted; its child NotImplementedError: a version, a flag or a compression that Python lacks. Each compression has
# an error of its own. KeyError: no such member; the rest: positions that lead nowhere.
UNREADABLE_ZIP = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, RuntimeError, KeyError, ValueError, OverflowError, EOFError,
    OSError,
)  # fmt: skip
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
TEXTS = ("bundle", "identity", "name", "runtime")  # keys of a manifest
_TIME = (2020, 1, 1, 0, 0, 0)
_NAME = re.compile(r"(?!.*(^|/)\.{1,2}(/|$))[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+){0,8}", re.ASCII)


@record(frozen=True, slots=True)
class Archive:
    """An archive whose files all have their digests."""

    files: dict[str, bytes]
    manifest: dict[str, Any]
    sha256: str


def is_archive(data: bytes) -> bool:
    """Whether these bytes, or the first of them, begin as an archive and not as a bundle does."""
    return data.startswith(MAGIC)


def zip_of(files: Mapping[str, bytes]) -> bytes:
    """A zip file of these files in their order, the same bytes each time."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data)
    return out.getvalue()


def pack_archive(files: Mapping[str, bytes], about: Mapping[str, Any]) -> bytes:
    """The archive of these files; ``about`` has the keys of its manifest besides ``format`` and ``files``."""
    manifest = {"format": 1, **about, "files": {name: sha256(data).hex() for name, data in files.items()}}
    return zip_of({**files, MANIFEST: json.dumps(manifest, sort_keys=True).encode()})


def read_zip(data: bytes, what: str) -> dict[str, bytes]:
    """The files of a zip file, bounded in number and bytes, with plain relative names.

    Raises
    ------
    InputError
        It is not such a zip file, or is damaged.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            if len(entries) > MAX_FILES or sum(e.file_size for e in entries) > MAX_ARCHIVE_BYTES:
                raise ValueError("it holds too much")
            if not all(_NAME.fullmatch(e.filename) for e in entries):
                raise ValueError("it has a file with a strange name")
            if not all(e.compress_type in COMPRESSIONS for e in entries):
                raise ValueError("it has a file of another compression")
            return {e.filename: archive.read(e) for e in entries}
    except UNREADABLE_ZIP as error:
        raise InputError(f"{what} is cut short or damaged ({one_line(error)}); flash again") from error


def read_manifest(data: bytes) -> dict[str, Any]:
    """The manifest of an archive, with the keys that every one has.

    Raises
    ------
    KeyError, TypeError, ValueError, RecursionError
        It is not one.
    """
    manifest: dict[str, Any] = json.loads(data)
    if manifest["format"] != 1:
        raise ValueError("its format is not 1; flash with the hardcase that made it")
    digests = manifest["files"]
    has_form = all(type(manifest[key]) is str for key in TEXTS) and type(manifest["run"]) is list
    if not has_form or type(digests) is not dict or not all(type(digest) is str for digest in digests.values()):
        raise ValueError("a part of its manifest is of another type")
    return manifest


def read_archive(data: bytes, what: str) -> Archive:
    """The files of an archive, each with the digest that its manifest states.

    Raises
    ------
    InputError
        It is not an archive, or a file is missing or has another digest.
    """
    files = read_zip(data, what)
    try:
        manifest = read_manifest(files.pop(MANIFEST))
        digests: Mapping[str, str] = manifest["files"]
        different = [n for n in {*digests, *files} if n not in files or digests.get(n) != sha256(files[n]).hex()]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"{what} is not an archive of hardcase ({one_line(error)}); flash again") from error
    if different:
        raise InputError(f"{what} is damaged: {min(different)} is not what was written; flash again")
    return Archive(files, manifest, sha256(data).hex())
