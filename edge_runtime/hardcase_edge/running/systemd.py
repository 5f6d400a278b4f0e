# SPDX-License-Identifier: Apache-2.0
"""What a service tells systemd: that it is ready, alive, reloading or stopping (sd_notify), by the standard library.

systemd names a socket in ``NOTIFY_SOCKET``; each message is one datagram of lines such as ``READY=1``. The decision
loop feeds the watchdog itself, at most every half period: no thread does, because a thread would go on feeding while
the loop hangs. While the loop waits for an interval or for the next item, a timer's signal handler feeds it, which
Python runs on the loop's own thread. Without that variable, nothing is sent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from time import clock_gettime_ns, monotonic

MAX_STATUS = 200  # characters
MAX_PERIOD_S = 86_400.0


class Systemd:
    """The service manager of this process, or nobody.

    Parameters
    ----------
    environment : where to look for the socket and the watchdog's period
    now : seconds of a clock that only rises

    Attributes
    ----------
    period_s : float
        Seconds within which the manager must hear from the loop; 0 if it does not watch.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ, now: Callable[[], float] = monotonic) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._now = now
        self._fed_at = float("-inf")
        self._status = ""
        self.period_s = _period_s(environment) if self._address else 0.0

    def __bool__(self) -> bool:
        """Whether a manager listens."""
        return bool(self._address)

    @property
    def half_s(self) -> float:
        """Half the watchdog's period in seconds; 0 if there is none."""
        return self.period_s / 2

    def tell(self, *lines: str) -> bool:
        """Send these lines, as ``READY=1``; returns whether they were sent. A manager that is away stops nothing."""
        if not self._address:
            return False
        import socket

        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.setblocking(False)  # a queue that is full must not hold the loop
                sock.sendto("\n".join(lines).encode(errors="replace"), address)
        except (OSError, ValueError):  # ValueError: a null byte in the address
            return False
        return True

    def ready(self, status: str = "") -> None:
        """The service works from now on; also the end of ``reloading``."""
        self._status = ""
        self.tell("READY=1", *self._status_lines(status))

    def reloading(self) -> None:
        """A reload begins; ``ready`` ends it."""
        self.tell("RELOADING=1", f"MONOTONIC_USEC={clock_gettime_ns(1) // 1000}")  # 1: CLOCK_MONOTONIC

    def stopping(self) -> None:
        """The service is about to end."""
        self.tell("STOPPING=1")

    def allow(self, longest_s: float) -> None:
        """Ask for a longer period if one turn of the loop may by its own limits take that long."""
        if self.period_s and self.period_s < 2 * longest_s:
            self.period_s = min(2 * longest_s, MAX_PERIOD_S)
            self.tell(f"WATCHDOG_USEC={int(self.period_s * 1e6)}")

    def feed(self, status: Callable[[], str] = str) -> None:
        """The loop is alive. Sends at most one message in half a period, and none without a watchdog."""
        now = self._now()
        is_due = self.period_s and now - self._fed_at >= 0.9 * self.half_s  # a timer may be early by a little
        if is_due and self.tell("WATCHDOG=1", *self._status_lines(status())):
            self._fed_at = now

    def _status_lines(self, status: str) -> list[str]:
        """The line of a status that has changed; a status is one line."""
        if not status or status == self._status:
            return []
        self._status = status
        return [f"STATUS={' '.join(status.split())[:MAX_STATUS]}"]


def _period_s(environment: Mapping[str, str]) -> float:
    """The watchdog's period in seconds; 0 if there is none, or it is another process's."""
    micros, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not micros.isascii() or not micros.isdigit() or len(micros) > 15 or (pid and pid != str(os.getpid())):
        return 0.0
    return min(int(micros) / 1e6, MAX_PERIOD_S)
