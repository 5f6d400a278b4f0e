"""One attempt's client: paho, set up as we need it, and what is known of the attempt. See ``connection``."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from ..base.record import record
from .address import Address

if TYPE_CHECKING:
    import ssl

__all__ = ["V5", "V311", "Client", "ConnectionConfig", "Will", "make_properties"]

V5, V311 = MQTTProtocolVersion.MQTTv5, MQTTProtocolVersion.MQTTv311


@record(frozen=True, slots=True, kw_only=True)
class ConnectionConfig:
    """Every knob of a connection. Units are in the names."""

    address: Address
    client_id: str
    protocol: int | None = None  # 5 or 4 (3.1.1) to insist; None: 5, then 4 where 5 is refused
    keepalive_s: int = 30  # a dead link is noticed within 1.5 of these; shorter wakes the radio for nothing
    connect_timeout_s: float = 5.0  # for a host that does not even refuse
    retry_first_s: float = 0.5  # pause after the first failure, doubled each time ...
    retry_most_s: float = 30.0  # ... up to this; each pause is cut by up to half at random, so that fleets spread
    refused_retry_s: float = 30.0  # bad credentials do not heal by trying fast
    max_packet_bytes: int = 65_536  # anything longer ends the connection, unread
    max_in_flight: int = 16  # QoS 1 messages without an acknowledgement, and as many waiting behind them


@record(frozen=True, slots=True)
class Will:
    """What the broker says for us, retained, when we are gone without a word."""

    topic: str
    payload: bytes


class Client(paho.Client):
    """paho's client, with no retries of its own and bounds on what it reads and keeps."""

    def __init__(
        self, config: ConnectionConfig, protocol: MQTTProtocolVersion, tls: ssl.SSLContext | None, will: Will | None
    ) -> None:
        super().__init__(
            CallbackAPIVersion.VERSION2,
            client_id=config.client_id,
            protocol=protocol,
            clean_session=None if protocol == V5 else True,
            reconnect_on_failure=False,
        )
        self.up_since: float | None = None  # monotonic seconds, once subscribed
        self.was_hung_up = False  # the broker closed before it answered
        self.is_refused = False
        self.is_refused_version = False
        self.end = ""  # why it ended, in one line
        self._most_bytes = config.max_packet_bytes
        self._tls = tls
        self.connect_timeout = config.connect_timeout_s
        self.max_inflight_messages_set(config.max_in_flight)
        self.max_queued_messages_set(config.max_in_flight)
        if tls is not None:
            self.tls_set_context(tls)
        if config.address.user:
            self.username_pw_set(config.address.user, config.address.password)
        if will is not None:
            self.will_set(will.topic, will.payload, qos=1, retain=True)
        self.on_socket_open = _set_no_delay
        self.on_socket_register_write = _leave_writing_to_the_loop
        self.on_disconnect = _disconnected

    def _sock_recv(self, bufsize: int) -> bytes:
        """As paho's, which would read up to 256 MB if a packet claims to be so long."""
        if bufsize > self._most_bytes:
            self.end = f"a packet claims {bufsize} bytes, at most {self._most_bytes} are read"
            raise ConnectionError(self.end)
        return super()._sock_recv(bufsize)

    def _ssl_wrap_socket(self, tcp_sock: socket.socket) -> ssl.SSLSocket:
        """As paho's, but a socket whose handshake fails is closed."""
        assert self._tls is not None
        wrapped = self._tls.wrap_socket(tcp_sock, server_hostname=self.host, do_handshake_on_connect=False)
        try:
            wrapped.settimeout(self.connect_timeout)
            wrapped.do_handshake()
        except BaseException:
            wrapped.close()
            raise
        return wrapped


def make_properties(kind: int, fields: dict[str, Any]) -> Properties:
    """MQTT 5 properties of a packet of this kind, without those that are None."""
    properties = Properties(kind)  # type: ignore[no-untyped-call]
    for name, value in fields.items():
        if value is not None:
            setattr(properties, name, value)
    return properties


def _disconnected(client: Any, _data: Any, _flags: Any, reason: ReasonCode, _properties: Any) -> None:
    if not client.end and reason.is_failure:
        client.end = f"connection lost: {str(reason).lower()}"


def _set_no_delay(_client: Any, _data: Any, sock: Any) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or a lone request waits 44 ms for an old ACK


def _leave_writing_to_the_loop(_client: Any, _data: Any, _sock: Any) -> None:
    """That this exists keeps ``publish`` from writing to the socket on the caller's thread."""
