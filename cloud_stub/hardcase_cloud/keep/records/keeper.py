# SPDX-License-Identifier: Apache-2.0
"""Keeps the records of all devices of a broker: an inbox, a commit for each batch, and then the acknowledgements.

The connection's thread only puts messages into the inbox, which is bounded for each device and for all; what finds no
room is not acknowledged, and its device sends it again. Only the thread of ``run`` touches the database, and only it
sends acknowledgements, on the same connection: at QoS 0, because a device that misses one sends its records again.
While the database cannot be used, records wait in a spool, bounded too, and devices keep theirs until they are
acknowledged. What is kept of devices follows from their retained states and facts.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from itertools import groupby

from hardcase_edge.errors import InputError, WireError
from hardcase_edge.fleet.outbox.acks import pack_acks
from hardcase_edge.link.address import Address
from hardcase_edge.link.wire import ack_topic, audit_topic, decision_topic, devices_of, facts_topic, status_topic

from ...mqtt.client import ClientConfig
from ...mqtt.packets import Published
from ...mqtt.threaded import ThreadedClient
from ..metrics.families import StoreFigures
from .database import Database
from .devices import Devices, Presence
from .dialects import keep_storable
from .incoming import MAX_RECORD_BYTES, Incoming, parse_record

MOST_OF_ONE = 256  # messages of one device that wait
MOST_OF_ALL = 16_384
MOST_BYTES = 64 * 1024 * 1024  # of all messages that wait
BATCH = 2_000  # records in one commit
SPOOL = 20_000  # records that wait while the database cannot be used
REMOVE_S = 60.0  # how often old records are looked for
LINGER_S = 0.02  # how long the first record of a batch waits for others
POLL_S = 0.2
RETRY_S = 5.0  # after a commit that failed
ACK_S = 1.0  # how long to wait until the broker has taken a batch's acknowledgements
ACK_EXPIRY_S = 60  # after which a device has sent its records again


class Inbox:
    """Messages that wait, within bounds.

    Attributes
    ----------
    lost : int
        Messages that found no room.
    """

    def __init__(self) -> None:
        self.lost = 0
        self._changed = threading.Condition()
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._of: Counter[str] = Counter()
        self._bytes = 0

    def put(self, topic: str, payload: bytes) -> None:
        """Take a message, or lose it."""
        sender = topic.rpartition("/")[0]
        with self._changed:
            is_full = len(self._waiting) >= MOST_OF_ALL or self._bytes + len(payload) > MOST_BYTES
            if is_full or self._of[sender] >= MOST_OF_ONE or len(payload) > MAX_RECORD_BYTES:
                self.lost += 1
                return
            self._waiting.append((topic, payload))
            self._of[sender] += 1
            self._bytes += len(payload)
            self._changed.notify()

    def take(self, n: int, wait_s: float, linger_s: float) -> list[tuple[str, bytes]]:
        """Up to ``n`` messages; waits for the first one, and then a little for others."""
        with self._changed:
            if not self._waiting:
                self._changed.wait(wait_s)
        if self._waiting and len(self._waiting) < n:
            time.sleep(linger_s)
        with self._changed:
            taken = [self._waiting.popleft() for _ in range(min(n, len(self._waiting)))]
            for topic, payload in taken:
                sender = topic.rpartition("/")[0]
                self._bytes -= len(payload)
                self._of[sender] -= 1
                if not self._of[sender]:
                    del self._of[sender]
        return taken


class Keeper:
    """Serves one database from one broker.

    Parameters
    ----------
    database : Database
    address : Address
        The broker's address.
    note : called with each line that a user should read
    now : function that gives wall time in seconds
    keep_s : how long records are kept; None: for ever
    tenant : whose devices' records are kept; "": those of devices without one

    Attributes
    ----------
    counters : Counter
        ``kept``, ``repeated`` (records that were there already), ``malformed``, ``oversized``, ``unwritable`` batches,
        ``unsent`` acknowledgements, ``removed`` records that were too old.
    ill_since : float or None
        Wall time since when the database cannot be used.
    """

    def __init__(
        self,
        database: Database,
        address: Address,
        *,
        note: Callable[[str], None],
        now: Callable[[], float] = time.time,
        keep_s: float | None = None,
        tenant: str = "",
    ) -> None:
        self._database, self._note, self._now = database, note, now
        self._inbox = Inbox()
        self._stop = threading.Event()
        self._devices, self._presence = Devices(database), Presence()
        self._spool: deque[Incoming] = deque()
        self._retry_at = 0.0
        self._keep_s, self._remove_at = keep_s, 0.0
        self.ill_since: float | None = None
        self._lag_s = 0.0  # from the moment at which a batch was taken until it was on the disk
        names = ("kept", "repeated", "malformed", "oversized", "unwritable", "unsent", "removed")
        self.counters: Counter[str] = Counter(dict.fromkeys(names, 0))
        topics = [topic(devices_of(tenant)) for topic in (decision_topic, audit_topic, status_topic, facts_topic)]
        config = ClientConfig(
            address=address, topics=topics, name="hardcase-store", max_packet_bytes=2 * MAX_RECORD_BYTES,
            wants_retained=True,
        )  # fmt: skip
        self._client = ThreadedClient(config, self._take)

    def start(self) -> None:
        """Connect and subscribe; from then on the connection's thread reconnects whenever the connection breaks.

        Raises
        ------
        LinkError
            The broker cannot be reached, or it refuses the connection or a subscription.
        """
        self._client.open()

    def stop(self) -> None:
        """Make ``run`` return soon; may be called by a signal handler or another thread."""
        self._stop.set()

    def run(self, count: int | None = None) -> None:
        """Keep records until ``stop``, or until ``count`` of them are kept; then disconnect."""
        while not self._stop.is_set() and (count is None or self.counters["kept"] < count):
            self.step(POLL_S)
        self._client.unsubscribe()
        self._client.flush(POLL_S)
        self._client.stop()

    def step(self, wait_s: float) -> None:
        """Keep one batch of what arrives in this time, and acknowledge it."""
        room = min(BATCH, SPOOL - len(self._spool))
        for topic, payload in self._inbox.take(room, wait_s, LINGER_S) if room else self._wait(wait_s):
            if record := self._parse(topic, payload):
                self._spool.append(record)
        while time.monotonic() >= self._retry_at and (self._spool or self._presence.is_waiting):
            began = time.monotonic()
            batch = [self._spool.popleft() for _ in range(min(BATCH, len(self._spool)))]
            if not self._keep(batch):
                self._spool.extendleft(reversed(batch))
                return
            self._lag_s = time.monotonic() - began
            self._acknowledge(batch)
            if not self._spool:
                break  # states and facts that have come meanwhile must not hold up the inbox
        self._remove_old()

    @property
    def waiting(self) -> int:
        """How many records wait for the database."""
        return len(self._spool)

    def all_counters(self) -> dict[str, int]:
        """The counters, ``lost``: records that found no room, and ``dropped``: states and facts that are none."""
        return {**self.counters, "lost": self._inbox.lost, "dropped": self._presence.dropped}

    def figures(self) -> StoreFigures:
        """How it stands, for Prometheus."""
        ill_since = self.ill_since
        ill_s = 0.0 if ill_since is None else self._now() - ill_since
        return StoreFigures(self.all_counters(), self.waiting, ill_s, self._lag_s)

    # ------------------------------------------------------------ parts

    def _take(self, message: Published) -> None:
        if not self._presence.take(message.topic, message.payload):
            self._inbox.put(message.topic, message.payload)

    def _wait(self, wait_s: float) -> list[tuple[str, bytes]]:
        self._stop.wait(wait_s)
        return []

    def _parse(self, topic: str, payload: bytes) -> Incoming | None:
        try:
            return parse_record(topic, payload)
        except WireError as error:
            self.counters[error.reason] += 1
            return None

    def _keep(self, records: list[Incoming]) -> bool:
        devices = self._presence.drain()
        new: list[int] = []
        try:
            if devices:
                self._presence.dropped += keep_storable(devices, lambda some: self._devices.saw(some, self._now()))
            n_bad = 0
            if records:
                n_bad = keep_storable(records, lambda some: new.append(self._database.keep(some, self._now())))
        except InputError as error:
            self._presence.put_back(devices)
            self.counters["unwritable"] += 1
            if self.ill_since is None:
                self.ill_since = self._now()
                self._note(f"{error}; up to {SPOOL} records wait here, and devices keep theirs until then")
            self._retry_at = time.monotonic() + RETRY_S
            return False
        if self.ill_since is not None:
            self._note(f"the store can be used again after {self._now() - self.ill_since:.0f} s")
        self.ill_since = None
        self.counters["kept"] += sum(new)
        self.counters["malformed"] += n_bad
        self.counters["repeated"] += len(records) - sum(new) - n_bad
        return True

    def _remove_old(self) -> None:
        if self._keep_s is None or time.monotonic() < self._remove_at:
            return
        try:
            n = self._database.remove(self._now() - self._keep_s)
        except InputError:
            n = 0  # the next batch says what is wrong
        self.counters["removed"] += n
        self._remove_at = time.monotonic() + (0.0 if n else REMOVE_S)

    def _acknowledge(self, records: list[Incoming]) -> None:
        for device, of_device in groupby(sorted(records, key=lambda r: r.device), key=lambda r: r.device):
            for payload in pack_acks((r.boot, r.sequence) for r in of_device):
                if not self._client.publish(ack_topic(device), payload, expires_s=ACK_EXPIRY_S):
                    self.counters["unsent"] += 1
        self._client.flush(ACK_S)
