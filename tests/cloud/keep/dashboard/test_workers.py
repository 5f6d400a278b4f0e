# SPDX-License-Identifier: Apache-2.0
"""Workers on the dashboard: their counters and rate, and what is said of one that is away, hangs or lies."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from hardcase_cloud.keep.dashboard import workers as module
from hardcase_cloud.keep.dashboard.figures import Figures
from hardcase_cloud.keep.dashboard.workers import Workers, parse_counters
from hardcase_cloud.keep.metrics.families import worker_text
from hardcase_cloud.keep.records.database import Database
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.operations import scrape
from hardcase_edge.fleet.operations.scrape import Page
from tests.helpers.cloud.brokers import free_port
from tests.helpers.server import Server


@pytest.fixture
def counters() -> dict[str, int]:
    return {"served": 10, "busy": 3, "refused": 0, "batches": 4}


def test_a_worker_is_shown_with_its_rate_and_as_away_when_it_is(
    tmp_path: Path, counters: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for patient, name in ((module, "WAIT_S"), (scrape, "TIMEOUT_S")):
        monkeypatch.setattr(patient, name, 60.0)
    times = iter((100.0, 102.0, 104.0, 106.0))
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    page = Page(f"127.0.0.1:{port}", lambda: worker_text(counters))
    workers = Workers([url], now=lambda: next(times))
    database = Database(tmp_path / "s.sqlite")
    assert workers.look() == []
    workers.renew()
    counters["served"] = 50
    workers.renew()
    row = {"url": url, "trouble": "", "answers": 50, "rate": 20.0, "not_answered": {"busy": 3}}
    assert Figures(database, workers).look(0.0)["workers"] == [row]
    assert Figures(database).look(0.0)["workers"] is None
    page.close()
    for _ in range(2):
        workers.renew()
    [row] = workers.look()
    assert (row["since"], "refused" in row["trouble"]) == (104.0, True)
    database.close()


def test_one_that_hangs_is_away_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.05)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        workers = Workers([f"http://127.0.0.1:{silent.getsockname()[1]}/metrics"])
        workers.renew()
        whoever_notices_first = ("timed out", "the page does not end within 0.1 s")
        assert workers.look()[0]["trouble"] in whoever_notices_first


def test_one_that_drips_is_away_after_its_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wait for a byte is long, so that a limit on each would let it delay the others for ever."""
    monkeypatch.setattr(module, "WAIT_S", 1.5)  # a byte comes in that time on a busy machine, too

    def drip(peer: socket.socket) -> None:
        peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(3_000):
            peer.sendall(b"#")
            time.sleep(0.02)

    with Server(drip) as server:
        workers = Workers([f"http://127.0.0.1:{server.port}/metrics"])
        began = time.monotonic()
        workers.renew()
        assert workers.look()[0]["trouble"] == "the page does not end within 3 s"
        assert time.monotonic() - began < 30


def test_a_page_that_lies_gives_no_numbers() -> None:
    name = "hardcase_worker_answers_total"
    strange = 'hardcase_worker_events_total{event="<b>"} 1'
    for text in (f"{name} -1", f"{name} 1e9", "x" * 1000, "\0", strange, f"{name} {'9' * 30}"):
        assert parse_counters(text) == {}


@pytest.mark.parametrize(
    "url",
    [
        "https://h/", "http://", "file:///etc/passwd", "http://u:p@h/", "http://h:x/", "http://h/?q", "http://h..h/",
        f"http://{'h' * 64}/", "http://h/\xe4",
    ],
)  # fmt: skip
def test_a_url_that_is_not_a_workers_page_is_one_line(url: str) -> None:
    with pytest.raises(InputError, match="http://host:port/metrics"):
        Workers([url])
    with pytest.raises(InputError, match="at most 64"):
        Workers(["http://h/"] * 65)
