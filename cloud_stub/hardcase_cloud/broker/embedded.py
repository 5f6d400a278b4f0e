# SPDX-License-Identifier: Apache-2.0
"""The embedded MQTT 3.1.1 broker for demonstrations and tests: amqtt with bounds, on a thread of its own.

It serves one worker, listens on loopback only and asks for no password. All other uses need a real broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any

from amqtt.adapters import StreamWriterAdapter
from amqtt.contexts import BrokerConfig, ListenerConfig, ListenerType

from hardcase_edge.errors import InputError

from .bounded import BoundedBroker
from .listen import check_loopback
from .packet_reader import PacketError, PacketReader

log = logging.getLogger(__name__)

START_S, STOP_S = 15.0, 15.0
MAX_CONNECTIONS = 1024  # more are closed at once
MQTT_3_1_1 = 4
WRONG_VERSION = b"\x20\2\0\1"  # a CONNACK that refuses; clients then try 3.1.1
NOT_CLEAN, TAKEN = b"\x20\2\0\5", b"\x20\2\0\2"  # CONNACKs that refuse a session to keep, or an id in use
CLAIM_S, CLAIM_POLL_S = 1.0, 0.01  # how long an id may still be that of a connection that is ending


class AbortableWriter(StreamWriterAdapter):  # type: ignore[misc]  # amqtt ships no types
    """A client's writer that can be closed without sending what waits."""

    def abort(self) -> None:
        """Hang up at once."""
        self._writer.transport.abort()


class EmbeddedBroker:
    """A broker to ``start`` and ``stop``, or to use as a context manager.

    Parameters
    ----------
    host, port : a loopback address; port 0 takes a free one

    Attributes
    ----------
    url : str
        What clients connect to.

    Raises
    ------
    InputError
        The host is not a loopback address.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 1883) -> None:
        self.host = check_loopback(host)
        self.port = port
        self.url = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._ids: set[str] = set()  # of clients that are connected
        self._broker: Any = None

    def start(self) -> None:
        """Start listening; returns when clients can connect.

        Raises
        ------
        InputError
            The port is in use, the address does not belong to this machine, or the machine is too busy.
        """
        _quieten()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_log_loop_error)
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker", daemon=True)
        self._thread.start()
        try:
            self._call(self._open(), START_S)
        except TimeoutError as error:
            self.stop()
            raise InputError(
                f"the broker did not start within {START_S:g} s; free the processor, or try again"
            ) from error
        except OSError as error:
            self.stop()
            raise InputError(
                f"the broker cannot listen on {self.host}:{self.port}: {_reason(error)}; stop the program "
                "that does, or choose another address with --bind"
            ) from error

    def stop(self) -> None:
        """Close all connections and listeners; safe to call twice."""
        if self._loop is None or self._thread is None:
            return
        with contextlib.suppress(TimeoutError):
            self._call(self._close(), STOP_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_S)
        self._loop.close()
        self._loop = self._thread = None

    def __enter__(self) -> EmbeddedBroker:
        """Start."""
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop."""
        self.stop()

    # ------------------------------------------------------------ in the broker's thread

    def _call(self, work: Coroutine[Any, Any, None], timeout_s: float) -> None:
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    async def _open(self) -> None:
        config = BrokerConfig(
            listeners={"default": ListenerConfig(type=ListenerType.EXTERNAL)},
            plugins={"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
        )
        self._broker = BoundedBroker(config)
        await self._broker.start()
        self._server = await asyncio.start_server(self._accept, self.host, self.port)
        self.port = int(self._server.sockets[0].getsockname()[1])
        self.url = f"mqtt://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            if len(self._clients) <= MAX_CONNECTIONS:
                packets = PacketReader(reader, self._broker.is_busy)
                refusal = await self._refusal(packets)
                if refusal:
                    writer.write(refusal)
                else:
                    await self._serve(packets, AbortableWriter(writer))
        except (PacketError, EOFError, OSError) as error:  # TimeoutError is an OSError
            log.debug("a client is refused: %s", error)
        finally:
            self._clients.discard(task)
            writer.close()

    async def _refusal(self, packets: PacketReader) -> bytes:
        """The answer to a CONNECT that is refused; empty if it is not."""
        if await packets.connect() != MQTT_3_1_1:
            return WRONG_VERSION
        if not packets.is_clean:
            return NOT_CLEAN
        return b"" if await self._is_free(packets.client_id) else TAKEN

    async def _is_free(self, client_id: str) -> bool:
        """Whether no connection has this id, or soon none has any more."""
        for _ in range(round(CLAIM_S / CLAIM_POLL_S)):
            if client_id not in self._ids:
                return True
            await asyncio.sleep(CLAIM_POLL_S)
        return False

    async def _serve(self, packets: PacketReader, writer: AbortableWriter) -> None:
        if packets.client_id:  # amqtt makes one of its own for each client without
            self._ids.add(packets.client_id)
        try:
            await self._broker.external_connected(packets, writer, "default")
        finally:
            self._ids.discard(packets.client_id)

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._broker is not None and self._broker.transitions.state == "started":
            await self._broker.shutdown()
        for task in list(self._clients):
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)


def _reason(error: OSError) -> str:
    """The operating system's message; asyncio's own would repeat the address."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)


def _quieten() -> None:
    """Silence amqtt, which logs every client that connects, leaves or fails as a warning or an error."""
    for name in ("amqtt", "transitions"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.CRITICAL)


def _log_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    log.debug("the broker's loop reports: %s (%r)", context.get("message"), context.get("exception"))
