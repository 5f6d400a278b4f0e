# SPDX-License-Identifier: Apache-2.0
"""The back ends of a gate's server, asked over connections that stay.

What one answers is bounded: no redirect, no compression, no more bytes than ``MAX_ANSWER``; the gate bounds its time.
"""

from __future__ import annotations

import json
import os
import ssl
from asyncio import Semaphore
from collections.abc import Callable, Coroutine
from typing import Any

import httpx

from hardcase_cloud.backends.json_http import json_object
from hardcase_edge.errors import InputError, one_line

from ..api.gate import Gate
from .settings import BackEnd, Settings
from .shapes import Asked, Heard, heard, plain, question

MAX_ANSWER = 1024 * 1024
MOST_CONNECTIONS = 512
Function = Callable[[Asked], Coroutine[Any, Any, Heard]]


class BackEnds:
    """Gives a gate a function for each of its APIs; used in one event loop.

    Each connection is a transport of its own, because a pool of httpx looks at all its connections for each request.
    """

    def __init__(self, settings: Settings, gate: Gate) -> None:
        self._trust = ssl.create_default_context()
        self._free = Semaphore(MOST_CONNECTIONS)
        self._open: set[httpx.AsyncHTTPTransport] = set()
        self._times = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), settings.call_ms / 1000)}
        self._classes = [str(label) for label in gate.classes]
        for name, one in settings.apis.items():
            # of labels that are alike, that of the log counts: the policy knows no other of this API
            gate.asks(name)(
                self._function(one, _url(name, one), {plain(text): text for text in reversed(gate.labels_of(name))})
            )

    def _function(self, one: BackEnd, url: httpx.URL, labels: dict[str, str]) -> Function:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if one.key_env:
            headers["Authorization"] = f"Bearer {os.environ[one.key_env]}"

        idle = list[httpx.AsyncHTTPTransport]()

        async def ask(asked: Asked) -> Heard:
            body = json.dumps(question(one, asked, self._classes)).encode()
            request = httpx.Request("POST", url, headers=headers, content=body, extensions=self._times)
            async with self._free:
                transport = idle.pop() if idle else self._connection()
                try:
                    data = await _exchange(transport, request)
                except BaseException:  # a call that was given up may leave its request on the connection
                    self._open.discard(transport)
                    await transport.aclose()
                    raise
                idle.append(transport)
            return heard(one.shape, json_object(data), labels, self._classes)

        return ask

    def _connection(self) -> httpx.AsyncHTTPTransport:
        # no client of httpx: nobody wants its cookies, redirects and log of addresses, which may hold secrets
        made = httpx.AsyncHTTPTransport(verify=self._trust, limits=httpx.Limits(max_connections=1), trust_env=False)
        self._open.add(made)
        return made

    async def close(self) -> None:
        """Close all connections."""
        for transport in self._open:
            await transport.aclose()


def _url(name: str, one: BackEnd) -> httpx.URL:
    try:
        return httpx.URL(one.url)
    except httpx.InvalidURL as error:
        raise InputError(f"[apis.{name}]: url is no address of a back end: {one_line(error)}; correct it") from error


async def _exchange(transport: httpx.AsyncHTTPTransport, request: httpx.Request) -> bytearray:
    """What a back end answers, which is bounded.

    Raises
    ------
    ValueError
        It has another status than 200, or too many bytes.
    """
    response = await transport.handle_async_request(request)
    try:
        if response.status_code != 200:
            raise ValueError(f"its status is {response.status_code}")
        data = bytearray()
        async for part in response.aiter_raw():
            data += part
            if len(data) > MAX_ANSWER:
                raise ValueError(f"its answer has more than {MAX_ANSWER} bytes")
        return data
    finally:
        await response.aclose()
