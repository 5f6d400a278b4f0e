"""Keeps worker processes running: starts them, starts them again when they die, with growing pauses, stops them.

A worker says that it is ready by one JSON line on its standard output, ``{"event": "ready", ...}``; every event of
every worker is passed on. What it says on standard error goes where ours goes. Its standard input is a pipe that
closes when we are gone, however that came, so that it can end too; signals of our terminal do not reach it.
"""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hardcase_edge.errors import LinkError

__all__ = ["Event", "Supervisor"]

log = logging.getLogger(__name__)

Event = dict[str, Any]

READY_S = 60.0  # a large model takes its time to load
POLL_S = 0.02
STOP_S = 10.0  # a worker that has not ended by then is killed
FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 30.0
STABLE_S = 10.0  # who lived this long is started again after the first pause
MAX_LINE = 65_536


class Supervisor:
    """One worker process at a time.

    Parameters
    ----------
    command : sequence of str
    environment : mapping
        The worker's.
    on_event : callable
        Called with each event, from a thread: the worker's own, and ``{"event": "worker-died", "status",
        "again_in_s"}``.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        on_event: Callable[[Event], None],
    ) -> None:
        self.restarts = 0
        self._command = list(command)
        self._environment = dict(environment)
        self._on_event = on_event
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = threading.Event()
        self._ended = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    @property
    def pid(self) -> int:
        """Of the worker that runs now, 0 if none does."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else 0

    def start(self, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        """Start the worker; returns when it is ready, or as soon as that is no longer wanted.

        Raises
        ------
        LinkError
            It ended before it was ready (it has said why on standard error), or took too long.
        """
        self._thread.start()
        until = time.monotonic() + READY_S
        while not self._ready.is_set() and time.monotonic() < until:
            if is_cancelled():  # asked, not told: a signal handler must not touch what we wait on
                return
            time.sleep(POLL_S)
        if not self._ready.is_set():
            self.stop()
            raise LinkError(f"the worker was not ready within {READY_S:g} s; see what it says above")
        if self._ended.is_set():
            raise LinkError("the worker could not start; its own line above says why")

    def stop(self) -> None:
        """Let the worker finish what it has, and end it; safe to call twice."""
        self._stop.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
        if self._thread.ident is not None:
            self._thread.join(STOP_S)

    # ------------------------------------------------------------ the thread

    def _watch(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._stop.is_set():
            began = time.monotonic()
            status = self._run()
            if self._stop.is_set():
                return
            if not self._ready.is_set():  # never worked: starting it again would not help
                self._ended.set()
                self._ready.set()
                return
            if time.monotonic() - began > STABLE_S:
                pause_s = FIRST_PAUSE_S
            self._on_event({"event": "worker-died", "status": status, "again_in_s": pause_s})
            self._stop.wait(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
            self.restarts += 1

    def _run(self) -> int:
        """One worker's life; its exit status."""
        self._process = process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        if self._stop.is_set():  # stopped meanwhile: nobody else will
            process.terminate()
        assert process.stdout is not None
        assert process.stdin is not None
        with process.stdin, process.stdout as lines:
            while line := lines.readline(MAX_LINE):
                self._hear(line)
        return process.wait()

    def _hear(self, line: bytes) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict) or not isinstance(event.get("event"), str):
            log.warning("the worker says %r", line[:200])
            return
        if event["event"] == "ready":
            self._ready.set()
        self._on_event(event)
