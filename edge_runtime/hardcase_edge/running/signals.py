# SPDX-License-Identifier: Apache-2.0
"""What signals do to a run: the end, a reload, a bundle that has come over the air, and a trial's deadline.

At a reload (SIGHUP) a device reads its store or its bundle file again, and goes on with what is there, in the same
process. What cannot be used changes nothing: the device goes on with what it has, and says why.
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

from ..errors import HardcaseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..bundle.load import Loaded
    from ..fleet.store.folder import Started, Store


def on_end(handler: Any) -> None:
    """Have SIGTERM and Ctrl-C call this handler."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


def on_reload(handler: Callable[..., None]) -> None:
    """Have SIGHUP call this handler, unless it is ignored as under nohup; and ``switch_main_thread``."""
    if hasattr(signal, "SIGUSR1"):
        signal.signal(signal.SIGUSR1, handler)  # of this process to itself
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, handler)


def interrupt(number: int, frame: object) -> None:
    """A handler that ends what the main thread does."""
    raise KeyboardInterrupt


def end_main_thread() -> None:
    """As SIGTERM, from another thread."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def switch_main_thread() -> None:
    """Have the main thread look for a newer bundle or for a deadline that is over, from another thread."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)


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
