# SPDX-License-Identifier: Apache-2.0
"""What came back from a fleet: labelled readings in a store, for the next training.

Audits are a sample of what devices have decided alone, and cases of what they have forwarded; together, with their
weights, they stand for all decisions. Whatever devices have sent may be wrong or forged, so that readings are checked,
and no device gives more than its share of the rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from .cases import CASE
from .database import Database
from .dialects import Row
from .incoming import is_request, word
from .registry import F0, PERSON

__all__ = ["PARTS", "CameBack", "came_back", "part_of"]

PAGE = 5_000
EVER = 1e300  # later than any record
PARTS = ((0.6, "train"), (0.7, "valid"), (0.8, "calibration"), (1.0, "test"))  # shares of the rows, one after the other
_OF = "{0}.device = r.device AND {0}.boot = r.boot AND {0}.sequence = r.sequence AND {0}.source = ?"
QUERY = (
    "SELECT r.received, r.device, r.boot, r.sequence, r.kind, r.record, f.label, p.label FROM records r "
    f"LEFT JOIN labels f ON {_OF.format('f')} LEFT JOIN labels p ON {_OF.format('p')} "
    "WHERE r.kind IN ('audit', 'case') AND (r.received, r.device, r.boot, r.sequence) < (?, ?, ?, ?) "
    "ORDER BY r.received DESC, r.device DESC, r.boot DESC, r.sequence DESC LIMIT ?"
)


@dataclass(frozen=True, slots=True)
class CameBack:
    """One labelled row."""

    device: str
    boot: int
    sequence: int
    is_case: bool  # forwarded; otherwise an audit of what the device has decided alone
    share: float  # of cases, the share that was kept; of audits 1, because no record says it
    readings: tuple[Any, ...]  # in the order of a request, None for missing
    label: str
    is_by_person: bool


def part_of(row: CameBack) -> str:
    """The part of the rows that this one is in, the same at each training: what one has tested on, no later one learns.

    >>> part_of(CameBack("pump-7", 3, 15, False, 1.0, (20.5,), "ok", False))
    'train'
    """
    digest = sha256(f"{row.device}/{row.boot}/{row.sequence}".encode()).digest()
    place = int.from_bytes(digest[:4], "big") / 2**32
    return next(part for end, part in PARTS if place < end)


def came_back(
    database: Database,
    bundles: Collection[str],
    hpc: str,
    width: int,
    classes: Sequence[str],
    *,
    most: int = 100_000,
    per_device: int = 1_000,
) -> list[CameBack]:
    """The newest labelled rows in a store, sorted by device, boot and sequence.

    Parameters
    ----------
    bundles : SHA-256 of bundles in hex, whose audits are read; all of them ask the same f0
    hpc : SHA-256 of that f0, whose cases are read
    width : number of readings in a request
    classes : labels that may occur; rows with others are left out
    most, per_device : rows at most, of all devices and of one

    Raises
    ------
    InputError
        The store cannot be used.
    """
    known_bundles, rows, of_device = frozenset(bundles), list[CameBack](), Counter[str]()
    for record in _records(database):
        row = _row(record, known_bundles, hpc, width, classes)
        if row is None or of_device[row.device] >= per_device:
            continue
        of_device[row.device] += 1
        rows.append(row)
        if len(rows) >= most:
            break
    return sorted(rows, key=lambda row: (row.device, row.boot, row.sequence))


def _records(database: Database) -> Iterator[Row]:
    """Audits and cases, the newest first, with the labels of f0 and of a person."""
    after: Row = (EVER, "", 0, 0)
    while True:
        page = database.read(QUERY, (F0, PERSON, *after, PAGE))
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1][:4]


def _row(record: Row, bundles: frozenset[str], hpc: str, width: int, classes: Sequence[str]) -> CameBack | None:
    """The row of a record; None if it is not one of this f0, or has no label."""
    _, device, boot, sequence, kind, text, by_f0, by_person = record
    fields = json.loads(text)
    readings, share = fields.get("readings"), 1.0
    if kind == CASE:
        result, share = fields.get("result"), fields.get("share")
        if fields.get("hpc") != hpc or type(result) is not int or not 0 <= result < len(classes):
            return None
        if type(share) not in (int, float):
            return None
        by_f0 = classes[result]
    elif word(fields.get("bundle")) not in bundles:
        return None
    label = by_person or by_f0
    if label not in classes or not is_request(readings, width) or not 0 < share <= 1:
        return None
    return CameBack(device, boot, sequence, kind == CASE, share, tuple(readings), label, bool(by_person))
