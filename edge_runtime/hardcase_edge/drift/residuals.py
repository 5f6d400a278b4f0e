# SPDX-License-Identifier: Apache-2.0
"""A sensor that fails slowly, with a bias, noise or a value that stays: suspected by what the others predict of it.

Each sensor's readings are predicted from those of other sensors that were read for the same decision (the manifest's
``monitors``). On rows of training, a few per cent of the residuals lie beyond their limits; some sensor has failed when
clearly more do (``base/change.py``), or when readings stay exactly the same although the others say that they must have
moved. A sensor that fails spoils predictions that are made from it, too. Which one it is, is told a few decisions later
by predictions of one sensor from one other: those of the sensor that has failed miss, and those between two others do
not. Where nothing predicts a sensor, nothing suspects it; and of two sensors that only predict each other, the one that
misses more is named. A suspect stays one, and predictions from it are not made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.change import Change
from ..bundle.monitors import MOVED

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ..bundle.monitors import Monitors, Prediction, Residual
    from ..program.readings import Reading

__all__ = ["Residuals"]

DELTA = 0.001  # probability at most, for each test of a sensor, that it is ever suspected without a cause
OFTEN = 2.5  # times as often as in training ...
SLACK = 0.1  # ... and this much more often: residuals beyond their limits, and readings that repeat
NAMING = 32  # decisions from the first sign of a failure until a sensor is named
LATELY = 8  # decisions over which misses are averaged
MOST_MISS = 10.0  # limits; a larger miss counts as this


class Residuals:
    """What is known of every sensor.

    Parameters
    ----------
    monitors : Monitors
    features : per sensor its features, as in the program

    Attributes
    ----------
    suspects : dict of int to (str, int)
        By sensor why it is suspected, and since which decision.
    """

    def __init__(self, monitors: Monitors, features: Sequence[Sequence[int]]) -> None:
        self.suspects: dict[int, tuple[str, int]] = {}
        places = {f: (s, k) for s, some in enumerate(features) for k, f in enumerate(some)}
        self._watches = {r.sensor: _Watch(r, places) for r in monitors.residuals}
        self._pairs = [_Pair(p, places) for p in monitors.pairs]
        self._name_in = 0  # decisions until a suspect is named; 0: nothing has failed

    def see(self, readings: Mapping[int, Sequence[Reading] | None], mark: int) -> None:
        """The readings of one decision, by sensor; ``mark`` is its number."""
        is_noticed = False
        for sensor, watch in self._watches.items():
            values = readings.get(sensor)
            if values is not None and sensor not in self.suspects:
                watch.see(values, readings, mark)
                is_noticed |= watch.beyond.is_noticed or watch.same.is_noticed
        for pair in self._pairs:
            pair.see(readings)
        if is_noticed:
            self._name_in = (self._name_in or NAMING) - 1
            if self._name_in == 0:
                self._name()

    def _name(self) -> None:
        """Suspect one sensor, and begin anew with the others."""
        free = [w for w in self._watches.values() if w.sensor not in self.suspects]
        worst = max(free, key=lambda w: (w.same.is_noticed, self._blame(w.sensor), w.misses))
        marks = [c.since for w in free for c in (w.beyond, w.same) if c.is_noticed]
        why = "stuck" if worst.same.is_noticed else "residual"
        self.suspects[worst.sensor] = (why, min(marks))
        for watch in free:
            watch.begin(self.suspects)

    def _blame(self, sensor: int) -> float:
        """How much more the pairs with this sensor miss than those without it; suspects are in none."""
        known = [p for p in self._pairs if not p.sensors & self.suspects.keys()]
        mine = [p.misses for p in known if sensor in p.sensors]
        others = [p.misses for p in known if sensor not in p.sensors]
        return sum(mine) / max(1, len(mine)) - sum(others) / max(1, len(others))


class _Pair:
    """One sensor, predicted from one other."""

    def __init__(self, p: Prediction, places: Mapping[int, tuple[int, int]]) -> None:
        self._sensor = places[p.feature][0]
        self._place, self._bias, self._limit, self._terms = _scaled(p, places)
        self.sensors = {self._sensor, *(s for s, _, _ in self._terms)}
        self.misses = 0.0

    def see(self, readings: Mapping[int, Sequence[Reading] | None]) -> None:
        """All that was read."""
        values = readings.get(self._sensor)
        if values is None or (value := values[self._place]) is None:
            return
        sum_ = self._bias
        for sensor, place, weight in self._terms:
            others = readings.get(sensor)
            if others is None or (x := others[place]) is None:
                return
            sum_ += weight * x
        self.misses += (min(abs(value - sum_) / self._limit, MOST_MISS) - self.misses) / LATELY


class _Watch:
    """One sensor."""

    def __init__(self, residual: Residual, places: Mapping[int, tuple[int, int]]) -> None:
        self.sensor = residual.sensor
        self._residual = residual
        self._all = [_scaled(p, places) for p in residual.predictions]
        self._last: Sequence[Reading] | None = None
        self._predicted: dict[int, float] = {}
        self.begin(())

    def begin(self, suspects: Collection[int]) -> None:
        """Forget all evidence; no prediction is made from a suspect."""
        self._predictions = [p for p in self._all if not any(s in suspects for s, _, _ in p[3])]
        shares = (self._residual.beyond, self._residual.same)
        self.beyond, self.same = (Change(min(0.9, OFTEN * share / 1000 + SLACK), DELTA) for share in shares)
        self.misses = 0.0  # how far residuals lie from 0 in units of their limits, lately

    def see(self, values: Sequence[Reading], readings: Mapping[int, Sequence[Reading] | None], mark: int) -> None:
        """Its readings, and all that was read."""
        predicted: dict[int, float] = {}
        worst, must_have_moved, before = -1.0, False, self._predicted
        for k, sum_, limit, terms in self._predictions:
            if (value := values[k]) is None:
                continue
            for sensor, place, weight in terms:
                others = readings.get(sensor)
                if others is None or (x := others[place]) is None:
                    break
                sum_ += weight * x
            else:
                predicted[k] = sum_
                miss = abs(value - sum_) / limit
                if miss > worst:
                    worst = miss
                if not must_have_moved and k in before:
                    must_have_moved = abs(sum_ - before[k]) > MOVED * limit
        if worst >= 0:
            self.beyond.see(float(worst > 1), mark)
            self.misses += (min(worst, MOST_MISS) - self.misses) / LATELY
        if must_have_moved:
            self.same.see(float(values == self._last), mark)
        self._last, self._predicted = values, predicted


_Terms = list[tuple[int, int, float]]  # sensor, position in it, weight
_Scaled = tuple[int, float, float, _Terms]  # position, bias, limit, terms


def _scaled(p: Prediction, places: Mapping[int, tuple[int, int]]) -> _Scaled:
    unit = 2.0**-p.shift
    terms = [(*places[f], weight * unit) for f, weight in p.terms]
    return places[p.feature][1], p.bias * unit, max(p.limit, 1) * unit, terms
