# SPDX-License-Identifier: Apache-2.0
"""Replies remembered for requests that are sent again: per device, so that no device makes another's forgotten."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Remembered:
    """A reply, and the hash of the readings that it answers."""

    payload: bytes
    readings_hash: int


class Replies:
    """The latest replies of each device.

    If there are too many in all, those of the device that asked longest ago are forgotten first.

    Parameters
    ----------
    most : how many replies are remembered
    most_per_device : how many of them may be one device's
    """

    def __init__(self, most: int, most_per_device: int) -> None:
        self._most = most
        self._most_per_device = most_per_device
        self._devices: OrderedDict[str, OrderedDict[bytes, Remembered]] = OrderedDict()  # latest last; none is empty
        self._n = 0

    def __len__(self) -> int:
        """How many replies are remembered."""
        return self._n

    def __contains__(self, device: str) -> bool:
        """Whether a reply to this device is remembered."""
        return device in self._devices

    def find(self, device: str, id_: bytes) -> Remembered | None:
        """The reply to this request of this device; None if there is none, or no longer."""
        replies = self._devices.get(device)
        return None if replies is None else replies.get(id_)

    def add(self, device: str, id_: bytes, reply: Remembered) -> None:
        """Remember a reply to a request that has none yet."""
        replies = self._devices.setdefault(device, OrderedDict())
        self._devices.move_to_end(device)
        replies[id_] = reply
        self._n += 1
        if len(replies) > self._most_per_device:
            replies.popitem(last=False)
            self._n -= 1
        if self._n > self._most:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        device, replies = next(iter(self._devices.items()))
        replies.popitem(last=False)
        self._n -= 1
        if not replies:
            del self._devices[device]
