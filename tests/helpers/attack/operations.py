# SPDX-License-Identifier: Apache-2.0
"""Attacks what stands around a device: the page of metrics with any bytes, and the unit with any arguments.

After each request the page must answer a good one; a unit must give systemd the very words of the command, and no line
more than another unit has.
"""

from __future__ import annotations

import random
import socket
import time
from contextlib import suppress

from hardcase_edge.errors import InputError
from hardcase_edge.operations import scrape
from hardcase_edge.operations.scrape import Page
from hardcase_edge.operations.unit import unit
from tests.helpers.attack.outcome import Outcome

__all__ = ["attack"]

GOOD = b"GET /metrics HTTP/1.1\r\n\r\n"
PIECES = (b"GET ", b"HEAD ", b"/metrics", b" HTTP/1.1", b"\r\n", b"\r\n\r\n", b"\n", b"\0", b"\xff", b"A" * 5_000, b"?")
PROGRAM = "/usr/bin/hardcase-edge"
SIGNS = "ab \"\\%$;#='\n\r\t\0\x7f\u00e9{}[]@*"


def attack(seconds: float, seed: int) -> list[Outcome]:
    """Requests for one half of the time, arguments for the other."""
    rng = random.Random(seed)
    return [_requests(seconds / 2, rng), _arguments(seconds / 2, rng)]


def _requests(seconds: float, rng: random.Random) -> Outcome:
    tried = crashes = wrong = 0
    timeout_s, scrape.TIMEOUT_S = scrape.TIMEOUT_S, 0.05
    page = Page("127.0.0.1:0", lambda: "x 1\n")
    try:
        until = time.monotonic() + seconds
        while time.monotonic() < until or not tried:
            tried += 1
            request = b"".join(rng.choices(PIECES, k=rng.randint(0, 8)))
            answer = _asked(page.port, request, is_cut=rng.random() < 0.3)
            wrong += answer.endswith(b"x 1\n") and not request.startswith((b"GET /metrics ", b"GET /metrics?"))
            crashes += not _asked(page.port, GOOD).endswith(b"x 1\n")
    finally:
        page.close()
        scrape.TIMEOUT_S = timeout_s
    return Outcome("requests to the page of metrics", tried, crashes, wrong)


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


def _arguments(seconds: float, rng: random.Random) -> Outcome:
    tried = crashes = wrong = 0
    n_lines = unit([PROGRAM]).count("\n")
    until = time.monotonic() + seconds
    while time.monotonic() < until or not tried:
        tried += 1
        words = [PROGRAM, *("".join(rng.choices(SIGNS, k=rng.randint(0, 6))) for _ in range(3))]
        try:
            text = unit(words)
        except InputError:
            wrong += not any(ord(sign) < 32 or ord(sign) == 127 for word in words for sign in word)
            continue
        except Exception:  # whatever it is, nobody declares it
            crashes += 1
            continue
        (line,) = [x for x in text.split("\n") if x.startswith("ExecStart=")]
        wrong += text.count("\n") != n_lines or len(text.splitlines()) != n_lines
        wrong += _read_back(line.partition("=")[2]) != words
    return Outcome("arguments in a unit", tried, crashes, wrong)


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
