# SPDX-License-Identifier: Apache-2.0
"""The folder of a TUF repository's metadata, read as files and not believed.

It has ``2.root.json`` and on, ``timestamp.json``, ``snapshot.json`` and ``targets.json``, the last two with their
version in front where the root says ``consistent_snapshot``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...base.files import read_bounded
from ...base.record import record
from ...errors import TrustError
from .metadata import MAX_METADATA_BYTES, parse
from .trust import MAX_ROOTS

if TYPE_CHECKING:
    from pathlib import Path

    from .metadata import Metadata


@record(frozen=True, slots=True)
class Files:
    """What an update of a device's trust consists of."""

    roots: tuple[bytes, ...]
    timestamp: bytes
    snapshot: bytes
    targets: bytes


def read_repository(folder: Path, root: Metadata) -> Files:
    """The newest metadata, and the roots that follow this one.

    Raises
    ------
    InputError, TrustError
        A file cannot be read or is not metadata.
    """
    roots: list[bytes] = []
    while len(roots) < MAX_ROOTS and os.path.exists(path := folder / f"{root.version + 1 + len(roots)}.root.json"):
        roots.append(read_metadata(path))
    newest = parse(roots[-1], "root") if roots else root
    is_numbered = newest.signed.get("consistent_snapshot", False)
    timestamp = read_metadata(folder / "timestamp.json")
    snapshot = _named(folder, parse(timestamp, "timestamp").signed, "snapshot.json", is_numbered)
    targets = _named(folder, parse(snapshot, "snapshot").signed, "targets.json", is_numbered)
    return Files(tuple(roots), timestamp, snapshot, targets)


def read_metadata(path: Path) -> bytes:
    """One file of metadata.

    Raises
    ------
    InputError, TrustError
        It cannot be read, or is too long.
    """
    remedy = "copy the repository's metadata again"
    return read_bounded(path, MAX_METADATA_BYTES, "metadata", remedy=remedy, refusal=TrustError)


def _named(folder: Path, above: dict[str, dict[str, dict[str, int]]], name: str, is_numbered: bool) -> bytes:
    number = f"{above['meta'][name]['version']}." if is_numbered else ""
    return read_metadata(folder / f"{number}{name}")
