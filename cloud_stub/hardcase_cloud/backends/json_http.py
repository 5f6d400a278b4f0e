# SPDX-License-Identifier: Apache-2.0
"""JSON over HTTP with a server that nobody trusts: an exchange ends by a time, and its answer is bounded.

The timeouts of ``http.client`` count anew for each byte that comes; here all reads of an answer share one end.
Nothing follows redirects or asks a proxy, so what a request carries goes to the named server alone.
"""

from __future__ import annotations

import http.client
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import isfinite
from threading import Lock
from time import monotonic
from typing import Any, NoReturn

from hardcase_edge.errors import one_line

MAX_ANSWER_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Answered:
    """What a server has answered.

    status : of HTTP
    after : its header ``Retry-After``; "" if it has none
    data : the body
    """

    status: int
    after: str
    data: bytes


class Server:
    """One server; any number of threads may ask it.

    Parameters
    ----------
    host, port : of the server
    is_tls : whether it speaks https; the system's authorities vouch for its certificate
    keeps : whether connections stay open for the next request
    max_bytes : of an answer
    """

    def __init__(
        self, host: str, port: int, *, is_tls: bool = False, keeps: bool = False, max_bytes: int = MAX_ANSWER_BYTES
    ) -> None:
        self._host, self._port, self._keeps, self._max_bytes = host, port, keeps, max_bytes
        self._context: Any = None
        if is_tls:
            import ssl  # imported here: most servers are on the worker's machine

            self._context = ssl.create_default_context()
        self._kept: list[Any] = []  # connections that are open and idle
        self._lock = Lock()

    def ask(
        self, method: str, path: str, until: float, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answered:
        """One exchange, which ends by ``until``, seconds on the monotonic clock.

        Raises
        ------
        OSError, http.client.HTTPException
            The server cannot be reached, breaks off, answers no HTTP or more than ``max_bytes``, or takes too long.
        """
        with self._lock:
            connection = self._kept.pop() if self._kept else None
        if connection is not None:
            try:
                return self._ask(connection, method, path, until, body, headers)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                pass  # the server has closed it since the last request, and answers a new connection
        return self._ask(self._connection(), method, path, until, body, headers)

    def close(self) -> None:
        """Close the connections that are idle."""
        with self._lock:
            kept, self._kept = self._kept, []
        for connection in kept:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port)
        return http.client.HTTPSConnection(self._host, self._port, context=self._context)

    def _ask(
        self,
        connection: Any,
        method: str,
        path: str,
        until: float,
        body: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> Answered:
        is_idle = False
        try:
            connection.timeout = _left_s(until)
            if connection.sock is not None:
                connection.sock.settimeout(connection.timeout)
            connection.response_class = partial(_Response, until, 2 * self._max_bytes)  # heads and chunks' sizes, too
            connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            data = response.read(self._max_bytes + 1)
            if len(data) > self._max_bytes:
                raise http.client.HTTPException(f"more than {self._max_bytes} bytes")
            is_idle = self._keeps and response.isclosed() and connection.sock is not None
            return Answered(response.status, response.getheader("Retry-After", ""), data)
        except ValueError as error:  # http.client reads a chunk of -5 bytes
            raise http.client.HTTPException(one_line(error)) from error
        finally:
            if is_idle:
                with self._lock:
                    self._kept.append(connection)
            else:
                connection.close()


def json_object(data: bytes | bytearray | str) -> dict[str, Any]:
    """The JSON object in these bytes.

    >>> json_object(b'{"p": 0.5}')
    {'p': 0.5}

    Raises
    ------
    ValueError
        They hold no JSON, NaN or Infinity, a number that no float holds, or JSON that is not an object.
    """
    try:
        value = json.loads(data, parse_constant=_refuse, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("too many brackets") from error
    if not isinstance(value, dict):
        raise ValueError("JSON that is not an object")
    return value


def _finite(word: str) -> float:
    return x if isfinite(x := float(word)) else _refuse(word)


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def _left_s(until: float) -> float:
    left_s = until - monotonic()
    if left_s <= 0:
        raise TimeoutError("took too long")
    return left_s


class _Timed(io.RawIOBase):
    """The bytes of a socket until a time, and no more than so many: of a chunk of -1 bytes, http.client reads all."""

    def __init__(self, sock: Any, until: float, most: int) -> None:
        self._sock, self._raw, self._until, self._left = sock, sock.makefile("rb", buffering=0), until, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(_left_s(self._until))
        n = int(self._raw.readinto(buffer))
        self._left -= n
        if self._left < 0:
            raise http.client.HTTPException("too many bytes")
        return n

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """A response all of whose bytes, which are bounded, must come by a time."""

    def __init__(self, until: float, most: int, sock: Any, *args: Any, **named: Any) -> None:
        super().__init__(sock, *args, **named)
        self.fp.close()
        self.fp = io.BufferedReader(_Timed(sock, until, most))
