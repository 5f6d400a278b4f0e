# SPDX-License-Identifier: Apache-2.0
"""A worker in virtual time: the real service, which takes a while for each batch, and may be killed or paused."""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import TYPE_CHECKING

from hardcase_edge.link.wire import request_topic

from ...answer.service import Outgoing, Service
from ..fleet.scenario import Cloud
from .referee import BrokenRuleError
from .toy import ToyHpc

if TYPE_CHECKING:
    from collections.abc import Callable

    from .clockwork import Clockwork
    from .network import Broker

ID = slice(8, 24)  # of a request's bytes


class Worker:
    """One worker.

    Parameters
    ----------
    clock, broker, config : of the replay
    number : place in ``broker.workers``
    reply : sends a reply to a device

    Attributes
    ----------
    has_session : bool
        Whether the broker gives it requests: it is alive, or was a moment ago.
    """

    make_service = staticmethod(Service)

    def __init__(
        self, clock: Clockwork, broker: Broker, config: Cloud, number: int, reply: Callable[[Outgoing], None]
    ) -> None:
        self.is_alive = self.has_session = True
        self._is_paused = self._is_busy = False
        self._clock, self._broker, self._config, self._number, self._reply = clock, broker, config, number, reply
        self._life = 0  # how often it was started
        self._service = self.make_service(ToyHpc())
        self._inbox: deque[tuple[int, int, bytes, int]] = deque()  # while a batch runs
        self._unanswered: dict[int, tuple[int, bytes, int]] = {}  # by tag: device, id, expiry
        self._run_at = -1

    def deliver(self, tag: int, device: int, payload: bytes, expires_at: int) -> None:
        """The broker gives it a request."""
        if not self.is_alive or not self._broker.is_up:
            return  # it stays with the broker
        self._inbox.append((tag, device, payload, expires_at))
        if not self._is_busy and not self._is_paused:
            self._take()

    def _take(self) -> None:
        """Pass what has arrived to the service."""
        now = self._clock.now
        while self._inbox:
            tag, device, payload, expires_at = self._inbox.popleft()
            if expires_at <= now:
                self._acknowledge([tag])
                continue
            self._unanswered[tag] = device, payload[ID], expires_at
            reply = self._service.receive(request_topic(f"d{device}"), payload, self._clock.seconds, tag=tag)
            if reply is not None:
                self._reply(reply)
                del self._unanswered[tag]
            self._acknowledge(self._service.released())
        self._plan()

    def _acknowledge(self, tags: list[int]) -> None:
        now = self._clock.now
        for tag in tags:
            if tag in self._unanswered and self._unanswered[tag][2] > now:
                device, id_, _ = self._unanswered[tag]
                raise BrokenRuleError(
                    f"worker {self._number} acknowledged request {id_.hex()} of device {device} without an answer"
                )
            self._unanswered.pop(tag, None)
            self._broker.acknowledge(tag)

    def _plan(self) -> None:
        due = self._service.due(self._clock.seconds)
        if due is None or self._is_busy or self._is_paused:
            return
        wait_ms = ceil(due * 1000)
        if not self._clock.now <= self._run_at <= self._clock.now + wait_ms:
            self._run_at = self._clock.now + wait_ms
            self._clock.after(wait_ms, self._run, self._life)

    def _run(self, life: int) -> None:
        if life != self._life or self._is_busy or self._is_paused or self._service.due(self._clock.seconds) is None:
            return
        self._is_busy, self._run_at = True, -1
        self._clock.after(self._config.batch_ms, self._ended, life, self._service.run(self._clock.seconds))

    def _ended(self, life: int, replies: list[Outgoing]) -> None:
        if life != self._life:
            return  # it was killed meanwhile
        if self._is_paused:
            self._clock.after(50, self._ended, life, replies)
            return
        self._is_busy = False
        answered = {(reply.device, reply.payload[16:32]) for reply in replies}
        for reply in replies:
            self._reply(reply)
        self._service.ended(self._clock.seconds)
        now = self._clock.now
        for tag, (device, id_, expires_at) in list(self._unanswered.items()):
            if (f"d{device}", id_) in answered or expires_at <= now:
                del self._unanswered[tag]
                self._broker.acknowledge(tag)
        self._acknowledge(self._service.released())
        self._take()

    # ------------------------------------------------------------ what happens to it

    def kill(self) -> None:
        """It dies with all that it had in memory; its session ends later, if it does not come back before."""
        if self.is_alive:
            self.is_alive = False
            self._life += 1
            self._inbox.clear()
            self._unanswered.clear()
            self._clock.after(round(self._config.session_s * 1000), self._end_session, self._life)

    def _end_session(self, life: int) -> None:
        if life == self._life and not self.is_alive:
            self.has_session = False
            self._broker.session_ended(self._number)

    def start(self) -> None:
        """It is started anew, and remembers nothing; as it has another id, its old session ends."""
        if not self.is_alive:
            self._life += 1
            self._service = self.make_service(ToyHpc())
            self._is_busy = False
            self._run_at = -1
            self.has_session = True
            self.is_alive = True
            if self._broker.is_up:
                self._broker.session_ended(self._number)

    def pause(self) -> None:
        """It stands still, and its connection stays."""
        self._is_paused = True

    def resume(self) -> None:
        """It goes on."""
        self._is_paused = False
        if self.is_alive and not self._is_busy:
            self._take()
