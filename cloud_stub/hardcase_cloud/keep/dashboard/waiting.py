# SPDX-License-Identifier: Apache-2.0
"""Cases that wait for a person's label: audits and forwarded cases, one at a time, no two alike in a row.

Audits are answers that devices gave alone, cases are what they forwarded. Of one device, a case whose time is within
some seconds of one that a person has labelled or passed over is left out, because it often shows the same scene.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..records.cases import CASE
from ..records.database import MOST_SECONDS, Database
from ..records.dialects import Row
from ..records.incoming import object_of
from ..records.labels import F0, PERSON

AUDIT = "audit"
START: Row = (1e300, "", 0, 0)  # before the newest
PAGE = 200
MOST_PAGES = 25  # that one call looks through
MOST_OF_ONE = 1_000  # labels of one device that are compared by time
_HERE = "l.device = r.device AND l.boot = r.boot AND l.sequence = r.sequence"
COLUMNS = (
    "r.received, r.device, r.boot, r.sequence, r.kind, r.record, "
    f"(SELECT l.label FROM labels l WHERE {_HERE} AND l.source = '{F0}')"
)
QUERY = (
    f"SELECT {COLUMNS} FROM records r WHERE r.kind IN (?, ?) AND (r.received, r.device, r.boot, r.sequence) < "
    f"(?, ?, ?, ?) AND NOT EXISTS (SELECT 1 FROM labels l WHERE {_HERE} AND l.source = '{PERSON}') "
    "ORDER BY r.received DESC, r.device DESC, r.boot DESC, r.sequence DESC LIMIT ?"
)
OF_ONE = (
    f"SELECT r.received, r.record FROM labels l JOIN records r ON {_HERE} WHERE l.source = '{PERSON}' AND l.device = ? "
    "ORDER BY l.received DESC LIMIT ?"
)


@dataclass(frozen=True, slots=True)
class Waiting:
    """One case, or audit, with what its record says."""

    received: float
    device: str
    boot: int
    sequence: int
    kind: str
    fields: dict[str, Any]
    by_f0: str | None  # label that f0 gave afterwards

    @property
    def place(self) -> Row:
        """Where it stands among all, the newest first."""
        return self.received, self.device, self.boot, self.sequence

    @property
    def time(self) -> float:
        """When it was: as the device says, if it knows the time, or when its record came."""
        return _time(self.fields, self.received)


def next_waiting(
    database: Database,
    fits: Callable[[Waiting], bool],
    *,
    after: Row = START,
    kinds: Sequence[str] = (AUDIT, CASE),
    apart_s: float = 0.0,
    passed: Collection[tuple[str, float]] = (),
) -> tuple[Waiting | None, Row | None]:
    """The next case without a person's label, the newest first.

    Parameters
    ----------
    fits : whether a case can be labelled at all
    after : the place of the case that was shown last
    kinds : of records, one or two
    apart_s : seconds between two of one device
    passed : devices and times of cases that were passed over

    Returns
    -------
    tuple
        The case, None if there is none; and then, where to go on if not everything was looked through.

    Raises
    ------
    InputError
        The store cannot be used.
    """
    times: dict[str, list[float]] = {}

    def is_alike(case: Waiting) -> bool:
        if case.device not in times:
            rows = database.read(OF_ONE, (case.device, MOST_OF_ONE))
            times[case.device] = [_time(object_of(text), received) for received, text in rows]
            times[case.device] += [time for device, time in passed if device == case.device]
        return any(abs(case.time - time) < apart_s for time in times[case.device])

    place: Row = after
    for _ in range(MOST_PAGES):
        page = list(_page(database, place, kinds))
        for case in page:
            if fits(case) and not (apart_s > 0 and is_alike(case)):
                return case, None
        if len(page) < PAGE:
            return None, None
        place = page[-1].place
    return None, place


def case_at(database: Database, key: Row) -> Waiting | None:
    """The case, or audit, of a device, boot and sequence; None if there is none."""
    rows = database.read(
        f"SELECT {COLUMNS} FROM records r WHERE r.device = ? AND r.boot = ? AND r.sequence = ? AND r.kind IN (?, ?)",
        (*key, AUDIT, CASE),
    )
    return _waiting(rows[0]) if rows else None


def take_back(database: Database, key: Row, label: str) -> bool:
    """Remove the label that a person gave a record, if it is still this one; returns whether it was."""
    removed = database.write(
        "DELETE FROM labels WHERE device = ? AND boot = ? AND sequence = ? AND source = ? AND label = ? RETURNING boot",
        (*key, PERSON, label),
    )
    return bool(removed)


def _page(database: Database, after: Row, kinds: Sequence[str]) -> Iterator[Waiting]:
    for row in database.read(QUERY, (kinds[0], kinds[-1], *after, PAGE)):
        yield _waiting(row)


def _waiting(row: Row) -> Waiting:
    received, device, boot, sequence, kind, text, by_f0 = row
    return Waiting(received, device, boot, sequence, kind, object_of(text), by_f0 or None)


def _time(fields: dict[str, Any], received: float) -> float:
    told: Any = fields.get("t")
    return float(told) if type(told) in (int, float) and 0 < told < MOST_SECONDS else received
