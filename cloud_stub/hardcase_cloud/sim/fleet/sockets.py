# SPDX-License-Identifier: Apache-2.0
"""A simulated fleet on real sockets: thousands of devices in one process, each with a connection of its own.

    fleet = Fleet(load_bundle("model.hcb"), X, "mqtt://127.0.0.1:1883", n_devices=10_000, seconds=60)
    outcomes = fleet.run()
    assert not fleet.reconcile()

Sessions, exchanges and messages are those of real devices; only the sensors are simulated. Row i is item i, and device
i mod n_devices decides it, once; with ``seconds`` the devices go round their rows for so long. Where the bundle holds
labels of streams, each device walks whole streams row by row, with a memory of its own. Everything runs on one
event loop on a thread of its own, so the caller may look, wait, and kill a worker meanwhile.
"""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.load import Loaded
from hardcase_edge.device.machine import Decider, RuntimeConfig
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.outbox.drain import DrainConfig
from hardcase_edge.fleet.outbox.records import Recorder, Rule
from hardcase_edge.link.address import Address, parse_address, tls_context
from hardcase_edge.link.requests import RequestFormat
from hardcase_edge.link.wire import check_device_id
from hardcase_edge.stream.layout import layout_of

from ...mqtt.attempts import Pauses
from ...mqtt.packets import V5, V311
from ..slow_link.link import SlowLink
from .backlog import Backlog
from .device import NoDevice, SimulatedDevice
from .journal import Journal, Outcome
from .limits import check_ports, raise_file_limit
from .shared import KEEPALIVE_S, Rows, Shared

MAX_DEVICES = 60_000  # connections to one broker from one address have as many ports at most
CONNECT_S = 60.0  # how long ``start`` waits for all devices to connect
NOBODY_S = 15.0  # and how long where none of them does
ATTEMPT_S = 15.0  # for one connection, with all of its handshakes, while thousands of others connect
AT_ONCE = 128  # connections that are being made at the same time
RETRY_S = (1.0, 5.0)  # first and longest pause before a device connects again, half of each at random
SETTLE_S = 45.0  # how long the fleet waits after the last decision until the store has all records
SETTLED_POLL_S = 0.1


class Fleet:
    """A number of devices that share the rows of a table.

    Parameters
    ----------
    loaded : Loaded
        The bundle that all devices run.
    rows : ndarray of shape (n_items, n_features), float, NaN for missing
    url : str or Address
        The broker's URL.
    n_devices : int, 1 to 60,000
    config : RuntimeConfig or None
        The settings of every device; its interval paces them.
    seconds : how long the devices go round their rows; None: each row once
    prefix : device k is named ``<prefix>-<k>``
    version : 5, or 4 for MQTT 3.1.1; None: 5, unless the broker refuses it
    resend_every_s : time without a reply before a request is sent again for the first time
    sequence : (n_items,) the stream of each row, of a bundle that holds labels of streams; None: all rows are one.
        Stream j goes to device j mod n_devices; without ``seconds``, devices beyond the streams have no rows
    publish : which decisions go to the store, as of ``hardcase-edge run``: "all", "changes" or a share such as "1%"
    settle_s : how long to wait after the last decision until the store has all records
    link : between all devices and the broker; None: they connect to it directly

    Raises
    ------
    InputError
        The number of devices, the shape of the rows or the URL is unusable, or this machine has too few open files or
        ports for so many devices.
    """

    def __init__(
        self,
        loaded: Loaded,
        rows: NDArray[np.floating],
        url: str | Address,
        *,
        n_devices: int = 20,
        config: RuntimeConfig | None = None,
        seconds: float | None = None,
        prefix: str = "sim",
        version: int | None = None,
        resend_every_s: float = 1.0,
        sequence: NDArray[np.int64] | None = None,
        publish: str | None = None,
        settle_s: float = SETTLE_S,
        link: SlowLink | None = None,
    ) -> None:
        program = loaded.machine.program
        if not 1 <= n_devices <= MAX_DEVICES:
            raise InputError(f"a fleet of {n_devices} devices does not fit one process; use 1 to {MAX_DEVICES}")
        if rows.ndim != 2 or rows.shape[1] != len(program.features) or not len(rows):
            n_features = len(program.features)
            raise InputError(f"rows of shape {rows.shape} do not fit {n_features} features; pass a column per feature")
        check_device_id(f"{prefix}-{n_devices - 1}")
        self.address = url if isinstance(url, Address) else parse_address(url)
        if self.address.path:
            raise InputError("a simulated fleet has no WebSockets; use mqtt:// or mqtts://")
        raise_file_limit(n_devices)
        check_ports(n_devices)
        self.n_devices = n_devices
        self._link = link
        self.journal = Journal(loaded, prefix)
        self.counters: Counter[str] = Counter()
        self.connect_s = 0.0  # how long it took until all that could were connected
        layout = layout_of(program, loaded.manifest.features, loaded.manifest.sensors)
        alone = np.arange(len(rows)) if layout is None else np.zeros(len(rows), dtype=np.int64)
        stream = alone if layout is None or sequence is None else np.unique(sequence, return_inverse=True)[1]
        self._owners, self._seconds = (stream % n_devices).tolist(), seconds
        self._rows_of: dict[int, list[int]] = {}  # of each device, its streams one after the other
        for item in np.argsort(stream, kind="stable").tolist():
            self._rows_of.setdefault(self._owners[item], []).append(item)
        self._tls = tls_context(self.address)
        self._version = version
        self._thread: threading.Thread | None = None
        self._started, self._ended = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._devices: list[SimulatedDevice] = []
        self._tasks: set[asyncio.Task[None]] = set()
        config = config or RuntimeConfig()
        self._shared = Shared(
            loop=asyncio.new_event_loop(),
            address=self.address,
            version=version or V5,
            prefix=prefix,
            decider=Decider(loaded, config),
            form=RequestFormat.of(program, loaded.manifest),
            journal=self.journal,
            counters=self.counters,
            deadline_ms=config.deadline_ms,
            resend_ms=round(resend_every_s * 1000),
            interval_s=config.interval_s,
            sensors_of=Rows(rows, [s.features for s in program.sensors]),
            lost=self._lost,
            done=self._done,
            coin_seed=config.coin_seed or 0,
            stream_of=stream.__getitem__,
        )
        self._n_done, self._cut_until = 0, 0.0
        self._sha256, self._boot = loaded.bundle.sha256, time.time_ns() // 1_000_000
        self._publish, self._settle_s = publish, settle_s if publish else 0.0
        self._is_over = False
        if publish:
            Rule(publish)  # refuses what is no such rule

    # ------------------------------------------------------------ for the caller, from any thread

    def start(self, connect_s: float | None = None) -> None:
        """Connect all devices and start their decisions; those that cannot connect in time decide alone."""
        self._thread = threading.Thread(
            target=self._run, args=(CONNECT_S if connect_s is None else connect_s,), name="fleet", daemon=True
        )
        self._thread.start()
        self._started.wait()

    def join(self, timeout_s: float = 600.0) -> list[Outcome]:
        """Wait for every device to finish, and stop it; returns all outcomes in order of their beginning."""
        self.wait(timeout_s)
        return self.outcomes()

    def wait(self, timeout_s: float = 600.0) -> None:
        """As ``join``, without the outcomes, of which there may be millions."""
        self._ended.wait(timeout_s)
        self.stop()

    def has_ended(self, wait_s: float) -> bool:
        """Whether every device has finished within this time."""
        return self._ended.wait(wait_s)

    def run(self, timeout_s: float = 600.0) -> list[Outcome]:
        """Call ``start`` and ``join``; returns all outcomes."""
        self.start()
        return self.join(timeout_s)

    def stop(self) -> None:
        """End every device after its current decision, and disconnect it."""
        self._shared.is_stopping = True
        if self._thread is not None:
            self._ended.wait(self._shared.deadline_ms / 1000 + self._shared.interval_s + 1 + self._settle_s)
            if self._thread.is_alive():
                self._shared.loop.call_soon_threadsafe(self._ended_all.set)
            self._thread.join(10)
            self._thread = None
        if self._error is not None:
            raise self._error

    def connected(self) -> int:
        """The number of devices that are connected now."""
        return sum(device.is_up for device in self._devices)

    def cut(self, share: float, for_s: float) -> None:
        """Cut this share of the devices off for so many seconds.

        On a link their packets are lost; without one, their connections break, and may be made again only then.
        """
        if self._link is not None:
            self._link.cut(share, for_s)
            return
        self._shared.loop.call_soon_threadsafe(self._cut, share, for_s)

    def open_circuits(self) -> int:
        """The number of devices that do not ask, because the cloud has not answered them."""
        return sum(device.requests.exchange.circuit.is_open for device in self._devices)

    def troubles(self) -> Counter[str]:
        """Why devices are not connected, and how many for each reason."""
        return Counter(device.trouble for device in self._devices if device.trouble)

    def outcomes(self) -> list[Outcome]:
        """The outcomes so far, in order of their beginning."""
        return self.journal.outcomes()

    def records(self) -> tuple[int, int]:
        """How many records the devices have made, and how many of these the store has acknowledged."""
        backlogs = [device.backlog for device in self._devices if device.backlog is not None]
        return sum(b.n_made for b in backlogs), sum(b.n_stored for b in backlogs)

    def reconcile(self) -> list[str]:
        """Sentences on what does not add up; empty if every decision has ended, once, and every record is stored."""
        n, stored = self.records()
        lost = [f"{n - stored:,} of {n:,} records are not acknowledged by a store"] if n != stored else []
        return self.journal.reconcile(None if self._seconds is not None else self._owners) + lost

    # ------------------------------------------------------------ on the loop's thread

    def _run(self, connect_s: float) -> None:
        loop = self._shared.loop
        asyncio.set_event_loop(loop)
        try:
            if self._link is not None:
                self._link.enter()
            loop.run_until_complete(self._live(connect_s))
        except Exception as error:  # raised again in ``stop``, on the caller's thread
            self._error = error
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()
            self._started.set()
            self._ended.set()

    async def _live(self, connect_s: float) -> None:
        self._ended_all = asyncio.Event()
        self._gate = asyncio.Semaphore(AT_ONCE)
        loop, shared = self._shared.loop, self._shared
        host, port = (self.address.host, self.address.port) if self._link is None else self._link.gate
        self._where = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
        self._devices = [SimulatedDevice(shared, k, self._items(k), self._backlog(k)) for k in range(self.n_devices)]
        began = time.monotonic()
        await self._connect_first()
        for device in self._devices:
            if not device.is_up:
                self._keep_up(device)
        while (n := self.connected()) < self.n_devices and time.monotonic() - began < connect_s:
            if not n and time.monotonic() - began > NOBODY_S:
                break
            await asyncio.sleep(0.01 if self.n_devices < 1000 else 0.05)
        self.connect_s = time.monotonic() - began
        now = loop.time()
        for k, device in enumerate(self._devices):  # spread over the interval
            device.decide_at(now + shared.interval_s * ((k * 0.618_034) % 1.0))
        self._started.set()
        ping = loop.create_task(self._ping())
        if self._seconds is not None:
            loop.call_later(self._seconds, self._stop_deciding)
        await self._ended_all.wait()
        until = loop.time() + self._settle_s
        while loop.time() < until and not all(device.is_idle for device in self._devices):
            await asyncio.sleep(SETTLED_POLL_S)
        self._is_over = True
        ping.cancel()
        for device in self._devices:
            device.close()
        await asyncio.sleep(0.05)

    async def _connect_first(self) -> None:
        """Connect one device, and find out which MQTT version the broker takes."""
        first = self._devices[0]
        for version in (self._version,) if self._version else (V5, V311):
            self._shared.version = version
            try:
                await self._connect(first)
                return
            except NoDevice as error:
                first.trouble = str(error) or type(error).__name__

    def _keep_up(self, device: SimulatedDevice) -> None:
        task = self._shared.loop.create_task(self._bring_up(device))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _bring_up(self, device: SimulatedDevice) -> None:
        pauses = Pauses(*RETRY_S)
        while not (device.is_up or device.is_idle):
            if device.is_cut:
                await asyncio.sleep(max(0.0, self._cut_until - self._shared.loop.time()))
                device.is_cut = False
            async with self._gate:
                try:
                    await self._connect(device)
                    return
                except NoDevice as error:
                    device.trouble = str(error) or type(error).__name__
            await asyncio.sleep(pauses.next())

    async def _connect(self, device: SimulatedDevice) -> None:
        family, kind, proto, _, where = self._where
        loop, sock = self._shared.loop, socket.socket(family, kind, proto)
        waits: asyncio.Future[None] = loop.create_future()
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._link is not None:
                sock.bind(self._link.source(device.number))
            device.begin(waits)
            async with asyncio.timeout(ATTEMPT_S):
                await loop.sock_connect(sock, where)
                host = self.address.host if self._tls else None
                await loop.create_connection(lambda: device, sock=sock, ssl=self._tls, server_hostname=host)
                await waits
        except BaseException:
            waits.add_done_callback(lambda future: future.cancelled() or future.exception())  # it has been told
            waits.cancel()
            if not device.abort():  # nobody owns the socket yet
                sock.close()
            raise

    def _lost(self, device: SimulatedDevice) -> None:
        if not self._is_over and not (device.is_idle or (self._shared.is_stopping and device.backlog is None)):
            self._shared.loop.call_later(random.uniform(0.0, RETRY_S[1]), self._keep_up, device)

    def _cut(self, share: float, for_s: float) -> None:
        self._cut_until = self._shared.loop.time() + for_s
        for device in random.sample(self._devices, round(share * len(self._devices))):
            device.is_cut = True
            device.abort()

    def _done(self) -> None:
        self._n_done += 1
        if self._n_done == self.n_devices:
            self._ended_all.set()

    def _stop_deciding(self) -> None:
        """No decision begins any more; those that wait for the cloud still end."""
        self._shared.is_stopping = True
        for device in self._devices:
            device.hurry()

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(KEEPALIVE_S / 2)
            for k, device in enumerate(self._devices):
                device.ping()
                if k % 100 == 99:
                    await asyncio.sleep(0.05)

    def _backlog(self, k: int) -> Backlog | None:
        if not self._publish:
            return None
        recorder = Recorder(f"{self._shared.prefix}-{k}", self._sha256, self._boot)
        return Backlog(recorder, Rule(self._publish), DrainConfig())

    def _items(self, k: int) -> Callable[[], int | None]:
        """The rows of device k: each once, or round and round; of streams whole ones, in their order."""
        if self._seconds is None:
            rows: Iterator[int] = iter(self._rows_of.get(k, ()))
        else:
            rows = cycle(self._rows_of[k % len(self._rows_of)])  # spare devices share the rows of others
        return lambda: next(rows, None)


def not_connected(fleet: Fleet) -> list[str]:
    """A sentence for each reason for which devices are not connected."""
    return [f"{n:,} devices are not connected: {why}" for why, n in fleet.troubles().most_common()]
