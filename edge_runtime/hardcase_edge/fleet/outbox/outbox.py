# SPDX-License-Identifier: Apache-2.0
"""Records go to the cloud beside the decisions: through the outbox on a thread of its own, or at once without one.

``Outbox.add`` hands a record to the thread and returns; only a device that decides faster than its disk writes waits
for it. All of the queue, the file and what is sent belongs to the thread.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from time import monotonic
from typing import TYPE_CHECKING, Any

from .bucket import Bucket

if TYPE_CHECKING:
    from .queue import Channel, Queue
    from .records import Made

MOST_NEW = 256  # records that the thread has not taken yet
BLOCKED_S = 1.0  # how long ``add`` waits for a disk that hangs; then records are dropped until it goes on
MOST_ACKS = 64  # messages; the store repeats what it acknowledges when a record comes again
LAST_S = 0.5  # how long ``stop`` waits for acknowledgements of what was sent last
END_S = 5.0  # how long ``stop`` waits for the disk
BURST = 12  # records that ``Direct`` sends at once; the connection has 16 places and 16 behind them
IDLE_S = 1.0  # how often to look for a new connection


class Outbox:
    """Runs a queue on a thread.

    Parameters
    ----------
    queue : Queue
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._changed = threading.Condition()
        self._new: deque[Made] = deque()
        self._acks: deque[bytes] = deque(maxlen=MOST_ACKS)
        self._lost = 0  # records that found no room
        self._is_blocked = self._is_stopping = False
        self._thread: threading.Thread | None = None

    def start(self, channel: Channel) -> None:
        """Open the file and begin to send."""
        self._thread = threading.Thread(target=self._run, args=(channel,), name="hardcase-outbox", daemon=True)
        self._thread.start()

    def add(self, made: Made) -> None:
        """Take a record."""
        with self._changed:
            if len(self._new) >= MOST_NEW and not self._is_blocked:
                self._is_blocked = not self._changed.wait_for(lambda: len(self._new) < MOST_NEW, BLOCKED_S)
            if self._is_blocked:
                self._lost += 1
                return
            self._new.append(made)
            self._changed.notify_all()

    def on_ack(self, payload: bytes) -> None:
        """Take a message on the device's ack topic."""
        with self._changed:
            self._acks.append(payload)
            self._changed.notify_all()

    def stop(self) -> None:
        """Send and write what is left; returns when it is on the disk, or the disk takes too long."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(LAST_S + END_S)

    def facts(self) -> dict[str, Any]:
        """Counters, and how many records wait."""
        counters = dict(self._queue.counters)
        counters["dropped"] += self._lost
        return {**counters, "waiting": self._queue.waiting}

    # ------------------------------------------------------------ the thread

    def _run(self, channel: Channel) -> None:
        queue = self._queue
        wake_at = end_at = None
        while True:
            with self._changed:
                now = monotonic()
                if not (self._new or self._acks or (self._is_stopping and end_at is None)):
                    self._changed.wait(min(max(0.0, (wake_at or now) - now), IDLE_S))
                new, acks = list(self._new), list(self._acks)
                self._new.clear()
                self._acks.clear()
                self._is_blocked = False
                if self._is_stopping and end_at is None:
                    end_at = monotonic() + LAST_S
                self._changed.notify_all()
            now = monotonic()
            for record in new:
                queue.add(record, now)
            for payload in acks:
                queue.acknowledged(payload, now)
            wake_at = queue.step(channel, now)
            if end_at is not None and (now >= end_at or not (queue.waiting and channel.is_connected)):
                queue.close(now)
                return
            if end_at is not None:
                wake_at = min(wake_at, end_at)


class Direct:
    """Sends each record at once, over the connection that is there, and keeps none.

    Parameters
    ----------
    rate : most records in a second; those beyond it would take a request's place in the connection
    """

    def __init__(self, rate: float) -> None:
        self._counters = Counter(sent=0, unsent=0)
        self._bucket = Bucket(rate, BURST)
        self._channel: Channel | None = None

    def start(self, channel: Channel) -> None:
        """Begin to send."""
        self._channel = channel

    def add(self, made: Made) -> None:
        """Send a record."""
        is_sent = (
            self._channel is not None
            and self._bucket.has_one(monotonic())
            and self._channel.publish_record(made.payload, is_audit=made.is_audit)
        )
        if is_sent:
            self._bucket.take()
        self._counters["sent" if is_sent else "unsent"] += 1

    def stop(self) -> None:
        """Nothing is left to send."""

    def facts(self) -> dict[str, Any]:
        """Counters."""
        return dict(self._counters)
