"""Sensors: where readings come from, and what happens when they do not come.

A *source* serves sensors by name. ``SensorBank`` reads the ones a session asks for, all at once, each with a time
limit: a source that may block is read on a thread of the sensor's own (so there are at most as many threads as
sensors), and what comes too late is dropped. A failed read is a counter and a None, never an exception.

    replay:FILE        rows of a CSV file                            (replay.py)
    thermal:ZONE       /sys/class/thermal, degrees Celsius           (thermal.py)
    MODULE:FUNCTION    your own Python, called with the sensor's name (plugin.py)
    none               no source: the sensor is dead
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from math import isfinite
from time import monotonic
from typing import Protocol

from ..base.record import record
from ..bundle.manifest import Manifest
from ..errors import SensorError
from ..program.definition import Program
from ..program.readings import Reading
from ..program.window import window_features
from .timeout import Ticket, TimedCall

__all__ = ["FAILURES", "Features", "SensorBank", "Source", "Wanted", "features_of", "wanted_of"]

FAILURES = {
    "raised": "the source raised an exception",
    "timed_out": "no reading within the time limit",
    "still_busy": "an earlier read that timed out has not come back yet",
    "wrong_shape": "another number of values or samples than the bundle says",
    "not_a_number": "a value is no number, not finite, or missing where none may be",
    "bad_row": "the replay's row is cut, too long or has too many cells",
}


@record(frozen=True, slots=True)
class Wanted:
    """What the bundle expects of one sensor: its features, or the samples of a window (0: no window)."""

    name: str
    features: tuple[str, ...]
    nullable: tuple[bool, ...]
    window: int = 0

    @property
    def count(self) -> int:
        """Numbers per read."""
        return self.window or len(self.features)


class Features(list[object]):
    """What a source returns for the sensor of a window when it has features already, not samples."""


class Source(Protocol):
    """Serves some sensors of a run."""

    is_instant: bool  # never blocks: needs no thread

    def lacks(self, wanted: Wanted) -> str:
        """Why this source cannot serve that sensor, in one line; empty if it can."""

    def read(self, sensor: str) -> object:
        """A number or a sequence of numbers, None for missing. May raise anything."""

    def next_item(self) -> bool:
        """Move on to the next item; False when there is none."""

    def close(self) -> None:
        """Let go of files."""


def wanted_of(program: Program, manifest: Manifest) -> list[Wanted]:
    """What a bundle expects of its sensors, in their order."""
    return [
        Wanted(
            name=name,
            features=tuple(manifest.features[f] for f in sensor.features),
            nullable=tuple(program.features[f].nullable for f in sensor.features),
            window=manifest.windows.get(name, 0),
        )
        for name, sensor in zip(manifest.sensors, program.sensors, strict=True)
    ]


class SensorBank:
    """All sensors of one run.

    Parameters
    ----------
    wanted : sequence of Wanted
        In the program's order.
    sources : dict of sensor name to Source
        Sensors that are not named are dead.
    timeout_s : float
        A sensor that takes longer has failed; all sensors asked for together share the wait.

    Attributes
    ----------
    counters : Counter
        Failed reads by kind; see ``FAILURES``.
    """

    def __init__(self, wanted: Sequence[Wanted], sources: Mapping[str, Source], *, timeout_s: float = 1.0) -> None:
        self._wanted = list(wanted)
        self._sources = dict(sources)
        self._timeout_s = timeout_s
        self._calls: dict[int, TimedCall] = {}
        self.dead = frozenset(k for k, w in enumerate(self._wanted) if w.name not in self._sources)
        self.counters: Counter[str] = Counter()

    def __enter__(self) -> SensorBank:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the sources' files and threads. A sensor that hangs keeps its thread until it comes back."""
        for call in self._calls.values():
            call.close()
        for source in self._distinct():
            source.close()

    def next_item(self) -> bool:
        """Move the sources on to the next item; False when one has no more."""
        return all(source.next_item() for source in self._distinct())

    def read(self, sensors: Sequence[int]) -> dict[int, list[Reading] | None]:
        """One reading of each of these sensors: its features, or None where it failed."""
        until = monotonic() + self._timeout_s
        slow = {k: self._begin(k) for k in sensors if k not in self.dead and not self._source(k).is_instant}
        return {k: self._finish(k, slow.get(k), until) for k in sensors}

    # ------------------------------------------------------------ parts

    def _distinct(self) -> Iterable[Source]:
        return {id(source): source for source in self._sources.values()}.values()

    def _source(self, sensor: int) -> Source:
        return self._sources[self._wanted[sensor].name]

    def _begin(self, sensor: int) -> Ticket | None:
        call = self._calls.get(sensor)
        if call is None:
            source, name = self._source(sensor), self._wanted[sensor].name
            call = self._calls[sensor] = TimedCall(lambda: source.read(name))
        return call.begin()

    def _finish(self, sensor: int, ticket: Ticket | None, until: float) -> list[Reading] | None:
        if sensor in self.dead:
            return None
        wanted = self._wanted[sensor]
        try:
            if self._source(sensor).is_instant:
                value = self._source(sensor).read(wanted.name)
            elif ticket is None:
                raise SensorError("still_busy")
            else:
                value = ticket.result(until)
            return features_of(wanted, value)
        except SensorError as error:
            self.counters[error.reason] += 1
        except Exception:  # a source is not ours: whatever it raises, the sensor has failed
            self.counters["raised"] += 1
        return None


def features_of(wanted: Wanted, value: object) -> list[Reading]:
    """A source's value as the sensor's features.

    Raises
    ------
    SensorError
        ``wrong_shape`` or ``not_a_number``.
    """
    is_window = bool(wanted.window) and not isinstance(value, Features)
    items = _items(value, wanted.window if is_window else len(wanted.features))
    numbers = [_number(x) for x in items]
    if is_window:
        numbers = _window(wanted, numbers)
    if any(x is None and not may for x, may in zip(numbers, wanted.nullable, strict=True)):
        raise SensorError("not_a_number", f"sensor {wanted.name} has a value that is missing")
    return numbers


def _window(wanted: Wanted, numbers: Sequence[Reading]) -> list[Reading]:
    samples = [x for x in numbers if x is not None]
    if len(samples) != wanted.window:
        raise SensorError("not_a_number", f"sensor {wanted.name} has a sample that is missing")
    return [_number(x) for x in window_features(samples)]  # huge samples may leave the numbers


def _items(value: object, count: int) -> Sequence[object]:
    """The values, if there are as many as there should be; looked at only once their number is known."""
    if isinstance(value, str | bytes | bytearray | Mapping | Set):
        raise SensorError("wrong_shape", f"a {type(value).__name__} is no reading")
    try:
        n = len(value)  # type: ignore[arg-type]
    except TypeError:
        value, n = (value,), 1
    if n != count:
        raise SensorError("wrong_shape", f"{n} values, {count} are expected")
    return [value[k] for k in range(n)]  # type: ignore[index]


def _number(x: object) -> Reading:
    if x is None:
        return None
    try:
        number = float(x)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        raise SensorError("not_a_number", f"{type(x).__name__} is no number") from error
    return number if isfinite(number) else None
