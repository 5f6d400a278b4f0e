# SPDX-License-Identifier: Apache-2.0
"""What signals do to a run: the end, a reload, a bundle that has come over the air, and a trial's deadline."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["end_main_thread", "interrupt", "on_end", "on_reload", "switch_main_thread"]


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
