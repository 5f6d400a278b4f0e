# SPDX-License-Identifier: Apache-2.0
"""The requests that wait, earliest deadline first, and how many seconds each of them will still wait.

The first request of each device comes before the second of any: a device with many requests delays the others by one
(start-time fair queueing; Goyal, Vin and Cheng, 1996, with requests of one size). Within such a round the earliest
deadline is first, which answers all requests in time whenever any order could (Liu and Layland, 1973). That holds only
as long as no more is taken than can be answered; ``wait_s`` tells how long a new request would wait.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter

Key = tuple[str, bytes]  # device, request id
_Place = tuple[int, float, int, Key]  # round, deadline, number, request

SMOOTH = 0.2  # weight of the latest batch in the pace


class Pace:
    """Seconds that the HPC takes, learned from its batches: some for each batch, and some for each of its rows.

    >>> pace = Pace()
    >>> pace.of(100, max_batch=32)
    0.0
    >>> for _ in range(50):
    ...     pace.learn(1, 0.010)
    >>> round(pace.of(3, max_batch=1), 3), round(pace.of(32, max_batch=32), 3)
    (0.03, 0.32)
    >>> for _ in range(50):
    ...     pace.learn(32, 0.041)
    >>> round(pace.of(32, max_batch=32), 3), round(pace.of(64, max_batch=32), 3)
    (0.041, 0.082)
    """

    def __init__(self) -> None:
        self._each = 0.0  # seconds a row
        self._n = 0.0  # of these batches
        self._is_new = True

    def learn(self, n: int, seconds: float) -> None:
        """Note that a batch of n rows took so long."""
        each = seconds / max(1, n)
        weight = 1.0 if self._is_new else SMOOTH
        self._is_new = False
        self._each += weight * (each - self._each)
        self._n += weight * (n - self._n)

    def of(self, n: int, max_batch: int) -> float:
        """Seconds until n requests are answered, that is until the batch with the last of them ends.

        Rows of larger batches than those learned from are taken to be as slow as theirs, which is never too hopeful.
        """
        if n <= 0:
            return 0.0
        last = n % max_batch or max_batch
        return self._each * (n - last + max(last, min(self._n, max_batch)))


class Agenda:
    """Requests in the order in which they are to be answered.

    >>> agenda = Agenda()
    >>> for k, (device, deadline) in enumerate([("loud", 5.0), ("loud", 5.0), ("quiet", 9.0), ("quick", 2.0)]):
    ...     agenda.put((device, bytes([k])), deadline)
    >>> [agenda.take()[0] for _ in range(len(agenda))]
    ['quick', 'loud', 'quiet', 'loud']
    """

    def __init__(self) -> None:
        self._places: list[_Place] = []
        self._next = 0  # of the places before it the requests are taken
        self._n_of: Counter[str] = Counter()  # waiting requests of each device that has some
        self._last_round: dict[str, int] = {}  # of each device that has some
        self._round = 0
        self._number = 0

    def __len__(self) -> int:
        """How many requests wait."""
        return len(self._places) - self._next

    def n_of(self, device: str) -> int:
        """How many requests of this device wait."""
        return self._n_of.get(device, 0)

    def place(self, device: str, deadline: float) -> int:
        """How many requests would be answered before this one."""
        where = (self._round_of(device), deadline, self._number)
        return bisect_left(self._places, where, lo=self._next) - self._next

    def put(self, key: Key, deadline: float) -> None:
        """Add a request."""
        device = key[0]
        turn = self._last_round[device] = self._round_of(device)
        self._n_of[device] += 1
        insort(self._places, (turn, deadline, self._number, key), lo=self._next)
        self._number += 1

    def take(self) -> Key:
        """Remove the first request; IndexError if there is none."""
        self._round, _, _, key = self._places[self._next]
        self._next += 1
        if self._next >= 64:  # one move for many requests
            del self._places[: self._next]
            self._next = 0
        device = key[0]
        self._n_of[device] -= 1
        if not self._n_of[device]:
            del self._n_of[device], self._last_round[device]
        return key

    def _round_of(self, device: str) -> int:
        """The round of this device's next request."""
        last = self._last_round.get(device)
        return self._round if last is None else max(self._round, last + 1)


def seconds_left(deadline_ms: int, expiry_s: int | None) -> float:
    """Seconds until the deadline, less those that the message has surely waited at the broker, which counts whole ones.

    >>> [seconds_left(2_000, None), seconds_left(2_000, 2), seconds_left(2_000, 1), seconds_left(5_000, 2)]
    [2.0, 2.0, 2.0, 3.0]
    """
    left_s = deadline_ms / 1000
    if expiry_s is None:
        return left_s
    waited_s = -(-deadline_ms // 1000) - expiry_s  # the first second that the broker counts may be the end of one
    return left_s - max(0, min(waited_s - 1, deadline_ms // 1000))
