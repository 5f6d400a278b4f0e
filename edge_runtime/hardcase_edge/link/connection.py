# SPDX-License-Identifier: Apache-2.0
"""One MQTT connection with its subscriptions, kept up by a thread of its own that reconnects for ever.

The thread makes a new paho client for each attempt. paho's queue would send messages again after a reconnect, and a
request that nobody waits for any more costs energy that no budget allowed; with a new client, only the caller decides
what is sent twice. The thread tries MQTT 5 first, and 3.1.1 if the broker refuses version 5 or hangs up without an
answer. If a broker cannot be reached, the pauses between attempts grow and are jittered; if it refuses the connection,
the next attempt comes after a long pause. Two clients with one id throw each other off; ``rivals`` says when to give
up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from random import SystemRandom
from time import monotonic

from .address import tls_context
from .paho_client import V5, V311, Client, ConnectionConfig, Message, Will, is_acknowledged
from .rivals import SESSION_S, SHORT_S, Rivals

logger = logging.getLogger(__name__)

UNSUPPORTED_VERSION = 132  # CONNACK reason; paho also translates the return code 1 of a 3.1.1 broker into it
POLL_S = 1.0  # how often the keepalive timer is looked at
STABLE_S = 5.0  # a connection that lasted this long resets the pause before the next attempt


class Connection:
    """Keeps one MQTT connection, and its subscriptions, up.

    Parameters
    ----------
    config : ConnectionConfig
    subscribe : topic filter; the connection counts as up once the broker has granted it. Retained messages are not
        wanted
    on_up : called on the connection's thread each time the connection comes up
    on_message : called on the connection's thread with each message; its exceptions are logged and dropped
    on_refused : called on the connection's thread with the packet id of a published message that the broker refuses or
        has nobody to give to, and the reason; never called on MQTT 3.1.1
    on_taken_over : called on the connection's thread, which then ends, when it is sure that another client uses the
        same id. None: it goes on trying
    will : the retained message that the broker sends if the connection breaks, or None

    Attributes
    ----------
    connects : int
        How many times the connection has come up.

    Raises
    ------
    InputError
        A certificate or key cannot be used.
    """

    def __init__(
        self,
        config: ConnectionConfig,
        *,
        subscribe: str,
        on_message: Callable[[Message], None],
        on_up: Callable[[], None] = lambda: None,
        on_refused: Callable[[int, str], None] | None = None,
        on_taken_over: Callable[[], None] | None = None,
        will: Will | None = None,
    ) -> None:
        self._config = config
        self._topic = subscribe
        self._on_up = on_up
        self._on_message = on_message
        self._on_refused = on_refused
        self._on_taken_over = on_taken_over
        self._will = will
        self._tls = tls_context(config.address, config.clock)
        self._protocol = config.protocol or V5
        self._client: Client | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._tried = threading.Event()
        self._up = threading.Event()
        self._trouble = ""
        self._pause_s = config.retry_first_s
        self._rivals = Rivals()
        self.connects = 0

    # ------------------------------------------------------------ for the owner, from any thread

    @property
    def is_up(self) -> bool:
        """Whether the connection is made and its subscription granted."""
        return self._up.is_set()

    @property
    def trouble(self) -> str:
        """Why the connection is not up, in one line; empty while it is up."""
        return self._trouble

    def start(self, wait_s: float = 0.0) -> bool:
        """Start the thread, wait at most ``wait_s`` seconds for the first attempt, and return whether it is up."""
        self._thread = threading.Thread(target=self._run, name="hardcase-mqtt", daemon=True)
        self._thread.start()
        self._tried.wait(wait_s)
        return self.is_up

    def stop(self, wait_s: float = 2.0) -> None:
        """Disconnect cleanly, so that the broker does not send the will, and end the thread."""
        self._stopping.set()
        if self._client is not None:
            self._client.disconnect()
        if self._thread is not None:
            self._thread.join(wait_s)
        self._client = None

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        retain: bool = False,
        response_topic: str | None = None,
        correlation: bytes | None = None,
        expiry_s: int | None = None,
        wait_s: float = 0.0,
    ) -> int:
        """Send a message at QoS 1, over the present connection only; returns its packet id, 0 if it was not sent.

        It is not sent if the connection is down or too many messages wait for their acknowledgement.

        Parameters
        ----------
        topic, payload, retain : as in MQTT
        response_topic, correlation, expiry_s : MQTT 5 properties, dropped on 3.1.1
        wait_s : if positive, wait this long for the acknowledgement, and return 0 if it did not come
        """
        client = self._client
        if client is None or not self.is_up:
            return 0
        sent = client.publish(
            topic, payload, retain, ResponseTopic=response_topic, CorrelationData=correlation,
            MessageExpiryInterval=expiry_s,
        )  # fmt: skip
        return 0 if sent is None or (wait_s and not is_acknowledged(sent, wait_s)) else sent.mid

    def subscribe(self, topic: str) -> None:
        """Ask for one more topic on the present connection; a new connection does not have it."""
        if self._client is not None and self.is_up:
            self._client.subscribe(topic)

    def reconnect(self) -> None:
        """End the present connection in order; the thread makes the next one."""
        if self._client is not None and self.is_up:
            self._client.end = "this device closed the connection"
            self._client.disconnect()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            pause_s = self._attempt()
            self._up.clear()
            if pause_s:
                self._tried.set()
                self._stopping.wait(pause_s * SystemRandom().uniform(0.5, 1.0))
        self._tried.set()

    def _attempt(self) -> float:
        """One connection, from its first byte to its last; returns the seconds to pause before the next."""
        client = self._client = self._make_client()
        try:
            self._serve(client)
        except Exception as error:  # no network, unknown host, TLS, or a packet that paho cannot read
            client.end = f"cannot be reached: {error}"
            self._rivals.is_away()
        finally:
            client.close()
        if self._stopping.is_set() or self._changes_protocol(client):
            return 0.0
        pause_s = self._lost(client)
        self._note(client.end)
        return self._config.refused_retry_s if client.is_refused else pause_s or self._next_pause(client)

    def _changes_protocol(self, client: Client) -> bool:
        """Switch the MQTT version if the broker refuses this one; returns whether to try the other one at once."""
        was_hung_up = client.was_hung_up and not self.connects  # some brokers hang up instead of refusing
        if self._config.protocol is not None or not (client.is_refused_version or was_hung_up):
            return False
        self._protocol = V311 if client.protocol == V5 else V5
        return client.protocol == V5

    def _serve(self, client: Client) -> None:
        config = self._config
        # no session behind a certificate: mosquitto 2.0.11 crashes if it is reloaded, as after a revocation, while it
        # keeps the session of such a client that has left
        has_certificate = config.certificates is not None or config.address.cert is not None
        client.looks_for_session = client.protocol == V5 and self._rivals.looks_for_session and not has_certificate
        client.connect(is_clean=not client.looks_for_session, session_s=0 if has_certificate else SESSION_S)
        client.was_hung_up = True  # until its CONNACK arrives
        give_up_at = monotonic() + 2 * config.connect_timeout_s
        while client.loop(POLL_S):
            if self._stopping.is_set() or (client.up_since is None and monotonic() > give_up_at):
                client.disconnect()

    def _next_pause(self, client: Client) -> float:
        if client.up_since is not None and monotonic() - client.up_since > STABLE_S:
            self._pause_s = self._config.retry_first_s
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, self._config.retry_most_s)
        return pause_s

    def _lost(self, client: Client) -> float:
        """The pause if the broker ended this connection, perhaps for another client; 0 for the usual one."""
        is_short = client.up_since is not None and monotonic() - client.up_since < SHORT_S
        if not client.is_taken_over and not (client.is_dropped and is_short):
            return 0.0
        pause_s = self._rivals.lost(is_proved=client.is_taken_over)
        if self._rivals.is_suspected:
            client.end = self._suspicion()
        self._give_up_if_sure()
        return pause_s

    def _suspicion(self) -> str:
        sure = "" if self._rivals.is_proved else "perhaps "
        return f"{sure}another client uses the id {self._config.client_id}; give each device its own --device-id"

    def _give_up_if_sure(self) -> None:
        """End the thread and tell the owner, if there is another client with this id and the owner listens."""
        if self._rivals.is_sure and self._on_taken_over is not None:
            self._trouble = self._suspicion()
            self._stopping.set()
            self._guard(self._on_taken_over)

    def _note(self, trouble: str) -> None:
        """Log why the connection is not up, once for each new reason."""
        if trouble != self._trouble:
            logger.warning("broker %s: %s; trying again", self._config.address.url, " ".join(trouble.split())[:300])
        self._trouble = trouble

    # ------------------------------------------------------------ the client's callbacks, on the connection's thread

    def _make_client(self) -> Client:
        tls, certificates = self._tls, self._config.certificates
        if certificates is not None:
            tls = certificates.context(self._config.address, tls, self._config.clock)
        client = Client(self._config, self._protocol, tls, self._will)
        client.on_connect = self._connected
        client.on_subscribe = self._subscribed
        client.on_message = lambda message: self._guard(lambda: self._on_message(message))
        client.on_refused = self._on_refused
        return client

    def _connected(self, client: Client, reason: int, words: str, has_session: bool) -> None:
        client.was_hung_up = False
        if reason:
            client.is_refused_version = reason == UNSUPPORTED_VERSION
            self._refuse(client, f"refused the connection: {words}")
            return
        if client.looks_for_session and has_session:
            self._rivals.prove()
            self._give_up_if_sure()
        if self._stopping.is_set():
            return
        client.subscribe(self._topic, wants_retained=False)

    def _subscribed(self, client: Client, is_granted: bool) -> None:
        if client.up_since is not None:  # an answer to ``subscribe``
            if not is_granted:
                logger.warning("broker %s: refused a subscription", self._config.address.url)
            return
        if not is_granted:
            self._refuse(client, f"refused the subscription to {self._topic}")
            return
        client.up_since = monotonic()
        self._rivals.came_up()
        self.connects += 1
        self._trouble = ""
        self._up.set()
        if self._config.certificates is not None:
            self._config.certificates.came_up()
        version = "5" if client.protocol == V5 else "3.1.1"
        logger.info("connected to %s, MQTT %s", self._config.address.url, version)
        self._guard(self._on_up)
        self._tried.set()

    def _refuse(self, client: Client, why: str) -> None:
        client.is_refused, client.end = True, why
        client.disconnect()

    def _guard(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:  # a bug in the owner must not end the connection
            logger.exception("a message could not be handled")
