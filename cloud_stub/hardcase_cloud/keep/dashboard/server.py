# SPDX-License-Identifier: Apache-2.0
"""The dashboard's server: uvicorn, with few places for strangers, signals of the caller's, and streams that end first.

A connection is a stranger's until a request on it has shown the token. Strangers have ``MOST_STRANGERS`` places of
their own: one more takes the place of whoever has been a stranger longest, so that silent connections keep nobody out.
For their first ``GRACE_S`` they need none, because many pages may come back at once, and show their tokens by then.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from .app import SHOWN

LEAVE_S = 1  # for requests that are under way when it is stopped
MOST_AT_ONCE = 1_000  # connections and requests
MOST_STRANGERS = 32
GRACE_S = 0.5
MOST_NEW = 250  # strangers at all, those within their grace as well
HEAD_S = 5.0  # for a request's head, from the connection or the head's first byte on
MAX_HEAD = 65_536  # bytes
FREE_CHUNKS = 1_024  # of a body, of any size; each costs the parser as much time as a large one
LEAST_CHUNK = 128  # bytes of each further one, on the mean
AT_ONCE = 64  # connections that are accepted before those that are there get their turn
QUEUE = 1_024  # that wait to be accepted
TINY = f"The body comes in tiny chunks; send {LEAST_CHUNK} bytes and more in each."


class Server(uvicorn.Server):
    """Serves an application of ``make_app`` until ``stop``.

    uvicorn ends its process by the signal that it has caught, before a caller could close a store, and cancels streams
    with a traceback for each.
    """

    def __init__(self, app: Starlette) -> None:
        strangers = _Strangers()

        class Protocol(_Protocol):
            others = strangers

        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=LEAVE_S,
            limit_concurrency=MOST_AT_ONCE, backlog=AT_ONCE, http=Protocol, ws="none",
            proxy_headers=False,  # a peer is who connects, never who a header names
        )  # fmt: skip
        super().__init__(config)
        self._app = app

    def stop(self) -> None:
        """Make ``run`` return soon; may be called by a signal handler or another thread."""
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them to the caller."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve; asyncio has one number for the queue and for how many it takes out of it at once."""
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(QUEUE)
            # asyncio sets it only where a socket names its protocol, and a body would wait 40 ms for its head's receipt
            if one.family in (socket.AF_INET, socket.AF_INET6):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, and then everything else."""
        self._app.state.end_streams()
        await super().shutdown(sockets)


class _Strangers(dict["_Protocol", float]):
    """When each came, the oldest first."""

    is_trimming = False

    def come(self, one: _Protocol) -> None:
        """One more."""
        self[one] = one.loop.time()
        if len(self) > MOST_NEW:
            next(iter(self)).end()
        elif len(self) > MOST_STRANGERS and not self.is_trimming:
            self._trim_later(one.loop)

    def _trim_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_trimming = True
        loop.call_later(GRACE_S, self._trim, loop, loop.time() + 2 * GRACE_S)

    def _trim(self, loop: asyncio.AbstractEventLoop, late: float) -> None:
        """End the oldest of those that are too many and have had their grace; none if it is late, as they are then."""
        now, too_many = loop.time(), len(self) - MOST_STRANGERS
        for one, came in list(self.items())[: max(0, too_many)]:
            if came <= now - GRACE_S and now < late:
                one.end()
        self.is_trimming = False
        if len(self) > MOST_STRANGERS:
            self._trim_later(loop)


class _Connection(h11.Connection):
    """Refuses a body that comes in many tiny chunks."""

    n_chunks = n_bytes = 0  # of the body so far

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.n_chunks = self.n_bytes = 0
        elif isinstance(event, h11.Data):
            self.n_chunks += event.chunk_start
            self.n_bytes += len(event.data)
            if self.is_tiny:
                raise h11.RemoteProtocolError(TINY)
        return event

    @property
    def is_tiny(self) -> bool:
        """Whether the chunks have been too many for their bytes."""
        return self.n_chunks > FREE_CHUNKS + self.n_bytes // LEAST_CHUNK


class _Protocol(H11Protocol):
    """One connection, which ends if a request's head takes longer than ``HEAD_S``, or its chunks are tiny."""

    others: _Strangers  # of this server

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn: _Connection = _Connection(h11.SERVER, MAX_HEAD)
        self._late: asyncio.TimerHandle | None = None
        answer = self.app

        async def introduced(scope: Any, receive: Any, send: Any) -> None:
            scope[SHOWN] = lambda: self.others.pop(self, None)
            await answer(scope, receive, send)

        self.app = introduced

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.others.come(self)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self.others.pop(self, None)
        self._wait_no_more()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.headers
        super().handle_events()
        if self.headers is not before:  # a head has come whole
            self._wait_no_more()
        is_between = self.cycle is None or self.cycle.response_complete
        if is_between and self._late is None and self.conn.trailing_data[0] and not self.transport.is_closing():
            self._wait_for_head()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request; where an answer has begun, the connection ends without another one."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.end()
            return
        super().send_400_response(TINY if self.conn.is_tiny else msg)

    def end(self) -> None:
        """Close the connection at once."""
        self.others.pop(self, None)
        self.transport.abort()

    def _wait_for_head(self) -> None:
        self._late = self.loop.call_later(HEAD_S, self.end)

    def _wait_no_more(self) -> None:
        if self._late is not None:
            self._late.cancel()
        self._late = None
