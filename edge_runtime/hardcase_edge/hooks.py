# SPDX-License-Identifier: Apache-2.0
"""Hooks: groups of entry points by which distributions extend hardcase, and by which it finds parts of its own.

A group is named ``hardcase.`` and the hook, such as ``hardcase.targets``. An entry point has the name under which a
user asks for the part, and the object that the hook's page describes. Who installs a distribution runs its code, as
with any package; nothing is loaded before it is asked for.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from .errors import FOREIGN, InputError, one_line

MATURITY = {  # what a method, a driver or a target says of itself
    "proven": "a table of the benchmarks shows what it is good for",
    "tested": "its tests pass; no benchmark shows where it is ahead, or nobody has run it on the hardware it is for",
    "research": "it is there so that a paper's figures can be compared",
}


@cache
def _installed(path: tuple[str, ...]) -> Any:
    """What the distributions on a search path offer: their files are read once in a process."""
    return entry_points()


def hooked(hook: str) -> dict[str, EntryPoint]:
    """What is installed for a hook, by name in alphabetical order; nothing of it is imported.

    Raises
    ------
    InputError
        Two distributions offer the same name.
    """
    found: dict[str, EntryPoint] = {}
    for point in sorted(_installed(tuple(sys.path)).select(group=f"hardcase.{hook}"), key=lambda p: p.name):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            raise InputError(
                f"two installed packages offer {point.name!r} for hardcase.{hook}, {home_of(other)} and "
                f"{home_of(point)}; uninstall one"
            )
    return found


def load_hook(point: EntryPoint, kind: type, *names: str) -> Any:
    """The object of an entry point, which must be of this kind and have these names.

    Raises
    ------
    InputError
        It cannot be imported, or is something else.
    """
    try:
        value = point.load()
    except FOREIGN as error:  # a stranger's module may fail in any way
        raise InputError(
            f"{point.name!r} of {home_of(point)} cannot be loaded ({one_line(error)}); update or uninstall it"
        ) from error
    if not isinstance(value, kind):
        raise InputError(
            f"{point.name!r} of {home_of(point)} is a {type(value).__name__}, but a {kind.__name__} is expected; "
            "update or uninstall it"
        )
    if missing := [name for name in names if not hasattr(value, name)]:
        raise InputError(f"{point.name!r} of {home_of(point)} has no {missing[0]!r}; update or uninstall it")
    return value


def home_of(point: EntryPoint) -> str:
    """The distribution of an entry point, and where its object stands."""
    return f"{point.dist.name if point.dist else 'an unknown package'} ({point.value})"
