# SPDX-License-Identifier: Apache-2.0
"""What a run does beside deciding: it tells systemd, keeps metrics, and reloads.

Every part is off unless an argument or the environment asks for it, and none may stop a decision: what cannot be
written or sent is told once. The decision loop calls ``decided`` after each decision and ``alarm`` runs on its thread,
so that a loop that hangs tells nobody that it is alive.
"""

from __future__ import annotations

import os
import re
import signal
from collections import OrderedDict
from collections.abc import Callable, Mapping
from time import clock_gettime_ns, monotonic
from typing import TYPE_CHECKING, Any

from .signals import Reload

if TYPE_CHECKING:
    from pathlib import Path

    from ..bundle.load import Loaded
    from ..device.device import Device
    from ..fleet.operations.metrics import Metrics
    from ..fleet.operations.scrape import Page
    from ..link.link import Link
    from ..settings.config import RunConfig

FILE_EVERY_S = 15.0  # as often as Prometheus usually asks


class Beside:
    """The parts that these arguments of ``run`` ask for; a context manager.

    Parameters
    ----------
    config : the settings of the run
    note : called with each line that a user should read
    version : of hardcase-edge

    Attributes
    ----------
    note : Repeats
        For lines that may repeat.
    link : Link or None
        That of the run under way.
    goes_on : bool
        Whether this process becomes another one that decides.

    Raises
    ------
    InputError
        A metrics file cannot be used.
    """

    def __init__(self, config: RunConfig, note: Callable[[str], None], version: str) -> None:
        self.reload = Reload()
        self.systemd = Systemd()
        self.note = Repeats(note)
        self.goes_on = False
        self._config, self._version = config, version
        self._device: Device | None = None
        self.link: Link | None = None
        self._metrics: Metrics | None = None
        self._page: Page | None = None
        self._file: Path | None = None
        self._write_at = float("-inf")
        self._trouble = ""
        if config.metrics_file is not None:
            from ..fleet.operations.scrape import checked_file

            self._file = checked_file(config.metrics_file)

    def __enter__(self) -> Beside:
        if self._config.metrics is not None:
            from ..fleet.operations.scrape import Page

            self._page = Page(self._config.metrics, self.text, is_public=self._config.metrics_public)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if not self.goes_on:
            self.systemd.stopping()
        if self._page is not None:
            self._page.close()

    # ------------------------------------------------------------ one run

    def begin(self, device: Device, loaded: Loaded, longest_s: float) -> None:
        """The first decision is about to be made.

        Parameters
        ----------
        longest_s : the longest that one decision takes by its own limits
        """
        self._device = device
        if self._file is not None or self._page is not None:
            manifest = loaded.manifest
            names = (manifest.name, loaded.bundle.sha256, manifest.unit)
            if self._metrics is None:
                from ..fleet.operations.metrics import Metrics

                self._metrics = Metrics(*names, self._version)
            self._metrics.loaded(*names)
        self.systemd.ready(f"runs {loaded.manifest.name}")
        self.systemd.allow(longest_s)
        self.systemd.feed()

    def decided(self, record: Mapping[str, Any]) -> None:
        """A decision was made: the loop is alive."""
        self.systemd.feed(self._status)
        if self._metrics is not None:
            self._metrics.decided(record)
            if monotonic() >= self._write_at:
                self._write()

    def watch(self) -> None:
        """Have ``alarm`` called every half period, if there is a watchdog."""
        signal.signal(signal.SIGALRM, lambda number, frame: self.alarm())
        signal.setitimer(signal.ITIMER_REAL, self.systemd.half_s, self.systemd.half_s)

    def alarm(self) -> None:
        """A timer's signal has reached the loop's thread: it is alive if it waits for time or for an item, or loads."""
        if self._device is None or self._device.is_idle:
            self.systemd.feed(self._status)

    def end(self) -> None:
        """The run has ended, and perhaps another is loaded."""
        if self._metrics is not None:
            self._write()
        self._device = self.link = None
        self.watch()
        if self.reload.is_due and not self.reload.is_told:
            self.systemd.reloading()

    def text(self) -> str:
        """The page of metrics; called on the page's thread, too."""
        device, link, metrics = self._device, self.link, self._metrics
        if device is None or metrics is None:
            return ""
        facts = device.facts()
        if link is not None:
            facts["connected"] = int(link.is_connected)
        return metrics.text(facts, memory_bytes=resident_bytes(), suppressed=self.note.suppressed)

    def _write(self) -> None:
        """Replace the metrics file, if there is one."""
        if self._file is None:
            return
        from ..fleet.operations.scrape import write_file

        self._write_at = monotonic() + FILE_EVERY_S
        trouble = write_file(self._file, self.text())
        if trouble and trouble != self._trouble:
            self.note(f"{trouble}; decisions go on")
        self._trouble = trouble

    def _status(self) -> str:
        """What ``systemctl status`` shows."""
        counters = self._device.counters if self._device is not None else {}
        cloud = "" if self.link is None else f", broker {'there' if self.link.is_connected else 'away'}"
        return f"{counters.get('asked', 0)} decisions, {counters.get('degraded', 0)} degraded{cloud}"


def resident_bytes() -> int:
    """Memory of this process, in bytes; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


# A log that cannot fill a card: lines that repeat are counted instead of written, and all lines together are bounded.
#
# Lines are alike if they differ in digits only. Of each kind ``MOST_ALIKE`` are written within ``WINDOW_S``, and of all
# kinds ``MOST``; the first line after a pause says how many were left out.


WINDOW_S = 600.0
MOST_ALIKE = 5
MOST = 60  # of all kinds: at 200 bytes a line, 1.7 MB a day at most
KINDS = 64  # kinds remembered; the one that was seen least recently is forgotten
KEY = 200  # characters of a line that tell its kind
_DIGITS = re.compile(r"\d+")


class Repeats:
    """The memory of a log.

    Parameters
    ----------
    write : called with each line that is written
    now : seconds of a clock that only rises

    Attributes
    ----------
    suppressed : int
        How many lines were left out.
    """

    def __init__(self, write: Callable[[str], None], now: Callable[[], float] = monotonic) -> None:
        self._write, self._now = write, now
        self._kinds: OrderedDict[str, list[float]] = OrderedDict()  # end of its window, lines in it, left out
        self._all = [0.0, 0.0, 0.0]
        self.suppressed = 0

    def __call__(self, line: str) -> None:
        """Write a line, or count it."""
        now, key = self._now(), _DIGITS.sub("0", line[:KEY])
        kind = self._kinds.setdefault(key, [0.0, 0.0, 0.0])
        self._kinds.move_to_end(key)
        if len(self._kinds) > KINDS:
            self._kinds.popitem(last=False)
        for window in (kind, self._all):
            if now >= window[0]:
                window[:] = [now + WINDOW_S, 0.0, window[2]]
        if kind[1] >= MOST_ALIKE or self._all[1] >= MOST:
            window = kind if kind[1] >= MOST_ALIKE else self._all
            window[2] += 1
            self.suppressed += 1
            return
        suppressed = "".join(
            [f" ({n:.0f} more {what} left out)" for n, what in ((kind[2], "like this"), (self._all[2], "lines")) if n]
        )
        kind[1], self._all[1] = kind[1] + 1, self._all[1] + 1
        kind[2] = self._all[2] = 0.0
        self._write(line + suppressed)


# What a service tells systemd: that it is ready, alive, reloading or stopping (sd_notify), by the standard library.
#
# systemd names a socket in ``NOTIFY_SOCKET``; each message is one datagram of lines such as ``READY=1``. The decision
# loop feeds the watchdog itself, at most every half period: no thread does, because a thread would go on feeding while
# the loop hangs. While the loop waits for an interval or for the next item, a timer's signal handler feeds it, which
# Python runs on the loop's own thread. Without that variable, nothing is sent.


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
