# SPDX-License-Identifier: Apache-2.0
"""The paho client of one connection attempt: bounded reads and queues, TLS, and the state of the attempt."""

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

UNSPECIFIED, TAKEN_OVER = 0x80, 0x8E  # reasons of a disconnection; paho gives the first if the broker gave none
V5, V311 = MQTTProtocolVersion.MQTTv5, MQTTProtocolVersion.MQTTv311


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
    max_in_flight: int = 16  # QoS 1 messages that await an acknowledgement; as many more may wait behind them


@record(frozen=True, slots=True)
class Will:
    """The retained message that the broker publishes if the client disappears without disconnecting."""

    topic: str
    payload: bytes


class Client(paho.Client):
    """paho's client without its own retries, and with bounds on what it reads and queues."""

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
        self.up_since: float | None = None  # monotonic seconds at which the subscription was granted
        self.was_hung_up = False  # the broker closed the connection before it answered
        self.is_refused = False
        self.is_refused_version = False
        self.is_taken_over = False  # the broker said that another client with this id has connected
        self.is_dropped = False  # the broker hung up and gave no reason
        self.looks_for_session = False  # it did not ask for a clean start
        self.end = ""  # why the attempt ended, in one line
        self._max_bytes = config.max_packet_bytes
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
        """As paho's method, which alone would read up to 256 MB if a packet claims that length."""
        if bufsize > self._max_bytes:
            self.end = f"a packet claims {bufsize} bytes, at most {self._max_bytes} are read"
            raise ConnectionError(self.end)
        return super()._sock_recv(bufsize)

    def _ssl_wrap_socket(self, tcp_sock: socket.socket) -> ssl.SSLSocket:
        """As paho's method, but closes the socket if the handshake fails."""
        assert self._tls is not None
        tls_sock = self._tls.wrap_socket(tcp_sock, server_hostname=self.host, do_handshake_on_connect=False)
        try:
            tls_sock.settimeout(self.connect_timeout)
            tls_sock.do_handshake()
        except BaseException:
            tls_sock.close()
            raise
        return tls_sock


def make_properties(kind: int, fields: dict[str, Any]) -> Properties:
    """MQTT 5 properties of a packet of this kind; fields that are None are left out."""
    properties = Properties(kind)  # type: ignore[no-untyped-call]
    for name, value in fields.items():
        if value is not None:
            setattr(properties, name, value)
    return properties


def _disconnected(client: Any, _data: Any, flags: Any, reason: ReasonCode, _properties: Any) -> None:
    if client.end or not reason.is_failure:
        return
    is_told = flags.is_disconnect_packet_from_server
    client.is_taken_over = is_told and reason.value == TAKEN_OVER
    client.is_dropped = not is_told and reason.value == UNSPECIFIED
    client.end = f"connection lost: {'the broker hung up' if client.is_dropped else str(reason).lower()}"


def _set_no_delay(_client: Any, _data: Any, sock: Any) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # otherwise a request waits 44 ms for an earlier ACK


def _leave_writing_to_the_loop(_client: Any, _data: Any, _sock: Any) -> None:
    """Does nothing: because this callback is set, ``publish`` never writes to the socket on the caller's thread."""
