# SPDX-License-Identifier: Apache-2.0
"""Where Prometheus finds a device's figures: a page on a loopback port, and a file for node_exporter.

The page's thread serves one connection at a time, for two seconds at most and after at most 8 KB of request; others
wait in the system's short queue, and beyond that the system refuses them. It answers ``GET /metrics`` alone.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from ...base.files import check_replaceable
from ...errors import InputError, one_line

if TYPE_CHECKING:
    from ...settings.config import RunConfig

MAX_REQUEST_BYTES = 8_192
TIMEOUT_S = 2.0  # for a whole connection
QUEUE = 4
TYPE = "text/plain; version=0.0.4; charset=utf-8"


def check(config: RunConfig) -> None:
    """Refuse an address that is none or that everyone could read, and a file that node_exporter would not."""
    if config.metrics is not None:
        checked_address(config.metrics, is_public=config.metrics_public)
    if config.metrics_file is not None:
        check_name(config.metrics_file)


class Page:
    """A server of one page, in a thread.

    Parameters
    ----------
    address : ``HOST:PORT``; port 0 takes a free one
    text : gives the page; called on the server's thread
    is_public : whether the host may be another one than loopback

    Attributes
    ----------
    port : int

    Raises
    ------
    InputError
        The address cannot be used, or everyone could read it.
    """

    def __init__(self, address: str, text: Callable[[], str], *, is_public: bool = False) -> None:
        host, port = checked_address(address, is_public=is_public)
        self._text = text
        self._is_closed = False
        try:
            self._server = socket.create_server(
                (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=QUEUE
            )
        except OSError as error:
            raise InputError(f"metrics cannot be served on {address}: {one_line(error)}; name another port") from error
        self.port: int = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="hardcase-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._is_closed = True
        with contextlib.suppress(OSError):  # not on every system
            self._server.shutdown(socket.SHUT_RDWR)  # wakes ``accept``
        self._server.close()
        self._thread.join(TIMEOUT_S)

    def _serve(self) -> None:
        while not self._is_closed:
            try:
                connection, _ = self._server.accept()
            except OSError:
                if self._is_closed:
                    return
                threading.Event().wait(0.1)  # too many open files: not at once again
                continue
            with connection:
                try:
                    self._answer(connection)
                except Exception:  # a client may do anything, and the page must stay
                    continue

    def _answer(self, connection: socket.socket) -> None:
        until = monotonic() + TIMEOUT_S
        head = b""
        while b"\r\n\r\n" not in head:
            left_s = until - monotonic()
            if left_s <= 0 or len(head) > MAX_REQUEST_BYTES:
                return
            connection.settimeout(left_s)
            part = connection.recv(4_096)
            if not part:
                return
            head += part
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if words[0] not in (b"GET", b"HEAD") or len(words) != 3:
            status, body = "405 Method Not Allowed", "only GET is answered\n"
        elif words[1].partition(b"?")[0] != b"/metrics":
            status, body = "404 Not Found", "the page is /metrics\n"
        else:
            status, body = "200 OK", self._text()
        data = body.encode()
        lines = [f"HTTP/1.1 {status}", f"Content-Type: {TYPE}", f"Content-Length: {len(data)}", "Connection: close"]
        connection.settimeout(max(0.01, until - monotonic()))
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + (b"" if words[0] == b"HEAD" else data))


def checked_address(address: str, *, is_public: bool) -> tuple[str, int]:
    """The host and the port of a page.

    Raises
    ------
    InputError
        They are none, or everyone could read the page.
    """
    from ipaddress import ip_address

    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    try:
        ip = ip_address("127.0.0.1" if host == "localhost" else host)
        number = int(port) if port.isascii() and port.isdigit() else -1
    except ValueError:
        number = -1
    if not colon or not 0 <= number <= 65_535:
        raise InputError(f"metrics address {address[:80]!r} is not an IP address and a port; use 127.0.0.1:9101")
    if not ip.is_loopback and not is_public:
        raise InputError(
            f"{ip} can be reached from other machines, and metrics have no password; use 127.0.0.1, or add "
            "--metrics-public"
        )
    return str(ip), number


# ---------------------------------------------------------------- node_exporter's textfile collector


def check_name(path: str) -> None:
    """Refuse a file that node_exporter would not read.

    Raises
    ------
    InputError
        Its name does not end with .prom.
    """
    target = Path(path)
    if target.suffix != ".prom" or target.name.startswith("."):
        raise InputError(f"{path} does not end with .prom, and node_exporter would not read it; name it so")


def checked_file(path: str) -> Path:
    """The path of a file for node_exporter.

    Raises
    ------
    InputError
        Its name is not one that node_exporter reads, its folder is missing, or another program's file stands there.
    """
    check_name(path)
    target = Path(path).absolute()
    if not target.parent.is_dir():
        raise InputError(f"the folder {target.parent} does not exist; make it")
    check_replaceable(target, "a file of hardcase's figures", _are_figures, remedy="name another file")
    return target


def _are_figures(head: bytes) -> bool:
    return head.startswith(b"# HELP hardcase_")


def write_file(path: Path, text: str) -> str:
    """Replace the file; returns why it could not be, or "". It is not flushed: a power cut may take it, not a card."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):  # its folder may be gone, or another's
            temporary.unlink()
        return f"{path} cannot be written: {error.strerror}"
    return ""
