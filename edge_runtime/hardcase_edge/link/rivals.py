# SPDX-License-Identifier: Apache-2.0
"""Another client with the same id: how a connection learns of it, and how long it then keeps away.

A broker lets only the latest client with an id stay. Two devices with one id would throw each other off for ever, so
each pauses longer after each loss, and gives up after ``MOST_PROOFS`` proofs within ``WINDOW_S``. There are two proofs:

- a DISCONNECT with the reason "session taken over", which mosquitto sends from version 2.0.15 on;
- for brokers that only hang up: a new connection is told that its session is present, when that can only be the
  session of another client, because our own ended with our connection and ``OWN_SESSION_S`` have passed since.

Both need MQTT 5, and the second a connection without a certificate, behind which no session is kept.
"""

from __future__ import annotations

from collections import deque
from time import monotonic

SESSION_S = 1  # for which a broker keeps a session after its connection; the shortest that others can see
OWN_SESSION_S = 4.0  # by then our own session is gone; mosquitto keeps it for up to 2 s
MOST_PROOFS = 5
WINDOW_S = 600.0
SHORT_S = 60.0  # a connection that the broker ended after less was perhaps taken over; one that lasted was not
PAUSE_S, MOST_PAUSE_S = 8.0, 32.0  # after the second loss; doubles with each further one. Jitter halves it at most


class Rivals:
    """Losses and proofs of one connection's thread."""

    def __init__(self) -> None:
        self._losses: deque[float] = deque(maxlen=MOST_PROOFS)  # monotonic seconds
        self._proofs: deque[float] = deque(maxlen=MOST_PROOFS)
        self._is_lost = False  # the last connection was, and none has come up since

    def lost(self, *, is_proved: bool) -> float:
        """Note that the broker ended a connection; the pause before the next, 0 for the usual one."""
        self._losses.append(monotonic())
        self._is_lost = True
        if is_proved:
            self.prove()
        n_losses = _recent(self._losses)
        return 0.0 if n_losses < 2 else min(MOST_PAUSE_S, PAUSE_S * 2.0 ** (n_losses - 2))

    def is_away(self) -> None:
        """Note that the broker cannot be reached: if a connection was lost just now, that is why."""
        if self._is_lost:
            self._losses.pop()
            self._is_lost = False

    def came_up(self) -> None:
        """Note that a connection came up."""
        self._is_lost = False

    def prove(self) -> None:
        """Note a proof of another client with this id."""
        self._proofs.append(monotonic())

    @property
    def is_suspected(self) -> bool:
        """Whether there is a proof, or connections were lost often enough to suspect another client."""
        return self.is_proved or _recent(self._losses) > 1

    @property
    def is_proved(self) -> bool:
        """Whether there is a proof."""
        return bool(_recent(self._proofs))

    @property
    def is_sure(self) -> bool:
        """Whether to give up."""
        return _recent(self._proofs) == MOST_PROOFS

    @property
    def looks_for_session(self) -> bool:
        """Whether the next connection asks for a session: one that is present proves another client."""
        return self._is_lost and monotonic() - self._losses[-1] > OWN_SESSION_S


def _recent(times: deque[float]) -> int:
    return sum(at > monotonic() - WINDOW_S for at in times)
