# SPDX-License-Identifier: Apache-2.0
"""Items with a size and a budget of their own: from a function of yours, or from two columns of a replay.

    # my_camera.py; run with --items my_camera:items --sensors my_camera:read
    def items():
        yield crop, 32, 4.0         # the item, its size, and its budget in the unit of costs; None: the run's own
    def read(sensor, item):         # an item is given to ``read`` as it is, and is never looked at here
        ...

An item whose size or budget cannot be used is decided all the same, so that items and decisions stay in step: no sensor
is read, and the log says why.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ..base.record import record
from ..errors import FOREIGN, InputError, type_and_line
from ..program.cost import to_micro

SIZE, BUDGET = "item_size", "budget"  # columns of a replay, and keys of a decision's record
MOST_BUDGET = 1e12  # units of cost


@record(frozen=True, slots=True)
class Item:
    """What is known of the current item."""

    size: int | None  # None: the run's own, or one that cannot be used
    budget: int | None  # micro-units; None: the run's own
    fault: str = ""  # why this item cannot be decided; empty if it can


class ItemSource(Protocol):
    """Gives items one after the other."""

    @property
    def item(self) -> Item:
        """What is known of the current item."""

    def next_item(self) -> bool:
        """Move on to the next item; False if there is none."""

    def close(self) -> None:
        """End what gives the items."""


def item_of(size: object, budget: object, largest: int) -> Item:
    """An item of this size and this budget, None for the run's own; ``largest`` is the program's ``max_item_size``.

    >>> item_of(32, 0.5, largest=128)
    Item(size=32, budget=500000, fault='')
    >>> item_of(2.5, None, largest=128).fault
    'size 2.5 of an item is not a whole number from 1 to 128; scale the item, or declare costs for its size'
    """
    whole = None if size is None else _whole(size)
    if size is not None and (whole is None or not 1 <= whole <= largest):
        wish = f"is not a whole number from 1 to {largest}; scale the item, or declare costs for its size"
        return Item(None, None, f"size {_short(size)} of an item {wish}")
    amount = None if budget is None else _amount(budget)
    if budget is not None and amount is None:
        wish = f"is not a number from 0 to {MOST_BUDGET:g}; give None for the run's own"
        return Item(whole, None, f"budget {_short(budget)} of an item {wish}")
    return Item(whole, None if amount is None else to_micro(amount))


def _whole(size: object) -> int | None:
    """An integer of Python's or numpy's, or a float that is whole; a bool is neither."""
    try:
        if isinstance(size, float):  # numpy's are floats, too
            return int(size) if size.is_integer() else None
        return None if isinstance(size, bool) else operator.index(size)  # type: ignore[arg-type]
    except FOREIGN:
        return None


def _amount(budget: object) -> float | None:
    try:
        amount = None if isinstance(budget, bool | str | bytes) else float(budget)  # type: ignore[arg-type]
    except FOREIGN:
        return None
    if amount is None:
        return None
    return amount if 0 <= amount <= MOST_BUDGET else None


def _short(value: object) -> str:
    try:
        return " ".join(repr(value).split())[:60]
    except FOREIGN:
        return f"of type {type(value).__name__[:60]}"


class ItemFunction:
    """A function that gives items: a generator, or another that returns what can be iterated over.

    Parameters
    ----------
    function : called once, without arguments
    name : what messages call it
    largest : the program's ``max_item_size``

    Raises
    ------
    InputError
        The function raises an exception, or what it returns cannot be iterated over.
    """

    def __init__(self, function: Callable[[], object], name: str, largest: int) -> None:
        self._name, self._largest = name, largest
        self._items: Iterator[Any] = iter(())
        try:
            self._items = iter(function())  # type: ignore[call-overload]  # it may return anything
        except FOREIGN as error:
            raise self._trouble(error) from error
        self._value: object = None
        self._item = Item(None, None)

    @property
    def item(self) -> Item:
        """What is known of the current item."""
        return self._item

    def current(self) -> object:
        """The current item itself, for ``read(sensor, item)``."""
        return self._value

    def next_item(self) -> bool:
        """Move on; False if the function has ended.

        Raises
        ------
        InputError
            The function has raised an exception.
        """
        self._value = None
        try:
            given = next(self._items)
        except StopIteration:
            return False
        except FOREIGN as error:
            raise self._trouble(error) from error
        try:
            is_item = isinstance(given, tuple) and len(given) == 3
            self._value, size, budget = given if is_item else (None, None, None)
        except FOREIGN:
            is_item = False
        if not is_item:
            self._item = Item(None, None, f"{self._name} gives no (item, size, budget); correct the function")
            return True
        if size is None:
            self._item = Item(None, None, f"{self._name} gives an item without a size; give a whole number from 1")
            return True
        self._item = item_of(size, budget, self._largest)
        return True

    def close(self) -> None:
        """Close the generator, if it is one."""
        close = getattr(self._items, "close", None)
        try:
            if close is not None:
                close()
        except FOREIGN:  # of a generator that is under way on another thread, or raises when it is closed
            return

    def _trouble(self, error: BaseException) -> InputError:
        return InputError(f"item source {self._name} failed: {type_and_line(error)}; mend it")
