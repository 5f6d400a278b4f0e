# SPDX-License-Identifier: Apache-2.0
"""A request aside: sent once, for an audit, while nobody waits; its reply comes later or never.

It has an id of its own, so that no live request can take its reply, nor it the reply of a live one.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from .wire import ID_BYTES, Reply

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Aside"]


class Aside:
    """The one request aside that is open; the next one takes its place."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: tuple[bytes, Callable[[Reply], None]] | None = None

    @property
    def waiting(self) -> bytes:
        """The id of the open request; empty if there is none."""
        with self._lock:
            return b"" if self._open is None else self._open[0]

    def begin(self, on_reply: Callable[[Reply], None]) -> bytes:
        """The id of a new request; its reply goes to this function."""
        id_ = os.urandom(ID_BYTES)
        with self._lock:
            self._open = id_, on_reply
        return id_

    def takes(self, reply: Reply) -> bool:
        """Whether this is the reply to the open request, which it ends."""
        with self._lock:
            if self._open is None or self._open[0] != reply.id:
                return False
            (_, on_reply), self._open = self._open, None
        on_reply(reply)
        return True
