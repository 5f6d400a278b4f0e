"""The embedded broker: amqtt behind a door, in a thread of its own. MQTT 3.1.1, one worker, small fleets, demos.

For more, name a real broker. Loopback only, unless it has a TLS certificate and users; then a second listener on
loopback, which asks for a password that changes with every start, serves our own worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import ssl
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any

from amqtt.adapters import StreamWriterAdapter
from amqtt.broker import Broker
from amqtt.contexts import BrokerConfig, ListenerConfig, ListenerType
from amqtt.plugins.base import BaseAuthPlugin
from amqtt.session import Session

from hardcase_edge.errors import InputError

from .access import Door, DoorReader, RefusedError
from .listen import Listen, tls_context
from .packets import PacketError, refusal
from .users import SALT_BYTES, WORKER, hash_password, read_users

__all__ = ["EmbeddedBroker"]

log = logging.getLogger(__name__)

START_S, STOP_S = 15.0, 15.0
MAX_CONNECTIONS = 1024  # more are closed at once
MAX_BACKLOG = 4096  # messages on their way; publishers wait while there are more


class Admitted(BaseAuthPlugin):  # type: ignore[misc]  # amqtt ships no types
    """amqtt's view: whoever has passed the door may come in, and leaves no session behind."""

    async def authenticate(self, *, session: Session) -> bool:
        """Always; the door has asked already."""
        session.is_anonymous = True
        return True


class DiscreetBroker(Broker):  # type: ignore[misc]  # amqtt ships no types
    """amqtt, except that a retained message goes only to who asked for it.

    amqtt 0.12.1 sends every new client the retained messages of everybody's subscriptions.
    """

    async def _publish_retained_messages_for_subscription(
        self, subscription: tuple[str, int], session: Session
    ) -> None:
        if any(subscriber is session for subscriber, _ in self._subscriptions.get(subscription[0], ())):
            await super()._publish_retained_messages_for_subscription(subscription, session)


class EmbeddedBroker:
    """``start`` it, ``stop`` it; or use it as a context manager.

    Attributes
    ----------
    url : str
        For devices.
    worker_url, worker_user, worker_password : str
        For our own worker; user and password are empty where none are needed.
    """

    def __init__(self, listen: Listen | None = None) -> None:
        self.listen = listen or Listen()
        self.port = self.listen.port
        self.url = ""
        self.worker_url = ""
        users = None if self.listen.users is None else read_users(self.listen.users)
        self.worker_user = self.worker_password = ""
        if users is not None:
            salt = secrets.token_bytes(SALT_BYTES)
            self.worker_user, self.worker_password = WORKER, secrets.token_urlsafe(24)
            users[WORKER] = salt, hash_password(self.worker_password.encode(), salt)
        self._door = Door(users, self.listen.max_packet_bytes)
        self._tls = tls_context(self.listen)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._servers: list[asyncio.Server] = []
        self._clients: set[asyncio.Task[None]] = set()
        self._broker: Any = None

    def start(self) -> None:
        """Listen; returns when clients can connect.

        Raises
        ------
        InputError
            The port is in use, or the address is none of this machine's.
        """
        _quieten()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_log_loop_error)
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker", daemon=True)
        self._thread.start()
        try:
            self._call(self._open(), START_S)
        except OSError as error:
            self.stop()
            where = f"{self.listen.host}:{self.listen.port}"
            raise InputError(
                f"the broker cannot listen on {where}: {_reason(error)}; stop what does, or choose another place with "
                "--bind"
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
            plugins={f"{__name__}.{Admitted.__name__}": {}},
        )
        self._broker = DiscreetBroker(config)
        await self._broker.start()
        listen = self.listen
        self.port = await self._serve(listen.host, listen.port, self._tls)
        host = f"[{listen.host}]" if ":" in listen.host else listen.host
        self.url = f"{'mqtts' if self._tls else 'mqtt'}://{host}:{self.port}"
        port = self.port
        if self._tls is not None:
            port = await self._serve("127.0.0.1", 0, None)
        self.worker_url = f"mqtt://{host if self._tls is None else '127.0.0.1'}:{port}"

    async def _serve(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        server = await asyncio.start_server(self._accept, host, port, ssl=tls)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            if len(self._clients) <= MAX_CONNECTIONS:
                await self._client(DoorReader(reader, self._door, self._is_busy), writer)
        except (PacketError, RefusedError, EOFError, OSError) as error:  # TimeoutError is an OSError
            log.debug("a client is turned away: %s", error)
        finally:
            self._clients.discard(task)
            writer.close()

    async def _client(self, reader: DoorReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.connect()
        except RefusedError as error:
            writer.write(refusal(error.code))
            await writer.drain()
            raise
        await self._broker.external_connected(reader, StreamWriterAdapter(writer), "default")

    def _is_busy(self) -> bool:
        return bool(self._broker._broadcast_queue.qsize() + len(self._broker._tasks_queue) > MAX_BACKLOG)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
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
    """The system's words alone: asyncio repeats the address in its own."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)


def _quieten() -> None:
    """amqtt reports every client that comes, goes or dies as a warning or an error; only we decide what is one."""
    for name in ("amqtt", "transitions"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.CRITICAL)


def _log_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    log.debug("in the broker: %s (%r)", context.get("message"), context.get("exception"))
