# SPDX-License-Identifier: Apache-2.0
"""The sensor bank: reads the sensors that a session asks for, all at once and each within a time limit.

A *source* serves sensors by name. If a source may block, the bank reads it on a thread of the sensor's own, so there
are at most as many threads as sensors, and drops a reading that comes too late. What the source returns is looked at on
that thread, too (``values.py``). A failed read increments a counter, is told in words (``trouble.py``) and gives None;
it never raises an exception.

    replay:FILE        rows of a CSV file                                  (csv_replay.py)
    senml:FILE         packs of SenML, one per line                        (packs.py)
    KIND:DEVICE        what Linux can read, by a module of drivers/        (driven.py)
    MODULE:FUNCTION    the user's Python, called with the sensor's name    (plugin.py)
                       with --isolate in processes of its own              (isolated.py)
    none               no source: the sensor is dead

Sensors are read all at once, or by the clock one after the other, until the item's time is over. A sensor whose read
was then given up is busy: the bank waits for it before the next item, up to the time limit, and if it has not come back
by then, nobody asks it until it does.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from ..base.record import record
from ..bundle.manifest import Manifest
from ..errors import SensorError, one_line, type_and_line
from ..program.definition import Program
from ..program.inner import inner_sensors
from ..program.readings import Reading
from ..program.window import window_features
from .timeout import Ticket, TimedCall
from .trouble import Troubles, some
from .values import NEITHER, Codes, Plain, as_plain, code_of, codes_of

if TYPE_CHECKING:
    from .items import Item, ItemSource

Outcome = list[Reading] | SensorError  # of one read

LARGEST = int(sys.float_info.max)  # a larger integer is out of the range of every type

FAILURES = {
    "raised": "the source raised an exception",
    "timed_out": "no reading within the time limit",
    "late": "by the clock: no reading when the item's time was over",
    "still_busy": "an earlier read that timed out has not returned yet, or the system gives no thread",
    "crashed": "the process of an isolated plug-in has ended",
    "wrong_shape": "the number of values or samples differs from the bundle's",
    "not_a_number": "a value is not a finite number, or is missing or a text unknown to training where none may be",
    "bad_row": "the replay's row is truncated, too long or has too many cells, or a line is not a SenML pack",
}


@record(frozen=True, slots=True)
class Wanted:
    """What the bundle expects a read of one sensor to return."""

    name: str
    features: tuple[str, ...]  # their names
    nullable: tuple[bool, ...]  # for each feature, whether it may be missing
    window: int = 0  # samples per read, from which the features are computed; 0: a read gives the features themselves
    categories: tuple[Codes, ...] = ()  # for each feature, the codes of its texts; () if none is a category
    is_inner: bool = False  # the device fills it itself (``program.inner``), and no source serves it

    @property
    def count(self) -> int:
        """How many numbers a read returns."""
        return self.window or len(self.features)

    @property
    def shape(self) -> str:
        """What a read has to give, in words.

        >>> Wanted("climate", ("t", "h"), (False, False)).shape
        '2 numbers are wanted: t, h'
        """
        if self.window:
            return f"{self.window} samples are wanted, oldest first (hardcase inspect lists windows)"
        n, texts = len(self.features), any(self.categories)
        if n == 1:
            return f"one {'text' if texts else 'number'} is wanted"
        return f"{n} {'numbers or texts' if texts else 'numbers'} are wanted: {some(self.features)}"


class Features(list[object]):
    """What a source returns for a sensor with a window if it has the features already instead of the samples."""


class Source(Protocol):
    """Serves some sensors of a run."""

    is_instant: bool  # True: ``read`` never blocks and needs no thread

    def lacks(self, wanted: Wanted) -> str:
        """Why this source cannot serve that sensor, in one line; empty if it can."""

    def read(self, sensor: str) -> object:
        """A number or a sequence of numbers, None for a missing one. May raise any exception."""

    def next_item(self) -> bool:
        """Move on to the next item; False if there is none."""

    def close(self) -> None:
        """Close the source's files."""


def wanted_of(program: Program, manifest: Manifest) -> list[Wanted]:
    """What a bundle expects of each of its sensors, in the program's order."""
    inner = inner_sensors(program, manifest.features, manifest.sensors)
    return [
        Wanted(
            name=name,
            features=tuple(manifest.features[f] for f in sensor.features),
            nullable=tuple(program.features[f].nullable for f in sensor.features),
            window=manifest.windows.get(name, 0),
            categories=codes_of(manifest, sensor.features),
            is_inner=name in inner,
        )
        for name, sensor in zip(manifest.sensors, program.sensors, strict=True)
    ]


class SensorBank:
    """All sensors of one run.

    Parameters
    ----------
    wanted : sequence of Wanted
        One per sensor, in the program's order.
    sources : dict of sensor name to Source
        Sensors without an entry are dead.
    timeout_s : float
        A sensor that takes longer counts as failed. Sensors that are read together share the wait.
    items : ItemSource or None
        What gives items with a size and a budget of their own; None: nothing does.
    stream : function
        Gives the name of the stream that the current item belongs to; the device remembers nothing of another.
    tell : function
        Called with a line for the log when a sensor begins to fail, and when it works again.

    Attributes
    ----------
    counters : Counter
        Failed reads by kind; see ``FAILURES``.
    dead : frozenset of int
        Sensors without a source.
    busy : frozenset of int
        By the clock: sensors whose read of an earlier item was given up and has not returned yet.
    pause_s : float
        How long a loop without an interval should leave the sensors alone: ``timeout_s`` after an item for which a
        sensor was still busy or its process had ended, otherwise 0.
    """

    def __init__(
        self,
        wanted: Sequence[Wanted],
        sources: Mapping[str, Source],
        *,
        timeout_s: float = 1.0,
        items: ItemSource | None = None,
        stream: Callable[[], object] = lambda: None,
        tell: Callable[[str], object] = lambda line: None,
    ) -> None:
        self._wanted = list(wanted)
        self._troubles = Troubles([w.name for w in self._wanted], [w.shape for w in self._wanted], tell)
        self._sources = dict(sources)
        self._timeout_s = timeout_s
        self._calls: dict[int, TimedCall] = {}
        lacking = [k for k, w in enumerate(self._wanted) if w.name not in self._sources and not w.is_inner]
        self.dead = frozenset(lacking)
        self.busy: frozenset[int] = frozenset()
        self.counters: Counter[str] = Counter()
        self.pause_s = 0.0
        self._items = items
        self._stream = stream
        self._given_up: dict[int, tuple[Ticket, float]] = {}  # by sensor, with the time until which to wait for it

    def __enter__(self) -> SensorBank:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sources' files and end their threads. A read that hangs keeps its thread until it returns."""
        for call in self._calls.values():
            call.close()
        for source in self._distinct():
            source.close()
        if self._items is not None:
            self._items.close()

    @property
    def witnesses(self) -> dict[str, Callable[[str], object]]:
        """By sensor, the function of its plug-in that gives a picture or a sound for people."""
        found = {w.name: getattr(self._sources.get(w.name), "evidence", None) for w in self._wanted}
        return {name: function for name, function in found.items() if function is not None}

    @property
    def givers(self) -> list[Source | ItemSource]:
        """Whatever moves from item to item, each once."""
        sources: dict[int, Source | ItemSource] = {} if self._items is None else {id(self._items): self._items}
        sources.update({id(source): source for source in self._distinct()})
        return list(sources.values())

    def next_item(self) -> bool:
        """Move all sources on to the next item; False if one of them has no more."""
        self.pause_s = 0.0
        if self._given_up:
            self._settle()
        return all(source.next_item() for source in self.givers)

    @property
    def item(self) -> Item | None:
        """What is known of the current item; None if nothing gives items."""
        return None if self._items is None else self._items.item

    @property
    def stream(self) -> object:
        """The name of the stream that the current item belongs to."""
        return self._stream()

    def read(self, sensors: Sequence[int]) -> dict[int, list[Reading] | None]:
        """One reading of each of these sensors: its features, or None if it failed."""
        until = monotonic() + self._timeout_s
        slow = {k: self._begin(k) for k in sensors if k not in self.dead and not self._source(k).is_instant}
        return self._seen({k: self._finish(k, slow.get(k), until) for k in sensors if k not in self.dead}, sensors)

    def read_in_turn(self, sensors: Sequence[int], until: float) -> dict[int, list[Reading] | None]:
        """One reading of each, in turn, until this time of ``time.monotonic``; what has none by then has failed."""
        return self._seen({k: self._read_until(k, until) for k in sensors if k not in self.dead}, sensors)

    # ------------------------------------------------------------ parts

    def _read_until(self, sensor: int, until: float) -> Outcome:
        now = monotonic()
        if now >= until:
            return SensorError("late", "the item's time was over before it was its turn")
        if self._source(sensor).is_instant:
            return self._finish(sensor, None, until)
        ticket = self._begin(sensor)
        limit = min(until, now + self._timeout_s)
        outcome = self._finish(sensor, ticket, limit)
        if ticket is not None and not ticket.is_done:
            self._given_up[sensor] = ticket, now + self._timeout_s
        if limit == until and isinstance(outcome, SensorError) and outcome.reason == "timed_out":
            return SensorError("late", "it gave no reading before the item's time was over")
        return outcome

    def _settle(self) -> None:
        """Wait for the reads that were given up, each until its time limit; those that go on are busy."""
        for sensor, (ticket, until) in list(self._given_up.items()):
            if ticket.wait(until):
                del self._given_up[sensor]
        self.busy = frozenset(self._given_up)

    def _distinct(self) -> Iterable[Source]:
        return {id(source): source for source in self._sources.values()}.values()

    def _source(self, sensor: int) -> Source:
        return self._sources[self._wanted[sensor].name]

    def _begin(self, sensor: int) -> Ticket | None:
        call = self._calls.get(sensor)
        if call is None:
            source, wanted = self._source(sensor), self._wanted[sensor]
            call = self._calls[sensor] = TimedCall(lambda: _outcome(source, wanted))
        return call.begin()

    def _finish(self, sensor: int, ticket: Ticket | None, until: float) -> Outcome:
        if self._source(sensor).is_instant:
            return _outcome(self._source(sensor), self._wanted[sensor])
        if ticket is None:
            return SensorError("still_busy", FAILURES["still_busy"])
        try:
            return ticket.result(until)  # type: ignore[return-value]  # of the function of ``_begin``
        except SensorError as error:
            if error.reason == "timed_out":
                return SensorError("timed_out", f"no reading within {self._timeout_s * 1000:g} ms")
            return error

    def _seen(self, outcomes: Mapping[int, Outcome], sensors: Sequence[int]) -> dict[int, list[Reading] | None]:
        """The readings; failures are counted and told."""
        errors: dict[int, SensorError] = {}
        readings: dict[int, list[Reading] | None] = dict.fromkeys(sensors)
        for k, outcome in outcomes.items():
            if isinstance(outcome, SensorError):
                errors[k] = outcome
                self.counters[outcome.reason] += 1
                if outcome.reason in ("still_busy", "crashed"):
                    self.pause_s = self._timeout_s
                continue
            readings[k] = outcome
            if k in self._troubles.failing:
                self._troubles.works(k)
        if errors:
            self._troubles.failed(errors)
        return readings


def _outcome(source: Source, wanted: Wanted) -> Outcome:
    """The features of one read, or how it failed; where the source may block, on the sensor's thread."""
    try:
        return features_of(wanted, source.read(wanted.name))
    except SensorError as error:
        is_ours = type(error.reason) is str and error.reason in FAILURES  # a plug-in can raise it with any content
        return SensorError(error.reason if is_ours else "raised", one_line(error))
    except Exception as error:  # a source is foreign code and may raise anything; then its sensor has failed
        return SensorError("raised", type_and_line(error))


def features_of(wanted: Wanted, value: object) -> list[Reading]:
    """The features of a sensor, from the value that a source returned.

    Raises
    ------
    SensorError
        The value does not fit the sensor; ``reason`` is ``wrong_shape`` or ``not_a_number``.

    Examples
    --------
    >>> current = Wanted("EPS1", features=("mean", "deviation", "slope", "roughness"), nullable=(False,) * 4, window=3)
    >>> features_of(current, [1.0, 2.0, 3.0])
    [2.0, 0.816496580927726, 1.0, 1.0]
    """
    is_window = bool(wanted.window) and not isinstance(value, Features)
    count = wanted.window if is_window else len(wanted.features)
    values = as_plain(value, count)
    if not isinstance(values, list):
        is_category = len(wanted.categories) == 1 and bool(wanted.categories[0])
        if count != 1 or (isinstance(values, str) and not is_category):
            raise SensorError("wrong_shape", f"{_words(values)} came")
        values = [values]
    if wanted.categories:
        numbers = [
            code_of(codes, x) if codes else _number(x) for codes, x in zip(wanted.categories, values, strict=True)
        ]
    else:
        numbers = [_number(x) for x in values]
    if is_window:
        return _window(wanted, values, numbers)
    for k, (x, may) in enumerate(zip(numbers, wanted.nullable, strict=True)):
        if x is None and not may:
            raise SensorError("not_a_number", f"{wanted.features[k]} is {_words(values[k])}, and it may not be missing")
    return numbers


def _window(wanted: Wanted, values: Sequence[Plain], numbers: Sequence[Reading]) -> list[Reading]:
    samples = [float(x) for x in numbers if x is not None]
    if len(samples) != wanted.window:
        k = next(k for k, x in enumerate(numbers) if x is None)
        raise SensorError("not_a_number", f"sample {k} is {_words(values[k])}, and no sample may be missing")
    features = [_number(x) for x in window_features(samples)]
    for name, x, may in zip(wanted.features, features, wanted.nullable, strict=True):
        if x is None and not may:
            raise SensorError("not_a_number", f"{name} of these samples is no finite number: they are too large")
    return features


def _words(x: Plain) -> str:
    """What came, for the log."""
    if x is NEITHER:
        return "an object that is no number"
    if isinstance(x, str):
        return f"the text {x[:40]!r}"
    return "nothing (None)" if x is None else "a number beyond 1.8e308" if isinstance(x, int) else f"the number {x}"


def _number(x: Plain) -> Reading:
    """A number that is finite; None for any other, and for a missing one."""
    if isinstance(x, float):
        return x if isfinite(x) else None
    if x is None or isinstance(x, int):
        return None if x is None or not -LARGEST <= x <= LARGEST else x
    raise SensorError("not_a_number", f"{_words(x)} came where a number is wanted")
