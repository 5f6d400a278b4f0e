# SPDX-License-Identifier: Apache-2.0
"""Messages between the connection's thread and the worker's: bounded for all devices and for each, taken in turn.

Before a message is parsed, ``admits`` says whether there is room for it, so that the flood of one device costs little.
"""

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
MUTE_S = 0.5  # for which a device that has filled its place is not heard; honest devices never do
MAX_MUTED = 1024
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
        self._muted_until: dict[str, float] = {}  # of the connection's thread alone

    def admits(self, topic: str, at: float) -> bool:
        """Whether to ``put`` a message that comes on this topic now; if not, it is counted.

        A device that finds its share taken is muted for a time, because to answer its flood would delay all others.
        Called on the connection's thread, before the message is parsed.
        """
        device = _device_of(topic)
        if at >= self._muted_until.get(device, at):
            with self._changed:
                has_its_share, is_full = self._turns.has_its_share(device), self._turns.is_full
            if not (has_its_share or is_full):
                return True
            if has_its_share:
                self._mute(device, at + MUTE_S)
        self.lost += 1
        return False

    def put(self, message: Message, at: float) -> None:
        """Queue a message that ``admits`` has admitted; on the connection's thread."""
        payload = message.payload[: MAX_REQUEST_BYTES + 1]
        incoming = Incoming(message.topic, payload, message.correlation or b"", at)
        with self._changed:
            self._turns.put(_device_of(message.topic), incoming)
            if len(self._turns) == 1:
                self._changed.notify()

    def take(self, wait_s: float) -> Incoming | None:
        """The next message; None if none comes within these seconds."""
        with self._changed:
            if not self._turns and wait_s > 0:
                self._changed.wait(wait_s)
            return self._turns.take()[1] if self._turns else None

    def _mute(self, device: str, until: float) -> None:
        if len(self._muted_until) >= MAX_MUTED:
            self._muted_until.clear()
        self._muted_until[device] = until


def _device_of(topic: str) -> str:
    try:
        return device_of_topic(topic)
    except WireError:
        return NO_DEVICE
