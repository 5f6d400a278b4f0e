# SPDX-License-Identifier: Apache-2.0
"""Joins the updates to a device that runs: a thread of its own, fed by the link, which begins with the first message.

The link's thread only puts messages into a bounded queue, so neither a slow card nor a bundle's checks delay a reply.
Until a message comes, nothing of this room is imported but this module.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from ...base.clock import Clock
from ...device.output import note
from ...device.surroundings import Part
from ...errors import HardcaseError, InputError, one_line, type_and_line
from ...link.wire import fetch_topic, install_topic, update_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ...device.surroundings import Surroundings
    from ...link.link import Link
    from ...settings.config import RunConfig
    from ..store.folder import Store
    from .updater import Updater

MOST_WAITING = 80  # messages; two windows of chunks and some offers
CONNECTED, INSTALL = "connected", "install"  # events that stand in the queue between messages
STOP_S = 2.0  # how long the end of a run waits for a write; what is checked then is checked again at the next start
NICE = 10  # of the thread, where the system lets threads have their own


def check(config: RunConfig) -> None:
    """Refuse metered hours that are none, or without updates."""
    if config.metered is not None:
        from .metered import parse_metered

        parse_metered(config.metered)
        if config.store is None or config.broker is None:
            raise InputError("--metered needs --store and --broker: it pauses updates from the one into the other")


def make(run: Surroundings) -> Air | None:
    """What takes bundles from the broker into the store, where there are both."""
    if run.store is None or run.link is None:
        return None
    return updates_of(run.config, run.store, run.link, run.on_news)


def updates_of(config: RunConfig, store: Store, link: Link, on_news: Callable[[], None]) -> Air:
    """What takes bundles from the link into the store, whether a bundle decides or not."""
    air = Air(store, key=config.trust, metered=config.metered, note=note, on_ready=on_news)
    air.listen(link)
    return air


class Air(Part):
    """The updates of one run of a store's slot.

    Parameters
    ----------
    store : Store
    key : path of the public key that must have signed every bundle, or None
    metered : hours such as 07:00-23:00 in which nothing is fetched, or None
    note : called with each line that a user should read
    on_ready : called once, on this thread, when a bundle waits in the store for its trial

    Raises
    ------
    InputError
        The hours are not hours.
    """

    def __init__(
        self,
        store: Store,
        *,
        key: str | Path | None,
        metered: str | None,
        note: Callable[[str], None],
        on_ready: Callable[[], None],
    ) -> None:
        self._store, self._key, self._note, self._on_ready = store, key, note, on_ready
        self._topic = ""  # of fetches
        self._metered = None
        if metered is not None:
            from .metered import parse_metered

            self._metered = parse_metered(metered)
        self._link: Link | None = None
        self._updater: Updater | None = None
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._queue: deque[bytes | str] = deque()  # messages, and the events above
        self._dropped = 0
        self._is_open = False
        self._is_closed = False

    def listen(self, link: Link) -> None:
        """Hear what comes for this device over this link, which is not up yet."""
        self._link, link.on_up = link, self.came_up
        self._topic = fetch_topic(link.device_id)
        link.listen(update_topic(link.device_id), self._put)
        link.listen(install_topic(link.device_id), lambda payload: self._put(INSTALL))

    def came_up(self) -> None:
        """The link has a new connection."""
        if self._thread is not None or self._queue:
            self._put(CONNECTED)

    def begins(self) -> None:
        """The run makes decisions from now on, and ``on_ready`` may be called."""
        with self._changed:
            self._is_open = True
            self._start()

    def ended(self) -> None:
        """The run ends: ``on_ready`` is not called any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(STOP_S)

    def facts(self) -> dict[str, Any]:
        """What is on its way, for the device's status."""
        updater = self._updater
        if updater is None:
            return {}
        return {**updater.facts(), "updates": {**updater.counters, "flooded": self._dropped}}

    # ------------------------------------------------------------ on the link's thread

    def _put(self, payload: bytes | str) -> None:
        with self._changed:
            if len(self._queue) >= MOST_WAITING:
                self._dropped += 1
                return
            self._queue.append(payload)
            self._changed.notify_all()
            self._start()

    def _start(self) -> None:
        if self._thread is None and self._is_open and self._queue and not self._is_closed:
            self._thread = threading.Thread(target=self._run, name="hardcase-update", daemon=True)
            self._thread.start()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            self._live()
        except Exception as error:  # of a part that nobody has foreseen: the next message begins anew, on a new thread
            self._note(f"the update is broken off: {type_and_line(error)}")
        finally:
            with self._changed:
                self._thread = None

    def _live(self) -> None:
        from .incoming import Incoming
        from .updater import Updater

        _be_nice()
        incoming, clock = Incoming(self._store), Clock(self._store.noted_time())  # the signed time is the trust's own
        updater = self._updater = Updater(
            self._store, incoming, self._send, wall=time.time, floor=clock.floor, key=self._key,
            metered=self._metered, note=self._note,
        )  # fmt: skip
        try:
            while not self._is_closed and not updater.is_ready:
                self._step(updater)
        finally:
            incoming.close()
        with self._changed:
            if updater.is_ready and not self._is_closed:
                self._on_ready()

    def _step(self, updater: Updater) -> None:
        messages = self._next(updater.due(time.monotonic()))
        try:
            for payload in messages:
                if isinstance(payload, bytes):
                    updater.handle(time.monotonic(), payload)
                elif payload == INSTALL:
                    updater.install()
                else:
                    updater.connected()
            updater.act(time.monotonic())
        except (HardcaseError, OSError) as error:  # of the store, such as a state that is damaged
            self._note(f"the update waits: {one_line(error)}")

    def _next(self, wait_s: float | None) -> list[bytes | str]:
        """The next message, if one comes within this time: a list of at most one."""
        with self._changed:
            if not self._queue and not self._is_closed:
                self._changed.wait(wait_s)
            return [self._queue.popleft()] if self._queue and not self._is_closed else []

    def _send(self, payload: bytes) -> bool:
        return self._link is not None and self._link.send(self._topic, payload)


def _be_nice() -> None:
    """Let decisions go first, where a thread can have a priority of its own."""
    import contextlib
    import os

    with contextlib.suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
