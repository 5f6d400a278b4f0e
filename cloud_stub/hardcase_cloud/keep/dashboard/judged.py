# SPDX-License-Identifier: Apache-2.0
"""How often answers are wrong by the labels of people: of all devices, by bundle and by device, and of f0.

An audit and a decision have the device's own answer, a forwarded case has f0's. What is known stays in memory, and a
look reads what people have said since the last one; a label that was taken back has everything read again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log
from typing import Any

from hardcase_edge.base.betting import interval, log_wealth

from ..records.cases import CASE
from ..records.database import Database
from ..records.dialects import Row
from ..records.incoming import object_of, word
from ..records.labels import PERSON
from ..records.rollouts import SETTLE_S
from ..records.standing import DELTA

MOST_NEEDED = 10_000_000
QUERY = (
    "SELECT l.received, l.device, l.boot, l.sequence, l.label, r.kind, r.record FROM labels l LEFT JOIN records r ON "
    "r.device = l.device AND r.boot = l.boot AND r.sequence = l.sequence WHERE l.source = ? AND l.received >= ?"
)


@dataclass(frozen=True, slots=True)
class Errors:
    """How many answers people have judged, and how many of them are wrong."""

    n: int = 0
    wrong: int = 0

    def and_one(self, is_wrong: bool) -> Errors:
        """One more answer."""
        return Errors(self.n + 1, self.wrong + is_wrong)

    def to_json(self) -> dict[str, Any]:
        """With the bounds of the share of wrong answers, which hold at all times at once, with 95 % confidence."""
        low, high = interval(self.n, self.wrong)
        return {"n": self.n, "wrong": self.wrong, "low": round(low, 4), "high": round(high, 4)}


def needed(errors: Errors, at_most: float) -> int | None:
    """How many right answers in a row show that at most this share is wrong, by the test of a bundle's promise.

    >>> needed(Errors(), 0.01) > needed(Errors(500, 0), 0.01) > needed(Errors(100_000, 0), 0.01) == 0
    True
    """
    right = errors.n - errors.wrong

    def is_shown(more: int) -> bool:
        return log_wealth(errors.n + more, right + more, 1 - at_most) >= -log(DELTA)

    if not is_shown(MOST_NEEDED):
        return None
    low, high = -1, MOST_NEEDED
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_shown(middle) else (middle, high)
    return high


class Judged:
    """What people have said of a store's records.

    Parameters
    ----------
    f0_label : the label that f0 gave a forwarded case, by its record; None if the classes are not known

    Attributes
    ----------
    all, by_f0 : Errors
        Of the devices' own answers, and of f0's to forwarded cases.
    by_bundle, by_device : dict
        Of the devices' own answers.
    """

    def __init__(self, database: Database, f0_label: Callable[[Mapping[str, Any]], str | None]) -> None:
        self._database, self._f0_label = database, f0_label
        self._known: dict[Row, tuple[str, str, bool, bool] | None] = {}  # bundle, device, is of f0, is wrong
        self._state: Row = (0, 0.0)
        self._sum_up()

    def renew(self) -> None:
        """Read what is new. Raises ``InputError`` if the store cannot be read."""
        [state] = self._database.read(
            "SELECT COUNT(*), COALESCE(MAX(received), 0.0) FROM labels WHERE source = ?", (PERSON,)
        )
        if state == self._state:
            return
        self._read(self._state[1] - SETTLE_S)
        if len(self._known) != state[0]:
            self._known = {}
            self._read(0.0)
        self._state = state
        self._sum_up()

    def _read(self, since: float) -> None:
        for _, device, boot, sequence, label, kind, text in self._database.read(QUERY, (PERSON, since)):
            self._known[device, boot, sequence] = None if text is None else self._judge(device, label, kind, text)

    def _judge(self, device: str, label: str, kind: str, text: str) -> tuple[str, str, bool, bool] | None:
        fields = object_of(text)
        answer = self._f0_label(fields) if kind == CASE else fields.get("label")
        if not isinstance(answer, str | int | float):
            return None
        return word(fields.get("bundle")), device, kind == CASE, str(answer) != label

    def _sum_up(self) -> None:
        self.all = self.by_f0 = Errors()
        self.by_bundle: dict[str, Errors] = {}
        self.by_device: dict[str, Errors] = {}
        for judged in self._known.values():
            if judged is None:
                continue
            bundle, device, is_f0, is_wrong = judged
            if is_f0:
                self.by_f0 = self.by_f0.and_one(is_wrong)
                continue
            self.all = self.all.and_one(is_wrong)
            self.by_bundle[bundle] = self.by_bundle.get(bundle, Errors()).and_one(is_wrong)
            self.by_device[device] = self.by_device.get(device, Errors()).and_one(is_wrong)
