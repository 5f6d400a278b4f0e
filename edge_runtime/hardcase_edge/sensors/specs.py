# SPDX-License-Identifier: Apache-2.0
"""Reads the ``--sensors`` options of the command line: which source serves which sensor.

    replay:test.csv                 all sensors from one file
    replay:test.csv  TS1=none       all sensors but TS1, which is dead
    my_sensors:read  TS1=thermal:0  TS1 from a thermal zone, the others from the user's function
    climate=iio:bme280 heat=w1:     sensors that Linux can read (driven.py)

A spec with ``NAME=`` binds one sensor. Each other spec serves all sensors that are not bound and that its source can
serve; an earlier spec comes before a later one. A sensor that no source can serve is dead, unless a replay is among the
sources: then a missing column is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ..bundle.manifest import Manifest
from ..drivers.channel import DRIVERS, is_driver
from ..errors import InputError
from ..program.definition import Program
from .bank import SensorBank, Source, Wanted, wanted_of

if TYPE_CHECKING:
    from pathlib import Path

    from .csv_replay import Replay
    from .isolated import Isolated
    from .items import ItemFunction, ItemSource

KINDS = f"replay:FILE, senml:FILE, {':DEVICE, '.join(DRIVERS)}:DEVICE, MODULE:FUNCTION or (after NAME=) none"
MAX_SPECS = 1000


def open_bank(
    specs: Sequence[str],
    program: Program,
    manifest: Manifest,
    *,
    timeout_s: float = 1.0,
    isolate: bool = False,
    items: str | None = None,
    root: str | Path = "",
    tell: Callable[[str], object] = lambda line: None,
) -> SensorBank:
    """The sensor bank of a run.

    Parameters
    ----------
    specs : the values of ``--sensors``
    program, manifest : of the bundle that runs
    timeout_s : seconds after which a read has failed
    isolate : whether plug-ins run in processes of their own
    items : ``MODULE:FUNCTION`` that gives items, which plug-ins are then called with; None: a replay's columns may
    root : folder under which drivers look up ``/sys`` and ``/usr``; empty: the system's own
    tell : called with each line for the log

    Raises
    ------
    InputError
        A spec has another form, names no sensor or cannot be opened, a source serves no sensor, or a replay lacks a
        column.
    """
    wanted, largest = wanted_of(program, manifest), program.max_item_size
    has_items = largest > 1 or manifest.clock
    sequence = _sequence_of(manifest) if any(w.is_inner for w in wanted) else ""
    return open_sources(
        specs, wanted, timeout_s=timeout_s, isolate=isolate, items=items, largest=largest if has_items else None,
        sequence=sequence, root=root, tell=tell,
    )  # fmt: skip


def open_sources(
    specs: Sequence[str],
    wanted: Sequence[Wanted],
    *,
    timeout_s: float = 1.0,
    isolate: bool = False,
    items: str | None = None,
    largest: int | None = None,
    sequence: str = "",
    root: str | Path = "",
    replay: type[Replay] | None = None,
    function: type[ItemFunction] | None = None,
    tell: Callable[[str], object] = lambda line: None,
) -> SensorBank:
    """The sources of sensors that are known without a bundle, as of ``open_bank``. ``largest`` is that of items.

    ``sequence``: the column of a replay that names each row's stream; empty: all rows are one stream.
    ``replay`` and ``function`` open files and functions of items; items of several parts have their own, others those
    of single decisions.
    """
    opener = _Opener(
        root,
        timeout_s if isolate else None,
        None if items is None else _item_function(function, items, largest or 1),
        replay,
    )
    try:
        sources = _assign(specs, wanted, opener)
        for plugin in opener.isolated:
            plugin.start([w for w in wanted if sources.get(w.name) is plugin])
    except BaseException:
        opener.close()
        raise
    item_source: ItemSource | None = opener.items
    if item_source is None and largest is not None:
        names = {name for w in wanted for name in w.features}
        item_source = next((r for r in opener.replays if r.has_items(largest, names)), None)
    named = next((r for r in opener.replays if sequence and r.has_column(sequence)), None)
    stream: Callable[[], object] = (lambda: None) if named is None else partial(named.cell, sequence)
    return SensorBank(wanted, sources, timeout_s=timeout_s, items=item_source, stream=stream, tell=tell)


def check_specs(
    specs: Sequence[str],
    wanted: Sequence[Wanted] | None = None,
    *,
    items: str | None = None,
    local: Callable[[str], str] | None = None,
    folders: Sequence[Path] = (),
    replay: type[Replay] | None = None,
) -> None:
    """Refuse what ``open_sources`` would refuse, as far as that can be told without a sensor.

    Parameters
    ----------
    wanted : the bundle's sensors; None: they are not known yet
    local : gives the path here of a file that a spec names there; None: files and modules are not looked for
    folders : those here in which modules are looked for

    Raises
    ------
    InputError
        As ``open_sources``.
    """
    from .plugin import checked_name, look_for_function

    if items is not None:
        checked_name(items, "item source")
        if local is not None:
            look_for_function(items, "item source", folders)
    looker = _Looker(local, folders, replay)
    try:
        if wanted is not None:
            _check_assignment(*_parsed(specs, wanted, looker), wanted)
            return
        for spec in specs:
            tails = tails_of(spec)
            if "none" not in tails and not any(map(looker.knows, tails)):
                looker.open(tails[0] if tails and ":" not in spec.partition("=")[0] else spec)
    finally:
        looker.close()


def tails_of(spec: str) -> list[str]:
    """What may be the source, if the spec names a sensor: what follows each "=", which a name may hold, too."""
    return [spec.split("=", k)[k] for k in range(1, spec.count("=") + 1)]


def _check_assignment(bound: dict[str, Source | None], free: Sequence[Source], wanted: Sequence[Wanted]) -> None:
    """Refuse sources that serve no sensor whatever drivers find, and replays that lack a column that all others do."""
    from .driven import Driven

    left = [w for w in wanted if w.name not in bound and not w.is_inner]
    for w in left:
        _first_that_serves(w, free)
    for k, source in enumerate(free):
        sure = [s for s in free[:k] if s is not source and not isinstance(s, Driven)]
        may_serve = (not source.lacks(w) and all(s.lacks(w) for s in sure) for w in left)
        if source not in bound.values() and not any(may_serve):
            raise InputError(_why_idle(source, wanted))


def kinds_of(specs: Sequence[str]) -> set[str]:
    """The kinds of sources that specs name: ``replay``, ``senml`` and those of drivers.

    >>> sorted(kinds_of(["noise=alsa:plughw:CARD=1", "replay:a=b.csv", "my_sensors:read"]))
    ['alsa', 'replay']
    """
    kinds = set()
    for spec in specs:
        named = (text.partition(":")[0] for text in (spec, *tails_of(spec)))
        kinds |= {next((kind for kind in named if kind in ("replay", "senml") or is_driver(kind)), "")}
    return kinds - {""}


def _sequence_of(manifest: Manifest) -> str:
    """The column that named the sequences of the training rows; empty if none did."""
    data = manifest.trained.get("data")
    name = data.get("sequence") if isinstance(data, dict) else None
    return name if isinstance(name, str) else ""


def timeout_s_of(ms: int) -> float:
    """The time limit of ``--sensor-timeout-ms`` in seconds.

    Raises
    ------
    InputError
        It is less than a millisecond or more than an hour.
    """
    if not 1 <= ms <= 3_600_000:
        raise InputError(f"the sensor timeout is {ms} ms; use 1 to 3600000")
    return ms / 1000


def _assign(specs: Sequence[str], wanted: Sequence[Wanted], opener: _Opener) -> dict[str, Source]:
    bound, free = _parsed(specs, wanted, opener)
    for w in wanted:
        if w.name not in bound and not w.is_inner:
            bound[w.name] = _first_that_serves(w, free)
    for source in free:
        if source not in bound.values():
            raise InputError(_why_idle(source, wanted))
    return {name: source for name, source in bound.items() if source is not None}


def _parsed(
    specs: Sequence[str], wanted: Sequence[Wanted], opener: _Opener
) -> tuple[dict[str, Source | None], list[Source]]:
    """The sources of specs that name a sensor, and those of the others."""
    if len(specs) > MAX_SPECS:
        raise InputError(f"{len(specs)} sensor specs were given; use at most {MAX_SPECS}")
    by_name = {w.name: w for w in wanted}
    bound: dict[str, Source | None] = {}
    free: list[Source] = []
    for spec in specs:
        name, text = _split(spec, by_name)
        if not name:
            free.append(opener.open(text))
        elif by_name[name].is_inner:
            raise InputError(f"the device fills the inner sensor {name} itself; remove its --sensors spec")
        elif name in bound:
            raise InputError(f"sensor {name} has two sources; give it one")
        else:
            bound[name] = _bind(by_name[name], text, opener)
    return bound, free


def _split(spec: str, by_name: dict[str, Wanted]) -> tuple[str, str]:
    """The sensor and the source of a spec; the sensor is empty if the spec is for all."""
    name, equals, _ = spec.partition("=")
    if found := max((known for known in by_name if spec.startswith(f"{known}=")), key=len, default=""):
        return found, spec[len(found) + 1 :]
    if equals and ":" not in name:
        from ..base.hints import did_you_mean

        hint = did_you_mean(name, by_name, f"it has {', '.join(by_name)[:200]}")
        raise InputError(f"sensor spec {spec[:80]!r} names no sensor of this bundle; {hint}")
    return "", spec


def _bind(wanted: Wanted, text: str, opener: _Opener) -> Source | None:
    if text == "none":
        return None
    source = opener.open(text)
    if reason := source.lacks(wanted):
        raise InputError(reason)
    return source


def _first_that_serves(wanted: Wanted, sources: Sequence[Source]) -> Source | None:
    reasons = [(source.lacks(wanted), source) for source in sources]
    for reason, source in reasons:
        if not reason:
            return source
    from shlex import quote

    from .csv_replay import Replay

    for reason, source in reasons:
        if isinstance(source, Replay):
            raise InputError(f"{reason}; add it, name another source, or use --sensors {quote(wanted.name + '=none')}")
    return None


def _why_idle(source: Source, wanted: Sequence[Wanted]) -> str:
    reasons = [reason for w in wanted if not w.is_inner and (reason := source.lacks(w))]
    return f"a sensor source serves no sensor: {reasons[0] if reasons else 'all have another source already'}"


def _item_function(function: type[ItemFunction] | None, name: str, largest: int) -> ItemFunction:
    from .items import ItemFunction
    from .plugin import load_function

    return (function or ItemFunction)(load_function(name, "item source"), name, largest)


class _Opener:
    """Opens each source once, even if many sensors name it, so that a file advances by one row per item."""

    def __init__(
        self, root: str | Path, isolated_timeout_s: float | None, items: ItemFunction | None,
        replay: type[Replay] | None,
    ) -> None:  # fmt: skip
        self._root = str(root)
        self._replay = replay
        self._isolated_timeout_s = isolated_timeout_s  # None: plug-ins run in this process
        self.isolated: list[Isolated] = []
        self.replays: list[Replay] = []
        self.items = items
        self._opened: dict[str, Source] = {}

    def open(self, text: str) -> Source:
        if text not in self._opened:
            self._opened[text] = self._make(text)
        return self._opened[text]

    def close(self) -> None:
        for source in self._opened.values():
            source.close()
        if self.items is not None:
            self.items.close()

    def _make(self, text: str) -> Source:
        kind, colon, rest = text.partition(":")
        if kind == "replay" and rest:
            from .csv_replay import Replay

            self.replays.append((self._replay or Replay)(rest))
            return self.replays[-1]
        if kind == "senml" and rest:
            from .packs import Packs

            return Packs(rest)
        if is_driver(kind):
            from .driven import Driven

            return Driven(kind, rest, self._root)
        if colon and kind:
            return self._make_plugin(text)
        raise InputError(f"sensor source {text[:80]!r} is unknown; use {KINDS}")

    def _make_plugin(self, text: str) -> Source:
        item = None if self.items is None else self.items.current
        if self._isolated_timeout_s is None:
            from .plugin import Plugin

            return Plugin(text, item)
        from .isolated import Isolated

        self.isolated.append(Isolated(text, self._isolated_timeout_s, item))
        return self.isolated[-1]


class _Looker(_Opener):
    """Looks for what specs name on another machine, or at their form alone, and opens no sensor."""

    def __init__(
        self, local: Callable[[str], str] | None, folders: Sequence[Path], replay: type[Replay] | None
    ) -> None:
        super().__init__("", None, None, replay)
        self._local, self._folders = local, folders

    def knows(self, text: str) -> bool:
        with suppress(InputError):
            return self.open(text) is not None
        return False

    def _make(self, text: str) -> Source:
        from .plugin import checked_name, look_for_function

        kind, colon, rest = text.partition(":")
        if kind in ("replay", "senml") and rest:
            return _Unopened() if self._local is None else super()._make(f"{kind}:{self._local(rest)}")
        if is_driver(kind):
            from .driven import Undriven

            return Undriven(kind, rest).checked()
        if not (colon and kind):
            return super()._make(text)
        checked_name(text, "sensor source")
        if self._local is not None:
            look_for_function(text, "sensor source", self._folders)
        return _Unopened()


class _Unopened:
    """Stands for a source that serves every sensor."""

    is_instant = True

    def lacks(self, wanted: Wanted) -> str:
        return ""

    def next_item(self) -> bool:
        return False

    def read(self, sensor: str) -> object:
        return None

    def close(self) -> None:
        pass
