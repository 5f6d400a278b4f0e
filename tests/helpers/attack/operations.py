# SPDX-License-Identifier: Apache-2.0
"""Attacks what stands around a device: the page of metrics with any bytes, and the unit with any arguments.

After each request the page must answer a good one; a unit must give systemd the very words of the command, and no line
more than another unit has.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Generator
from contextlib import suppress
from unittest.mock import patch

from hardcase_edge.errors import InputError
from hardcase_edge.fleet.operations import scrape
from hardcase_edge.fleet.operations.scrape import Page
from hardcase_edge.fleet.operations.unit import unit
from tests.helpers.attack.outcome import Attack, each, forever

GOOD = b"GET /metrics HTTP/1.1\r\n\r\n"
PIECES = (b"GET ", b"HEAD ", b"/metrics", b" HTTP/1.1", b"\r\n", b"\r\n\r\n", b"\n", b"\0", b"\xff", b"A" * 5_000, b"?")
PROGRAM = "/usr/bin/hardcase-edge"
N_LINES = unit([PROGRAM]).count("\n")
SIGNS = "ab \"\\%$;#='\n\r\t\0\x7f\u00e9{}[]@*"


def _asked(port: int, request: bytes, *, is_cut: bool = False) -> bytes:
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock, suppress(OSError):
        sock.sendall(request)  # the page may hang up in the midst of it
        if is_cut:
            return b""
        sock.shutdown(socket.SHUT_WR)
        while part := sock.recv(65_536):
            answer += part
    return answer


def _read_back(line: str) -> list[str]:
    """The words as systemd reads them (systemd.service(5), command lines, and systemd.syntax(7), quoting)."""
    words, at = [], 0
    while at < len(line):
        word, is_quoted = "", line[at] == '"'
        at += is_quoted
        while at < len(line) and line[at] != ('"' if is_quoted else " "):
            at += line[at] == "\\"
            word += line[at : at + 1]
            at += 1
        words.append(word.replace("%%", "%").replace("$$", "$"))
        at += 1 + is_quoted
    return words


def requests(rng: random.Random) -> Generator[tuple[int, bytes, bool], None, None]:
    """Requests to one page, of which some end early."""
    with patch.object(scrape, "TIMEOUT_S", 60.0):
        page = Page("127.0.0.1:0", lambda: "x 1\n")
        try:
            while True:
                yield page.port, b"".join(rng.choices(PIECES, k=rng.randint(0, 8))), rng.random() < 0.3
        finally:
            page.close()


def answered(case: tuple[int, bytes, bool]) -> bytes:
    """The answer to a request; a page that does not answer a good one after it is a crash."""
    port, request, is_cut = case
    answer = _asked(port, request, is_cut=is_cut)
    assert _asked(port, GOOD).endswith(b"x 1\n")
    return answer


def is_asked(case: tuple[int, bytes, bool], answer: bytes) -> bool:
    """Figures go only to who asks for them."""
    return not answer.endswith(b"x 1\n") or case[1].startswith((b"GET /metrics ", b"GET /metrics?"))


def arguments(rng: random.Random) -> list[str]:
    """The words of a command."""
    return [PROGRAM, *("".join(rng.choices(SIGNS, k=rng.randint(0, 6))) for _ in range(3))]


def is_the_command(words: list[str], text: str | InputError) -> bool:
    """The very words, and no line more; only signs that no line may have are refused."""
    if isinstance(text, InputError):
        return any(ord(sign) < 32 or ord(sign) == 127 for word in words for sign in word)
    (line,) = [x for x in text.split("\n") if x.startswith("ExecStart=")]
    has_lines = text.count("\n") == len(text.splitlines()) == N_LINES
    return has_lines and _read_back(line.partition("=")[2]) == words


to_page = Attack("requests to the page of metrics", requests, answered, is_asked, is_timed=False)
in_unit = Attack("arguments in a unit", forever(arguments), unit, is_the_command, (InputError,), is_timed=False)
attack = each(to_page, in_unit)
