# SPDX-License-Identifier: Apache-2.0
"""The dashboard in a real browser: 10,000 devices are painted, and a device that is killed is seen without a reload."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from hardcase_cloud.dashboard.app import make_app
from hardcase_cloud.dashboard.figures import Figures
from hardcase_cloud.records.database import Database
from hardcase_cloud.records.keeper import Keeper
from hardcase_cloud.records.registry import Registry, Seen
from hardcase_edge.link.address import parse_address
from tests.helpers.cli.browser import BROWSER, Browser
from tests.helpers.cloud.brokers import Broker, running_mosquitto, until
from tests.helpers.cloud.raw_mqtt import connect, publish
from tests.helpers.tools import need
from tests.system.test_browser import look_at

TOKEN = "a-token-of-24-characters"
N = 10_000
STATES = (
    "Object.fromEntries([...document.querySelectorAll('#states tbody tr')]"
    ".map((row) => [...row.cells].map((cell) => cell.textContent)))"
)


@contextmanager
def serving(url: str) -> Iterator[str]:
    """The dashboard of a store on a thread: its address, with the token."""
    database = Database(url)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(make_app(Figures(database), TOKEN), log_level="error", ws="none", timeout_graceful_shutdown=0)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/?token={TOKEN}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()
        database.close()


@contextmanager
def storing(url: str, broker: Broker) -> Iterator[None]:
    """The store's process, on a thread."""
    keeper = Keeper(Database(url), parse_address(broker.url), note=print)
    keeper.start()
    thread = threading.Thread(target=keeper.run)
    thread.start()
    try:
        yield
    finally:
        keeper.stop()
        thread.join(10)


def device(broker: Broker) -> socket.socket:
    """A device that is online; its end without a word is told by the broker."""
    topic = "hardcase/v1/pump-1/status"
    line = socket.create_connection((broker.host, broker.port))
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closed as by a kill
    line.sendall(connect("pump-1", will=(topic, b'{"state": "offline"}')))
    line.sendall(publish(topic, b'{"state": "online"}', retain=True))
    return line


def test_ten_thousand_devices_are_painted_and_a_killed_one_is_seen_at_once(tmp_path: Path) -> None:
    need(BROWSER)
    url = f"sqlite:{tmp_path / 's.sqlite'}"
    database = Database(url)
    registry = Registry(database)
    registry.saw([Seen(f"d{k}", is_online=True, state="good") for k in range(N)], time.time())
    with (
        running_mosquitto(tmp_path) as broker, storing(url, broker), serving(url) as page, Browser(tmp_path) as browser,
    ):  # fmt: skip
        line = device(broker)
        until(lambda: database.read("SELECT count(*) FROM devices") == [(N + 1,)])
        browser.open(page)
        browser.until("document.documentElement.dataset.paint")
        assert browser.evaluate(STATES) == {"good": "10,001"}
        assert browser.evaluate("document.body.scrollWidth <= innerWidth")
        (tmp_path / "shot.png").write_bytes(browser.screenshot(900, 900))
        assert look_at(tmp_path / "shot.png")[1] > 60  # text is drawn, with soft edges
        line.close()
        browser.until(f"{STATES}.offline == '1'", 10)
        assert browser.evaluate(STATES) == {"good": "10,000", "offline": "1"}
    database.close()
