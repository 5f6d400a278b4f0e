# SPDX-License-Identifier: Apache-2.0
"""The protocol of NATS as far as a worker needs it: bytes to operations and operations to bytes, without I/O.

A server is not believed: a line is at most 4 KB (that of INFO 64 KB), and a message at most what the reader was told.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hardcase_edge.errors import WireError

__all__ = [
    "MAX_INFO", "PING", "PONG", "Info", "Message", "Operation", "Plain", "Reader", "connect", "publish", "subscribe",
]  # fmt: skip

MAX_LINE = 4096
MAX_INFO = 65_536
PING, PONG = b"PING\r\n", b"PONG\r\n"
_STATUS = re.compile(rb"NATS/1\.0 (\d{3})([^\r\n]{0,200})")


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a subscription; ``status`` is 0, or that of JetStream, as 408 for a pull that has ended."""

    subject: str
    sid: str
    reply: str
    payload: bytes
    status: int = 0


@dataclass(frozen=True, slots=True)
class Info:
    """What a server says of itself."""

    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Plain:
    """PING, PONG, +OK, or -ERR with its words."""

    kind: str
    text: str = ""


Operation = Message | Info | Plain


class Reader:
    """Bytes in, operations out.

    Parameters
    ----------
    max_bytes : of one message
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._unread = bytearray()

    def feed(self, data: bytes) -> list[Operation]:
        """The operations that these bytes complete.

        Raises
        ------
        WireError
            This is not NATS, or too long.
        """
        self._unread += data
        operations: list[Operation] = []
        while (end := self._unread.find(b"\r\n", 0, MAX_INFO)) >= 0:
            line = bytes(self._unread[:end])
            if len(line) > (MAX_INFO if line.startswith(b"INFO ") else MAX_LINE):
                break
            if line.startswith((b"MSG ", b"HMSG ")):
                message, n_bytes = self._message(line, end + 2)
                if message is None:
                    return operations
                operations.append(message)
                del self._unread[:n_bytes]
            else:
                operations.append(_plain(line))
                del self._unread[: end + 2]
        if len(self._unread) > (MAX_INFO if self._unread.startswith(b"INFO ") else MAX_LINE):
            raise WireError("malformed", "the server sends a line that does not end")
        return operations

    def _message(self, line: bytes, start: int) -> tuple[Operation | None, int]:
        """The message whose line is here, None if the rest of it is not; and its bytes."""
        parts = line.decode("ascii", "replace").split()
        n_sizes = 2 if parts[0] == "HMSG" else 1
        sizes = parts[-n_sizes:]
        if not 3 + n_sizes <= len(parts) <= 4 + n_sizes or not all(s.isascii() and s.isdigit() for s in sizes):
            raise WireError("malformed", "the server sends a message without a size")
        head, whole = (int(sizes[0][:10]), int(sizes[1][:10])) if n_sizes == 2 else (0, int(sizes[0][:10]))
        if not head <= whole <= self._max_bytes:
            raise WireError("oversized", f"the server sends a message of {whole} bytes")
        end = start + whole
        if len(self._unread) < end + 2:
            return None, 0
        if self._unread[end : end + 2] != b"\r\n":
            raise WireError("malformed", "a message is longer than the server said")
        status = _STATUS.match(bytes(self._unread[start : start + head]))
        reply = parts[3] if len(parts) == 4 + n_sizes else ""
        payload = bytes(self._unread[start + head : end])
        return Message(parts[1], parts[2], reply, payload, int(status[1]) if status else 0), end + 2


def _plain(line: bytes) -> Operation:
    kind, _, rest = line.partition(b" ")
    if kind == b"INFO":
        try:
            fields = json.loads(rest)
        except (ValueError, RecursionError) as error:
            raise WireError("malformed", "the server's INFO is not JSON") from error
        if isinstance(fields, dict):
            return Info(fields)
    if kind in (b"PING", b"PONG", b"+OK", b"-ERR"):
        return Plain(kind.decode(), rest.decode("ascii", "replace").strip("' ")[:200])
    raise WireError("malformed", "the server does not speak NATS")


def connect(name: str, user: str, password: str) -> bytes:
    """CONNECT."""
    fields: dict[str, Any] = {
        "verbose": False, "pedantic": False, "headers": True, "no_responders": True, "lang": "hardcase",
        "version": "1", "protocol": 1, "name": name,
    }  # fmt: skip
    if user:
        fields |= {"user": user, "pass": password}
    return b"CONNECT " + json.dumps(fields).encode() + b"\r\n"


def subscribe(subject: str, sid: str) -> bytes:
    """SUB."""
    return f"SUB {subject} {sid}\r\n".encode()


def publish(subject: str, payload: bytes = b"", reply: str = "") -> bytes:
    """PUB."""
    return f"PUB {subject} {reply + ' ' if reply else ''}{len(payload)}\r\n".encode() + payload + b"\r\n"
