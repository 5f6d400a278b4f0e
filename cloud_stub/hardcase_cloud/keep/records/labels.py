# SPDX-License-Identifier: Apache-2.0
"""Labels of records beside the device's answers: f0's, which answers the audits of a store, and those of people."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from hardcase_edge.base.files import read_bounded
from hardcase_edge.errors import InputError

from .database import MINUTES, Database
from .dialects import Row
from .incoming import MOST, is_request, object_of, word
from .standing import Audited, add_audits

F0 = "f0"  # the source of labels that f0 has given
PERSON = "person"  # and of those of people, which win in training
BATCH = 500
MAX_LABELS_BYTES = 256 * 1024 * 1024
_NUMBER = re.compile(r"[0-9]{1,16}", re.ASCII)


class Labels:
    """Labels of one store: a record has one of each source. Each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._it = database.dialect

    def unlabelled(self, source: str, most: int, but_of: Sequence[str] = ()) -> list[Row]:
        """Audits without a label of this source, the newest first: device, boot, sequence, received, record.

        Parameters
        ----------
        but_of : SHA-256 of bundles, in hex, whose audits are left out
        """
        return self.database.read(
            "SELECT r.device, r.boot, r.sequence, r.received, r.record FROM records r WHERE r.kind = 'audit' AND NOT "
            "EXISTS (SELECT 1 FROM labels l WHERE l.device = r.device AND l.boot = r.boot AND l.sequence = r.sequence "
            f"AND l.source = ?) {'AND r.record NOT LIKE ? ' * len(but_of)}ORDER BY r.received DESC LIMIT ?",
            (source, *[f'%"{bundle}"%' for bundle in but_of], most),
        )

    def bundles_of_others(self, hpc: str) -> list[str]:
        """The bundles that were rolled out from this store and ask another f0 than this one; all SHA-256 in hex."""
        rows = self.database.read("SELECT sha256, manifest FROM bundles ORDER BY sha256")
        return [sha256 for sha256, text in rows if object_of(text).get("hpc", "") not in ("", hpc)]

    def label(self, labels: Sequence[tuple[Row, str, bool]], source: str, now: float) -> int:
        """Keep labels of audits, each once; returns how many are new.

        Parameters
        ----------
        labels : of each the row of ``unlabelled``, the label, and whether the device has decided the same
        """
        by_key = {row[:3]: (row, label, agrees) for row, label, agrees in labels}

        def act() -> int:
            minutes: dict[tuple[str, int], list[int]] = {}
            audits: list[Audited] = []
            for key, (row, label, agrees) in sorted(by_key.items()):
                if not self._it.execute(
                    "INSERT INTO labels VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING boot",
                    (*key, source, label, now),
                ):
                    continue
                record = json.loads(row[4])
                bundle = word(record.get("bundle"))
                audits.append((record, bundle, word(str(record.get("label"))[:64]), agrees, row[3]))
                counts = minutes.setdefault((bundle, int(row[3] // 60)), [0, 0])
                counts[0] += 1
                counts[1] += agrees
            rows = [(*key, 0, 0, 0, 0.0, 0, *counts) for key, counts in sorted(minutes.items())]
            self._it.many(MINUTES, rows)
            if source == F0:
                add_audits(self._it, audits)
            return len(audits)

        return self._it.run(act)

    def label_by_person(self, labels: Sequence[tuple[str, int, int, str]], now: float) -> int:
        """Keep what people say of records that are here: device, boot, sequence, label; the last word counts.

        Returns how many of them are here.
        """
        sql = (
            "INSERT INTO labels SELECT device, boot, sequence, ?, ?, ? FROM records WHERE device = ? AND boot = ? AND "
            "sequence = ? ON CONFLICT (device, boot, sequence, source) DO UPDATE SET label = excluded.label, "
            "received = excluded.received RETURNING boot"
        )

        def act() -> int:
            in_order = sorted(labels, key=lambda row: row[:3])  # of one record as they came
            return sum(len(self._it.execute(sql, (PERSON, label, now, *key))) for *key, label in in_order)

        return self._it.run(act)

    def set_aside(self, rows: Sequence[Row], source: str, now: float) -> None:
        """Audits that have no label of this source and never will."""
        sql = "INSERT INTO labels VALUES (?, ?, ?, ?, '', ?) ON CONFLICT DO NOTHING"
        self._it.run(lambda: self._it.many(sql, [(*row[:3], source, now) for row in rows]))


class Model(Protocol):
    """f0, as ``answer.asking.Answerer``; ``answers`` of a large model has text in place of an answer that failed."""

    sha256: str
    dtypes: tuple[str, ...]

    def answer(self, rows: Sequence[Sequence[Any]]) -> list[tuple[int, int]]: ...


class Labelling:
    """Labels the audits that f0 has not seen, ``most`` at a time; one that f0 fails in is not asked about again.

    Attributes
    ----------
    failed : set
        Device, boot and sequence of the audits that f0 failed in.
    n_found : int
        Audits that waited when ``some`` looked last, ``most`` at most, whatever became of them.

    Raises
    ------
    InputError
        The store cannot be used, or f0 answers none of several audits.
    """

    def __init__(self, labels: Labels, model: Model, classes: Sequence[Any], most: int = BATCH) -> None:
        self._labels, self._model, self._classes, self._most = labels, model, classes, most
        self.failed: set[tuple[Any, ...]] = set()
        self.n_found = 0

    def some(self, now: Callable[[], float] = time.time) -> tuple[int, int]:
        """Label some; returns how many are new, and on how many both agree.

        An audit whose readings are not a request of this f0 gets the empty label, with which no device agrees, so that
        it is not looked at again; it counts neither as agreement nor as an audit of the bundle.
        """
        others = self._labels.bundles_of_others(self._model.sha256)
        found = self._labels.unlabelled(F0, self._most + len(self.failed), others)
        waiting = [row for row in found if row[:3] not in self.failed][: self._most]
        self.n_found = len(waiting)
        records = [json.loads(row[4]) for row in waiting]
        is_good = [is_request(record.get("readings"), len(self._model.dtypes)) for record in records]
        good = [(row, record) for row, record, is_one in zip(waiting, records, is_good, strict=True) if is_one]
        answers = self._answers([record["readings"] for _, record in good])
        new: list[tuple[Row, str, bool]] = []
        for (row, record), answer in zip(good, answers, strict=True):
            if isinstance(answer, str):
                self.failed.add(row[:3])
                continue
            if not 0 <= answer[0] < len(self._classes):
                raise InputError(
                    f"f0 answers class {answer[0]}, and the bundle has {len(self._classes)}; name the bundle of this f0"
                )
            label = str(self._classes[answer[0]])
            new.append((row, label, str(record.get("label")) == label))
        n = self._labels.label(new, F0, now())
        self._labels.set_aside([row for row, is_one in zip(waiting, is_good, strict=True) if not is_one], F0, now())
        return n, sum(agrees for _, _, agrees in new)

    def _answers(self, rows: list[Any]) -> list[Any]:
        if not rows:
            return []
        answers = list(getattr(self._model, "answers", self._model.answer)(rows))
        if len(rows) > 1 and all(isinstance(answer, str) for answer in answers):
            raise InputError(f"f0 answers none of {len(rows)} audits; see the log")
        return answers


def read_labels(path: str | Path, classes: Sequence[str]) -> list[tuple[str, int, int, str]]:
    """What people say of records, from a CSV file with the columns device, boot, sequence and label.

    Raises
    ------
    InputError
        The file cannot be read, or a row of it is not a label; the message names its line.
    """
    data = read_bounded(Path(path), MAX_LABELS_BYTES, "file of labels", remedy="name a CSV file")
    try:
        reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""))
        lacking = {"device", "boot", "sequence", "label"} - set(reader.fieldnames or ())
        if lacking:
            raise InputError(f"{path} has no column {min(lacking)!r}; columns are device, boot, sequence and label")
        return [_label_of(path, reader.line_num, row, classes) for row in reader]
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a CSV file in UTF-8: {error}; save it again") from error


def _label_of(path: str | Path, line: int, row: dict[str, str], classes: Sequence[str]) -> tuple[str, int, int, str]:
    boot, sequence, label = row["boot"] or "", row["sequence"] or "", row["label"]
    if not all(_NUMBER.fullmatch(text) and int(text) <= MOST for text in (boot, sequence)):
        raise InputError(
            f"{path}, line {line}: boot and sequence are not whole numbers; take them from cloud store --export"
        )
    if label not in classes:
        raise InputError(
            f"{path}, line {line}: {str(label)[:60]!r} is not a class; they are {', '.join(classes)[:200]}"
        )
    return row["device"] or "", int(boot), int(sequence), label
