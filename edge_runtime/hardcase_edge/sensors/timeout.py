# SPDX-License-Identifier: Apache-2.0
"""Calls a function that may hang on a thread of its own, so that the caller can stop waiting for it."""

from __future__ import annotations

import os
import threading
from _thread import allocate_lock
from collections.abc import Callable
from time import monotonic

from ..errors import SensorError


class Ticket:
    """One call. The thread fills in its outcome, perhaps after the caller has stopped waiting.

    Its end is the release of a lock, because an event takes five times as long to be waited for.
    """

    def __init__(self, arguments: tuple[object, ...]) -> None:
        self.arguments = arguments
        self.value: object = None
        self.error: BaseException | None = None
        self._goes_on = allocate_lock()
        self._goes_on.acquire()

    @property
    def is_done(self) -> bool:
        """Whether the function has returned."""
        return not self._goes_on.locked()

    def end(self) -> None:
        """Have ``wait`` return; the thread calls it once."""
        self._goes_on.release()

    def wait(self, until: float) -> bool:
        """Wait until the function has returned, or until this time of ``time.monotonic``; returns whether it has."""
        if not self._goes_on.acquire(timeout=max(0.0, until - monotonic())):
            return False
        self._goes_on.release()
        return True

    def result(self, until: float) -> object:
        """The value that the function returned; waits for it until this time of ``time.monotonic``.

        Raises
        ------
        SensorError
            ``reason`` is ``timed_out`` if it has not returned by then, or ``raised`` if it raised an exception, which
            is the cause.
        """
        if not self.wait(until):
            raise SensorError("timed_out")
        if self.error is not None:
            raise SensorError("raised", type(self.error).__name__) from self.error  # its message may hang
        return self.value


class TimedCall:
    """Calls a function on a daemon thread of its own, one call at a time; the first call starts the thread.

    >>> double = TimedCall(lambda x: 2 * x)
    >>> double.begin(21).result(until=monotonic() + 10.0)
    42
    >>> double.close()
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function
        self._no_call = allocate_lock()  # released by whoever begins a call, taken by the thread
        self._no_call.acquire()
        self._ticket: Ticket | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def begin(self, *arguments: object) -> Ticket | None:
        """Start a call; None if an earlier call has not returned yet, or the system gives no thread."""
        if self._ticket is not None and not self._ticket.is_done:
            return None
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="hardcase-call", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # too many threads, which may pass
                return None
            self._thread = thread
        self._ticket = Ticket(arguments)
        self._no_call.release()
        return self._ticket

    def close(self) -> None:
        """End the thread as soon as it is idle."""
        self._is_closed = True
        if self._no_call.locked():  # otherwise the thread is about to see it
            self._no_call.release()

    def _run(self) -> None:
        process = os.getpid()
        while True:
            self._no_call.acquire()
            ticket = self._ticket
            if self._is_closed or ticket is None:
                return
            try:
                ticket.value = self._function(*ticket.arguments)
            except BaseException as error:  # SystemExit too, because a plug-in must not end the device
                ticket.error = error
            if os.getpid() != process:
                os._exit(1)  # the function has forked, and its child would wait for calls that cannot come
            ticket.end()
