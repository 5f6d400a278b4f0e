# SPDX-License-Identifier: Apache-2.0
"""The paho client of one connection attempt: bounded reads and queues, TLS, and the state of the attempt.

It reads ahead, and drops the messages that its owner has no room for before paho parses them: paho alone takes 30 us a
message, and so a flood would fill the broker's queue and delay whatever is behind it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from ..base.record import record
from .address import Address

if TYPE_CHECKING:
    import ssl

__all__ = ["V5", "V311", "Client", "ConnectionConfig", "Will", "make_properties"]

UNSPECIFIED, TAKEN_OVER = 0x80, 0x8E  # reasons of a disconnection; paho gives the first if the broker gave none
READ_AHEAD = 65_536  # bytes read at once
QOS_BITS = 0b110  # in the first byte of a PUBLISH
PUBACK = 0x40  # first byte; the length 2 and the message's id follow
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
            transport="websockets" if config.address.path else "tcp",
        )
        self._address = config.address
        self.up_since: float | None = None  # monotonic seconds at which the subscription was granted
        self.was_hung_up = False  # the broker closed the connection before it answered
        self.is_refused = False
        self.is_refused_version = False
        self.is_taken_over = False  # the broker said that another client with this id has connected
        self.is_dropped = False  # the broker hung up and gave no reason
        self.looks_for_session = False  # it did not ask for a clean start
        self.end = ""  # why the attempt ended, in one line
        self.admits: Callable[[str], bool] | None = None  # whether to read a message on this topic, or drop it
        self._ahead, self._next = b"", 0  # what was read ahead, and the place of the next byte in it
        self._may_recv = False  # at most once in each ``loop_read``, so that writing has its turn
        self._acks = bytearray()  # packets that acknowledge dropped messages
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

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        """Read once from the socket and handle all packets of that; paho's method reads one, or without an end."""
        self._may_recv = True
        code = MQTTErrorCode.MQTT_ERR_SUCCESS
        while self._sock is not None and code == MQTTErrorCode.MQTT_ERR_SUCCESS:
            code = self._packet_read()
        if self._acks:  # in one write, because each lets another thread have the interpreter
            self._packet_queue(PUBACK, bytes(self._acks), 0, 0)
            self._acks.clear()
        if code > 0:
            return self._loop_rc_handle(code)
        return MQTTErrorCode.MQTT_ERR_SUCCESS  # negative: no more to read now

    def _sock_recv(self, bufsize: int) -> bytes:
        """As paho's method, which alone would read up to 256 MB if a packet claims that length, and byte by byte."""
        if bufsize > self._max_bytes:
            self.end = f"a packet claims {bufsize} bytes, at most {self._max_bytes} are read"
            raise ConnectionError(self.end)
        if self._next == len(self._ahead):
            if not self._may_recv:
                raise BlockingIOError
            self._may_recv = False
            self._ahead, self._next = super()._sock_recv(READ_AHEAD), 0
        part = self._ahead[self._next : self._next + bufsize]
        self._next += len(part)
        return part

    def _handle_publish(self) -> MQTTErrorCode:
        """As paho's method, unless the owner does not admit the message: then it is acknowledged and dropped."""
        packet, has_id = self._in_packet["packet"], self._in_packet["command"] & QOS_BITS != 0
        end = 2 + int.from_bytes(packet[:2], "big")
        is_cut = len(packet) < end + 2 * has_id
        if self.admits is None or is_cut or self.admits(packet[2:end].decode(errors="replace")):
            return super()._handle_publish()
        if has_id:  # of QoS 1, as no higher one is subscribed to
            self._acks += bytes((PUBACK, 2)) + packet[end : end + 2]
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _create_socket(self) -> Any:
        """As paho's method, but a WebSocket has bounds."""
        if not self._address.path:
            return super()._create_socket()
        from .websocket import open_websocket

        sock = self._create_socket_connection()
        tls = self._ssl_wrap_socket(sock) if self._ssl else sock
        return open_websocket(tls, self._address, self.connect_timeout, self._max_bytes)

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
