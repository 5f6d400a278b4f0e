# SPDX-License-Identifier: Apache-2.0
"""The service: turns requests into replies in batches, without network or clock, in the way h11 treats HTTP.

    service.receive(topic, payload, now)   queues a request, or counts and drops it; if it repeats an answered request,
                                           returns the reply to send
    service.due(now)                       seconds until a batch should run; None if the queue is empty
    service.run(now)                       answers one batch and returns the replies to send

Whatever it receives, the service never raises an exception; it answers a repeated (device, id) with the remembered
reply; it replies only to the device that the request's topic names, and never after the request's deadline; its memory
is bounded.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from hardcase_edge.errors import InputError, WireError
from hardcase_edge.link.wire import OK, REFUSED, Reply, device_of_topic, pack_reply, unpack_request
from hardcase_edge.program.readings import Reading

__all__ = ["Answerer", "Counters", "Outgoing", "Service", "ServiceConfig"]

log = logging.getLogger(__name__)

MAX_CORRELATION_BYTES = 256  # MQTT 5 allows 65,535; hardcase's devices send 16

Key = tuple[str, bytes]  # device, request id


class Answerer(Protocol):
    """What the service needs of a model; ``onnx_model.Hpc`` and ``function.FunctionHpc`` implement it."""

    sha256: str
    dtypes: tuple[str, ...]

    def answer(self, rows: Sequence[Sequence[Reading]]) -> list[tuple[int, int]]:
        """The class index or result, and the confidence in basis points, of each row; InputError if it has none."""


@dataclass(frozen=True, kw_only=True)
class ServiceConfig:
    """Every setting of the service, with its unit in its name."""

    max_batch: int = 32  # rows in one run of the model
    linger_ms: float = 2.0  # how long the first request of a batch waits for others
    max_waiting: int = 4096  # queued requests; further ones are dropped, and their devices send them again
    max_waiting_per_device: int = 64  # keeps one device from filling the queue
    max_remembered: int = 16_384  # replies remembered for requests that are sent again


@dataclass(slots=True)
class Counters:
    """What has happened to requests since the start."""

    received: int = 0  # messages of any kind
    served: int = 0  # answered for the first time
    refused: int = 0  # answered with REFUSED, because the HPC failed
    repeated: int = 0  # sent again: answered from memory, or still in the queue
    expired: int = 0  # dropped: the deadline passed in the queue
    overloaded: int = 0  # dropped: the queue was full
    malformed: int = 0  # dropped: not a request
    oversized: int = 0  # dropped: too long
    other_hpc: int = 0  # dropped: for another model
    batches: int = 0  # runs of the model, without those that isolate a failing row

    def as_dict(self) -> dict[str, int]:
        """The counters as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A reply to send."""

    device: str
    payload: bytes
    expires_s: float  # seconds from now after which the device no longer waits
    correlation: bytes  # MQTT 5 correlation data of the request


@dataclass(slots=True)
class _Waiting:
    readings: tuple[Reading, ...]
    deadline: float  # on the caller's clock, seconds
    correlation: bytes


class Service:
    """Answers the requests of any number of devices with one HPC.

    Parameters
    ----------
    hpc : Answerer
    config : ServiceConfig or None

    Attributes
    ----------
    config : ServiceConfig
    counters : Counters

    Examples
    --------
    >>> from hardcase_edge.link.wire import Request, pack_request, request_topic
    >>> class Thermostat:
    ...     sha256, dtypes = "ab" * 32, ("f32",)
    ...
    ...     def answer(self, rows):
    ...         return [(int(degrees > 20), 9_000) for (degrees,) in rows]
    >>> service = Service(Thermostat())
    >>> request = Request(id=bytes(16), hpc=bytes.fromhex("ab" * 32), deadline_ms=2_000, readings=(21.5,))
    >>> service.receive(request_topic("pump-7"), pack_request(request, ["f32"]), now=0.0)
    >>> service.due(now=0.0)
    0.002
    >>> [(reply.device, reply.expires_s) for reply in service.run(now=0.5)]
    [('pump-7', 1.5)]
    >>> service.counters.served
    1
    """

    def __init__(self, hpc: Answerer, config: ServiceConfig | None = None) -> None:
        self.config = config or ServiceConfig()
        self.counters = Counters()
        self._hpc = hpc
        self._digest = bytes.fromhex(hpc.sha256)
        self._waiting: OrderedDict[Key, _Waiting] = OrderedDict()
        self._per_device: Counter[str] = Counter()
        self._replies: OrderedDict[Key, bytes] = OrderedDict()
        self._first_at = 0.0

    def receive(self, topic: str, payload: bytes, now: float, correlation: bytes = b"") -> Outgoing | None:
        """Take one message; returns a reply if the message repeats an answered request, otherwise None.

        Parameters
        ----------
        topic, payload : of the message
        now : float, seconds
            When the message arrived, on the same clock as in ``due`` and ``run``.
        correlation : bytes
            The message's MQTT 5 correlation data, which the reply repeats.
        """
        self.counters.received += 1
        try:
            device = device_of_topic(topic)
            request = unpack_request(payload, self._hpc.dtypes, self._digest)
            if len(correlation) > MAX_CORRELATION_BYTES:
                raise WireError("malformed", f"correlation data of {len(correlation)} bytes")
        except WireError as error:
            self.drop(error.reason, str(error))
            return None
        left_s = request.deadline_ms / 1000
        return self._admit((device, request.id), _Waiting(request.readings, now + left_s, correlation), left_s, now)

    def drop(self, reason: str, detail: str) -> None:
        """Count a message that is not answered; ``reason`` is the name of a counter."""
        setattr(self.counters, reason, getattr(self.counters, reason) + 1)
        log.debug("dropped (%s): %s", reason, detail)

    def due(self, now: float) -> float | None:
        """Seconds until ``run`` should be called, at least 0; None if the queue is empty."""
        if not self._waiting:
            return None
        if len(self._waiting) >= self.config.max_batch:
            return 0.0
        return max(0.0, self._first_at + self.config.linger_ms / 1000 - now)

    def run(self, now: float) -> list[Outgoing]:
        """Answer the requests that have waited longest, at most ``max_batch``; returns their replies."""
        batch = self._take_batch(now)
        self._first_at = now  # the requests left over linger again, unless they are a full batch already
        if not batch:
            return []
        self.counters.batches += 1
        answers = self._answer([waiting.readings for _, waiting in batch])
        return [self._reply(key, waiting, a, now) for (key, waiting), a in zip(batch, answers, strict=True)]

    # ------------------------------------------------------------ parts

    def _admit(self, key: Key, waiting: _Waiting, left_s: float, now: float) -> Outgoing | None:
        """Queue a valid request, unless it is answered or queued already or the queue is full."""
        device = key[0]
        remembered = self._replies.get(key)
        if remembered is not None:
            self.counters.repeated += 1
            self._replies.move_to_end(key)
            return Outgoing(device, remembered, left_s, waiting.correlation)
        if key in self._waiting:
            self.counters.repeated += 1
            queued = self._waiting[key]
            queued.deadline = max(queued.deadline, waiting.deadline)
            queued.correlation = waiting.correlation
        elif (
            len(self._waiting) >= self.config.max_waiting
            or self._per_device[device] >= self.config.max_waiting_per_device
        ):
            self.drop("overloaded", f"{len(self._waiting)} requests wait, {self._per_device[device]} of {device}")
        else:
            if not self._waiting:
                self._first_at = now
            self._waiting[key] = waiting
            self._per_device[device] += 1
        return None

    def _take_batch(self, now: float) -> list[tuple[Key, _Waiting]]:
        """Remove the oldest requests from the queue, dropping those whose deadline has passed."""
        batch: list[tuple[Key, _Waiting]] = []
        while self._waiting and len(batch) < self.config.max_batch:
            key, waiting = self._waiting.popitem(last=False)
            self._per_device[key[0]] -= 1
            if not self._per_device[key[0]]:
                del self._per_device[key[0]]
            if waiting.deadline <= now:
                self.drop("expired", f"a request of {key[0]} waited beyond its deadline")
            else:
                batch.append((key, waiting))
        return batch

    def _answer(self, rows: list[tuple[Reading, ...]]) -> list[tuple[int, int] | None]:
        """An answer per row, None if the HPC has none. If a batch fails, each of its rows is answered separately."""
        try:
            return list(self._hpc.answer(rows))
        except InputError as error:
            log.warning("%s", error)
            return [None] if len(rows) == 1 else [self._answer([row])[0] for row in rows]

    def _reply(self, key: Key, waiting: _Waiting, answer: tuple[int, int] | None, now: float) -> Outgoing:
        """Pack a reply and remember it for requests that are sent again."""
        device, id_ = key
        if answer is None:
            self.counters.refused += 1
            payload = pack_reply(Reply(id_, self._digest, REFUSED, 0, 0))
        else:
            self.counters.served += 1
            payload = pack_reply(Reply(id_, self._digest, OK, *answer))
        self._replies[key] = payload
        if len(self._replies) > self.config.max_remembered:
            self._replies.popitem(last=False)
        return Outgoing(device, payload, waiting.deadline - now, waiting.correlation)
