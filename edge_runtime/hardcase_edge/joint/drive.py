# SPDX-License-Identifier: Apache-2.0
"""Drives a joint session to its decision with two functions: one reads sensors of parts, one asks the cloud."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..program.readings import Reading
from .session import JointDecision, JointSession, NeedParts, NeedReplies

ReadParts = Callable[[tuple[tuple[int, int], ...]], Mapping[tuple[int, int], Sequence[Reading] | None]]
AskParts = Callable[[int, tuple[Reading, ...]], tuple[int, int] | None]


def drive_joint(session: JointSession, read: ReadParts, ask: AskParts) -> JointDecision:
    """Run a joint session to its end.

    Parameters
    ----------
    session : JointSession
    read : function from pairs of part and sensor to their readings, None for a sensor that failed
    ask : function from a part and its request's readings to the HPC's result and confidence (basis points), or None if
        no reply came

    Raises
    ------
    SessionError
        A function returned something else than was asked for.
    """
    while True:
        action = session.next_action()
        if isinstance(action, NeedParts):
            session.feed(read(action.sensors))
        elif isinstance(action, NeedReplies):
            for part, readings in action.requests:
                answer = ask(part, readings)
                if answer is None:
                    session.no_reply(part)
                else:
                    session.reply(part, *answer)
        else:
            return action
