"""Drive a session to its decision with two functions: read these sensors, ask the cloud."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..program.readings import Reading
from .session import Decision, NeedReply, NeedSensors, Session

__all__ = ["Ask", "Read", "drive"]

Read = Callable[[tuple[int, ...]], Mapping[int, Sequence[Reading] | None]]
Ask = Callable[[NeedReply], tuple[int, int] | None]


def drive(session: Session, read: Read, ask: Ask) -> Decision:
    """Run a session to its end: ``read`` gives readings of sensors, ``ask`` the HPC's reply or None."""
    while True:
        action = session.next_action()
        if isinstance(action, NeedSensors):
            session.feed(read(action.sensors))
        elif isinstance(action, NeedReply):
            answer = ask(action)
            if answer is None:
                session.no_reply()
            else:
                session.reply(*answer)
        else:
            return action
