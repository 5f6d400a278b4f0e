# SPDX-License-Identifier: Apache-2.0
"""The files of one slot: the bundle, its signature, the archive with the rest, and the digests of all.

a/bundle.hcb, a/bundle.hcb.sig    the bundle of a slot, and its signature where it has one
a/release.hcr                     what a release has brought besides
a/parts                           the digests of both and of what was offered; only where that was no bundle alone
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING

from ...base.files import read_bounded
from ...base.sha256 import sha256
from ...bundle.ed25519 import SIGNATURE_BYTES
from ...bundle.file import MAX_BUNDLE_BYTES
from ...bundle.signature import MAX_SIGNATURES, signature_path
from ...errors import StoreError
from .archive import MAX_ARCHIVE_BYTES
from .content import Content

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BUNDLE, ARCHIVE, PARTS = "bundle.hcb", "release.hcr", "parts"


def write_content(
    folder: Path, content: Content, write: Callable[[Path, bytes], None], seal: Callable[[bytes], None]
) -> None:
    """Write a slot that nobody reads meanwhile; ``write`` and ``seal`` have a file and ``parts`` on the disk.

    Raises
    ------
    StoreError, InputError
        The disk cannot be written, or gives other bytes back.
    """
    path = folder / BUNDLE
    for old in (signature_path(path), folder / ARCHIVE, folder / PARTS):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(old)
    if content.signature:
        write(signature_path(path), content.signature)
    if content.archive:
        write(folder / ARCHIVE, content.archive)
    own, rest = (sha256(data).hex() for data in (content.bundle, content.archive))
    if content.archive or own != content.sha256:
        seal(json.dumps({"offered": content.sha256, "bundle": own, "rest": rest}).encode())
    write(path, content.bundle)


def read_content(folder: Path, parts: bytes | None) -> Content:
    """What a slot holds, as it was put; ``parts`` is what its sealed file says, None where there is none.

    Raises
    ------
    StoreError
        A part of it is damaged.
    InputError
        It cannot be read.
    """
    remedy, path = "put it again", folder / BUNDLE
    bundle = read_bounded(path, MAX_BUNDLE_BYTES, "bundle", remedy=remedy)
    own, signature, rest = sha256(bundle).hex(), b"", b""
    if signature_path(path).exists():
        signature = read_bounded(signature_path(path), MAX_SIGNATURES * SIGNATURE_BYTES, "signature", remedy=remedy)
    if parts is None:
        return Content(own, bundle, signature)
    if (folder / ARCHIVE).exists():
        rest = read_bounded(folder / ARCHIVE, MAX_ARCHIVE_BYTES, "archive", remedy=remedy)
    try:
        noted = json.loads(parts)
        if (noted["bundle"], noted["rest"]) == (own, sha256(rest).hex()):
            return Content(str(noted["offered"]), bundle, signature, rest)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise StoreError(f"the slot {folder} is damaged; {remedy}")
