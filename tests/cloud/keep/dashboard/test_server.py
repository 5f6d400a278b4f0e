# SPDX-License-Identifier: Apache-2.0
"""The dashboard's command and server: ends at once, tells its token to nobody else, and keeps places for who has it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.applications import Starlette

from hardcase.cli import main
from hardcase_cloud.keep.dashboard import server as module
from hardcase_cloud.keep.records.database import Database
from tests.helpers.cloud import dashboard
from tests.helpers.cloud.brokers import until

TOKEN = "a+token/of=24-characters"


def test_the_body_of_an_answer_does_not_wait_for_the_receipt_of_its_head() -> None:
    async def go() -> int:
        app = Starlette()
        app.state.end_streams = lambda: None
        one, listener = module.Server(app), socket.create_server(("127.0.0.1", 0))
        task = asyncio.create_task(one.serve(sockets=[listener]))
        while not one.started:
            await asyncio.sleep(0.01)
        delays = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)  # its connections are like it
        one.stop()
        await task
        return delays

    assert asyncio.run(go())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_though_somebody_watches(tmp_path: Path, number: signal.Signals) -> None:
    url = f"sqlite:{tmp_path / 's.sqlite'}"
    Database(url).close()
    command = [sys.executable, "-m", "hardcase.cli", "cloud", "dashboard", "--store", url, "--bind", "127.0.0.1:0"]
    environment = {**os.environ, "HARDCASE_DASHBOARD_TOKEN": TOKEN}
    process = subprocess.Popen(
        [*command, "--json"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    address = urlsplit(json.loads(process.stdout.readline())["url"])
    with socket.create_connection(("127.0.0.1", address.port or 0), 60) as line:
        line.sendall(f"GET /events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        said = b""
        while b"data: {" not in said:
            said += line.recv(65_536)
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, [json.loads(text) for text in out.splitlines()]) == (0, [{"event": "stopped"}])
    assert err.splitlines() == [
        f"hardcase cloud: open {address.geturl()}?token=..., with the token in HARDCASE_DASHBOARD_TOKEN"
    ]


@pytest.mark.parametrize("has_session", [False, True])
def test_a_token_that_was_made_is_in_a_page_that_its_user_alone_may_read_and_nowhere_else(
    tmp_path: Path, has_session: bool
) -> None:
    url = f"sqlite:{tmp_path / 's.sqlite'}"
    Database(url).close()
    (session := tmp_path / "session").mkdir(mode=0o700)
    environment = {k: v for k, v in os.environ.items() if k not in ("HARDCASE_DASHBOARD_TOKEN", "XDG_RUNTIME_DIR")}
    environment |= {"TMPDIR": str(tmp_path), **({"XDG_RUNTIME_DIR": str(session)} if has_session else {})}
    process = subprocess.Popen(
        [sys.executable, "-m", "hardcase.cli", "cloud", "dashboard", "--store", url, "--bind", "127.0.0.1:0"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, umask=0o022,
    )  # fmt: skip
    assert process.stdout is not None
    ready = process.stdout.readline()
    path = Path(ready.partition("open ")[2].strip())
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o077 == 0
    assert (path.parent == session) == has_session
    address = urlsplit(path.read_text().partition('href="')[2].partition('"')[0])
    with socket.create_connection((address.hostname or "", address.port or 0), 60) as line:
        line.sendall(f"GET /?{address.query} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert line.recv(65_536).startswith(b"HTTP/1.1 200")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    token = parse_qs(address.query)["token"][0]
    assert len(token) >= 32
    assert token not in ready + out + err
    assert str(path) in err
    assert (process.returncode, path.exists()) == (0, False)


def serving(tmp_path: Path) -> AbstractContextManager[tuple[str, int]]:
    return dashboard.serving(f"sqlite:{tmp_path / 's.sqlite'}", TOKEN)


def ask(line: socket.socket, path: str = "/devices", token: str = TOKEN) -> bytes:
    """The first line of the answer to a request, whose body has been read, too, if its length is known."""
    line.settimeout(60)
    line.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += (more := line.recv(65_536))
        assert more, "the connection has ended"
    head, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    while length is not None and len(body) < int(length[1]):
        body += line.recv(65_536)
    return head.partition(b"\r\n")[0]


def is_closed(line: socket.socket, seconds: float) -> bool:
    """Whether the other side has ended the connection within this time."""
    line.settimeout(seconds)
    try:
        while line.recv(65_536):  # the end of an answer
            pass
        return True
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


OK = b"HTTP/1.1 200 OK"


def test_a_thousand_silent_connections_keep_nobody_with_the_token_out(tmp_path: Path) -> None:
    with serving(tmp_path) as where, ExitStack() as lines:
        known = lines.enter_context(socket.create_connection(where, 60))
        assert ask(known, "/events") == OK
        silent = [lines.enter_context(socket.create_connection(where, 60)) for _ in range(1_010)]
        for _ in range(3):
            with socket.create_connection(where, 60) as line:
                assert ask(line) == OK
        assert not is_closed(known, 0.2)  # one that has shown its token gives no place up
        assert is_closed(silent[0], 5)
        with socket.create_connection(where, 60) as line:
            assert ask(line, token="another") == b"HTTP/1.1 401 Unauthorized"
            assert is_closed(line, 5)


def test_many_pages_that_come_back_at_once_are_all_let_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE_S", 60.0)  # a busy machine may take a second to read what they send
    request = f"GET /devices HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    with serving(tmp_path) as where, ExitStack() as stack:
        lines = []
        for _ in range(300):
            lines.append(stack.enter_context(socket.create_connection(where, 60)))
            lines[-1].sendall(request)
        assert [line.recv(15) for line in lines] == [OK] * 300


class _Page:
    """What a server knows of a connection that has not shown its token."""

    def __init__(self, loop: Any) -> None:
        self.loop, self.has_ended = loop, False

    def end(self) -> None:
        self.has_ended = True


def test_pages_that_came_before_the_server_stood_still_have_their_grace_when_it_goes_on() -> None:
    clock, timers = [0.0], []
    loop = SimpleNamespace(time=lambda: clock[0], call_later=lambda _, *call: timers.append(call))
    strangers, pages = module._Strangers(), [_Page(loop) for _ in range(module.MOST_STRANGERS + 8)]
    for page in pages:
        strangers.come(page)  # type: ignore[arg-type]
    for now, n_ended in ((3.0, 0), (3.0 + module.GRACE_S, 8)):
        clock[0] = now
        call, *values = timers.pop()
        call(*values)
        assert [page.has_ended for page in pages] == [True] * n_ended + [False] * (len(pages) - n_ended)


def test_silent_connections_are_few_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(module._Strangers, "__init__", lambda self: seen.append(self), raising=False)
    with serving(tmp_path) as where, ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection(where, 60))
        until(lambda: len(seen[0]) == module.MOST_STRANGERS)


def test_a_head_that_does_not_come_in_its_time_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEAD_S", 0.3)
    with serving(tmp_path) as where:
        for first in ([], [b"GET /devices HT"], [b"GET / HTTP/1.1\r\n", b"X: "]):
            with socket.create_connection(where, 60) as line:
                with suppress(ConnectionError):  # it may have ended before the last part
                    for part in first:
                        line.sendall(part)
                assert is_closed(line, 5)
        monkeypatch.setattr(module, "HEAD_S", 60.0)
        with socket.create_connection(where, 60) as line:  # nor the next one on a connection that has shown its token
            assert ask(line) == OK
            monkeypatch.setattr(module, "HEAD_S", 0.3)
            line.sendall(b"GET /devices HTTP/1.1\r\nHost: ")
            assert is_closed(line, 4)  # sooner than a connection without any request, which is kept for 5 s
        monkeypatch.setattr(module, "HEAD_S", 1.5)
        with socket.create_connection(where, 60) as line:  # an open stream has had its head
            assert ask(line, "/events") == OK
            assert not is_closed(line, 2)


@pytest.mark.parametrize("token", ["short", "sixteen letters!", "a;cookie=of-others", "\u00fcber-sechzehn-zeichen"])
def test_a_token_that_does_not_fit_an_address_or_is_short_is_one_line(
    token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HARDCASE_DASHBOARD_TOKEN", token)
    assert main(["cloud", "dashboard", "--store", f"sqlite:{tmp_path / 's.sqlite'}"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "HARDCASE_DASHBOARD_TOKEN" in line
    assert token not in line
