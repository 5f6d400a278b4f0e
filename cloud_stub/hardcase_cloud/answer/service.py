# SPDX-License-Identifier: Apache-2.0
"""The service: turns requests into replies in batches, without network or clock, in the way h11 treats HTTP.

    service.receive(topic, payload, now)   queues a request, or counts and drops it; if it repeats an answered request,
                                           or cannot be answered in time, returns the reply to send
    service.due(now)                       seconds until a batch should run; None if the queue is empty
    service.run(now)                       answers one batch and returns the replies to send
    service.ended(now)                     the batch has ended: so the service learns how long one takes
    service.released()                     tags of the messages that need wait no longer, to be acknowledged

Whatever it receives, the service never raises an exception; it answers a repeated (device, id) with the remembered
reply; it replies only to the device that the request's topic names, and never after the request's deadline; its memory
is bounded. It answers the earliest deadline first, but the first request of each device before the second of any
(``agenda.py``), and tells the devices at once whose requests it cannot answer in time: busy, try after so many ms.
It refuses the request that makes the HPC hang; a device that does so again while others are answered is refused unasked
for a time, and where the HPC hangs for all, it is busy (``asking.py``). What a device sends beyond its rate
(``rates.py``) is dropped.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hardcase_edge.errors import WireError
from hardcase_edge.link.wire import (
    BUSY,
    OK,
    REFUSED,
    Reply,
    device_of_topic,
    other_hpc_reply,
    pack_reply,
    unpack_request,
)  # fmt: skip
from hardcase_edge.program.readings import Reading

from .agenda import Agenda, Pace, seconds_left
from .asking import FAILED, HUNG, UNANSWERED, Answer, Answerer, Asking, Concurrent, Suspects
from .counters import Counters
from .remembered import Flights, Rates, Remembered, Replies

log = logging.getLogger(__name__)

MAX_ALONE = 256  # requests of suspects that are kept from batches
MAX_CORRELATION_BYTES = 256  # MQTT 5 allows 65,535; hardcase's devices send 16
BUSY_LEAST_MS, BUSY_MOST_MS = 50, 200  # what a busy reply asks for; devices double it while they meet it again
OTHER_PER_S, MOST_OTHER = 1.0, 4.0  # replies to one device that another HPC answers here
STALL_MS = 1_000  # what it asks for while the HPC hangs for all

Key = tuple[str, bytes]  # device, request id
OnAnswer = Callable[[str, bytes, tuple[Reading, ...], int], None]


@dataclass(frozen=True, kw_only=True)
class ServiceConfig:
    """Every setting of the service, with its unit in its name."""

    max_batch: int = 32  # rows in one run of the model
    linger_ms: float = 2.0  # how long the first request of a batch waits for others
    max_waiting: int = 512  # queued requests; the devices of further ones are told that the service is busy
    max_waiting_per_device: int = 64  # keeps one device from filling the queue
    most_wait: float = 0.25  # share of its time that a request may wait for others: devices ask again after half of it
    most_time: float = 0.5  # share of its time until which it must be answered; a longer queue gains nothing
    max_per_s_per_device: float = 1000.0  # messages; what is beyond is dropped
    max_remembered: int = 16_384  # replies remembered for requests that are sent again
    max_remembered_per_device: int = 64  # an honest device sends only its latest request again


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
    tags: list[int]  # of the messages that wait for the answer
    is_audit: bool = False


class Service:
    """Answers the requests of any number of devices with one HPC.

    Parameters
    ----------
    hpc : Answerer
    config : ServiceConfig or None
    on_answer : called once with each case, but no audit, that f0 has answered: device, id, readings and result

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

    def __init__(self, hpc: Answerer, config: ServiceConfig | None = None, on_answer: OnAnswer | None = None) -> None:
        self.config, self._on_answer = config or ServiceConfig(), on_answer
        self.counters = Counters()
        self._hpc, self._asking = hpc, Asking(hpc)
        self._flights = Flights(hpc) if isinstance(hpc, Concurrent) else None
        self._digest = bytes.fromhex(hpc.sha256)
        self._agenda = Agenda()
        self._pace = Pace()
        self._rates = Rates(self.config.max_per_s_per_device, self.config.max_per_s_per_device / 5)
        self._told = Rates(OTHER_PER_S, MOST_OTHER)  # of replies that another HPC answers here
        self._alone: deque[Key] = deque()  # requests of a batch that hung, and of suspects
        self._waiting: dict[Key, _Waiting] = {}  # those in ``_agenda`` and in ``_alone``
        self._replies = Replies(self.config.max_remembered, self.config.max_remembered_per_device)
        self._suspects = Suspects()
        self._was_batch = False
        self._first_at = 0.0
        self._began = 0.0  # when the last batch did
        self._n_running = 0
        self._has_next = False  # a full batch waited when the last one had ended
        self._released: list[int] = []

    @property
    def is_stuck(self) -> bool:
        """Whether the HPC can answer no more in this process; what waits then stays unanswered."""
        return self._asking.is_stuck

    def receive(
        self, topic: str, payload: bytes, now: float, correlation: bytes = b"", *, tag: int = 0,
        expiry_s: int | None = None,
    ) -> Outgoing | None:  # fmt: skip
        """Take one message; returns a reply if it repeats an answered request or comes too late to be answered in time.

        Parameters
        ----------
        topic, payload : of the message
        now : float, seconds
            When the message arrived, on the same clock as in ``due`` and ``run``.
        correlation : bytes
            The message's MQTT 5 correlation data, which the reply repeats.
        tag : int
            What ``released`` names when the message need wait no longer; 0: nothing.
        expiry_s : int or None
            What is left of the message's MQTT 5 expiry: by so much less than the deadline, the broker has had it.
        """
        self.counters.received += 1
        try:
            device = device_of_topic(topic)
            if not self._rates.allows(device, now):
                raise WireError("flooded", f"{device} sends more than {self.config.max_per_s_per_device:g} a second")
            request = unpack_request(payload, self._hpc.dtypes, self._digest)
            if len(correlation) > MAX_CORRELATION_BYTES:
                raise WireError("malformed", f"correlation data of {len(correlation)} bytes")
        except WireError as error:
            self.drop(error.reason, str(error), [tag])
            return self._other(topic, payload, correlation, now) if error.reason == "other_hpc" else None
        left_s = seconds_left(request.deadline_ms, expiry_s)
        waiting = _Waiting(request.readings, now + left_s, correlation, [tag], request.is_audit)
        reply = self._admit((device, request.id), waiting, left_s, now)
        queued = self._waiting.get((device, request.id))
        if queued is None or tag not in queued.tags:
            self._release([tag])
        return reply

    def drop(self, reason: str, detail: str, tags: Sequence[int] = ()) -> None:
        """Count a message that is not answered, and release its tags; ``reason`` is the name of a counter."""
        setattr(self.counters, reason, getattr(self.counters, reason) + 1)
        self._release(tags)
        log.debug("dropped (%s): %s", reason, detail)

    def due(self, now: float) -> float | None:
        """Seconds until ``run`` should be called, at least 0; None if the queue is empty."""
        if self._flights is not None:
            return self._flights.due(len(self._agenda))
        if self._alone or len(self._agenda) >= self.config.max_batch:
            return 0.0
        if not self._agenda:
            return None
        return max(0.0, self._first_at + self.config.linger_ms / 1000 - now)

    def run(self, now: float) -> list[Outgoing]:
        """Answer at most ``max_batch`` requests, the earliest deadline of each device in turn; returns their replies.

        After a batch that made the HPC hang, its requests are asked alone, in turn with further batches: so nobody
        waits for more than two calls that hang.
        """
        if self._flights is not None:
            return self._land_and_begin(self._flights, now)
        if self._has_next:
            self._learn(now)
        self._n_running = 0
        is_alone = bool(self._alone) and (self._was_batch or not self._agenda)
        self._was_batch = not is_alone
        if is_alone:
            return self._run_alone(now)
        batch, replies = self._take_batch(now, self.config.max_batch)
        replies += self._run_batch(batch, now)
        self._first_at = now  # the requests left over linger again, unless they are a full batch already
        self._has_next = len(self._agenda) >= self.config.max_batch
        return replies

    def ended(self, now: float) -> None:
        """Learn how long a batch takes: until now, or while another batch waits, until ``run`` begins that."""
        if not self._has_next:
            self._learn(now)

    def interrupted(self) -> None:
        """The caller has waited for its connection: the last batch tells nothing of how long one takes."""
        self._n_running = 0

    def released(self) -> list[int]:
        """The tags of messages that need wait no longer, each once."""
        released, self._released = self._released, []
        return released

    # ------------------------------------------------------------ parts

    def _other(self, topic: str, payload: bytes, correlation: bytes, now: float) -> Outgoing | None:
        """Tell a device which HPC answers here, now and then: its request is for another one, which may be served."""
        device = device_of_topic(topic)
        if len(correlation) > MAX_CORRELATION_BYTES or not self._told.allows(device, now):
            return None
        reply, left_s = other_hpc_reply(payload, self._digest)
        return Outgoing(device, reply, left_s, correlation)

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
            queued.tags += waiting.tags
        elif self._suspects.is_barred(device, now):
            waiting.tags = []  # ``receive`` releases the message, as every one that does not wait
            return self._reply(key, waiting, FAILED, now)
        elif self._is_hopeless(device, waiting.deadline, now):
            return self._busy(key, waiting, now)
        else:
            self._agenda.put(key, waiting.deadline)
            if len(self._agenda) == 1:
                self._first_at = now
            self._waiting[key] = waiting
        return None

    def _is_hopeless(self, device: str, deadline: float, now: float) -> bool:
        """Whether there is no room for a request, or its turn would come too late."""
        config = self.config
        if len(self._waiting) >= config.max_waiting or self._agenda.n_of(device) >= config.max_waiting_per_device:
            return True
        n, left_s = self._agenda.place(device, deadline), deadline - now
        if self._flights is not None:
            return self._flights.is_hopeless(n, left_s)
        wait_s, answered_s = (self._pace.of(k, config.max_batch) for k in (n, n + 1))
        too_late = wait_s > config.most_wait * left_s or answered_s > config.most_time * left_s
        return too_late and bool(self._waiting or self._n_running)  # if nobody waits, only a batch can tell the pace

    def _busy(self, key: Key, waiting: _Waiting, now: float, after_ms: int = 0) -> Outgoing:
        """Tell a device to try later, by default after about the time that the queue takes; nothing is remembered."""
        self.counters.busy += 1
        queue_ms = self._pace.of(len(self._agenda), self.config.max_batch) * 1000
        after_ms = after_ms or round(min(BUSY_MOST_MS, max(BUSY_LEAST_MS, queue_ms)))
        payload = pack_reply(Reply(key[1], self._digest, BUSY, after_ms, 0))
        return Outgoing(key[0], payload, waiting.deadline - now, waiting.correlation)

    def _take_batch(self, now: float, most: int) -> tuple[list[tuple[Key, _Waiting]], list[Outgoing]]:
        """Remove requests from the queue: a batch, and replies to those that would come too late.

        Those whose deadline has passed are dropped; suspects are asked alone.
        """
        batch: list[tuple[Key, _Waiting]] = []
        replies: list[Outgoing] = []
        latest = now + self._pace.of(1, self.config.max_batch)
        while self._agenda and len(batch) < most:
            key = self._agenda.take()
            if self._suspects.is_known(key[0]) and len(self._alone) < MAX_ALONE:
                self._alone.append(key)
                continue
            waiting = self._waiting.pop(key)
            if waiting.deadline <= now:
                self.drop("expired", f"a request of {key[0]} waited beyond its deadline", waiting.tags)
            elif waiting.deadline < latest and (batch or self._agenda):  # the last one is asked, and the pace learned
                replies.append(self._busy(key, waiting, now))
                self._release(waiting.tags)
            else:
                batch.append((key, waiting))
        return batch, replies

    def _land_and_begin(self, flights: Flights, now: float) -> list[Outgoing]:
        """Reply to the rows whose answers have come, and have as many others asked as there is room for."""
        replies = []
        for key, answer in flights.landed(now):
            waiting = self._waiting.pop(key)
            if waiting.deadline > now:
                replies.append(self._reply(key, waiting, answer, now))
            else:
                self.drop("expired", f"the answer to {key[0]} has come beyond its deadline", waiting.tags)
        batch, late = self._take_batch(now, flights.room)
        for key, waiting in batch:
            self.counters.batches += 1
            self._waiting[key] = waiting  # so that a repetition finds it
            flights.begin(key, waiting.readings, waiting.deadline, now)
        return replies + late

    def _learn(self, now: float) -> None:
        if self._n_running:
            self._pace.learn(self._n_running, now - self._began)
            self._n_running = 0

    def _release(self, tags: Sequence[int]) -> None:
        self._released += [tag for tag in tags if tag]

    def _run_batch(self, batch: list[tuple[Key, _Waiting]], now: float) -> list[Outgoing]:
        if not batch:
            return []
        self.counters.batches += 1
        answers = self._asking.answer([waiting.readings for _, waiting in batch])
        if len(answers) == len(batch) and not any(isinstance(answer, str) for answer in answers):
            self._began, self._n_running = now, len(batch)  # one that fails or hangs tells nothing of the others
        self._set_apart(batch[len(answers) :])
        pairs = list(zip(batch, answers, strict=False))
        if answered := [key[0] for (key, _), answer in pairs if not isinstance(answer, str)]:
            self._suspects.succeeded(answered, now)
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
                self.drop("expired", f"a request of {key[0]} waited beyond its deadline", waiting.tags)
            else:
                return replies + self._run_batch([(key, waiting)], now)
        return replies

    def _reply(self, key: Key, waiting: _Waiting, answer: Answer, now: float) -> Outgoing:
        """Pack a reply and remember it for requests that are sent again."""
        device, id_ = key
        if answer is HUNG:
            self.counters.hung += 1
            if not self._suspects.hung(device, now):
                self._release(waiting.tags)
                return self._busy(key, waiting, now, STALL_MS)
        if isinstance(answer, str):
            self.counters.refused += 1
            payload = pack_reply(Reply(id_, self._digest, REFUSED, 0, 0))
        else:
            self.counters.served += 1
            payload = pack_reply(Reply(id_, self._digest, OK, *answer))
            if self._on_answer is not None and not waiting.is_audit:
                self._on_answer(device, id_, waiting.readings, answer[0])
        self._replies.add(device, id_, Remembered(payload, hash(waiting.readings)))
        self._release(waiting.tags)
        return Outgoing(device, payload, waiting.deadline - now, waiting.correlation)
