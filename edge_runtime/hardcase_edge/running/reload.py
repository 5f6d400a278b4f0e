# SPDX-License-Identifier: Apache-2.0
"""SIGHUP: a device reads its store or its bundle file again, and goes on with what is there, in the same process.

What cannot be used changes nothing: the device goes on with what it has, and says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import HardcaseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..bundle.load import Loaded
    from ..fleet.store.folder import Started, Store

__all__ = ["Reload", "has_news", "newer"]


class Reload:
    """Whether somebody asks for a reload, and whether somebody asks for the end.

    Attributes
    ----------
    is_due : bool
        Whether the run under way ends because another follows it.
    is_told : bool
        Whether the device was told to end: then no run follows.
    act : function
        What SIGHUP does now; until decisions are made, it is only remembered.
    """

    def __init__(self) -> None:
        self.is_due = self.is_told = self.is_asked = False
        self.act: Callable[[], None] | None = None

    def ask(self, *_: object) -> None:
        """The handler of SIGHUP."""
        if self.act is None:
            self.is_asked = True
        else:
            self.act()

    def tell(self, *_: object) -> None:
        """The device is told to end; for signal handlers."""
        self.is_told = True

    def begin(self, act: Callable[[], None]) -> None:
        """Decisions are made from now on, and a signal that came earlier is acted on."""
        self.act = act
        if self.is_asked:
            self.is_asked = False
            act()

    def take(self) -> bool:
        """The run has ended; returns whether another follows."""
        is_due, self.is_due, self.act = self.is_due and not self.is_told, False, None
        return is_due


def has_news(store: Store, started: Started, note: Callable[[str], None]) -> bool:
    """Whether a store would start another bundle than this one."""
    try:
        slots = store.slots()
    except HardcaseError as error:
        note(f"{error}; what runs goes on")
        return False
    name = slots.ready or slots.runs
    is_new = bool(name) and slots[name].sha256 != started.slot.sha256
    if not is_new:
        note("the store has nothing newer; what runs goes on")
    return is_new


def newer(path: str, trust: str | None, loaded: Loaded, note: Callable[[str], None]) -> Loaded | None:
    """The bundle of a file, if it is another one than this and may be used."""
    from ..bundle.load import load_bundle

    try:
        new = load_bundle(path, trust=trust, allow_joint=True)
    except HardcaseError as error:
        note(f"{error}; the bundle that runs goes on")
        return None
    if new.bundle.sha256 == loaded.bundle.sha256:
        note(f"{path} is the bundle that runs; it goes on")
        return None
    return new
