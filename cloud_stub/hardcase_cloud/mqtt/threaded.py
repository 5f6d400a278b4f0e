# SPDX-License-Identifier: Apache-2.0
"""A client of one broker with a thread that takes its messages, for owners who may be busy for long.

The thread hands each message over as soon as it comes, and says to the broker that it has come; what must not be lost
its owner acknowledges by messages of its own. All of it is one connection: any thread may publish, while a lock keeps
two from the socket at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

from .client import START_S, Client, ClientConfig
from .packets import Published

logger = logging.getLogger(__name__)

POLL_S = 0.2
STEP_S = 0.002  # between two looks at what the broker has taken


class ThreadedClient:
    """Keeps one connection up.

    Parameters
    ----------
    config : ClientConfig
    on_message : called on the thread with each message; its exceptions are logged and dropped
    on_up : called on the thread each time the connection comes up, before its messages
    """

    def __init__(
        self, config: ClientConfig, on_message: Callable[[Published], None], on_up: Callable[[], None] = lambda: None
    ) -> None:
        self._on_message, self._on_up = on_message, on_up
        self._stopping = threading.Event()
        self._client = Client(config, is_stopping=self._stopping.is_set)
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="hardcase-mqtt", daemon=True)

    @property
    def is_up(self) -> bool:
        """Whether the connection is made and its subscriptions granted."""
        return self._client.is_up

    @property
    def connects(self) -> int:
        """How many times the connection has come up."""
        return self._client.connects

    def take_refusals(self) -> list[tuple[int, int]]:
        """Those of ``Client`` since the last call."""
        with self._lock:
            refusals = list(self._client.refusals)
            self._client.refusals.clear()
        return refusals

    def open(self, wait_s: float = START_S) -> None:
        """Connect and subscribe, and start the thread.

        Raises
        ------
        LinkError
            The broker cannot be reached, or it refuses the connection or a subscription.
        """
        self._client.open(wait_s)
        self._thread.start()

    def publish(self, topic: str, payload: bytes, **settings: Any) -> int:
        """Send a message, as of ``Client.publish``, without a wait for a connection."""
        if not self.is_up:
            return 0
        with self._lock:
            packet_id = self._client.publish(topic, payload, **settings)
            self._client.flush()
            return packet_id

    def subscribe(self, topic: str) -> None:
        """Ask for one more topic on the present connection; a new connection does not have it."""
        if self.is_up:
            with self._lock:
                self._client.subscribe(topic)
                self._client.flush()

    def flush(self, wait_s: float) -> bool:
        """Wait until the broker has taken what was sent, and acknowledged what was of QoS 1; whether it has."""
        until = monotonic() + wait_s
        while self.is_up:
            with self._lock:
                if self._client.flush() and not self._client.in_flight:
                    return True
            if monotonic() > until:
                return False
            sleep(STEP_S)
        return False

    def unsubscribe(self) -> None:
        """Ask the broker to send nothing more; messages on their way still arrive."""
        if self.is_up:
            with self._lock:
                self._client.unsubscribe()
                self._client.flush()

    def stop(self, wait_s: float = 2.0) -> None:
        """Disconnect cleanly, and end the thread."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(wait_s)
        if not self._thread.is_alive():  # otherwise it waits for a broker that neither accepts nor refuses
            self._client.close()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        connects, is_ready = 0, True
        while not self._stopping.is_set():
            if not is_ready:
                self._client.wait(POLL_S)
            with self._lock:
                messages = self._client.receive(0.0)
                for token, _ in messages:
                    self._client.acknowledge(token)
                is_ready = self._client.is_ready
            if self.connects != connects:
                connects = self.connects
                self._guard(self._on_up)
            for _, message in messages:
                self._guard(self._on_message, message)

    def _guard(self, call: Callable[..., None], *arguments: object) -> None:
        try:
            call(*arguments)
        except Exception:  # a bug in the owner must not end the connection
            logger.exception("a message could not be handled")
