"""``--sensors`` in words: which source serves which sensor.

    replay:test.csv                 all sensors from one file
    replay:test.csv  TS1=none       all but TS1, which is dead
    my_sensors:read  TS1=thermal:0  TS1 from a thermal zone, the others from your own function

A spec with ``NAME=`` binds one sensor. The others serve every sensor that is still free and that they can serve, in
the order given. With a replay among them nothing stays free: a file that lacks a column is a mistake to be told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..bundle.manifest import Manifest
from ..errors import InputError
from ..program.definition import Program
from .bank import SensorBank, Source, Wanted, wanted_of
from .csv_replay import Replay
from .plugin import Plugin
from .thermal import ROOT, Thermal

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["open_bank"]

KINDS = "replay:FILE, thermal:ZONE, MODULE:FUNCTION or (after NAME=) none"
MAX_SPECS = 1000


def open_bank(
    specs: Sequence[str],
    program: Program,
    manifest: Manifest,
    *,
    timeout_s: float = 1.0,
    thermal_root: str | Path = ROOT,
) -> SensorBank:
    """The sensors of a run, from the words of the command line.

    Raises
    ------
    InputError
        A spec is none of ours, names no sensor, cannot be opened, or a replay lacks a column.
    """
    opener = _Opener(thermal_root)
    try:
        sources = _assign(specs, wanted_of(program, manifest), opener)
    except BaseException:
        opener.close()
        raise
    return SensorBank(wanted_of(program, manifest), sources, timeout_s=timeout_s)


def _assign(specs: Sequence[str], wanted: Sequence[Wanted], opener: _Opener) -> dict[str, Source]:
    if len(specs) > MAX_SPECS:
        raise InputError(f"{len(specs)} sensor specs were given, at most {MAX_SPECS} are read")
    by_name = {w.name: w for w in wanted}
    bound: dict[str, Source | None] = {}
    free: list[Source] = []
    for spec in specs:
        name, text = _split(spec, by_name)
        if not name:
            free.append(opener.open(text))
        elif name in bound:
            raise InputError(f"sensor {name} is given two sources; give it one")
        else:
            bound[name] = _bind(by_name[name], text, opener)
    for w in wanted:
        if w.name not in bound:
            bound[w.name] = _first_that_serves(w, free)
    for source in free:
        if source not in bound.values():
            raise InputError(_why_idle(source, wanted))
    return {name: source for name, source in bound.items() if source is not None}


def _split(spec: str, by_name: dict[str, Wanted]) -> tuple[str, str]:
    """(sensor, source); no sensor where the spec is for all."""
    name, equals, text = spec.partition("=")
    if equals and name in by_name:
        return name, text
    if equals and ":" not in name:
        from difflib import get_close_matches

        near = get_close_matches(name, by_name, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(by_name)[:200]}"
        raise InputError(f"sensor spec {spec[:80]!r} names no sensor of this bundle; {hint}")
    return "", spec


def _bind(wanted: Wanted, text: str, opener: _Opener) -> Source | None:
    if text == "none":
        return None
    source = opener.open(text)
    if why := source.lacks(wanted):
        raise InputError(why)
    return source


def _first_that_serves(wanted: Wanted, sources: Sequence[Source]) -> Source | None:
    whys = [(source.lacks(wanted), source) for source in sources]
    for why, source in whys:
        if not why:
            return source
    for why, source in whys:
        if isinstance(source, Replay):
            raise InputError(f"{why}; add it, name another source, or say --sensors {wanted.name}=none")
    return None


def _why_idle(source: Source, wanted: Sequence[Wanted]) -> str:
    whys = [why for w in wanted if (why := source.lacks(w))]
    return f"a sensor source serves no sensor: {whys[0] if whys else 'all have another source already'}"


class _Opener:
    """Opens each source once, however many sensors name it: a file goes on one row per item, not per sensor."""

    def __init__(self, thermal_root: str | Path) -> None:
        self._root = thermal_root
        self._opened: dict[str, Source] = {}

    def open(self, text: str) -> Source:
        if text not in self._opened:
            self._opened[text] = self._make(text)
        return self._opened[text]

    def close(self) -> None:
        for source in self._opened.values():
            source.close()

    def _make(self, text: str) -> Source:
        kind, colon, rest = text.partition(":")
        if kind == "replay" and rest:
            return Replay(rest)
        if kind == "thermal":
            return Thermal(rest, self._root)
        if colon and kind:
            return Plugin(text)
        raise InputError(f"sensor source {text[:80]!r} is not known; {KINDS} is expected")
