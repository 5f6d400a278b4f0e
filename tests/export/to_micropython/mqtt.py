# SPDX-License-Identifier: Apache-2.0
"""As much of MQTT 3.1.1 under MicroPython, with the names of ``umqtt.simple``, as a device's requests need."""

import select
import socket
import struct


class MQTTClient:
    """One connection; messages come to the function of ``set_callback``."""

    def __init__(self, name, server, port):
        self._name, self._server, self._port, self._pid = name, server, port, 0

    def set_callback(self, function):
        """Who is called with topic and message."""
        self._callback = function

    def connect(self):
        """A new connection."""
        self._socket = socket.socket()
        self._socket.connect(socket.getaddrinfo(self._server, self._port)[0][-1])
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._send(0x10, b"\0\4MQTT\4\2\0\x3c" + self._text(self._name))
        assert self._packet() == (0x20, b"\0\0")

    def subscribe(self, topic, qos=0):
        """Wait for the broker's word."""
        self._send(0x82, b"\0\1" + self._text(topic) + bytes([qos]))
        assert self._packet()[0] == 0x90

    def publish(self, topic, message, retain=False, qos=0):
        """Wait for the acknowledgement."""
        self._pid += 1
        self._send(0x30 | qos << 1 | retain, self._text(topic) + struct.pack(">H", self._pid) + message)
        while self._one() != 0x40:
            pass

    def check_msg(self):
        """A message, if one is there."""
        if self._poll.poll(0):
            self._one()

    def _one(self):
        kind, data = self._packet()
        if kind & 0xF0 == 0x30:
            n = 2 + struct.unpack(">H", data[:2])[0]
            self._callback(data[2:n], data[n:])
        return kind & 0xF0

    def _packet(self):
        head = self._socket.recv(2)
        if len(head) < 2:
            raise OSError(-1)
        data = b""
        while len(data) < head[1]:
            data += self._socket.recv(head[1] - len(data))
        return head[0], data

    def _send(self, kind, data):
        self._socket.send(bytes([kind, len(data) & 127 | 128, len(data) >> 7]) + data)

    @staticmethod
    def _text(text):
        return struct.pack(">H", len(text)) + text.encode()
