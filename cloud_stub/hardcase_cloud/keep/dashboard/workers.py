# SPDX-License-Identifier: Apache-2.0
"""Workers on the dashboard: their pages for Prometheus are read now and then, and what they say is shown.

A thread reads them, so that a worker that hangs delays nothing. A page is not believed: it is bounded, only counters of
a worker are read from it, and a worker that does not answer is shown as away since then.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from hardcase_edge.errors import InputError
from hardcase_edge.link.address import is_host

EVERY_S = 2.0
WAIT_S = 1.0  # for one page
MAX_BYTES = 262_144
MOST = 64  # workers
SHOWN = ("busy", "refused", "expired", "flooded")  # of what was not answered
_LINE = re.compile(r'hardcase_worker_(?:(answers)_total|events_total\{event="([a-z_]{1,32})"\}) ([0-9]{1,18})(?:\.0)?')


def parse_counters(text: str) -> dict[str, int]:
    """The counters in a worker's page, ``answers`` among them.

    >>> parse_counters('hardcase_worker_answers_total 12\\nhardcase_worker_events_total{event="busy"} 3.0')
    {'answers': 12, 'busy': 3}
    """
    matches = (_LINE.fullmatch(line) for line in text.splitlines())
    return {match[1] or match[2]: int(match[3]) for match in matches if match}


class Workers:
    """What some workers say of themselves.

    Parameters
    ----------
    urls : of their pages, http://host:port/metrics
    now : wall time in seconds

    Raises
    ------
    InputError
        A URL is not one, or there are too many.
    """

    def __init__(self, urls: Sequence[str], *, now: Callable[[], float] = time.time) -> None:
        if len(urls) > MOST:
            raise InputError(f"{len(urls)} workers are named; the page shows at most {MOST}")
        self._places = [(url, *_place(url)) for url in urls]
        self._now = now
        self._rows: dict[str, dict[str, Any]] = {}
        self._last: dict[str, tuple[float, int]] = {}
        self._stop = threading.Event()

    def start(self) -> None:
        """Begin to read."""
        threading.Thread(target=self._run, name="workers", daemon=True).start()

    def stop(self) -> None:
        """End."""
        self._stop.set()

    def look(self) -> list[dict[str, Any]]:
        """A row for each worker that was asked, as it was last."""
        return [self._rows[url] for url, *_ in self._places if url in self._rows]

    def renew(self) -> None:
        """Ask each of them once."""
        for url, host, port, path in self._places:
            now = self._now()
            try:
                counters = parse_counters(_page(host, port, path))
                if "answers" not in counters:
                    raise OSError("this is not the page of a worker")
            except (OSError, http.client.HTTPException) as error:
                before = self._rows.get(url, {})
                since = before["since"] if before.get("trouble") else now
                self._rows[url] = {"url": url, "trouble": str(error)[:100] or type(error).__name__, "since": since}
                self._last.pop(url, None)
                continue
            at, answers = self._last.get(url, (now, counters["answers"]))
            rate = (counters["answers"] - answers) / (now - at) if now > at else None
            self._last[url] = (now, counters["answers"])
            not_answered = {name: counters[name] for name in SHOWN if counters.get(name)}
            self._rows[url] = {
                "url": url, "trouble": "", "answers": counters["answers"], "not_answered": not_answered,
                "rate": None if rate is None or rate < 0 else round(rate, 1),
            }  # fmt: skip

    def _run(self) -> None:
        while not self._stop.is_set():
            self.renew()
            self._stop.wait(EVERY_S)


def _place(url: str) -> tuple[str, int, str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 80
    except ValueError as error:
        raise InputError(f"--worker {url[:100]!r} is not a URL ({error}); use http://host:port/metrics") from error
    is_plain = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme != "http" or not is_host(host) or parts.username or parts.query or not is_plain:
        raise InputError(f"--worker {url[:100]!r} is not http://host:port/metrics, which cloud worker --metrics serves")
    return host, port, parts.path or "/metrics"


def _page(host: str, port: int, path: str) -> str:
    """The page, within twice ``WAIT_S`` from the connection on, however slowly it drips."""
    connection = http.client.HTTPConnection(host, port, timeout=WAIT_S)
    connection.connect()
    is_late = threading.Event()
    hang_up = threading.Timer(2 * WAIT_S, _hang_up, [is_late, connection.sock])  # a response may take the socket over
    hang_up.daemon = True
    hang_up.start()
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        data = response.read(MAX_BYTES)
        if is_late.is_set() or response.status != 200:
            raise OSError(f"the page answers {response.status}")
        return data.decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        if is_late.is_set():
            raise TimeoutError(f"the page does not end within {2 * WAIT_S:g} s") from error
        raise
    finally:
        hang_up.cancel()
        connection.close()


def _hang_up(is_late: threading.Event, sock: socket.socket) -> None:
    """End whatever waits for this socket, which then knows why."""
    is_late.set()
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
