# SPDX-License-Identifier: Apache-2.0
"""Messages between the connection's thread and the worker's: bounded for all devices and for each, taken in turn."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from hardcase_edge.errors import WireError
from hardcase_edge.link.connection import Message
from hardcase_edge.link.wire import device_of_topic
from hardcase_edge.program.readings import MAX_REQUEST_BYTES

from .turns import Turns

__all__ = ["Inbox", "Incoming"]

MAX_INBOX = 4096  # messages, normally under 1 KB each
MAX_PER_DEVICE = 64  # an honest device has one request under way
NO_DEVICE = ""  # all messages on topics that name no device share one place among the devices


@dataclass(frozen=True, slots=True)
class Incoming:
    """What the service needs of a message."""

    topic: str
    payload: bytes  # of what is longer than any request only the beginning, which is too long as well
    correlation: bytes
    at: float  # when it came, on the worker's clock


class Inbox:
    """The messages that wait for the worker's thread.

    Attributes
    ----------
    lost : int
        Messages dropped, because the inbox was full or held as many of this device as it may.
    """

    def __init__(self) -> None:
        self.lost = 0
        self._turns: Turns[Incoming] = Turns(MAX_INBOX, MAX_PER_DEVICE)
        self._changed = threading.Condition()

    def put(self, message: Message, at: float) -> None:
        """Queue a message that came at this time, or count and drop it; on the connection's thread."""
        try:
            device = device_of_topic(message.topic)
        except WireError:
            device = NO_DEVICE
        payload = message.payload[: MAX_REQUEST_BYTES + 1]
        incoming = Incoming(message.topic, payload, message.correlation or b"", at)
        with self._changed:
            if not self._turns.put(device, incoming):
                self.lost += 1
            elif len(self._turns) == 1:
                self._changed.notify()

    def take(self, wait_s: float) -> Incoming | None:
        """The next message; None if none comes within these seconds."""
        with self._changed:
            if not self._turns and wait_s > 0:
                self._changed.wait(wait_s)
            return self._turns.take()[1] if self._turns else None
