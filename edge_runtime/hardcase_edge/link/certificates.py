# SPDX-License-Identifier: Apache-2.0
"""Which of a device's certificates the next attempt to connect shows: a new one a few times, otherwise the old one.

    offer(pair)      a new one: the next ``TRIES`` attempts show it
    an attempt with it comes up     it takes the place of the old one, and the owner is told
    none of them does               the old one again, if there is one; the owner may offer it again

One thread connects; another may offer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.record import record
from ..errors import HardcaseError
from .address import Address, tls_context

if TYPE_CHECKING:
    import ssl

    from ..base.clock import Clock

TRIES = 3


@record(frozen=True, slots=True)
class Pair:
    """The PEM files of a certificate and of its key."""

    cert: Path
    key: Path


class Certificates:
    """The certificates of one connection.

    Parameters
    ----------
    current : the one that a broker has accepted; None if there is none yet
    on_accepted : called on the connection's thread with a new one that the broker has accepted
    """

    def __init__(self, current: Pair | None, on_accepted: Callable[[Pair], None] = lambda pair: None) -> None:
        self._lock = threading.Lock()
        self._current, self._shown = current, current
        self._pending: Pair | None = None
        self._tries = 0
        self._on_accepted = on_accepted

    @property
    def is_trying(self) -> bool:
        """Whether a new one waits for the broker's word."""
        return self._pending is not None

    @property
    def shown(self) -> Pair | None:
        """The one that the last attempt has shown, or that the next one shows; None if there is none."""
        return self._shown

    def offer(self, pair: Pair) -> None:
        """Show this one from the next attempt on."""
        with self._lock:
            self._pending, self._tries = pair, TRIES

    def next(self) -> Pair | None:
        """The one for an attempt that begins now; None if there is none."""
        with self._lock:
            if self._pending is not None and self._tries == 0 and self._current is not None:
                self._pending = None
            self._tries = max(0, self._tries - 1)
            self._shown = self._pending or self._current
            return self._shown

    def came_up(self) -> None:
        """Note that the attempt came up."""
        with self._lock:
            pair = self._shown
            if pair is None or pair is not self._pending:
                return
            self._current, self._pending = pair, None
        self._on_accepted(pair)

    def context(
        self, address: Address, without: ssl.SSLContext | None, clock: Clock | None = None
    ) -> ssl.SSLContext | None:
        """The TLS settings of an attempt that begins now; ``without`` a certificate if none can be used.

        ``clock``: by which the other side's certificates expire, as of ``tls_context``.
        """
        pair = self.next()
        if pair is None:
            return without
        values = {name: getattr(address, name) for name in ("host", "port", "is_tls", "user", "password", "ca")}
        try:
            return tls_context(Address(**values, cert=pair.cert, key=pair.key), clock)
        except HardcaseError:  # a damaged file: the broker refuses this attempt, and the next shows another
            return without
