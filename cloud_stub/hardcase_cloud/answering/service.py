# SPDX-License-Identifier: Apache-2.0
"""The service: turns requests into replies in batches, without network or clock, in the way h11 treats HTTP.

    service.receive(topic, payload, now)   queues a request, or counts and drops it; if it repeats an answered request,
                                           returns the reply to send
    service.due(now)                       seconds until a batch should run; None if the queue is empty
    service.run(now)                       answers one batch and returns the replies to send

Whatever it receives, the service never raises an exception; it answers a repeated (device, id) with the remembered
reply; it replies only to the device that the request's topic names, and never after the request's deadline; its memory
is bounded. It takes requests from the devices in turn, and refuses the request that makes the HPC hang; a device that
does so again is refused unasked for a time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from hardcase_edge.errors import HpcStuckError, HpcTimeoutError, InputError, WireError
from hardcase_edge.link.wire import OK, REFUSED, Reply, device_of_topic, pack_reply, unpack_request
from hardcase_edge.program.readings import Reading

from .remembered import Remembered, Replies
from .suspects import Suspects
from .turns import Turns

__all__ = ["Answerer", "Counters", "Outgoing", "Service", "ServiceConfig"]

log = logging.getLogger(__name__)

MAX_ALONE = 256  # requests of suspects that are kept from batches
MAX_CORRELATION_BYTES = 256  # MQTT 5 allows 65,535; hardcase's devices send 16

FAILED, HUNG, UNANSWERED = "failed", "hung", "unanswered"  # what a row has instead of an answer
Key = tuple[str, bytes]  # device, request id
_Answer = tuple[int, int] | str  # result and confidence in basis points, or one of the three above


class Answerer(Protocol):
    """What the service needs of a model; ``onnx_model.Hpc`` and ``function.FunctionHpc`` implement it."""

    sha256: str
    dtypes: tuple[str, ...]

    def answer(self, rows: Sequence[Sequence[Reading]]) -> list[tuple[int, int]]:
        """The class index or result, and the confidence in basis points, of each row.

        Raises
        ------
        InputError
            It has none; ``HpcTimeoutError`` if it did not return in time.
        HpcStuckError
            It can answer no more in this process.
        """


@dataclass(frozen=True, kw_only=True)
class ServiceConfig:
    """Every setting of the service, with its unit in its name."""

    max_batch: int = 32  # rows in one run of the model
    linger_ms: float = 2.0  # how long the first request of a batch waits for others
    max_waiting: int = 4096  # queued requests; further ones are dropped, and their devices send them again
    max_waiting_per_device: int = 64  # keeps one device from filling the queue
    max_remembered: int = 16_384  # replies remembered for requests that are sent again
    max_remembered_per_device: int = 64  # an honest device sends only its latest request again


@dataclass(slots=True)
class Counters:
    """What has happened to requests since the start."""

    received: int = 0  # messages of any kind
    served: int = 0  # answered for the first time
    refused: int = 0  # answered with REFUSED: the HPC failed, or the device made it hang before
    hung: int = 0  # of these, the HPC did not return in time
    repeated: int = 0  # sent again: answered from memory, or still in the queue
    expired: int = 0  # dropped: the deadline passed in the queue
    overloaded: int = 0  # dropped: the queue was full
    malformed: int = 0  # dropped: not a request, or the id of another one
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
    is_stuck : bool
        Whether the HPC can answer no more in this process; what waits then stays unanswered.

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
        self._turns: Turns[bytes] = Turns(self.config.max_waiting, self.config.max_waiting_per_device)
        self._alone: deque[Key] = deque()  # requests of a batch that hung, and of suspects
        self._waiting: dict[Key, _Waiting] = {}  # those in ``_turns`` and in ``_alone``
        self._replies = Replies(self.config.max_remembered, self.config.max_remembered_per_device)
        self._suspects = Suspects()
        self._was_batch = False
        self.is_stuck = False
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
        if self._alone or len(self._turns) >= self.config.max_batch:
            return 0.0
        if not self._turns:
            return None
        return max(0.0, self._first_at + self.config.linger_ms / 1000 - now)

    def run(self, now: float) -> list[Outgoing]:
        """Answer at most ``max_batch`` requests, the oldest of each device in turn; returns their replies.

        After a batch that made the HPC hang, its requests are asked alone, in turn with further batches: so nobody
        waits for more than two calls that hang.
        """
        is_alone = bool(self._alone) and (self._was_batch or not self._turns)
        self._was_batch = not is_alone
        if is_alone:
            return self._run_alone(now)
        replies = self._run_batch(self._take_batch(now), now)
        self._first_at = now  # the requests left over linger again, unless they are a full batch already
        return replies

    # ------------------------------------------------------------ parts

    def _admit(self, key: Key, waiting: _Waiting, left_s: float, now: float) -> Outgoing | None:
        """Queue a valid request, unless it is answered or queued already, or refused, or the queue is full."""
        device, id_ = key
        remembered = self._replies.find(device, id_)
        queued = self._waiting.get(key)
        if remembered is not None and remembered.readings_hash == hash(waiting.readings):
            self.counters.repeated += 1
            return Outgoing(device, remembered.payload, left_s, waiting.correlation)
        if remembered is not None or (queued is not None and queued.readings != waiting.readings):
            self.drop("malformed", f"a request of {device} has the id of another, but not its readings")
        elif queued is not None:
            self.counters.repeated += 1
            queued.deadline = max(queued.deadline, waiting.deadline)
            queued.correlation = waiting.correlation
        elif self._suspects.is_barred(device, now):
            return self._reply(key, waiting, FAILED, now)
        elif not self._turns.put(device, id_):
            self.drop("overloaded", f"{len(self._waiting)} requests wait, and there is no room for one of {device}")
        else:
            if len(self._turns) == 1:
                self._first_at = now
            self._waiting[key] = waiting
        return None

    def _take_batch(self, now: float) -> list[tuple[Key, _Waiting]]:
        """Remove requests from the queue, dropping those whose deadline has passed; suspects are asked alone."""
        batch: list[tuple[Key, _Waiting]] = []
        while self._turns and len(batch) < self.config.max_batch:
            key = self._turns.take()
            if self._suspects.is_known(key[0]) and len(self._alone) < MAX_ALONE:
                self._alone.append(key)
                continue
            waiting = self._waiting.pop(key)
            if waiting.deadline <= now:
                self.drop("expired", f"a request of {key[0]} waited beyond its deadline")
            else:
                batch.append((key, waiting))
        return batch

    def _run_batch(self, batch: list[tuple[Key, _Waiting]], now: float) -> list[Outgoing]:
        if not batch:
            return []
        self.counters.batches += 1
        answers = self._answer([waiting.readings for _, waiting in batch])
        self._set_apart(batch[len(answers) :])
        pairs = zip(batch, answers, strict=False)
        return [self._reply(key, waiting, a, now) for (key, waiting), a in pairs if a is not UNANSWERED]

    def _set_apart(self, batch: list[tuple[Key, _Waiting]]) -> None:
        """Queue these requests to be asked alone, first those of devices with a record of answers and no hang."""
        first: list[Key] = []
        for key, waiting in batch:
            self._waiting[key] = waiting
            has_record = key[0] in self._replies and not self._suspects.is_known(key[0])
            (first if has_record else self._alone).append(key)
        self._alone.extendleft(reversed(first))

    def _run_alone(self, now: float) -> list[Outgoing]:
        """Answer one of the requests that are asked alone; refuse those before it whose devices are barred by now."""
        replies = []
        while self._alone:
            key = self._alone.popleft()
            waiting = self._waiting.pop(key)
            if self._suspects.is_barred(key[0], now):
                replies.append(self._reply(key, waiting, FAILED, now))
            elif waiting.deadline <= now:
                self.drop("expired", f"a request of {key[0]} waited beyond its deadline")
            else:
                return replies + self._run_batch([(key, waiting)], now)
        return replies

    def _answer(self, rows: list[tuple[Reading, ...]]) -> list[_Answer]:
        """An answer for each of the first rows; the others are to be asked alone, because one of them may hang.

        If a batch fails, its rows are answered separately, up to the first that hangs.
        """
        try:
            return list(self._hpc.answer(rows))
        except HpcStuckError as error:
            if not self.is_stuck:
                log.error("%s", error)
            self.is_stuck = True
            return [UNANSWERED] * len(rows)
        except HpcTimeoutError as error:
            log.warning("%s", error)
            return [HUNG] if len(rows) == 1 else []
        except InputError as error:
            log.warning("%s", error)
            if len(rows) == 1:
                return [FAILED]
        answers: list[_Answer] = []
        for row in rows:
            answers += self._answer([row])
            if answers[-1] is HUNG:
                break
        return answers

    def _reply(self, key: Key, waiting: _Waiting, answer: _Answer, now: float) -> Outgoing:
        """Pack a reply and remember it for requests that are sent again."""
        device, id_ = key
        if isinstance(answer, str):
            self.counters.refused += 1
            if answer is HUNG:
                self.counters.hung += 1
                self._suspects.hung(device, now)
            payload = pack_reply(Reply(id_, self._digest, REFUSED, 0, 0))
        else:
            self.counters.served += 1
            payload = pack_reply(Reply(id_, self._digest, OK, *answer))
        self._replies.add(device, id_, Remembered(payload, hash(waiting.readings)))
        return Outgoing(device, payload, waiting.deadline - now, waiting.correlation)
