"""A function that may hang, called on a thread of its own: whoever calls it waits as long as it wants to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

from ..errors import SensorError

__all__ = ["Ticket", "TimedCall"]


class Ticket:
    """One call: filled by the thread, perhaps after everyone has stopped waiting."""

    def __init__(self, arguments: tuple[object, ...]) -> None:
        self.arguments = arguments
        self.done = threading.Event()
        self.value: object = None
        self.error: BaseException | None = None

    def result(self, until: float) -> object:
        """What the function returned.

        Raises
        ------
        SensorError
            ``timed_out``: not by then; ``raised``, from what it raised.
        """
        if not self.done.wait(max(0.0, until - monotonic())):
            raise SensorError("timed_out")
        if self.error is not None:
            raise SensorError("raised") from self.error
        return self.value


class TimedCall:
    """A function on a daemon thread of its own, one call at a time; the thread starts with the first call."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function
        self._begun = threading.Semaphore(0)
        self._ticket: Ticket | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def begin(self, *arguments: object) -> Ticket | None:
        """Start a call; None while an earlier one has not come back."""
        if self._ticket is not None and not self._ticket.done.is_set():
            return None
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="hardcase-call", daemon=True)
            self._thread.start()
        self._ticket = Ticket(arguments)
        self._begun.release()
        return self._ticket

    def close(self) -> None:
        """End the thread, as soon as it is idle."""
        self._is_closed = True
        self._begun.release()

    def _run(self) -> None:
        while True:
            self._begun.acquire()
            ticket = self._ticket
            if self._is_closed or ticket is None:
                return
            try:
                ticket.value = self._function(*ticket.arguments)
            except BaseException as error:  # also SystemExit: a plug-in does not end the device
                ticket.error = error
            ticket.done.set()
