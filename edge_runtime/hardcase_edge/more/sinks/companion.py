# SPDX-License-Identifier: Apache-2.0
"""The sinks of a run, found by the hook ``hardcase.sinks``: each gets every decision as the line has it.

Each sink has a thread of its own, so that no decision waits for it: the thread opens it, gives it what waits, and
closes it. ``MOST_WAITING`` decisions may wait for a sink; those that find no room are counted, and the run says so. One
that fails does not end the run: the decision is printed and sent all the same, and after ``MOST`` failures in a row the
sink is left out until the next start.
"""

from __future__ import annotations

from copy import deepcopy
from queue import Full, Queue
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from ...base.hints import did_you_mean
from ...base.record import record
from ...device.surroundings import Part
from ...errors import FOREIGN, InputError, one_line
from ...hooks import hooked, load_hook

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...device.surroundings import Surroundings
    from ...settings.config import RunConfig

MOST = 3  # failures in a row
MOST_WAITING = 1_000  # decisions for one sink
STOP_S = 2.0  # for what still waits at the end of a run, of all sinks together


class Writer(Protocol):
    """An open sink, on its own thread: it may take its time, as long as it keeps up with the decisions."""

    def write(self, decision: Mapping[str, Any]) -> None:
        """Take one decision: the keys of its line, JSON values."""

    def close(self) -> None:
        """No decision follows."""


@record(frozen=True, slots=True)
class Sink:
    """What an entry point of ``hardcase.sinks`` names; ``open`` takes what stands after ``NAME=``, maybe nothing."""

    open: Callable[[str], Writer]


def check(config: RunConfig) -> None:
    """Refuse a sink without a name, and one that is named twice alike."""
    for spec in config.sink:
        if not spec.partition("=")[0]:
            raise InputError(f"--sink {spec[:60]!r} has no name; give NAME or NAME=ARGUMENT")
    if len(set(config.sink)) < len(config.sink):
        raise InputError("--sink names the same sink twice; leave one out")


def make(run: Surroundings) -> Sinks:
    """Open all sinks.

    Raises
    ------
    InputError
        One is not installed, or cannot be opened.
    """
    known, fed = hooked("sinks"), list[Fed]()
    try:
        for spec in run.config.sink:
            name, _, argument = spec.partition("=")
            if name not in known:
                hint = did_you_mean(name, known, f"sinks are {', '.join(known) or 'none'}")
                raise InputError(f"--sink {name[:60]!r} is not installed; {hint}")
            sink: Sink = load_hook(known[name], Sink)
            fed.append(Fed(spec[:60], lambda sink=sink, argument=argument: sink.open(argument), run.note))  # type: ignore[misc]
    except InputError:
        Sinks(fed).stop()
        raise
    return Sinks(fed)


class Fed:
    """A sink and its thread.

    Parameters
    ----------
    spec : what ``--sink`` says of it
    open_ : opens it, on the thread
    note : called with a line about what goes wrong, on any thread

    Attributes
    ----------
    dropped : int
        Decisions that found no room, or that still waited when the run ended.

    Raises
    ------
    InputError
        It cannot be opened.
    """

    def __init__(self, spec: str, open_: Callable[[], Writer], note: Callable[[str], None]) -> None:
        self.dropped = 0
        self._spec, self._open, self._note = spec, open_, note
        self._waiting: Queue[dict[str, Any] | None] = Queue(MOST_WAITING)  # None: no decision follows
        self._tried, self._error = Event(), ""
        self._thread = Thread(target=self._run, name="hardcase-sink", daemon=True)
        self._thread.start()
        self._tried.wait()
        if self._error:
            raise InputError(f"--sink {spec!r} cannot be opened: {self._error}")

    def give(self, decision: dict[str, Any]) -> None:
        """Have a decision wait for it, if there is room and it has not been left out."""
        if self._thread.is_alive():
            try:
                self._waiting.put_nowait(deepcopy(decision))
            except Full:
                self.dropped += 1
                if self.dropped == 1:
                    self._note(f"sink {self._spec} is slower than the decisions; it does not get all of them")

    def stop(self, until: float) -> None:
        """Wait until it has what waits and is closed, at most until this time of the monotonic clock."""
        if self._thread.is_alive():
            try:
                self._waiting.put(None, timeout=max(0.0, until - monotonic()))
                self._thread.join(max(0.0, until - monotonic()))
            except Full:
                pass
        if self._thread.is_alive():
            while not self._waiting.empty():
                self.dropped += self._waiting.get_nowait() is not None
            self._waiting.put(None)  # for when it comes back
        if self.dropped:
            self._note(f"sink {self._spec} did not get {self.dropped} decisions, for which it was too slow")

    def _run(self) -> None:
        try:
            writer = self._open()
        except FOREIGN as error:  # a stranger's code may fail in any way
            self._error = _why(error)
            return
        finally:
            self._tried.set()
        failed = 0
        while failed < MOST and (decision := self._waiting.get()) is not None:
            try:
                writer.write(decision)
                failed = 0
            except FOREIGN as error:  # as above
                failed += 1
                end = "; it gets no more decisions" if failed == MOST else ""
                self._note(f"sink {self._spec}: {_why(error)}{end}")
        try:
            writer.close()
        except FOREIGN as error:  # as above
            self._note(f"sink {self._spec} cannot be closed: {_why(error)}")


def _why(error: BaseException) -> str:
    return one_line(error) or type(error).__name__


class Sinks(Part):
    """All sinks of a run."""

    def __init__(self, fed: Sequence[Fed]) -> None:
        self.fed = fed

    def decided(self, decision: dict[str, Any]) -> None:
        """Have the decision wait for each sink."""
        for one in self.fed:
            one.give(decision)

    def stop(self) -> None:
        """Let each have what waits, and close it."""
        until = monotonic() + STOP_S
        for one in self.fed:
            one.stop(until)
