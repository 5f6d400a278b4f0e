"""A connection to a broker that is kept up for ever, on one thread: with ``client`` the only module that imports paho.

Each attempt has a client of its own. paho's queue would send again after a reconnect, and a request that nobody
waits for costs energy that no budget was asked for; with a new client only the caller decides what is sent twice.
MQTT 5 comes first; a broker that refuses it, or hangs up before it answers, is asked again with 3.1.1.
A broker that cannot be reached is tried again with growing, jittered pauses; one that refuses us, slowly.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from ..base.record import record
from .address import tls_context
from .paho_client import V5, V311, Client, ConnectionConfig, Will, make_properties

__all__ = ["Connection", "ConnectionConfig", "Message", "Will"]

logger = logging.getLogger(__name__)

UNSUPPORTED_VERSION = 132  # CONNACK reason, also what paho makes of a 3.1.1 broker's "1"
POLL_S = 1.0  # paho looks after keepalive this often
STABLE_S = 5.0  # a connection that lived so long resets the pause before the next


@record(frozen=True, slots=True)
class Message:
    """What came in. ``correlation`` and ``response_topic`` are None on 3.1.1."""

    topic: str
    payload: bytes
    correlation: bytes | None = None
    response_topic: str | None = None


class Connection:
    """Keeps one MQTT connection, and one subscription on it, up.

    Parameters
    ----------
    config : ConnectionConfig
    subscribe : topic filter; the connection counts as up once the broker has granted it
    subscribe_v5 : the filter on MQTT 5 where that is another, such as a shared one
    on_up : called on the connection's thread, each time it is up
    on_message : called on the connection's thread; what it raises is logged and dropped
    will : retained last message, or None

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
        subscribe_v5: str = "",
        on_message: Callable[[Message], None],
        on_up: Callable[[], None] = lambda: None,
        will: Will | None = None,
    ) -> None:
        self._config = config
        self._filters = {V311: subscribe, V5: subscribe_v5 or subscribe}
        self._on_up = on_up
        self._on_message = on_message
        self._will = will
        self._tls = tls_context(config.address)
        self._protocol = MQTTProtocolVersion(config.protocol or V5)
        self._client: Client | None = None
        self._last: paho.MQTTMessageInfo | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._tried = threading.Event()
        self._up = threading.Event()
        self._trouble = ""
        self._pause_s = config.retry_first_s
        self.connects = 0  # times it came up

    # ------------------------------------------------------------ what the owner uses

    @property
    def is_up(self) -> bool:
        """Connected and subscribed."""
        return self._up.is_set()

    @property
    def protocol(self) -> int:
        """The protocol in use, or tried next: 5 or 4 (3.1.1)."""
        return int(self._protocol)

    @property
    def trouble(self) -> str:
        """Why it is not up, in one line; empty when it is."""
        return self._trouble

    def start(self, wait_s: float = 0.0) -> bool:
        """Begin; wait until it is up or the first attempt has failed, at most ``wait_s``. Whether it is up."""
        self._thread = threading.Thread(target=self._run, name="hardcase-mqtt", daemon=True)
        self._thread.start()
        self._tried.wait(wait_s)
        return self.is_up

    def stop(self, wait_s: float = 2.0) -> None:
        """Disconnect in order (the will is not sent) and end the thread."""
        self._stopping.set()
        if self._client is not None:
            self._client.disconnect()
        if self._thread is not None:
            self._thread.join(wait_s)

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
    ) -> bool:
        """Send at QoS 1; False if it is not up or too much waits already. Never queues for a later connection.

        The three MQTT 5 arguments are left out on 3.1.1. ``wait_s``: how long to wait for the acknowledgement.
        """
        client = self._client
        if client is None or not self.is_up:
            return False
        properties = None
        if client.protocol == V5:
            fields = {
                "ResponseTopic": response_topic,
                "CorrelationData": correlation,
                "MessageExpiryInterval": expiry_s,
            }
            properties = make_properties(PacketTypes.PUBLISH, fields)
        info = client.publish(topic, payload, qos=1, retain=retain, properties=properties)
        if info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            return False
        self._last = info
        return not wait_s or _is_acknowledged(info, wait_s)

    def unsubscribe(self) -> None:
        """Ask the broker to send nothing more; what it has sent already still comes in."""
        if self._client is not None and self.is_up:
            self._client.unsubscribe(self._filters[self._client.protocol])

    def flush(self, wait_s: float) -> bool:
        """Wait for the broker to acknowledge the message published last; whether it has."""
        return self._last is None or _is_acknowledged(self._last, wait_s)

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            pause_s = self._attempt()
            self._up.clear()
            if pause_s:
                self._tried.set()
                self._stopping.wait(pause_s * random.uniform(0.5, 1.0))
        self._tried.set()

    def _attempt(self) -> float:
        """One connection, from its first byte to its last; seconds to pause before the next."""
        client = self._client = self._make_client()
        try:
            self._serve(client)
        except Exception as error:  # no network, no such host, TLS, or a packet that paho chokes on
            client.end = f"cannot be reached: {error}"
        if self._stopping.is_set() or self._changes_protocol(client):
            return 0.0
        self._note(client.end)
        return self._config.refused_retry_s if client.is_refused else self._next_pause(client)

    def _changes_protocol(self, client: Client) -> bool:
        """Take the other version where this one is not understood; True if that is worth an attempt at once."""
        was_hung_up = client.was_hung_up and not self.connects  # some brokers do not say why
        if self._config.protocol is not None or not (client.is_refused_version or was_hung_up):
            return False
        self._protocol = V311 if client.protocol == V5 else V5
        return client.protocol == V5

    def _serve(self, client: Client) -> None:
        config = self._config
        limit = {"MaximumPacketSize": config.max_packet_bytes}
        client.connect(
            config.address.host,
            config.address.port,
            config.keepalive_s,
            properties=make_properties(PacketTypes.CONNECT, limit) if client.protocol == V5 else None,
        )
        client.was_hung_up = True  # until it says why
        patience = monotonic() + 2 * config.connect_timeout_s
        while (code := client.loop(POLL_S)) == MQTTErrorCode.MQTT_ERR_SUCCESS:
            if self._stopping.is_set() or (client.up_since is None and monotonic() > patience):
                client.disconnect()
        if not client.end:
            client.end = f"connection lost: {paho.error_string(code).lower().rstrip('.')}"

    def _next_pause(self, client: Client) -> float:
        if client.up_since is not None and monotonic() - client.up_since > STABLE_S:
            self._pause_s = self._config.retry_first_s
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, self._config.retry_most_s)
        return pause_s

    def _note(self, trouble: str) -> None:
        """Log what is wrong, once until it changes."""
        if trouble != self._trouble:
            logger.warning("broker %s: %s; trying again", self._config.address.url, " ".join(trouble.split())[:300])
        self._trouble = trouble

    # ------------------------------------------------------------ paho's callbacks

    def _make_client(self) -> Client:
        client = Client(self._config, self._protocol, self._tls, self._will)
        client.on_connect = self._connected
        client.on_subscribe = self._subscribed
        client.on_message = self._received
        return client

    def _connected(self, client: Any, _data: Any, _flags: Any, reason: ReasonCode, _properties: Any) -> None:
        client.was_hung_up = False
        if reason.is_failure:
            client.is_refused_version = reason.value == UNSUPPORTED_VERSION
            self._refuse(client, f"refused us: {str(reason).lower()}")
            return
        topic = self._filters[client.protocol]
        if client.protocol == V5:
            client.subscribe(topic, options=SubscribeOptions(qos=1, retainHandling=2))  # no old, retained messages
        else:
            client.subscribe(topic, qos=1)

    def _subscribed(self, client: Any, _data: Any, _mid: int, reasons: list[ReasonCode], _properties: Any) -> None:
        if any(reason.is_failure for reason in reasons):
            self._refuse(client, f"refused the subscription to {self._filters[client.protocol]}")
            return
        client.up_since = monotonic()
        self.connects += 1
        self._trouble = ""
        self._up.set()
        version = "5" if client.protocol == V5 else "3.1.1"
        logger.info("connected to %s, MQTT %s", self._config.address.url, version)
        self._guard(self._on_up)
        self._tried.set()

    def _refuse(self, client: Client, why: str) -> None:
        client.is_refused, client.end = True, why
        client.disconnect()

    def _received(self, _client: Any, _data: Any, raw: paho.MQTTMessage) -> None:
        message = Message(
            topic=raw.topic,
            payload=bytes(raw.payload),
            correlation=getattr(raw.properties, "CorrelationData", None),
            response_topic=getattr(raw.properties, "ResponseTopic", None),
        )
        self._guard(lambda: self._on_message(message))

    def _guard(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:  # the connection outlives a bug in its owner
            logger.exception("a message could not be handled")


def _is_acknowledged(info: paho.MQTTMessageInfo, wait_s: float) -> bool:
    try:
        info.wait_for_publish(wait_s)
        return info.is_published()
    except (RuntimeError, ValueError):  # the connection was lost meanwhile
        return False
