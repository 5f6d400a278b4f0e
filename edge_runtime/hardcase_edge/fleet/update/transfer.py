# SPDX-License-Identifier: Apache-2.0
"""One bundle on its way as a state machine without I/O and without a clock: which chunks are here, which to ask for.

    wanted   --> chunk indices to ask for now            sent, on this connection
    arrived  --> "" (write it, then call ``wrote``), or the reason why the chunk is dropped
    is_whole --> every chunk is written

Chunks come in any order. At most a window of them is asked for and not here yet. A connection that is up loses nothing,
so nothing is asked for twice on it unless all has been silent for a while; then, and on a new connection, the window is
asked for again. The window follows the time that chunks take: it grows while they come at once and shrinks when they
queue, because the replies to live requests wait behind them.
"""

from __future__ import annotations

from .messages import MOST_WANTED, Chunk, Offer, name_of

LEAST, FIRST, MOST = 1, 4, 32  # chunks in a window; 32 of 16 KB are 400 ms at 10 Mbit/s
FAST_S, SLOW_S = 0.5, 1.0  # a chunk that took less widens the window, one that took more narrows it
SILENT_S, MOST_SILENT_S = 10.0, 600.0  # until the window is asked for again; doubles each time
_DOWN = float("inf")


class Transfer:
    """The chunks of one offer.

    Parameters
    ----------
    offer : Offer
    have : indices of the chunks that are written already
    """

    def __init__(self, offer: Offer, have: frozenset[int] = frozenset()) -> None:
        self.offer = offer
        self.name = name_of(offer.sha256)
        self.window = float(FIRST)
        self._missing = [k for k in range(offer.n_chunks) if k not in have]
        self._missing.reverse()  # the next one last
        self._asked: dict[int, float] = {}  # when, in seconds of the caller's clock
        self._have = set(have)
        self._silent_s = SILENT_S
        self._silent_at = _DOWN  # when the window is asked for again; never while nothing is asked for

    @property
    def n_here(self) -> int:
        """How many chunks are written."""
        return len(self._have)

    @property
    def is_whole(self) -> bool:
        """Whether every chunk is written."""
        return len(self._have) == self.offer.n_chunks

    def connected(self) -> None:
        """A new connection is up: what was asked for on the old one is lost."""
        self._ask_again()
        self._silent_s = SILENT_S
        self.window = min(self.window, FIRST)  # connections that break often lose less with each

    def wanted(self, now: float) -> list[int]:
        """Chunks to ask for now, which count as asked for; empty if the window is nearly full."""
        if now >= self._silent_at:
            self._ask_again()
            self._silent_s = min(2 * self._silent_s, MOST_SILENT_S)
            self.window = float(LEAST)
        if 4 * len(self._asked) > 3 * int(self.window):
            return []
        n = min(int(self.window) - len(self._asked), MOST_WANTED, len(self._missing))
        wanted = [self._missing.pop() for _ in range(n)]
        for index in wanted:
            self._asked[index] = now
        if wanted:
            self._silent_at = now + self._silent_s
        return wanted

    def due(self, now: float) -> float | None:
        """Seconds until ``wanted`` may have something that it has not now; None if only a message changes that."""
        return None if self._silent_at == _DOWN else max(0.0, self._silent_at - now)

    def arrived(self, now: float, chunk: Chunk) -> str:
        """The reason to drop a chunk, or "" if it is to be written."""
        if chunk.bundle != self.name:
            return "other_offer"
        if chunk.index >= self.offer.n_chunks:
            return "malformed"
        if chunk.index in self._have:
            return "double"
        if not self.offer.is_right(chunk.index, chunk.data):
            return "wrong"
        self._time(now, chunk.index)
        return ""

    def wrote(self, index: int) -> None:
        """A chunk that ``arrived`` is on the disk."""
        self._have.add(index)
        if self._asked.pop(index, None) is None:
            self._missing.remove(index)
        if not self._asked:
            self._silent_at = _DOWN

    def _time(self, now: float, index: int) -> None:
        self._silent_s = SILENT_S
        self._silent_at = now + SILENT_S
        asked_at = self._asked.get(index)
        if asked_at is not None:
            took_s = now - asked_at
            step = 1.0 if took_s < FAST_S else -1.0 if took_s > SLOW_S else 0.0
            self.window = min(max(self.window + step, LEAST), MOST)

    def _ask_again(self) -> None:
        self._missing += sorted(self._asked, reverse=True)
        self._asked.clear()
        self._silent_at = _DOWN
