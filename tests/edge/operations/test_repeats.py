# SPDX-License-Identifier: Apache-2.0
"""A log that repeats itself is bounded and counted, and a log that nobody reads stops nothing."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import threading

from hardcase_edge.device.output import Lines, note
from hardcase_edge.link.link import Link, LinkConfig
from hardcase_edge.running.beside import KINDS, MOST, MOST_ALIKE, WINDOW_S, Repeats
from tests.helpers.cloud.brokers import running_mosquitto, until
from tests.helpers.edge.device import make_manifest, make_program


def test_lines_that_differ_in_digits_are_counted_and_told_later():
    lines, clock = [], [0.0]
    log = Repeats(lines.append, lambda: clock[0])
    for k in range(100):
        log(f"port {k} is away")
    assert lines == [f"port {k} is away" for k in range(MOST_ALIKE)]
    assert log.suppressed == 100 - MOST_ALIKE
    log("something else")
    clock[0] = WINDOW_S
    log("port 7 is away")
    assert lines[-2:] == ["something else", f"port 7 is away ({100 - MOST_ALIKE} more like this left out)"]
    log("port 8 is away")
    assert lines[-1] == "port 8 is away"


def test_lines_that_all_differ_are_bounded_too_and_so_is_the_memory():
    lines, clock = [], [0.0]
    log = Repeats(lines.append, lambda: clock[0])
    for k in range(10_000):
        log("".join(chr(97 + int(digit)) for digit in str(k)))
    assert len(lines) == MOST
    assert len(log._kinds) == KINDS
    clock[0] = WINDOW_S
    log("new")
    assert lines[-1] == f"new ({10_000 - MOST} more lines left out)"
    assert 86_400 / WINDOW_S * MOST * 200 < 2e6, "2 MB a day at most, at 200 bytes a line"


def test_a_log_that_nobody_reads_holds_nobody_up():
    code = (
        "import sys, time; from hardcase_edge.device.output import note\n"
        "for k in range(2_000): note('x' * 100)\n"
        "note('y' * 10_000)\n"
        "sys.exit(7)\n"
    )
    reader, writer = os.pipe()
    try:
        assert subprocess.run([sys.executable, "-c", code], stderr=writer, timeout=120, check=False).returncode == 7
        assert os.read(reader, 64).startswith(b"hardcase-edge: xxx")
    finally:
        os.close(reader)
        os.close(writer)
    assert note("") is None


def test_a_disk_that_is_full_every_other_moment_fills_no_log(monkeypatch):
    told = []
    with Lines(ends_with_reader=False, tell=Repeats(told.append)) as lines:
        write = os.write
        for k in range(1_000):
            monkeypatch.setattr(os, "write", write if k % 2 else _full)
            lines.write("")
        monkeypatch.undo()
    assert len(told) == 2 * MOST_ALIKE


def _full(_file, _data):
    raise OSError(errno.ENOSPC, "No space left on device")


class Blocked(logging.Handler):
    """A log whose writing does not come to its end."""

    def __init__(self):
        super().__init__()
        self.is_in, self.may_go = threading.Event(), threading.Event()

    def emit(self, record):
        if "decides alone" in record.getMessage():
            self.is_in.set()
            assert self.may_go.wait(120)


def test_nothing_is_logged_while_the_link_holds_its_lock(tmp_path):
    blocked = Blocked()
    logging.getLogger("hardcase_edge").addHandler(blocked)
    try:
        with running_mosquitto(tmp_path) as broker:
            config = LinkConfig.to_broker(broker.url, "dev-1", retry_first_s=0.1)
            link = Link(config, make_program(), make_manifest())
            assert link.start(30.0)
            asking = threading.Thread(target=lambda: link.ask((0.5, 1.0, 2.0, None, 4.0), 60.0))
            asking.start()  # nobody answers: the broker says so, and the link logs it
            assert blocked.is_in.wait(60)
            cancelling = threading.Thread(target=link.cancel, daemon=True)
            cancelling.start()
            cancelling.join(30.0)
            assert not cancelling.is_alive(), "a signal handler would wait for the log"
            blocked.may_go.set()
            asking.join(30.0)
            assert not asking.is_alive()
            link.stop()
            until(lambda: not link.is_connected)
    finally:
        blocked.may_go.set()
        logging.getLogger("hardcase_edge").removeHandler(blocked)
