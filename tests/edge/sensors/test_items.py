# SPDX-License-Identifier: Apache-2.0
"""A function that gives items is foreign code: whatever it raises or gives is one line, or an item that fails alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hardcase_edge.device.parts import PartFunction
from hardcase_edge.errors import InputError
from hardcase_edge.sensors.items import ItemFunction


class RudeFloat(float):
    def is_integer(self) -> bool:
        raise SystemExit(0)


class RudePair(tuple[object, ...]):
    __slots__ = ()

    def __len__(self) -> int:
        raise SystemExit(0)


class RudeList(list[object]):
    def __iter__(self) -> Iterator[object]:
        raise SystemExit(0)


class MuteError(Exception):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SystemExit(0), "SystemExit: 0; mend it"),  # by which the process would end as if all were well
        (GeneratorExit(), "GeneratorExit; mend it"),
        (MuteError(), "MuteError: it cannot say why; mend it"),
    ],
)
def test_what_it_raises_ends_the_run_with_one_line(error: BaseException, told: str) -> None:
    def items() -> Iterator[tuple[object, int, None]]:
        yield "one", 1, None
        raise error

    source = ItemFunction(items, "m:items", 9)
    assert source.next_item()
    with pytest.raises(InputError) as refusal:
        source.next_item()
    assert str(refusal.value) == f"item source m:items failed: {told}"

    def at_once() -> None:
        raise error

    with pytest.raises(InputError):
        ItemFunction(at_once, "m:items", 9)


def test_a_signal_that_ends_the_device_goes_through_it() -> None:
    def items() -> Iterator[tuple[object, int, None]]:
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        ItemFunction(items, "m:items", 9).next_item()


def test_what_it_gives_is_looked_at_before_it_is_used() -> None:
    given = [("size", RudeFloat(2), 50.0), RudePair(("length", 1, 50.0)), ("good", 2, None), (RudeList([1]), 1, None)]
    source = ItemFunction(lambda: iter(given), "m:items", 9)
    faults = []
    while source.next_item():
        faults.append(source.item.fault)
    assert "size 2.0 of an item is not a whole number" in faults[0]
    assert "gives no (item, size, budget)" in faults[1]
    assert faults[2:] == ["", ""]
    parts = PartFunction(lambda: iter(given[3:]), "m:items", 9)
    assert parts.next_item()
    assert (parts.parts, "is not a list of its parts" in parts.item.fault) == (0, True)
