# SPDX-License-Identifier: Apache-2.0
"""What a run does beside deciding: it tells systemd, keeps metrics, and reloads.

Every part is off unless an argument or the environment asks for it, and none may stop a decision: what cannot be
written or sent is told once. The decision loop calls ``decided`` after each decision and ``alarm`` runs on its thread,
so that a loop that hangs tells nobody that it is alive.
"""

from __future__ import annotations

import os
import signal
from time import monotonic
from typing import TYPE_CHECKING, Any

from .repeats import Repeats
from .signals import Reload
from .systemd import Systemd

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
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
