# SPDX-License-Identifier: Apache-2.0
"""What a service remembers between messages: replies, how fast each device asks, and requests under way.

Replies serve requests that are sent again: per device, so that no device makes another's forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass

from hardcase_edge.program.readings import Reading

from .asking import FAILED, Answer, Concurrent


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


# How many messages a second each device may send: a token bucket for each, and nothing for those that keep within it.
#
# A flood must be told from work before it costs any: what is beyond the limit is dropped unread and unanswered, because
# to answer a flood would delay all others.


MAX_DEVICES = 65_536  # buckets; the one that was used longest ago is forgotten first, that is full again


class Rates:
    """Token buckets; times are seconds on the caller's clock.

    Parameters
    ----------
    per_s : messages that a device may send in a second
    burst : messages that it may send at once

    >>> rates = Rates(per_s=10, burst=3)
    >>> [rates.allows("loud", 0.0) for _ in range(5)]
    [True, True, True, False, False]
    >>> rates.allows("quiet", 0.0), rates.allows("loud", 0.05), rates.allows("loud", 0.1)
    (True, False, True)
    """

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._full_at: OrderedDict[str, float] = OrderedDict()  # when a device's bucket will be full again

    def allows(self, device: str, now: float) -> bool:
        """Whether a message of this device may pass now; if so, it is counted."""
        full_at = self._full_at.get(device, now)
        full_at = (full_at if full_at > now else now) + 1 / self._per_s
        if full_at - now > self._burst / self._per_s + 1e-9:
            return False
        self._full_at[device] = full_at
        self._full_at.move_to_end(device)
        if len(self._full_at) > MAX_DEVICES:
            self._full_at.popitem(last=False)
        return True


# Rows on their way to a model that is asked several at once, such as one in another house: no row waits for another.
#
# A service with such a model makes no batches. It begins a row as soon as one of ``at_once`` places is free, and sends
# each reply when it comes; from how long rows take, it learns whether a new request can be answered in time.


LOOK_S = 0.005  # how long an answer may lie there before the service looks
MOST_TIME = 0.9  # share of a request's time until which it must be answered
SMOOTH = 0.2  # weight of the latest row in the mean

Key = tuple[str, bytes]  # device, request id


@dataclass(slots=True)
class _Flight:
    future: Future[Answer]
    began: float
    until: float


class Flights:
    """The rows on their way; times are seconds on the caller's clock."""

    def __init__(self, hpc: Concurrent) -> None:
        self._hpc = hpc
        self._open: dict[Key, _Flight] = {}
        self._takes_s = 0.0  # in the mean

    @property
    def room(self) -> int:
        """How many rows may begin now."""
        return self._hpc.at_once - len(self._open)

    def begin(self, key: Key, row: tuple[Reading, ...], deadline: float, now: float) -> None:
        """Have a row asked, whose answer ``landed`` gives."""
        self._open[key] = _Flight(self._hpc.begin(row, deadline - now), now, deadline)

    def landed(self, now: float) -> list[tuple[Key, Answer]]:
        """The answers that have come, and ``FAILED`` for rows whose time has passed; each row once."""
        out: list[tuple[Key, Answer]] = []
        for key, flight in list(self._open.items()):
            if flight.future.done():
                answer = FAILED if flight.future.exception() is not None else flight.future.result()
                if not isinstance(answer, str):
                    took_s = now - flight.began
                    self._takes_s += (SMOOTH if self._takes_s else 1.0) * (took_s - self._takes_s)
            elif now < flight.until:
                continue
            else:
                flight.future.cancel()
                answer = FAILED
            del self._open[key]
            out.append((key, answer))
        return out

    def due(self, n_waiting: int) -> float | None:
        """Seconds until the service should look: 0 if there is something to do, None if there is nothing at all."""
        if (n_waiting and self.room > 0) or any(flight.future.done() for flight in self._open.values()):
            return 0.0
        return LOOK_S if self._open else None

    def is_hopeless(self, place: int, left_s: float) -> bool:
        """Whether a request with so many others before it would be answered too late; never while nothing is asked."""
        ahead = max(0, place + 1 - self.room)
        return bool(self._open) and self._takes_s * (1 + ahead / self._hpc.at_once) > MOST_TIME * left_s
