# SPDX-License-Identifier: Apache-2.0
"""A worker's client of NATS, with the methods of ``mqtt.client.Client``: requests come from a stream of JetStream.

Devices speak MQTT 3.1.1 to NATS's own listener. A stream keeps their requests on as many servers as are named, up to
three; workers of one group share a durable consumer of it. They pull, so that nothing comes faster than it is taken,
and acknowledge when they have answered. What a worker has not acknowledged in ``ACK_S`` another one gets. Replies are
plain messages, which the listener delivers at QoS 0.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from math import ceil, inf
from time import monotonic, sleep, time
from typing import Any

from hardcase_edge.errors import LinkError, WireError
from hardcase_edge.link.address import Address, tls_context

from ..mqtt.attempts import Attempts
from ..mqtt.client import ClientConfig, Token
from ..mqtt.packets import Published
from ..mqtt.socket_line import Line
from . import protocol
from .protocol import Message, Operation, Plain
from .servers import connected, url_of
from .subjects import subject_of, topic_of

__all__ = ["NatsClient"]

logger = logging.getLogger(__name__)

ACK_S = 2.0  # after which a request that its worker has not acknowledged goes to another
TRIES = 3  # deliveries of one request: its device asks again anyway
KEEP_S = 60  # for which the stream keeps a request
MOST_KEPT = 100_000  # requests
FORGET_S = 3_600  # after which a group without workers is gone
MOST_OPEN = 128  # requests that a worker has and has not answered: the others wait where another worker may take them
PULL_S = 5.0  # after which a pull ends
API_S = 2.0  # for an answer of JetStream
REQUESTS, ANSWERS = "1", "2"  # numbers of subscriptions
ENDED = (404, 408)  # statuses of a pull in whose time nothing more has come
REFUSED_S = 0.1  # after which to pull again where JetStream has refused, as while it elects a leader
REMAKE_S = 2.0  # of refusals, after which the consumer may be gone: a new connection makes it again
SOME = 1_000_000_000  # nanoseconds of a second


class NatsClient:
    """Keeps one connection up, to one of the servers.

    Parameters
    ----------
    config : as of an MQTT client; its one topic is a shared subscription, and its address is not used
    servers : to which to connect, in turn
    is_stopping, clock : as of an MQTT client

    Attributes
    ----------
    version : int
        0; MQTT has another.
    connects, lost : int
        As of an MQTT client.
    """

    def __init__(
        self,
        config: ClientConfig,
        servers: Sequence[Address],
        *,
        is_stopping: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        _, self._group, topic = config.topics[0].split("/", 2)
        self._subject = subject_of(topic)
        # one for each tenant; a stream's name has no dot, and no tenant's name has "="
        self._stream = "HARDCASE-" + "-".join(self._subject.split(".")[2:-2]).replace("//", "=")
        self.config, self.version = config, 0
        self.connects = self.lost = 0
        self._servers = deque(servers)
        self._replicas = min(3, len(servers))
        self._is_stopping, self._clock = is_stopping, clock
        self._tls = {address: tls_context(address) for address in servers}
        self._line: Line[Operation] | None = None
        self._acks: dict[int, str] = {}  # subjects of acknowledgements, by token
        self._n = self._left = 0  # of the pull that is open
        self._pull_ends = self._heard_at = 0.0
        self._least_behind_s = inf
        self._attempts = Attempts(config.retry_first_s, config.retry_most_s, clock)
        self._refused_at: float | None = None
        self._wants = True

    @property
    def is_up(self) -> bool:
        """Whether the connection is made and its consumer there."""
        return self._line is not None

    def open(self, wait_s: float) -> None:
        """Connect, and see that stream and consumer are there.

        Raises
        ------
        LinkError
            No server can be reached, or JetStream is not ready.
        """
        until = self._clock() + wait_s
        while self._line is None:
            self._attempt()
            if self._line is None and (self._clock() > until or self._is_stopping()):
                url = url_of(self.config.address, self._servers)
                raise LinkError(
                    f"broker {url}: {self._attempts.trouble}; start it with JetStream, or correct URL or credentials"
                )
            if self._line is None:
                sleep(0.1)

    def receive(self, wait_s: float) -> list[tuple[Token, Published]]:
        """The requests that come within these seconds; connects if need be."""
        if self._line is None:
            if self._attempts.wait(wait_s) and not self._is_stopping():
                self._attempt()
            return []
        try:
            self._pull()
            return [m for operation in self._line.receive(wait_s) if (m := self._take(operation)) is not None]
        except (OSError, WireError) as error:
            self._lose(str(error) or type(error).__name__)
            return []

    def acknowledge(self, token: Token) -> None:
        """Tell JetStream that this request is done with."""
        connection, number = token
        subject = self._acks.pop(number, "") if connection == self.connects else ""
        if subject and self._line is not None:
            self._line.send(protocol.publish(subject, b"+ACK"))

    def publish(self, topic: str, payload: bytes, correlation: bytes | None, expires_s: float) -> bool:
        """Send a message, unless there is no connection or the server does not read; returns whether it was.

        ``correlation`` and ``expires_s`` have no place in MQTT 3.1.1.
        """
        if self._line is None or not self._line.has_room:
            self.lost += 1
            return False
        self._line.send(protocol.publish(subject_of(topic), payload))
        return True

    def flush(self, wait_s: float = 0.0) -> None:
        """Send what is ready; with a time, wait that long for the server to take all of it."""
        until = self._clock() + wait_s
        try:
            while self._line is not None and not self._line.flush() and (left_s := until - self._clock()) > 0:
                self._line.receive(left_s)
        except (OSError, WireError) as error:
            self._lose(str(error))

    def unsubscribe(self) -> None:
        """Ask for nothing more; requests on their way still arrive."""
        self._wants = False

    def close(self) -> None:
        """Hang up, once the server has taken what was sent."""
        if self._line is not None:
            self.flush(1.0)
        if self._line is not None:
            self._line.close()
        self._line = None

    # ------------------------------------------------------------ connecting

    def _attempt(self) -> None:
        """Connect to the next server, and make stream and consumer unless they are there."""
        address = self._servers[0]
        self._servers.rotate(-1)
        name = f"{self.config.name}-{secrets.token_hex(8)}"
        line = None
        try:
            line = connected(address, self.config.connect_timeout_s, self.config.max_packet_bytes, self._tls[address])
            line.send(protocol.connect(name, address.user, address.password))
            inbox = f"_INBOX.{name}"
            line.send(protocol.subscribe(f"{inbox}.a.*", ANSWERS) + protocol.subscribe(f"{inbox}.r", REQUESTS))
            self._make(line, inbox)
        except (OSError, WireError) as error:
            if line is not None:
                line.close()
            self._attempts.failed(f"nats://{address.host}:{address.port}", str(error) or type(error).__name__)
            return
        self._attempts.came_up()
        self._line, self._inbox = line, f"{inbox}.r"
        self.connects += 1
        self._left, self._pull_ends, self._heard_at, self._refused_at = 0, 0.0, self._clock(), None
        self._acks.clear()
        logger.info("connected to nats://%s:%d", address.host, address.port)

    def _make(self, line: Line[Operation], inbox: str) -> None:
        stream = {
            "name": self._stream, "subjects": [self._subject], "retention": "interest", "storage": "file",
            "num_replicas": self._replicas, "max_age": KEEP_S * SOME, "max_msgs": MOST_KEPT, "discard": "old",
            "max_msg_size": self.config.max_packet_bytes,
        }  # fmt: skip
        consumer = {
            "durable_name": self._group, "filter_subject": self._subject, "ack_policy": "explicit",
            "ack_wait": int(ACK_S * SOME), "max_deliver": TRIES, "max_ack_pending": 10_000, "deliver_policy": "new",
            "inactive_threshold": FORGET_S * SOME,
        }  # fmt: skip
        self._ask(line, inbox, f"STREAM.CREATE.{self._stream}", stream, already=10058)
        what = {"stream_name": self._stream, "config": consumer}
        self._ask(line, inbox, f"CONSUMER.DURABLE.CREATE.{self._stream}.{self._group}", what, already=10013)

    def _ask(self, line: Line[Operation], inbox: str, what: str, fields: dict[str, Any], *, already: int) -> None:
        """One question to JetStream; ``already``: the error that is none, because the thing is there."""
        self._n += 1
        reply = f"{inbox}.a.{self._n}"
        line.send(protocol.publish(f"$JS.API.{what}", json.dumps(fields).encode(), reply))
        until = self._clock() + API_S
        while (left_s := until - self._clock()) > 0:
            for operation in line.receive(left_s):
                if isinstance(operation, Plain):
                    _answer(line, operation)
                if isinstance(operation, Message) and operation.subject == reply:
                    if operation.status == 503:
                        raise WireError("refused", "JetStream is off or has no leader")
                    _check(operation.payload, what, already)
                    return
        raise WireError("refused", f"JetStream does not answer to {what}")

    def _lose(self, why: str) -> None:
        if self._line is not None:
            self._line.close()
        self._line = None
        self._attempts.failed(url_of(self.config.address, self._servers), why)

    # ------------------------------------------------------------ a connection

    def _pull(self) -> None:
        """Ask for requests, unless a pull is open or too many are not answered yet."""
        assert self._line is not None
        now = self._clock()
        if now - self._heard_at > 1.5 * self.config.keepalive_s:
            raise ConnectionError("no sign of life from the server")
        room = min(self.config.receive_maximum, MOST_OPEN) - len(self._acks)
        if not self._wants or room <= 0 or (self._left > 0 and now < self._pull_ends):
            return
        self._left, self._pull_ends = room, now + PULL_S + 1
        wanted = {"batch": self._left, "expires": int(PULL_S * SOME)}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._group}"
        self._line.send(protocol.publish(subject, json.dumps(wanted).encode(), self._inbox))

    def _take(self, operation: Operation) -> tuple[Token, Published] | None:
        """The request in what the server has sent, if it is one."""
        assert self._line is not None
        self._heard_at = self._clock()
        if isinstance(operation, Plain):
            _answer(self._line, operation)
        if not isinstance(operation, Message) or operation.sid != REQUESTS:
            return None
        if operation.status not in (0, *ENDED):
            self._put_off(operation.status)
            return None
        self._refused_at = None
        if operation.status or not operation.reply.startswith("$JS.ACK."):
            self._left = 0  # the pull has ended
            return None
        self._left -= 1
        self._n += 1
        try:
            topic = topic_of(operation.subject)
        except WireError:
            topic = operation.subject  # the service counts it as malformed, and it is acknowledged
        self._acks[self._n] = operation.reply
        return (self.connects, self._n), Published(
            topic, operation.payload, self._n, expiry_s=self._left_s(operation.reply, operation.payload)
        )

    def _put_off(self, status: int) -> None:
        """JetStream refuses to be pulled: ask a little later, and connect again if that lasts."""
        now = self._clock()
        self._refused_at = now if self._refused_at is None else self._refused_at
        if now - self._refused_at > REMAKE_S:
            raise WireError("refused", f"JetStream refuses pulls with status {status}")
        self._left, self._pull_ends = 1, now + REFUSED_S

    def _left_s(self, reply: str, payload: bytes) -> int | None:
        """Seconds that are left of a request's deadline, by the time at which the stream took it.

        The clocks of server and worker may differ: the freshest request that has come counts as new.
        """
        parts = reply.split(".")
        stamp = parts[7 if len(parts) == 9 else 9] if len(parts) >= 9 else ""
        if not (stamp.isascii() and stamp.isdigit() and len(stamp) < 20) or len(payload) < 8:
            return None
        behind_s = time() - int(stamp) / SOME
        self._least_behind_s = min(behind_s, self._least_behind_s)
        waited_s = int(behind_s - self._least_behind_s)
        return max(0, ceil(int.from_bytes(payload[4:8], "little") / 1000) - waited_s)


def _answer(line: Line[Operation], operation: Plain) -> None:
    """Answer a PING; an error of the server ends the connection."""
    if operation.kind == "PING":
        line.send(protocol.PONG)
    elif operation.kind == "-ERR":
        raise WireError("refused", f"the server says {operation.text!r}")


def _check(payload: bytes, what: str, already: int) -> None:
    try:
        error = json.loads(payload).get("error") or {}
        code, text = error.get("err_code", 0), str(error.get("description", ""))
    except (ValueError, AttributeError, RecursionError) as strange:
        raise WireError("malformed", "JetStream answers without JSON") from strange
    if error and code != already:
        raise WireError("refused", f"JetStream refuses {what}: {text[:200]}")
