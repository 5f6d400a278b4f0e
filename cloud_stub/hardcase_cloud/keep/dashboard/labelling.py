# SPDX-License-Identifier: Apache-2.0
"""The page to label: which case is next, what it shows, and labels that are kept before the page says so.

What a page sends is checked field by field, and what devices have sent is bounded; the page writes it as text alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hardcase_edge.base.escape import terminal
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.outbox.evidence import from_record, type_of

from ..records.cases import CASE
from ..records.database import Database, utf8
from ..records.dialects import Row
from ..records.incoming import MOST
from ..records.labels import Labels
from .bundles import Bundles, Feature, Known
from .judged import Errors, Judged, needed
from .waiting import AUDIT, START, Waiting, case_at, next_waiting, take_back

MOST_READINGS = 2_000  # that are shown
MOST_SEEN = 1_000  # classes that are offered where the bundle is not known
MOST_PASSED = 200
MOST_APART_S = 86_400.0
KINDS = {"": (AUDIT, CASE), AUDIT: (AUDIT,), CASE: (CASE,)}
AT_MOST = 0.01  # share of wrong answers, of a bundle that promises nothing


class Labelling:
    """Answers the page's questions.

    Every method takes the fields that the page has sent, and raises ``InputError`` if they are not what they should
    be, or the store cannot be used.
    """

    def __init__(
        self, database: Database, bundles: Bundles, judged: Judged, *, now: Callable[[], float] = time.time
    ) -> None:
        self._database, self._bundles, self._judged, self._now = database, bundles, judged, now
        self._labels = Labels(database)

    def next(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The next case that waits: ``after``, ``apart_s``, ``kind``, ``passed`` and ``at_most`` are the page's."""
        self._bundles.renew()
        apart_s = _number(fields, "apart_s", 0.0, MOST_APART_S)
        kind = fields.get("kind", "")
        if not isinstance(kind, str) or kind not in KINDS:
            raise InputError("kind is not a kind of case; send audit, case or nothing")
        after: Row = START if fields.get("after") is None else _place(fields["after"])
        found, go_on = next_waiting(
            self._database, self._fits, after=after, kinds=KINDS[kind], apart_s=apart_s, passed=_passed(fields)
        )
        at_most = None if fields.get("at_most") is None else _number(fields, "at_most", 0.0001, 0.5)
        return {
            "case": None if found is None else self._shown(found),
            "go_on": go_on,
            "progress": self._progress(found, at_most),
        }

    def give(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Keep a label; the answer is given once it is on the disk."""
        key, label = _key(fields.get("key")), fields.get("label")
        case = case_at(self._database, key)
        if case is None:
            raise InputError("the store has this case no more; take the next one")
        if not isinstance(label, str) or label not in self._classes(case):
            raise InputError("this is not a class of the case's bundle; choose one of those that are shown")
        self._labels.label_by_person([(*key, label)], self._now())
        return {"kept": label}

    def take_back(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Remove a label that was given, and show the case again."""
        key, label = _key(fields.get("key")), fields.get("label")
        if not isinstance(label, str) or not take_back(self._database, key, label):
            raise InputError("somebody has labelled this case anew, or its label is gone; take the next one")
        case = case_at(self._database, key)
        return {"case": None if case is None else self._shown(case), "progress": self._progress(case, None)}

    def evidence(self, key: list[Any], number: str) -> tuple[bytes, str] | None:
        """One picture or sound of a case, and its type; None if there is none of this number, from 0."""
        case = case_at(self._database, _key(key))
        found = [] if case is None else _evidence(case)
        if not (number.isascii() and number.isdigit() and len(number) < 3 and int(number) < len(found)):
            return None
        _, data, kind = found[int(number)]
        return data, kind

    # ------------------------------------------------------------ parts

    def _classes(self, case: Waiting) -> Sequence[str]:
        known = self._bundles.of_record(case.fields)
        if known is not None and known.classes:
            return known.classes
        rows = self._database.read("SELECT DISTINCT label FROM answers ORDER BY label LIMIT ?", (MOST_SEEN,))
        return [row[0] for row in rows]

    def _fits(self, case: Waiting) -> bool:
        """Whether it has one answer, which is a class."""
        is_class = case.kind == CASE or isinstance(case.fields.get("label"), str | int | float)
        return is_class and bool(self._classes(case))

    def _shown(self, case: Waiting) -> dict[str, Any]:
        fields, known = case.fields, self._bundles.of_record(case.fields)
        own = None if case.kind == CASE else _text(fields.get("label"))
        by_f0 = self._bundles.f0_label(fields) if case.kind == CASE else case.by_f0 or _f0_of(fields)
        bundle = fields.get("bundle")
        return {
            "key": [case.device, case.boot, case.sequence], "place": case.place, "kind": case.kind,
            "received": case.received, "time": case.time,
            "bundle": self._bundles.title(bundle) if isinstance(bundle, str) else known.name if known else "",
            "readings": _readings(fields.get("readings"), known), "has_names": bool(known and known.features),
            "classes": self._classes(case), "own": own, "f0": _text(by_f0),
            "evidence": [[_text(name), kind] for name, _, kind in _evidence(case)],
        }  # fmt: skip

    def _progress(self, case: Waiting | None, at_most: float | None) -> dict[str, Any]:
        """What people have judged of the case's bundle, or of all, and how much is still needed."""
        self._judged.renew()
        bundle = case.fields.get("bundle") if case is not None and case.kind == AUDIT else None
        known = self._bundles.of(bundle) if isinstance(bundle, str) else None
        errors = self._judged.by_bundle.get(bundle, Errors()) if isinstance(bundle, str) else self._judged.all
        promised = known.promised if known is not None else None
        share = at_most or (AT_MOST if promised is None else max(1e-6, round(1 - promised, 6)))
        return {
            **errors.to_json(), "bundle": self._bundles.title(bundle) if isinstance(bundle, str) else "",
            "at_most": share, "is_promise": at_most is None and promised is not None, "needed": needed(errors, share),
        }  # fmt: skip


def _evidence(case: Waiting) -> list[tuple[str, bytes, str]]:
    """Of each picture or sound of an audit the sensor, the bytes and the type, which follows from the bytes alone."""
    found = from_record(case.fields) if case.kind == AUDIT else {}
    return [(name, data, type_of(data)) for name, data in found.items()]


def _readings(readings: Any, known: Known | None) -> list[list[Any]]:
    """Of each reading its name, value, and the least and greatest of the training rows; None where not known."""
    values = readings[:MOST_READINGS] if isinstance(readings, list) else []
    features = known.features if known is not None and len(known.features) == len(readings or ()) else ()
    if not features:
        return [[f"reading {k}", _value(x), None, None] for k, x in enumerate(values, 1)]
    return [[f.name, _named(x, f), f.low, f.high] for x, f in zip(values, features, strict=False)]


def _named(value: Any, feature: Feature) -> Any:
    plain = _value(value)
    if feature.texts and isinstance(plain, int | float) and plain in range(len(feature.texts)):
        return feature.texts[int(plain)]
    return plain


def _value(value: Any) -> Any:
    """A number or a short text; everything else is null: records are whatever devices send."""
    return value if type(value) in (int, float) and abs(value) < 1e300 else _text(value)


def _text(value: Any) -> str | None:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return terminal(utf8(str(value)[:64]))
    return None


def _f0_of(fields: Mapping[str, Any]) -> Any:
    answer = fields.get("f0")
    return answer.get("label") if isinstance(answer, dict) else None


def _number(fields: Mapping[str, Any], name: str, least: float, most: float) -> float:
    value = fields.get(name, 0)
    if type(value) not in (int, float) or not least <= value <= most:
        raise InputError(f"{name} is not a number from {least:g} to {most:g}; send one")
    return float(value)


def _key(value: Any) -> Row:
    if (
        isinstance(value, list) and len(value) == 3 and isinstance(value[0], str) and len(value[0]) <= 256
        and all(type(x) is int and 0 <= x <= MOST for x in value[1:]) and "\0" not in value[0]
    ):  # fmt: skip
        return value[0], value[1], value[2]
    raise InputError("key is not the device, boot and sequence of a case; send those that were shown")


def _place(value: Any) -> Row:
    if isinstance(value, list) and len(value) == 4 and type(value[0]) in (int, float) and abs(value[0]) <= 1e300:
        return float(value[0]), *_key(value[1:])
    raise InputError("after is not the place of a case; send what was shown")


def _passed(fields: Mapping[str, Any]) -> list[tuple[str, float]]:
    passed = fields.get("passed", [])
    if not isinstance(passed, list) or len(passed) > MOST_PASSED:
        raise InputError(f"passed is not a list of up to {MOST_PASSED} cases; send fewer")
    pairs = [p for p in passed if isinstance(p, list) and len(p) == 2]
    return [
        (p[0], float(p[1]))
        for p in pairs
        if isinstance(p[0], str) and type(p[1]) in (int, float) and abs(p[1]) <= 1e300
    ]


def parse_fields(body: bytes) -> dict[str, Any]:
    """The object of JSON that a page has sent. Raises ``InputError`` if it is not one."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError("this is not JSON; send an object") from error
    if not isinstance(fields, dict):
        raise InputError("this is not an object of JSON; send one")
    return fields
