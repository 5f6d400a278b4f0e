# SPDX-License-Identifier: Apache-2.0
"""The database of records: flushed before anything is acknowledged, and each (device, boot, sequence) once.

Records carry seconds since their boot, and wall time where the device knew it. ``rows`` gives all records of a boot the
wall time that follows from its latest record with both (docs/SPEC-wire-v1.md, section 5). What the records of a minute
say together is summed up as they come, so that a page over a million of them is read from few rows.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from hardcase_edge.record_keys import COLUMNS

from .dialects import Dialect, Row, open_dialect
from .incoming import Incoming, joined_labels
from .schema import STAGE, migrate

MOST_SECONDS = 1e12  # a time beyond it is not one
PAGE = 5_000  # rows that are read or removed at once
MOST_LABELS = 64  # of a bundle in one batch that are counted by name; the others are "other"
MINUTES = """\
INSERT INTO minutes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (bundle, minute) DO UPDATE SET
  decisions = minutes.decisions + excluded.decisions, forwarded = minutes.forwarded + excluded.forwarded,
  degraded = minutes.degraded + excluded.degraded, cost = minutes.cost + excluded.cost,
  audits = minutes.audits + excluded.audits, labelled = minutes.labelled + excluded.labelled,
  agreed = minutes.agreed + excluded.agreed"""
ANSWERS = (
    "INSERT INTO answers VALUES (?, ?, ?, ?) ON CONFLICT (bundle, hour, label) DO UPDATE SET n = answers.n + excluded.n"
)
IN_ORDER = (
    "SELECT device, boot, sequence, kind, received, record FROM records WHERE (device, boot, sequence) > (?, ?, ?) "
    "ORDER BY device, boot, sequence LIMIT ?"
)
FIRST: Row = ("", 0, 0)  # before all records
# Where a cell begins with one, also a cell that a spreadsheet makes which parts lines at other marks than commas.
FORMULA = re.compile(r"(?:^|(?<=[;\t\r\n]))(?=[=+\-@\t\r])")


class Database:
    """A store of records.

    Parameters
    ----------
    url : ``sqlite:FILE`` (or a path; the file is made if it does not exist), or ``postgresql://...``
    max_bytes : of the file; when it is full, nothing more is taken
    makes : whether a file that is not there is made

    Raises
    ------
    InputError
        By every method: the database cannot be used, is another program's, of a newer version, or is full.
    """

    def __init__(self, url: str | Path, max_bytes: int = 1 << 40, *, makes: bool = True) -> None:
        self.dialect: Dialect = open_dialect(url, max_bytes, makes=makes)
        try:
            self.dialect.run(lambda: migrate(self.dialect))
        except BaseException:
            self.dialect.close()
            raise

    def keep(self, records: Sequence[Incoming], received: float) -> int:
        """Have these records on the disk, each once; returns how many are new.

        Parameters
        ----------
        received : wall time in seconds
        """
        by_key: dict[Row, Incoming] = {}
        for record in records:
            by_key.setdefault((record.device, record.boot, record.sequence), record)
        return self.dialect.run(lambda: self._keep(by_key, received))

    def _keep(self, by_key: dict[Row, Incoming], received: float) -> int:
        it = self.dialect
        it.execute(STAGE)
        it.execute("DELETE FROM incoming")
        it.load("incoming", [(*key, r.kind, received, r.text) for key, r in by_key.items()])
        new = it.execute(
            "INSERT INTO records SELECT * FROM incoming WHERE true ON CONFLICT DO NOTHING "
            "RETURNING device, boot, sequence"
        )
        minutes, answers = _sums([by_key[row] for row in new], received)
        it.many(MINUTES, minutes)
        it.many(ANSWERS, answers)
        return len(new)

    def rows(self) -> Iterator[dict[str, Any]]:
        """All records in order of device, boot and sequence, with ``COLUMNS`` as keys; absent values are None."""
        offsets = self._offsets()
        for row in self.pages(IN_ORDER, FIRST):
            fields = json.loads(row[5])
            fields.setdefault("label", joined_labels(fields.get("labels")) or None)
            at, offset = _seconds(fields.get("at")), offsets.get(row[:2])
            time = _seconds(fields.get("t")) if at is None or offset is None else round(at + offset, 3)
            head = dict(zip(COLUMNS[:5], row[:5], strict=True))
            yield {**head, "time": time, **{key: fields.get(key) for key in COLUMNS[6:]}}

    def pages(self, sql: str, after: Row, *fields: Any) -> Iterator[Row]:
        """The rows of a query, ``PAGE`` at a time; it is given ``fields``, the place ``after``, and the limit.

        The columns of a place are the query's first ones, and the query sorts by them.
        """
        while True:
            page = self.read(sql, (*fields, *after, PAGE))
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1][: len(after)]

    def _offsets(self) -> dict[Row, float]:
        """Of each boot of each device the wall time at which it began, by its latest record that knows the time."""
        offsets = {}
        for device, boot, _, _, _, text in self.pages(IN_ORDER, FIRST):
            fields = json.loads(text)
            t, at = _seconds(fields.get("t")), _seconds(fields.get("at"))
            if t is not None and at is not None:
                offsets[device, boot] = t - at
        return offsets

    def remove(self, before: float) -> int:
        """Remove some of the records that were received before this time; returns how many, 0 when all are gone."""

        def act() -> int:
            rows = self.dialect.execute(
                "DELETE FROM records WHERE (device, boot, sequence) IN (SELECT device, boot, sequence FROM records "
                "WHERE received < ? LIMIT ?) RETURNING device, boot",
                (before, PAGE),
            )
            self.dialect.many("UPDATE starts SET facts = '' WHERE device = ? AND boot = ?", sorted(set(rows)))
            return len(rows)

        return self.dialect.run(act)

    def export(self, file: IO[str]) -> int:
        """Write all records as CSV; returns their number."""
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        n = 0
        for row in self.rows():
            writer.writerow({key: _plain(value) for key, value in row.items()})
            n += 1
        return n

    def secret(self, name: str) -> bytes:
        """32 random bytes of this store, made when they are first asked for."""
        self.write("INSERT INTO secrets VALUES (?, ?) ON CONFLICT DO NOTHING", (name, os.urandom(32).hex()))
        return bytes.fromhex(str(self.read("SELECT value FROM secrets WHERE name = ?", (name,))[0][0]))

    def close(self) -> None:
        """Close the connection."""
        self.dialect.close()

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """The rows that a statement gives."""
        return self.dialect.run(lambda: self.dialect.execute(sql, values), writes=False)

    def write(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Change something with one statement; the rows that it gives."""
        return self.dialect.run(lambda: self.dialect.execute(sql, values))


def _sums(records: Sequence[Incoming], received: float) -> tuple[list[Row], list[Row]]:
    """Rows of ``minutes`` and ``answers`` for new records."""
    minute = int(received // 60)
    counts: dict[str, list[float]] = {}
    answers: dict[str, Counter[str]] = {}
    for r in records:
        if r.kind not in ("audit", "decision"):  # a worker's case, which its device reports as a decision
            continue
        of_bundle = counts.setdefault(r.bundle, [0, 0, 0, 0.0, 0])
        if r.kind == "audit":
            of_bundle[4] += 1
            continue
        of_bundle[0] += 1
        of_bundle[1] += r.route in ("cloud", "degraded")
        of_bundle[2] += r.route == "degraded"
        of_bundle[3] += r.cost
        if r.label:
            of_label = answers.setdefault(r.bundle, Counter())
            of_label[r.label if r.label in of_label or len(of_label) < MOST_LABELS else "other"] += 1
    # sorted: two stores that write at once lock rows in the same order
    minutes = [(bundle, minute, *c, 0, 0) for bundle, c in sorted(counts.items())]
    return minutes, [
        (b, minute // 60, label, n) for b, of in sorted(answers.items()) for label, n in sorted(of.items())
    ]


def _seconds(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and abs(value) <= MOST_SECONDS else None


def _plain(value: Any) -> Any:
    """A cell of CSV: lists and objects as JSON. What a spreadsheet would take for a formula gets a quote before it."""
    if isinstance(value, list | dict):
        value = json.dumps(value)
    return FORMULA.sub("'", utf8(value)) if isinstance(value, str) else value


def utf8(text: str) -> str:
    """The text with a question mark for each half of a surrogate pair: JSON may hold one alone, UTF-8 may not."""
    return text.encode("utf-8", "replace").decode()
