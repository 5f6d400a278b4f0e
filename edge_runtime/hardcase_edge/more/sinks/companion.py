# SPDX-License-Identifier: Apache-2.0
"""The sinks of a run, found by the hook ``hardcase.sinks``: each gets every decision as the line has it.

A sink runs on the thread of the decisions, which wait for it. One that fails does not end the run: the decision is
printed and sent all the same, and after ``MOST`` failures in a row the sink is left out until the next start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ...base.hints import did_you_mean
from ...base.record import record
from ...device.surroundings import Part
from ...errors import InputError, one_line
from ...hooks import hooked, load_hook

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...device.surroundings import Surroundings
    from ...settings.config import RunConfig

__all__ = ["Sink", "Sinks", "Writer", "check", "make"]

MOST = 3  # failures in a row


class Writer(Protocol):
    """An open sink."""

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
    known, opened = hooked("sinks"), list[tuple[str, Writer]]()
    try:
        for spec in run.config.sink:
            name, _, argument = spec.partition("=")
            if name not in known:
                hint = did_you_mean(name, known, f"sinks are {', '.join(known) or 'none'}")
                raise InputError(f"--sink {name[:60]!r} is not installed; {hint}")
            sink: Sink = load_hook(known[name], Sink)
            try:
                opened.append((spec, sink.open(argument)))
            except Exception as error:  # a stranger's code may fail in any way
                raise InputError(f"--sink {spec[:60]!r} cannot be opened: {one_line(error)}") from error
    except InputError:
        Sinks(opened, run.note).stop()
        raise
    return Sinks(opened, run.note)


class Sinks(Part):
    """Open sinks, by what ``--sink`` says of them."""

    def __init__(self, opened: Sequence[tuple[str, Writer]], note: Callable[[str], None]) -> None:
        self._open, self._note = dict(opened), note
        self._failed = dict.fromkeys(self._open, 0)

    def decided(self, decision: dict[str, Any]) -> None:
        """Give the decision to each sink."""
        for spec, writer in list(self._open.items()):
            try:
                writer.write(dict(decision))
                self._failed[spec] = 0
            except Exception as error:  # as above
                self._failed[spec] += 1
                is_out = self._failed[spec] >= MOST
                self._note(f"sink {spec[:60]}: {one_line(error)}" + ("; it gets no more decisions" if is_out else ""))
                if is_out:
                    self._close(spec)

    def stop(self) -> None:
        """Close them."""
        for spec in list(self._open):
            self._close(spec)

    def _close(self, spec: str) -> None:
        try:
            self._open.pop(spec).close()
        except Exception as error:  # as above
            self._note(f"sink {spec[:60]} cannot be closed: {one_line(error)}")
