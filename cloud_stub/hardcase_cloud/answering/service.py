"""The service: requests in, replies out, without a network or a clock (as h11 does for HTTP).

    service.receive(topic, payload, now)   a request joins the queue, or is counted and dropped, or, if it has been
                                           answered before, its reply comes back at once
    service.due(now)                       seconds until a batch should run; None while nothing waits
    service.run(now)                       answers one batch; returns the replies to send

What it promises, whatever it is fed: it never raises; one (device, id) has one answer, however often it is asked; it
answers nobody but the device that the request's topic names, and nothing after its deadline; its memory is bounded.
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

MAX_CORRELATION_BYTES = 256  # MQTT 5 allows 65,535; a device of ours sends 16

Key = tuple[str, bytes]  # device, request id


class Answerer(Protocol):
    """What the service needs of a model; ``onnx_model.Hpc`` is one."""

    sha256: str
    dtypes: tuple[str, ...]

    def answer(self, rows: Sequence[Sequence[Reading]]) -> list[tuple[int, int]]:
        """Class index and confidence (basis points) per row; ``InputError`` if there is none."""


@dataclass(frozen=True, kw_only=True)
class ServiceConfig:
    """Every knob of the service. Units are in the names."""

    max_batch: int = 32  # rows in one run of the model
    linger_ms: float = 2.0  # how long the first of a batch waits for company
    max_waiting: int = 4096  # requests queued; more are dropped, their devices ask again
    max_waiting_per_device: int = 64  # one device cannot fill the queue for all
    max_remembered: int = 16_384  # replies kept for devices that ask again


@dataclass(slots=True)
class Counters:
    """What has happened to requests since the start."""

    received: int = 0
    served: int = 0  # answered, first time
    refused: int = 0  # answered with REFUSED: the HPC could not
    repeated: int = 0  # asked again: the remembered reply, or still waiting
    expired: int = 0  # deadline passed while waiting
    overloaded: int = 0  # queue full
    malformed: int = 0
    oversized: int = 0
    other_hpc: int = 0
    batches: int = 0

    def as_dict(self) -> dict[str, int]:
        """Plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A reply to send. ``expires_s``: after that the device no longer waits."""

    device: str
    payload: bytes
    expires_s: float
    correlation: bytes


@dataclass(slots=True)
class _Waiting:
    readings: tuple[Reading, ...]
    deadline: float  # on the caller's clock, seconds
    correlation: bytes


class Service:
    """Answers the requests of any number of devices with one HPC."""

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
        """Take one message; a reply only if it repeats what has been answered.

        Parameters
        ----------
        now : float, seconds
            When it was received, on the clock that ``due`` and ``run`` are asked by.
        correlation : bytes
            MQTT 5 correlation data, echoed.
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
        """Count a message that is not answered, under one of the counters' names."""
        setattr(self.counters, reason, getattr(self.counters, reason) + 1)
        log.debug("dropped (%s): %s", reason, detail)

    def due(self, now: float) -> float | None:
        """Seconds until ``run`` should be called, at least 0; None while nothing waits."""
        if not self._waiting:
            return None
        if len(self._waiting) >= self.config.max_batch:
            return 0.0
        return max(0.0, self._first_at + self.config.linger_ms / 1000 - now)

    def run(self, now: float) -> list[Outgoing]:
        """Answer up to ``max_batch`` of those that have waited longest."""
        batch = self._take_batch(now)
        self._first_at = now  # those left over linger anew, unless they are a full batch already
        if not batch:
            return []
        self.counters.batches += 1
        answers = self._answer([waiting.readings for _, waiting in batch])
        return [self._reply(key, waiting, a, now) for (key, waiting), a in zip(batch, answers, strict=True)]

    # ------------------------------------------------------------ parts

    def _admit(self, key: Key, waiting: _Waiting, left_s: float, now: float) -> Outgoing | None:
        device = key[0]
        remembered = self._replies.get(key)
        if remembered is not None:
            self.counters.repeated += 1
            self._replies.move_to_end(key)
            return Outgoing(device, remembered, left_s, waiting.correlation)
        if key in self._waiting:
            self.counters.repeated += 1
            old = self._waiting[key]
            old.deadline = max(old.deadline, waiting.deadline)
            old.correlation = waiting.correlation
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
        """Answers per row; None where the HPC has none. One bad row must not cost its neighbours their answer."""
        try:
            return list(self._hpc.answer(rows))
        except InputError as error:
            log.warning("%s", error)
            return [None] if len(rows) == 1 else [self._answer([row])[0] for row in rows]

    def _reply(self, key: Key, waiting: _Waiting, answer: tuple[int, int] | None, now: float) -> Outgoing:
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
