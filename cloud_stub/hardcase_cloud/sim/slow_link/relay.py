# SPDX-License-Identifier: Apache-2.0
"""Bytes between connections of devices, at the far end of the link, and connections to the broker, one for each.

It looks at nothing, so that TLS goes through. When one side ends, so does the other; when one does not read, the other
is not read.
"""

from __future__ import annotations

import asyncio
from typing import Any

CONNECT_S = 10.0


class _Side(asyncio.Protocol):
    """One of two connections that are each other's."""

    def __init__(self, other: _Side | None = None) -> None:
        self.other = other
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self.other is not None:
            self.other.transport.close()

    def pause_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()


class DeviceSide(_Side):
    """A device's connection, which opens one to the broker, and is not read before.

    Parameters
    ----------
    broker : host and port
    tasks : what goes on, so that somebody keeps it
    """

    def __init__(self, broker: tuple[str, int], tasks: set[asyncio.Task[None]]) -> None:
        super().__init__()
        self._broker, self._tasks = broker, tasks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect to the broker; a device whose broker cannot be reached is hung up on."""
        super().connection_made(transport)
        task = asyncio.get_running_loop().create_task(self._connect())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        self.transport.pause_reading()  # in ``connection_made`` it would do nothing on Python 3.11.2
        try:
            async with asyncio.timeout(CONNECT_S):
                _, self.other = await loop.create_connection(lambda: _Side(self), *self._broker)
        except (OSError, TimeoutError):
            self.transport.abort()
            return
        if self.transport.is_closing():
            self.other.transport.close()
        else:
            self.transport.resume_reading()
