# SPDX-License-Identifier: Apache-2.0
"""Keeps the records of all devices of a broker: an inbox, a commit for each batch, and then the acknowledgements.

The connection's thread only puts messages into the inbox, which is bounded for each device and for all; what finds no
room is not acknowledged, and its device sends it again. Only the thread of ``run`` touches the database.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from itertools import groupby

from hardcase_edge.errors import InputError, WireError
from hardcase_edge.link.address import Address
from hardcase_edge.link.connection import Connection, ConnectionConfig, Message
from hardcase_edge.link.wire import ack_topic, audit_topic, decision_topic
from hardcase_edge.outbox.acks import pack_acks

from .database import Database
from .incoming import MAX_RECORD_BYTES, Incoming, parse_record

__all__ = ["Inbox", "Keeper"]

MOST_OF_ONE = 256  # messages of one device that wait
MOST_OF_ALL = 16_384
MOST_BYTES = 64 * 1024 * 1024  # of all messages that wait
BATCH = 2_000  # records in one commit
LINGER_S = 0.02  # how long the first record of a batch waits for others
START_S = 15.0
POLL_S = 0.2
RETRY_S = 5.0  # after a commit that failed
ACK_S = 1.0  # how long to try to send an acknowledgement; the device sends the records again otherwise


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

    Attributes
    ----------
    counters : Counter
        ``kept``, ``repeated`` (records that were there already), ``malformed``, ``oversized``, ``unwritable`` batches,
        ``unsent`` acknowledgements.
    """

    def __init__(
        self, database: Database, address: Address, *, note: Callable[[str], None], now: Callable[[], float] = time.time
    ) -> None:
        self._database, self._note, self._now = database, note, now
        self._inbox = Inbox()
        self._stop = threading.Event()
        self._is_ill = False
        self.counters: Counter[str] = Counter(kept=0, repeated=0, malformed=0, oversized=0, unwritable=0, unsent=0)
        config = ConnectionConfig(
            address=address, client_id=f"hardcase-store-{secrets.token_hex(8)}", max_in_flight=256,
            max_packet_bytes=2 * MAX_RECORD_BYTES,
        )  # fmt: skip
        self._connection = Connection(
            config,
            subscribe=decision_topic("+"),
            also=(audit_topic("+"),),
            on_message=self._take,
        )

    def start(self) -> None:
        """Connect and subscribe; from then on the connection's thread reconnects whenever the connection breaks.

        Raises
        ------
        LinkError
            The broker cannot be reached, or it refuses the connection or a subscription.
        """
        self._connection.open(START_S)

    def stop(self) -> None:
        """Make ``run`` return soon; may be called by a signal handler or another thread."""
        self._stop.set()

    def run(self, count: int | None = None) -> None:
        """Keep records until ``stop``, or until ``count`` of them are kept; then disconnect."""
        while not self._stop.is_set() and (count is None or self.counters["kept"] < count):
            self.step(POLL_S)
        self._connection.unsubscribe()
        self._connection.flush(POLL_S)
        self._connection.stop()

    def step(self, wait_s: float) -> None:
        """Keep one batch of what arrives in this time, and acknowledge it."""
        records = [
            r for topic, payload in self._inbox.take(BATCH, wait_s, LINGER_S) if (r := self._parse(topic, payload))
        ]
        if records and self._keep(records):
            self._acknowledge(records)

    def all_counters(self) -> dict[str, int]:
        """The counters, and ``lost``: messages that found no room."""
        return {**self.counters, "lost": self._inbox.lost}

    # ------------------------------------------------------------ parts

    def _take(self, message: Message) -> None:
        self._inbox.put(message.topic, message.payload)

    def _parse(self, topic: str, payload: bytes) -> Incoming | None:
        try:
            return parse_record(topic, payload)
        except WireError as error:
            self.counters[error.reason] += 1
            return None

    def _keep(self, records: list[Incoming]) -> bool:
        try:
            n_new = self._database.keep(records, self._now())
        except InputError as error:
            self.counters["unwritable"] += 1
            if not self._is_ill:
                self._note(f"{error}; devices keep their records until then")
            self._is_ill = True
            self._stop.wait(RETRY_S)
            return False
        self._is_ill = False
        self.counters["kept"] += n_new
        self.counters["repeated"] += len(records) - n_new
        return True

    def _acknowledge(self, records: list[Incoming]) -> None:
        for device, of_device in groupby(sorted(records, key=lambda r: r.device), key=lambda r: r.device):
            for payload in pack_acks((r.boot, r.sequence) for r in of_device):
                self._send(ack_topic(device), payload)

    def _send(self, topic: str, payload: bytes) -> None:
        until = time.monotonic() + ACK_S
        while not self._connection.publish(topic, payload):
            if not self._connection.is_up or time.monotonic() > until:
                self.counters["unsent"] += 1
                return
            time.sleep(0.002)
