# SPDX-License-Identifier: Apache-2.0
"""The network and the broker: messages that are late, lost, doubled or overtaken, and connections that break.

Requests go to the workers in turn, as with a shared subscription. The broker keeps a request until its worker
acknowledges it, and gives those of a worker whose session has ended to the others; it drops what has expired. A worker
has so many unacknowledged ones at most (Receive Maximum), and the others wait here. When the broker is killed, all
connections break; with its queue it keeps what it had, without it has forgotten everything.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

from ..fleet.scenario import Network
from .clockwork import Clockwork

SLOW = 5  # times as long takes a message that others overtake
NO_WORKER = "no matching subscribers"


class Consumer(Protocol):
    """A worker, as the broker sees it: whether it runs, and whether its session may be given requests."""

    is_alive: bool
    has_session: bool

    def deliver(self, tag: int, device: int, payload: bytes, expires_at: int) -> None:
        """Take a request of a device, which expires at a time of the clock in milliseconds."""


class Broker:
    """The broker and the lines to the devices.

    Parameters
    ----------
    clock : Clockwork
    network : Network
    chance : Random
        For everything that happens to messages.
    in_flight : int
        Requests that one worker has and has not acknowledged, at most.

    Attributes
    ----------
    is_up : bool
    receive : dict of str to function
        Who takes the messages of devices that are not requests, by the last word of their topics: (device, payload).
    workers : sequence of Consumer
    """

    def __init__(self, clock: Clockwork, network: Network, chance: Random, in_flight: int) -> None:
        self.is_up = True
        self.n_messages = 0
        self.receive: dict[str, Callable[[int, bytes], None]] = {}
        self.workers: Sequence[Consumer] = ()
        self._clock, self._draw = clock, chance.random
        self._loss, self._duplicate, self._reorder = network.loss, network.duplicate, network.reorder
        self._least, self._spread = network.delay_ms, network.jitter_ms + 1
        self._turn = 0
        self._next_tag = 1
        self._held: dict[int, tuple[int, int, bytes, int]] = {}  # by tag: worker, device, payload, expiry
        self._in_flight = in_flight
        self._n_given: Counter[int] = Counter()  # of each worker, requests that it has
        self._waiting: defaultdict[int, deque[int]] = defaultdict(deque)  # of each worker, tags that wait for room

    # ------------------------------------------------------------ the lines

    def carry(self, act: Callable[..., None], *args: Any) -> None:
        """A message on its way; ``act`` is what happens when it arrives, if it does."""
        draw = self._draw
        self.n_messages += 1
        if draw() < self._loss:
            return
        delay = self._least + int(draw() * self._spread)
        if draw() < self._reorder:
            delay *= SLOW
        self._clock.after(delay, act, *args)
        if draw() < self._duplicate:
            self._clock.after(delay + int(draw() * self._spread), act, *args)

    def publish(self, kind: str, device: int, payload: bytes) -> None:
        """A message of a device that is not a request."""
        self.carry(self._arrived, kind, device, payload)

    def request(self, device: int, payload: bytes, expires_at: int, refused: Callable[[str], None]) -> None:
        """A request of a device; ``refused`` is called if there is nobody to give it to."""
        self.carry(self._requested, device, payload, expires_at, refused)

    def _arrived(self, kind: str, device: int, payload: bytes) -> None:
        if self.is_up:
            self.receive[kind](device, payload)

    def _requested(self, device: int, payload: bytes, expires_at: int, refused: Callable[[str], None]) -> None:
        if self.is_up and not self._hand_over(device, payload, expires_at):
            self.carry(refused, NO_WORKER)

    # ------------------------------------------------------------ requests

    def _hand_over(self, device: int, payload: bytes, expires_at: int) -> bool:
        """Give a request to the next worker with a session; False if there is none."""
        for _ in self.workers:
            self._turn = (self._turn + 1) % len(self.workers)
            worker = self.workers[self._turn]
            if worker.has_session:
                tag = self._next_tag
                self._next_tag += 1
                self._held[tag] = self._turn, device, payload, expires_at
                if self._n_given[self._turn] < self._in_flight:
                    self._n_given[self._turn] += 1
                    worker.deliver(tag, device, payload, expires_at)
                else:
                    self._waiting[self._turn].append(tag)
                return True
        return False

    def _give_next(self, number: int) -> None:
        """Give a worker the requests that wait for it, as far as it has room."""
        waiting = self._waiting[number]
        while waiting and self._n_given[number] < self._in_flight:
            tag = waiting.popleft()
            _, device, payload, expires_at = self._held[tag]
            if expires_at <= self._clock.now:
                del self._held[tag]
                continue
            self._n_given[number] += 1
            self.workers[number].deliver(tag, device, payload, expires_at)

    def acknowledge(self, tag: int) -> None:
        """A worker needs a request no longer."""
        held = self._held.pop(tag, None)
        if held is not None:
            self._n_given[held[0]] -= 1
            if self._waiting[held[0]]:
                self._clock.after(0, self._give_next, held[0])

    def session_ended(self, number: int) -> None:
        """The session of a worker that was killed has ended: its requests go to the others."""
        self._n_given[number] = 0
        self._waiting[number].clear()
        theirs = [tag for tag, held in self._held.items() if held[0] == number]
        for tag in theirs:
            _, device, payload, expires_at = self._held.pop(tag)
            if expires_at > self._clock.now:
                self._hand_over(device, payload, expires_at)

    def redeliver(self, number: int) -> None:
        """A worker is connected again within its session."""
        waiting = set(self._waiting[number])
        for tag, (worker, device, payload, expires_at) in list(self._held.items()):
            if worker == number and tag not in waiting and expires_at > self._clock.now:
                self.workers[number].deliver(tag, device, payload, expires_at)

    # ------------------------------------------------------------ the broker itself

    def kill(self, *, keeps_queue: bool) -> None:
        """The broker dies, with its memory or without."""
        self.is_up = False
        if not keeps_queue:
            self._held.clear()
            self._n_given.clear()
            self._waiting.clear()

    def start(self) -> None:
        """The broker is back, and the workers are, too."""
        self.is_up = True
        for number, worker in enumerate(self.workers):
            if worker.is_alive:
                self.redeliver(number)
