# SPDX-License-Identifier: Apache-2.0
"""A bounded queue that serves devices in turn, so that one device's flood delays the others by one item each.

Each device has a queue of its own, of bounded length, and the oldest item of each is taken in turn (Shreedhar and
Varghese, 1995, with items of one size). What a full queue is given is dropped.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

__all__ = ["Turns"]

Item = TypeVar("Item")


class Turns(Generic[Item]):
    """Items of devices, the oldest of each device in turn.

    Parameters
    ----------
    most : how many items it holds
    most_per_device : how many of them may be one device's

    >>> turns = Turns[int](most=10, most_per_device=2)
    >>> [turns.put("loud", k) for k in range(4)], turns.put("quiet", 9)
    ([True, True, False, False], True)
    >>> [turns.take() for _ in range(len(turns))]
    [('loud', 0), ('quiet', 9), ('loud', 1)]
    """

    def __init__(self, most: int, most_per_device: int) -> None:
        self._most = most
        self._most_per_device = most_per_device
        self._queues: OrderedDict[str, deque[Item]] = OrderedDict()  # none is empty; the next turn is the first's
        self._n = 0

    def __len__(self) -> int:
        """How many items wait."""
        return self._n

    @property
    def is_full(self) -> bool:
        """Whether it takes no more items of any device."""
        return self._n >= self._most

    def has_its_share(self, device: str) -> bool:
        """Whether it takes no more items of this device."""
        return len(self._queues.get(device, ())) >= self._most_per_device

    def put(self, device: str, item: Item) -> bool:
        """Queue an item; False if there is no room for it."""
        if self.is_full or self.has_its_share(device):
            return False
        self._queues.setdefault(device, deque()).append(item)
        self._n += 1
        return True

    def take(self) -> tuple[str, Item]:
        """Remove the oldest item of the device whose turn it is; KeyError if there is none."""
        device, queue = self._queues.popitem(last=False)
        item = queue.popleft()
        self._n -= 1
        if queue:
            self._queues[device] = queue  # behind all others
        return device, item
