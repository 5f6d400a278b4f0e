# SPDX-License-Identifier: Apache-2.0
"""The enrolment worker: takes certificate requests from a broker, lets the desk answer them, and sends the replies.

Requests wait in a bounded queue, of each sender at most ``MOST_OF_ONE``; what finds no room is dropped, and its device
sends it again.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable

from hardcase_edge.errors import InputError
from hardcase_edge.fleet.identity.messages import MAX_REQUEST_BYTES, enrol_topic, enrolled_topic
from hardcase_edge.link.address import Address

from ...mqtt.client import ClientConfig
from ...mqtt.packets import Published
from ...mqtt.threaded import ThreadedClient
from .desk import Desk

FLUSH_S = 3.0  # how long to wait for the last reply's acknowledgement
MOST, MOST_OF_ONE = 256, 4
MAX_PACKET_BYTES = 8 * MAX_REQUEST_BYTES


class EnrolmentWorker:
    """Serves one authority at one broker. On MQTT 5 and 3.1.1 alike there is one worker.

    Parameters
    ----------
    desk : Desk
    address : the broker's listener for workers
    on_answer : called with a line about each message that was answered or dropped

    Attributes
    ----------
    lost : int
        Requests that found no room.
    """

    def __init__(self, desk: Desk, address: Address, on_answer: Callable[[str], None] = lambda line: None) -> None:
        self.desk = desk
        self.lost = 0
        self._on_answer = on_answer
        self._queue: queue.SimpleQueue[Published | None] = queue.SimpleQueue()  # None: look whether to stop
        self._waiting: Counter[str] = Counter()  # by topic
        self._lock = threading.Lock()
        self._stop = threading.Event()
        config = ClientConfig(
            address=address, topics=[enrol_topic("+")], name="hardcase-enrolment", max_packet_bytes=MAX_PACKET_BYTES
        )
        self._client = ThreadedClient(config, self._take)

    def start(self) -> None:
        """Connect and subscribe.

        Raises
        ------
        LinkError
            The broker cannot be reached, or it refuses the connection or the subscription.
        """
        self._client.open()

    def run(self, count: int | None = None) -> None:
        """Serve until ``stop``, or until so many requests were answered."""
        try:
            while not self._stop.is_set() and (count is None or self._n_answered() < count):
                self._step()
            self._client.flush(FLUSH_S)
        finally:
            self._client.stop()

    def stop(self) -> None:
        """Make ``run`` return soon; may be called by a signal handler or another thread."""
        self._stop.set()
        self._queue.put(None)

    def counters(self) -> dict[str, int]:
        """The desk's counters, ``lost``, and ``failed``: requests whose certificates could not be written."""
        return {**self.desk.counters, "lost": self.lost}

    def _n_answered(self) -> int:
        return self.desk.counters["issued"] + self.desk.counters["refused"]

    def _take(self, message: Published) -> None:
        """Queue a message, on the connection's thread."""
        with self._lock:
            if self._waiting[message.topic] >= MOST_OF_ONE or self._queue.qsize() >= MOST:
                self.lost += 1
                return
            self._waiting[message.topic] += 1
        self._queue.put(message)

    def _step(self) -> None:
        message = self._queue.get()
        if message is None:
            return
        with self._lock:
            self._waiting[message.topic] -= 1
            self._waiting += Counter()  # forgets those who wait no more
        try:
            reply = self.desk.receive(message.topic, message.payload, int(time.time()))
        except InputError as error:  # such as a full disk: whoever asked gets no reply, and asks again
            self.desk.counters["failed"] += 1
            self._on_answer(str(error))
            return
        if reply is not None:
            self._client.publish(enrolled_topic(reply[0]), reply[1], qos=1)
        self._on_answer(self.desk.last)
