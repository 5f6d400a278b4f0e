# SPDX-License-Identifier: Apache-2.0
"""The paho client of one attempt to connect, through paho's public names, and the state of the attempt.

This file alone imports paho-mqtt. The client of an attempt neither connects again nor queues: whatever is behind it
goes with it. Its sockets are a ``Gate``, which bounds what is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from ..base.record import record
from .address import Address
from .gate import Gate

if TYPE_CHECKING:
    import ssl

    from ..base.clock import Clock
    from .certificates import Certificates

UNSPECIFIED, TAKEN_OVER = 0x80, 0x8E  # reasons of a disconnection; paho gives the first if the broker gave none
NO_SUBSCRIBERS = 16  # PUBACK reason: the broker took the message, but has nobody to give it to
NO_RETAINED = 2  # of a subscription on MQTT 5
V5, V311 = 5, 4
GOOD = MQTTErrorCode.MQTT_ERR_SUCCESS
Sent = paho.MQTTMessageInfo


@record(frozen=True, slots=True, kw_only=True)
class ConnectionConfig:
    """Every setting of a connection, with its unit in its name."""

    address: Address
    client_id: str
    protocol: int | None = None  # 5, or 4 for MQTT 3.1.1, and no other; None: try 5 first, then 4
    keepalive_s: int = 30  # a dead link is noticed within 1.5 times this; a shorter time wakes the radio needlessly
    connect_timeout_s: float = 5.0  # for a host that neither accepts nor refuses
    retry_first_s: float = 0.5  # pause after the first failure; it doubles with each further failure ...
    retry_most_s: float = 1.5  # ... up to this; each pause is shortened at random by up to half, so that fleets spread
    refused_retry_s: float = 30.0  # pause after a refusal: retrying sooner does not repair credentials
    max_packet_bytes: int = 65_536  # a longer packet ends the connection before it is read
    clock: Clock | None = None  # by which certificates expire; None: the machine's, which is right
    max_in_flight: int = 16  # QoS 1 messages that await an acknowledgement; as many more may wait behind them
    certificates: Certificates | None = None  # which to show, in place of the one in ``address``


@record(frozen=True, slots=True)
class Will:
    """The retained message that the broker publishes if the client disappears without disconnecting."""

    topic: str
    payload: bytes


@record(frozen=True, slots=True)
class Message:
    """A received message. ``correlation`` and ``response_topic`` are None on MQTT 3.1.1."""

    topic: str
    payload: bytes
    correlation: bytes | None = None
    response_topic: str | None = None


class Client:
    """One attempt to connect, and its connection.

    The callbacks below are called in ``loop``, with a reason's code and words.
    """

    def __init__(self, config: ConnectionConfig, protocol: int, tls: ssl.SSLContext | None, will: Will | None) -> None:
        self.protocol = protocol
        self.up_since: float | None = None  # monotonic seconds at which the subscription was granted
        self.was_hung_up = False  # the broker closed the connection before it answered
        self.is_refused = False
        self.is_refused_version = False
        self.is_taken_over = False  # the broker said that another client with this id has connected
        self.is_dropped = False  # the broker hung up and gave no reason
        self.looks_for_session = False  # it did not ask for a clean start
        self.end = ""  # why the attempt ended, in one line
        self.on_connect: Callable[[Client, int, str, bool], None] = lambda *_: None  # and whether there was a session
        self.on_subscribe: Callable[[Client, bool], None] = lambda *_: None  # whether it is granted
        self.on_message: Callable[[Message], None] = lambda _: None
        self.on_refused: Callable[[int, str], None] | None = None  # with packet id and words
        self._config = config
        self._gate = Gate(config.address, tls, config.connect_timeout_s, config.max_packet_bytes)
        self._paho = client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=config.client_id,
            protocol=MQTTProtocolVersion(protocol),
            clean_session=None if protocol == V5 else True,
            reconnect_on_failure=False,
        )
        client.connect_timeout = config.connect_timeout_s
        client.max_inflight_messages_set(config.max_in_flight)
        client.max_queued_messages_set(config.max_in_flight)
        context: Any = self._gate
        client.tls_set_context(context)  # paho asks nothing of it but ``wrap_socket``
        if config.address.user:
            client.username_pw_set(config.address.user, config.address.password)
        if will is not None:
            client.will_set(will.topic, will.payload, qos=1, retain=True)
        client.on_connect = self._connected
        client.on_subscribe = lambda _c, _d, _m, whys, _p: self.on_subscribe(
            self, not any(why.is_failure for why in whys)
        )
        client.on_message = lambda _c, _d, raw: self.on_message(_message(raw))
        client.on_publish = self._published
        client.on_disconnect = self._disconnected
        client.on_socket_register_write = lambda *_: None  # because it is set, ``publish`` leaves writing to ``loop``

    def connect(self, *, is_clean: bool = True, session_s: int = 0) -> None:
        """Connect, and say CONNECT; both settings are of MQTT 5 alone.

        Raises
        ------
        OSError, ValueError
            There is no connection.
        """
        config = self._config
        v5: dict[str, Any] = {}
        if self.protocol == V5:
            limits = {"MaximumPacketSize": config.max_packet_bytes, "SessionExpiryInterval": session_s}
            v5 = {"clean_start": is_clean, "properties": _properties(PacketTypes.CONNECT, limits)}
        self._paho.connect(config.address.host, config.address.port, config.keepalive_s, **v5)

    def loop(self, wait_s: float) -> bool:
        """Wait at most so long for the network, and do what there is to do; False, and ``end``, at the end."""
        self._gate.may_read = True
        code = self._paho.loop(wait_s)
        while code == GOOD and self._gate.has_more:
            code = self._paho.loop_read()
        if code != GOOD and not self.end:
            self.end = f"connection lost: {paho.error_string(code).lower().rstrip('.')}"
        return code == GOOD

    def publish(self, topic: str, payload: bytes, retain: bool = False, **fields: Any) -> Sent | None:
        """Have ``loop`` send a message at QoS 1; None if too many wait for their acknowledgement.

        ``fields``: properties by their names in MQTT 5, dropped on 3.1.1.
        """
        properties = _properties(PacketTypes.PUBLISH, fields) if self.protocol == V5 else None
        sent = self._paho.publish(topic, payload, qos=1, retain=retain, properties=properties)
        return sent if sent.rc == GOOD else None

    def subscribe(self, topic: str, *, wants_retained: bool = True) -> None:
        """Subscribe at QoS 1; the second is of MQTT 5 alone."""
        options = SubscribeOptions(qos=1, retainHandling=0 if wants_retained else NO_RETAINED)
        self._paho.subscribe(topic, **({"options": options} if self.protocol == V5 else {"qos": 1}))

    def disconnect(self) -> None:
        """Have ``loop`` say goodbye and end."""
        self._paho.disconnect()

    def close(self) -> None:
        """Close the socket, and let go of what holds this object."""
        client = self._paho
        client.on_connect = client.on_subscribe = client.on_message = client.on_publish = client.on_disconnect = None
        if (sock := client.socket()) is not None:
            sock.close()

    def _connected(self, _client: Any, _data: Any, flags: Any, reason: ReasonCode, _properties: Any) -> None:
        self.on_connect(self, reason.value, str(reason).lower(), flags.session_present)

    def _published(self, _client: Any, _data: Any, mid: int, reason: ReasonCode, _properties: Any) -> None:
        if (reason.is_failure or reason.value == NO_SUBSCRIBERS) and self.on_refused is not None:
            self.on_refused(mid, str(reason).lower())

    def _disconnected(self, _client: Any, _data: Any, flags: Any, reason: ReasonCode, _properties: Any) -> None:
        self.end = self.end or self._gate.trouble
        if self.end or not reason.is_failure:
            return
        is_told = flags.is_disconnect_packet_from_server
        self.is_taken_over = is_told and reason.value == TAKEN_OVER
        self.is_dropped = not is_told and reason.value == UNSPECIFIED
        self.end = f"connection lost: {'the broker hung up' if self.is_dropped else str(reason).lower()}"


def is_acknowledged(sent: Sent, wait_s: float) -> bool:
    """Whether the broker acknowledges a message within these seconds."""
    try:
        sent.wait_for_publish(wait_s)
        return sent.is_published()
    except (RuntimeError, ValueError):  # the connection was lost in the meantime
        return False


def _message(raw: paho.MQTTMessage) -> Message:
    some = raw.properties
    return Message(
        raw.topic, bytes(raw.payload), getattr(some, "CorrelationData", None), getattr(some, "ResponseTopic", None)
    )


def _properties(kind: int, fields: dict[str, Any]) -> Properties:
    """MQTT 5 properties of a packet of this kind; fields that are None are left out."""
    properties = Properties(kind)  # type: ignore[no-untyped-call]
    for name, value in fields.items():
        if value is not None:
            setattr(properties, name, value)
    return properties
