# SPDX-License-Identifier: Apache-2.0
"""Sources of items of several parts: rows of a replay with one item number, or a function that gives items.

    replay:letters.csv        the column ``item`` says which rows are one item: neighbours of one text
    --items MODULE:FUNCTION   gives (item, size, budget) as for items of one part; the item is a list of its parts, and
                              ``read(sensor, part)`` gets one of them

A source that knows no parts, such as a driver, cannot serve a joint bundle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ..errors import FOREIGN, InputError
from ..program.definition import Program
from ..program.readings import Reading
from ..sensors.bank import SensorBank, wanted_of
from ..sensors.csv_replay import Replay
from ..sensors.items import Item, ItemFunction
from ..sensors.specs import open_sources

if TYPE_CHECKING:
    from pathlib import Path

    from ..bundle.manifest import Manifest

NO_PARTS = "no source knows the parts of an item; use a replay with a column item, or --items"
ITEM = "item"  # the column of a replay that tells items apart
MOST_KEPT = 1025  # rows of an item that are kept: one more than any program allows; the rest is only counted


@runtime_checkable
class PartGiver(Protocol):
    """Knows how many parts the current item has, and shows one of them to sensors."""

    @property
    def parts(self) -> int:
        """How many parts the current item has."""

    def select(self, part: int) -> None:
        """Show this part from now on."""


class PartReplay(Replay):
    """A CSV file whose rows are parts of items.

    Parameters
    ----------
    path : the file; ``-`` and ``/dev/stdin`` read standard input as it comes

    Raises
    ------
    InputError
        The file cannot be read, or has no column ``item``.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        if ITEM not in self._at:
            self.close()
            raise InputError(f"replay file {path} has no column {ITEM!r}, which says which rows are one item; add it")
        self._rows: list[list[str] | None] = []
        self._next = self._lines.ahead
        self._has_next = self._has_begun = self._next is not None
        self.parts = 0

    def next_item(self) -> bool:
        """Read all rows of the next item, and the first of the one behind it; False at the end of the file."""
        if not self._has_begun:
            self._has_begun, self._has_next = True, super().next_item()
            self._next = self._cells
        if not self._has_next:
            return False
        first = self._next
        self._rows, self.parts = [first], 1
        while self._read_one() and self._is_same(first):
            self.parts += 1
            if len(self._rows) < MOST_KEPT:
                self._rows.append(self._next)
        self.select(0)
        return True

    def _read_one(self) -> bool:
        self._has_next = super().next_item()
        self._next = self._lines.ahead = self._cells if self._has_next else None
        return self._has_next

    def _is_same(self, first: list[str] | None) -> bool:
        """Whether the row that was read belongs to the item of this one; a broken row belongs to what it follows."""
        if first is None or self._next is None:
            return True
        return self._next[self._at[ITEM]] == first[self._at[ITEM]]

    def has(self, column: str) -> bool:
        """Whether the file has this column."""
        return column in self._at

    def cell_of(self, column: str, part: int) -> str | None:
        """The text of a part's cell; None for a broken row."""
        row = self._rows[part] if part < len(self._rows) else None
        return None if row is None else row[self._at[column]].strip()

    def select(self, part: int) -> None:
        """Show the row of this part; a part without a row has only failed sensors."""
        self._cells = self._rows[part] if part < len(self._rows) else None


class PartFunction(ItemFunction):
    """A function that gives items, each a list of its parts."""

    parts = 0
    _parts: Sequence[object] = ()
    _part: object = None

    def next_item(self) -> bool:
        """Move on; False if the function has ended."""
        if not super().next_item():
            return False
        try:
            parts = list(self._value) if isinstance(self._value, list | tuple) else None
        except FOREIGN:
            parts = None
        self._parts = parts or []
        self.parts = len(self._parts)
        if parts is None:
            self._item = Item(None, None, f"{self._name} gives an item that is not a list of its parts; correct it")
        return True

    def select(self, part: int) -> None:
        """Give this part to ``read`` from now on."""
        self._part = self._parts[part]

    def current(self) -> object:
        """The current part itself, for ``read(sensor, part)``."""
        return self._part


class PartBank:
    """A sensor bank that reads one part at a time; its sensors have the numbers of the program, inner ones left out.

    Parameters
    ----------
    bank : of the sensors that are not inner, in the program's order
    outer : their numbers in the program

    Raises
    ------
    InputError
        No source of the bank knows the parts of an item.
    """

    def __init__(self, bank: SensorBank, outer: Sequence[int]) -> None:
        self._bank, self._outer = bank, outer
        self._place = {s: k for k, s in enumerate(outer)}
        self._givers = [source for source in bank.givers if isinstance(source, PartGiver)]
        self.dead = frozenset(outer[k] for k in bank.dead)
        if not self._givers:
            bank.close()
            raise InputError(NO_PARTS)

    @property
    def counters(self) -> Counter[str]:
        """Failed reads by kind."""
        return self._bank.counters

    @property
    def pause_s(self) -> float:
        """As that of the bank."""
        return self._bank.pause_s

    @property
    def item(self) -> Item | None:
        """What is known of the current item; None if nothing gives items."""
        return self._bank.item

    @property
    def parts(self) -> int:
        """How many parts the current item has; 0 where its sources differ."""
        counts = {giver.parts for giver in self._givers}
        return counts.pop() if len(counts) == 1 else 0

    def next_item(self) -> bool:
        """Move all sources on to the next item; False if one of them has no more."""
        return self._bank.next_item()

    def select(self, part: int) -> None:
        """Read this part from now on."""
        for giver in self._givers:
            giver.select(part)

    def read(self, sensors: Sequence[int]) -> Mapping[int, Sequence[Reading] | None]:
        """The readings of each of these sensors of the selected part; None for a sensor that failed."""
        readings = self._bank.read([self._place[s] for s in sensors])
        return {self._outer[k]: values for k, values in readings.items()}

    def __enter__(self) -> PartBank:
        return self

    def __exit__(self, *_: object) -> None:
        self._bank.close()


def open_part_bank(
    specs: Sequence[str],
    program: Program,
    manifest: Manifest,
    inner: Collection[int],
    *,
    timeout_s: float = 1.0,
    items: str | None = None,
    isolate: bool = False,
    tell: Callable[[str], object] = lambda line: None,
) -> PartBank:
    """The sensor bank of a run of a joint bundle.

    Parameters
    ----------
    specs : the values of ``--sensors``
    program, manifest : of the bundle; ``inner`` are the program's inner sensors, which have no source
    timeout_s : seconds after which a read has failed
    items : ``MODULE:FUNCTION`` that gives items; None: a replay does
    isolate : whether plug-ins run in processes of their own
    tell : called with each line for the log

    Raises
    ------
    InputError
        As ``specs.open_bank``, or no source knows the parts of an item.
    """
    outer = [s for s in range(len(program.sensors)) if s not in inner]
    wanted = wanted_of(program, manifest)
    largest = program.max_item_size
    return PartBank(
        open_sources(
            specs, [wanted[s] for s in outer], timeout_s=timeout_s, items=items, largest=largest,
            isolate=isolate, replay=PartReplay, function=PartFunction, tell=tell,
        ),
        outer,
    )  # fmt: skip
