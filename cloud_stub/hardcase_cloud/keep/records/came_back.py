# SPDX-License-Identifier: Apache-2.0
"""What came back from a fleet: labelled rows in a store, each once, and the part of a training that each belongs to.

Audits are a sample of what devices have decided alone, and cases of what they have forwarded; together, with their
weights, they stand for all decisions. Whatever devices have sent may be wrong or forged: readings are checked, no
device gives more than its share of the rows, and a secret of the store decides which rows one learns from and which
one tests on, by the readings, so that rows with the same readings are in one part and no device can choose it.
"""

from __future__ import annotations

import hmac
import json
import struct
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Any

from .cases import CASE
from .database import Database
from .dialects import Row
from .incoming import is_request, word
from .labels import F0, PERSON

EVER = 1e300  # later than any record
PARTS = ((0.6, "train"), (0.7, "valid"), (0.8, "calibration"), (1.0, "test"))  # shares of the rows, one after the other
MOST_OF_ONE = 0.05  # of the rows of a part: what one device may give in any case
SECRET = "parts"
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
    part: str = ""  # one of PARTS, the same at each training: what one has tested on, no later one learns
    draw: float = 0.0  # in [0, 1), by the store's secret: which rows are taken where not all can be


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
    """The newest labelled rows in a store, each (device, boot, sequence) once, sorted by these.

    A case with the readings of an audit of its device is that audit once more, as workers of earlier versions kept it,
    and is left out. What people say of a row, most of them, holds for all rows of the device with the same readings of
    which they say nothing.

    Parameters
    ----------
    bundles : SHA-256 of bundles in hex, whose audits are read; all of them send the same request
    hpc : SHA-256 of the f0 whose cases are read; "": none are
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
    secret = database.secret(SECRET)
    return [_dealt(row, secret) for row in _each_once(rows)]


def fair(rows: Sequence[CameBack]) -> list[CameBack]:
    """Rows of which no device gives more than the median device does, or than ``MOST_OF_ONE`` of them if that is more.

    So a device decides a comparison only as far as others do, and most of the devices would have to flood a store
    together. Which of its rows are left out follows from the store's secret.

    Examples
    --------
    >>> row = CameBack("pump-7", 3, 1, False, 1.0, (20.5,), "ok", False)
    >>> rows = [replace(row, device=f"d{k % 3 if k < 9 else 0}", sequence=k) for k in range(100)]
    >>> Counter(row.device for row in fair(rows))
    Counter({'d0': 3, 'd1': 3, 'd2': 3})
    """
    counts = Counter(row.device for row in rows)
    if not counts:
        return []
    cap = median_low(counts.values())
    for _ in range(len(rows)):  # what is left decides what MOST_OF_ONE of it is
        more = max(cap, int(MOST_OF_ONE * sum(min(n, cap) for n in counts.values())))
        if more == cap:
            break
        cap = more
    taken, kept = Counter[str](), set[int]()
    for k in sorted(range(len(rows)), key=lambda k: (rows[k].draw, k)):
        taken[rows[k].device] += 1
        if taken[rows[k].device] <= cap:
            kept.add(k)
    return [row for k, row in enumerate(rows) if k in kept]


def _each_once(rows: Sequence[CameBack]) -> list[CameBack]:
    """The rows without audits that are here as cases, too, with a person's label for all alike of its device."""
    audited = {(row.device, row.readings) for row in rows if not row.is_case}
    said: dict[tuple[str, tuple[Any, ...]], Counter[str]] = {}
    for row in rows:
        if row.is_by_person:
            said.setdefault((row.device, row.readings), Counter())[row.label] += 1
    out = []
    for row in rows:
        key = row.device, row.readings
        if row.is_case and key in audited:
            continue
        if not row.is_by_person and key in said:
            row = replace(row, label=said[key].most_common(1)[0][0], is_by_person=True)
        out.append(row)
    return sorted(out, key=lambda row: (row.device, row.boot, row.sequence))


def _dealt(row: CameBack, secret: bytes) -> CameBack:
    """The row with its part and its draw: by its readings, and by its number."""
    numbers = [float("nan") if x is None else float(x) + 0.0 for x in row.readings]  # minus zero is zero
    place = _place(secret, struct.pack(f"<{len(numbers)}d", *numbers))
    part = next(part for end, part in PARTS if place < end)
    return replace(row, part=part, draw=_place(secret, f"{row.device}/{row.boot}/{row.sequence}".encode()))


def _place(secret: bytes, what: bytes) -> float:
    return int.from_bytes(hmac.digest(secret, what, "sha256")[:4], "big") / 2**32


def _records(database: Database) -> Iterator[Row]:
    """Audits and cases, the newest first, with the labels of f0 and of a person."""
    return database.pages(QUERY, (EVER, "", 0, 0), F0, PERSON)


def _row(record: Row, bundles: frozenset[str], hpc: str, width: int, classes: Sequence[str]) -> CameBack | None:
    """The row of a record; None if it is not one of this f0, or has no label."""
    _, device, boot, sequence, kind, text, by_f0, by_person = record
    fields = json.loads(text)
    readings, share = fields.get("readings"), 1.0
    if kind == CASE:
        result, share = fields.get("result"), fields.get("share")
        if not hpc or fields.get("hpc") != hpc or type(result) is not int or not 0 <= result < len(classes):
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
