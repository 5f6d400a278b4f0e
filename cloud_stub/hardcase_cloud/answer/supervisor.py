# SPDX-License-Identifier: Apache-2.0
"""Keeps a worker process running: starts it, restarts it with growing pauses when it dies, and stops it.

A worker reports that it is ready by one JSON line on its standard output, ``{"event": "ready", ...}``. The supervisor
passes every event of every worker on. The worker shares the supervisor's standard error. Its standard input is a pipe
that closes when the supervisor's process ends, for whatever reason, so that the worker can end too. Signals of the
supervisor's terminal do not reach it. A ``Watchdog`` in the worker ends it if its loop stands still, even where a call
holds the interpreter's lock and no Python runs.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hardcase_edge.errors import LinkError

log = logging.getLogger(__name__)

Event = dict[str, Any]

READY_S = 60.0  # for the worker to become ready; a large model takes long to load
POLL_S = 0.02
STOP_S = 10.0  # a worker that has not ended by then is killed
FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 30.0  # before a restart; the pause doubles from the first to the last
STABLE_S = 10.0  # a worker that has run this long is restarted after the first pause
MAX_LINE = 65_536  # bytes of an event
NO_PROCESS = 71  # the status of a worker that the operating system did not start: EX_OSERR of sysexits.h


class Supervisor:
    """Runs one worker process at a time.

    Parameters
    ----------
    command : sequence of str
        The worker's command line.
    environment : mapping
        The worker's environment.
    on_event : function of an event
        Called on the supervisor's thread with each event of the worker, and with ``{"event": "worker-died", "status":
        ..., "again_in_s": ...}`` when it has died.

    Attributes
    ----------
    restarts : int
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
        """The process id of the running worker; 0 if none is running."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else 0

    def start(self, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        """Start the worker; returns when it is ready, or soon after ``is_cancelled`` returns True.

        Raises
        ------
        LinkError
            The worker ended before it was ready, after writing the reason to standard error, or it took too long.
        """
        self._thread.start()
        until = time.monotonic() + READY_S
        while not self._ready.is_set() and time.monotonic() < until:
            if is_cancelled():  # polled, because a signal handler must not touch the event that this loop waits for
                return
            time.sleep(POLL_S)
        if not self._ready.is_set():
            self.stop()
            raise LinkError(f"the worker was not ready within {READY_S:g} s; see its output above")
        if self._ended.is_set():
            raise LinkError("the worker could not start; see its error message above")

    def stop(self) -> None:
        """Let the worker finish its requests and end; safe to call twice."""
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
            if not self._ready.is_set():  # it was never ready, so a restart would not help
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
        """Run one worker to its end; returns its exit status."""
        try:
            self._process = process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:  # too many processes or open files, which may pass
            log.error("the worker cannot be started: %s", error.strerror)
            return NO_PROCESS
        if self._stop.is_set():  # stop was called before the process existed, so it could not terminate it
            process.terminate()
        assert process.stdout is not None
        assert process.stdin is not None
        with process.stdin, process.stdout as lines:
            while line := lines.readline(MAX_LINE):
                self._pass_on(line)
        return process.wait()

    def _pass_on(self, line: bytes) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict) or not isinstance(event.get("event"), str):
            log.warning("the worker wrote %r, which is not an event", line[:200])
            return
        if event["event"] == "ready":
            self._ready.set()
        self._on_event(event)


class Watchdog:
    """A timer that ends the process with status 1, and the stacks of its threads on standard error, unless fed.

    The timer is a thread of ``faulthandler``, which does not need the interpreter's lock.

    Parameters
    ----------
    limit_s : seconds without ``feed`` after which the process ends
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._fed_at = float("-inf")

    def feed(self) -> None:
        """Start the timer anew; cheap enough to be called often."""
        now = time.monotonic()
        if now - self._fed_at > self._limit_s / 10:
            faulthandler.dump_traceback_later(self._limit_s, exit=True)
            self._fed_at = now

    def close(self) -> None:
        """Stop the timer."""
        faulthandler.cancel_dump_traceback_later()
