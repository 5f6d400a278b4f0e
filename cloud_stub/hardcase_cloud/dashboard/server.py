# SPDX-License-Identifier: Apache-2.0
"""The dashboard's server: uvicorn, whose signals are the caller's, and whose streams end before it does."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

__all__ = ["Server"]

LEAVE_S = 1  # for requests that are under way when it is stopped
MOST_AT_ONCE = 1_000  # connections and requests


class Server(uvicorn.Server):
    """Serves an application of ``make_app`` until ``stop``.

    uvicorn ends its process by the signal that it has caught, before a caller could close a store, and cancels streams
    with a traceback for each.
    """

    def __init__(self, app: Starlette) -> None:
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=LEAVE_S,
            limit_concurrency=MOST_AT_ONCE, http="h11", ws="none",
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

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, and then everything else."""
        self._app.state.end_streams()
        await super().shutdown(sockets)
