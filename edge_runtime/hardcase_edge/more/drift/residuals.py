# SPDX-License-Identifier: Apache-2.0
"""A sensor that fails slowly, with a bias, noise or a value that stays: suspected by what the others predict of it.

Each sensor's readings are predicted from those of other sensors that were read for the same decision (the manifest's
``monitors``). On rows of training, a few per cent of the residuals lie beyond their limits; some sensor has failed when
clearly more do (``base/change.py``), or when readings stay exactly the same although the predictions have moved. A
sensor that fails also spoils the predictions from it. A few decisions later, predictions of one sensor from one other
decide which sensor it is: those with the failed sensor miss, and those between two others do not. A sensor that nothing
predicts cannot be suspected. A suspected sensor stays suspected, and nothing is predicted from it.

A residual alone cannot distinguish a sensor from its source, nor a failure from a change of the relation between the
two. So a source must be confirmed: a third sensor predicts it, or is predicted from it, and does not miss, and its
readings are still distributed as in training. Otherwise the suspicion is of the sensor *or* of that source
(``doubts``), and nothing may act on it; of two sensors that only predict each other, the one that misses more is
suspected.

A sensor is named ``NAMING`` decisions after the first sign, so as many may wait and be looked at together: suspects
and the decisions at which they are named are those of looking at each decision at once.
"""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING

from ...base.change import Change
from ...bundle.monitors import MOVED
from .arithmetic import judged

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ...bundle.monitors import Monitors, Prediction, Residual
    from .arithmetic import Expectation
    from .columns import Columns

DELTA = 0.001  # probability at most, for each test of a sensor, that it is ever suspected without a cause
OFTEN = 2.5  # times as often as in training ...
SLACK = 0.1  # ... and this much more often: residuals beyond their limits, and readings that repeat
NAMING = 32  # decisions from the first sign of a failure until a sensor is named
WELL = 1.0  # limits: a pair that misses by less, lately, vouches for both of its sensors


class Residuals:
    """The tests of every sensor and of every pair that predicts each other.

    Parameters
    ----------
    monitors : Monitors
    sensor_of : by feature its sensor
    functions : in Python or in C
    moved : returns the sensors whose readings are no longer spread as in training

    Attributes
    ----------
    suspects : dict of int to (str, int)
        By sensor why it is suspected, and since which decision.
    doubts : dict of int to frozenset of int
        By suspect the sensors from which nothing distinguished it when it was named.
    """

    def __init__(
        self, monitors: Monitors, sensor_of: Sequence[int], moved: Callable[[], Collection[int]] = frozenset
    ) -> None:
        self.suspects: dict[int, tuple[str, int]] = {}
        self.doubts: dict[int, frozenset[int]] = {}
        self._moved = moved
        self._watches = {r.sensor: _Watch(r, sensor_of) for r in monitors.residuals}
        self._pairs = [_Pair(p, sensor_of) for p in monitors.pairs]
        self._name_in = 0  # decisions until a suspect is named; 0: nothing has failed

    @property
    def may_wait(self) -> int:
        """Decisions that may be seen together: no sensor can be named before the last of them."""
        return self._name_in or NAMING

    def see(self, columns: Columns, first: int) -> None:
        """The readings of at most ``may_wait`` decisions; ``first`` is the number of the first of them."""
        noticed = set[int]()  # decisions after which a sensor that was read for them seems to fail
        for sensor, watch in self._watches.items():
            if sensor not in self.suspects:
                noticed.update(watch.see(columns, first))
        for pair in self._pairs:
            pair.see(columns)
        if noticed:
            self._name_in = self.may_wait - len(noticed)
            if self._name_in == 0:
                self._name()

    def _name(self) -> None:
        """Suspect one sensor, and begin anew with the others."""
        free = [w for w in self._watches.values() if w.sensor not in self.suspects]
        worst = max(free, key=lambda w: (w.same.is_noticed, self._blame(w.sensor), w.misses))
        marks = [c.since for w in free for c in (w.beyond, w.same) if c.is_noticed]
        why = "stuck" if worst.same.is_noticed else "residual"
        moved = self._moved()
        unsure = {s for s in worst.sources if s in moved or not self._is_vouched(s, worst.sensor)}
        self.doubts[worst.sensor] = frozenset(unsure)
        self.suspects[worst.sensor] = (why, min(marks))
        for watch in free:
            watch.begin(self.suspects)

    def _blame(self, sensor: int) -> float:
        """How much more the pairs with this sensor miss than those without it; suspects are in none."""
        pairs = self._known_pairs()
        own = [p.misses for p in pairs if sensor in p.sensors]
        others = [p.misses for p in pairs if sensor not in p.sensors]
        return sum(own) / max(1, len(own)) - sum(others) / max(1, len(others))

    def _is_vouched(self, source: int, sensor: int) -> bool:
        """Whether a third sensor, which is no suspect, goes together with the source of this one as in training."""
        pairs = (p for p in self._known_pairs() if source in p.sensors and sensor not in p.sensors)
        return any(p.is_known and p.misses < WELL for p in pairs)

    def _known_pairs(self) -> list[_Pair]:
        return [p for p in self._pairs if not p.sensors & self.suspects.keys()]


class _Expected:
    """A reading as others predict it."""

    def __init__(self, p: Prediction, sensor_of: Sequence[int]) -> None:
        unit = 2.0**-p.shift
        self._feature, self._bias, self._limit = p.feature, p.bias * unit, max(p.limit, 1) * unit
        self._terms = [(f, weight * unit) for f, weight in p.terms]
        self.last = nan  # what was expected for the last decision with readings of the sensor
        self.sources = {sensor_of[f] for f, _ in p.terms}

    def of(self, columns: Columns) -> Expectation:
        """What ``arithmetic.judged`` takes."""
        terms = tuple([(columns[f], weight) for f, weight in self._terms])
        return columns[self._feature], self._bias, terms, self._limit, MOVED * self._limit, self.last


class _Pair:
    """One sensor, predicted from one other."""

    def __init__(self, p: Prediction, sensor_of: Sequence[int]) -> None:
        self._expected = _Expected(p, sensor_of)
        self.sensors = {sensor_of[p.feature], *self._expected.sources}
        self.misses = 0.0

    @property
    def is_known(self) -> bool:
        """Whether both were ever read together."""
        return self.misses > 0

    def see(self, columns: Columns) -> None:
        """All that was read."""
        self.misses = judged(self.misses, len(columns.rows), (), [self._expected.of(columns)])[3]


class _Watch:
    """One sensor."""

    def __init__(self, residual: Residual, sensor_of: Sequence[int]) -> None:
        self.sensor = residual.sensor
        self._residual = residual
        self._all = [_Expected(p, sensor_of) for p in residual.predictions]
        self._last: object = None  # its readings of the last decision
        self.begin(())

    @property
    def sources(self) -> set[int]:
        """The sensors from which it is predicted."""
        return {s for p in self._predictions for s in p.sources}

    def begin(self, suspects: Collection[int]) -> None:
        """Forget all evidence; no prediction is made from a suspect."""
        self._predictions = [p for p in self._all if p.sources.isdisjoint(suspects)]
        shares = (self._residual.beyond, self._residual.same)
        bounds = [min(0.9, OFTEN * share / 1000 + SLACK) for share in shares]
        self.beyond, self.same = [Change(bound, DELTA) for bound in bounds]
        self.misses = 0.0  # how far residuals lie from 0 in units of their limits, lately

    def see(self, columns: Columns, first: int) -> list[int]:
        """All that was read; returns the decisions with readings of its own after which it seems to fail."""
        columns, at = columns.where_read(self.sensor)
        if not at:
            return []
        marks = [first + k for k in at]
        values = [self._last, *[row[self.sensor] for row in columns.rows]]
        self._last = values[-1]
        expectations = [p.of(columns) for p in self._predictions]
        beyond, repeats, last, self.misses = judged(self.misses, len(at), values, expectations)
        for p, expected in zip(self._predictions, last, strict=True):
            p.last = expected
        since = min(self.beyond.see_all(beyond, marks), self.same.see_all(repeats, marks))
        return [] if since > marks[-1] else [mark for mark in marks if mark >= since]
